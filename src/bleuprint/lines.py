"""Reads the files of a data set: plain UTF-8, one sentence a line.

The only line separator is "\\n": a sentence may hold U+2028 or a form feed, and a reader that splits there
(str.splitlines) shifts every later pair.
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path


def decode(data: bytes, label: Path | str, number: int) -> str:
    """Return one line as text; ValueError names the file and the number of a line that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x}, {error.reason}"
        raise ValueError(f"{label}, line {number} is not UTF-8: {found}") from None


def iterate_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, split on "\\n" alone, without it; ValueError names a line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield decode(line.removesuffix(b"\n"), path, number)


def read_lines(path: Path) -> list[str]:
    """Return all lines of a text file at once, as `iterate_lines`."""
    return list(iterate_lines(path))


def pair_files(raw: Path, split: str, source: str, target: str) -> tuple[Path, Path]:
    """Return the files of both sides of a split; ValueError where one is missing."""
    if not raw.is_dir():
        raise ValueError(f"{raw} does not exist; make it with: python -m bleuprint download {raw.name}")
    paths = raw / f"{split}.{source}", raw / f"{split}.{target}"
    for path in paths:
        if not path.is_file():
            present = ", ".join(sorted(item.name for item in raw.glob("*.*"))) or "nothing"
            raise ValueError(f"{path} does not exist; {raw} holds {present}")
    return paths


def iterate_pairs(raw: Path, split: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of both sides of a split; ValueError where they are missing, and after the last where one is."""
    sides = pair_files(raw, split, source, target)
    for source_line, target_line in zip_longest(iterate_lines(sides[0]), iterate_lines(sides[1])):
        if source_line is None or target_line is None:
            counts = [sum(1 for _ in iterate_lines(path)) for path in sides]
            raise ValueError(f"{sides[0]} has {counts[0]} lines and {sides[1]} has {counts[1]}")
        yield source_line, target_line


def read_pairs(raw: Path, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Return all source and all target lines of a split at once, as `iterate_pairs`."""
    pairs = list(iterate_pairs(raw, split, source, target))
    return [line for line, _ in pairs], [line for _, line in pairs]
