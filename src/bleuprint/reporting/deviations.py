"""reports/deviations.md: every ASSUME (a source is silent) and DEVIATES (we depart from it), with file and line.

Outside the graph, as the README: a stage that read all modules would run again after every edit. The page of a report
reads reports/deviations.json, the same without lines, which an edit elsewhere in a file does not change.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bleuprint.files import write_text
from bleuprint.reporting.markdown import code, escape, markdown_table

MARK = re.compile(r"^(?P<before>.*?)\b(?P<kind>ASSUME|DEVIATES): (?P<text>.*)$")
MEANINGS = {"ASSUME": "What a source does not say, and what we took", "DEVIATES": "Where we depart from a source"}


class Deviation(NamedTuple):
    """A marked sentence and where it stands."""

    kind: str
    text: str
    file: str
    line: int


def write_deviations(root: Path, out: Path) -> None:
    """Write `out`, a .md, and the .json beside it from params.yaml and the modules of src/bleuprint below `root`."""
    found = collect(root)
    write_text(out, render_deviations(found, Path("../" * (len(out.relative_to(root).parts) - 1))))
    write_text(out.with_suffix(".json"), json.dumps(register(found), ensure_ascii=False, indent=2) + "\n")


def register(found: Sequence[Deviation]) -> dict[str, dict[str, list[str]]]:
    """Return the files of each sentence by its kind, in the order in which they are found."""
    files: dict[str, dict[str, list[str]]] = {kind: {} for kind in MEANINGS}
    for deviation in found:
        places = files[deviation.kind].setdefault(deviation.text, [])
        if deviation.file not in places:
            places.append(deviation.file)
    return files


def collect(root: Path) -> list[Deviation]:
    """Return what params.yaml and the modules mark, in the files' order.

    ValueError where params.yaml is missing or a file is not UTF-8.
    """
    if not (root / "params.yaml").is_file():
        raise ValueError(f"{root / 'params.yaml'} does not exist; run from the project's root")
    modules = sorted(path for path in (root / "src/bleuprint").rglob("*.py") if path.name != Path(__file__).name)
    paths = [root / "params.yaml", *modules]
    return [found for path in paths for found in find(read_utf8(path), path.relative_to(root).as_posix())]


def read_utf8(path: Path) -> str:
    """Return a file's text; ValueError names it where it is not UTF-8."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from None


def find(text: str, file: str) -> Iterable[Deviation]:
    """Yield the marked sentences of a file, each with the comment lines below it or to the end of its paragraph."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if match := MARK.match(line):
            words = [match["text"], *continuation(match["before"], lines[index + 1 :])]
            yield Deviation(match["kind"], " ".join(words).removesuffix('"""').strip(), file, index + 1)


def continuation(before: str, below: Sequence[str]) -> Iterable[str]:
    """Yield the lines that go on with a sentence; `before` is what stands in front of its mark.

    A comment behind code or a value is over with its line; other sentences may stand before the mark in any other.
    """
    comment = "#" in before
    if comment and not before.lstrip().startswith("#"):
        return
    for line in below:
        words = line.strip()
        if MARK.match(line) or words.strip('"') == "" or comment != words.startswith("#"):
            return
        yield words.removeprefix("#").strip()
        if words.endswith('"""'):
            return


# --- Markdown ---------------------------------------------------------------------------------------------------------


def render_deviations(found: Sequence[Deviation], root: Path) -> str:
    """Return the register: a table for each kind, a sentence that stands in many places once; `root`: from there."""
    parts = ["# Deviations", "Written by `python -m bleuprint deviations`; do not edit."]
    for kind, meaning in MEANINGS.items():
        places: dict[str, list[Deviation]] = {}
        for deviation in found:
            if deviation.kind == kind:
                places.setdefault(deviation.text, []).append(deviation)
        rows = [(escape(text), "<br>".join(link(place, root) for place in where)) for text, where in places.items()]
        parts += [f"## {meaning}", markdown_table((f"`{kind}`", "Where"), rows)]
    return "\n\n".join(parts) + "\n"


def link(place: Deviation, root: Path) -> str:
    """Return a link to the line of a file."""
    return f"[{code(f'{place.file}:{place.line}')}]({(root / place.file).as_posix()}#L{place.line})"
