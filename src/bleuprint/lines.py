"""Reads the files of a data set: plain UTF-8, one sentence a line.

The only line separator is "\\n": a sentence may hold U+2028 or a form feed, and a reader that splits there
(str.splitlines) shifts every later pair.
"""

from pathlib import Path


def decode(data: bytes, path: Path | str, first_line: int) -> str:
    """Return `data` as text; ValueError names the line of `path`, counted from `first_line`, that is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise ValueError(f"{path}, line {line} is not UTF-8: byte 0x{data[error.start]:02x}, {error.reason}") from None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, split on "\\n" alone, without it; ValueError names a line that is not UTF-8."""
    lines = decode(path.read_bytes(), path, 1).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_pairs(raw: Path, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Return the source and the target lines of a split; ValueError where they are missing or their numbers differ."""
    if not raw.is_dir():
        raise ValueError(f"{raw} does not exist; make it with: python -m bleuprint download {raw.name}")
    paths = [raw / f"{split}.{language}" for language in (source, target)]
    for path in paths:
        if not path.is_file():
            present = ", ".join(sorted(item.name for item in raw.glob("*.*"))) or "nothing"
            raise ValueError(f"{path} does not exist; {raw} holds {present}")
    source_lines, target_lines = (read_lines(path) for path in paths)
    if len(source_lines) != len(target_lines):
        raise ValueError(f"{paths[0]} has {len(source_lines)} lines and {paths[1]} has {len(target_lines)}")
    return source_lines, target_lines
