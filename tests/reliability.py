"""What the fault suite (tests/system/faults) stands on: a finished project to break, and the record of what held.

Each test of it records how often it did harm and how often that went well. `make test-faults` runs all of them and then
`python tests/reliability.py`, which writes reports/RELIABILITY.md from that record.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import pytest

from bleuprint.reporting.markdown import escape

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "work/faults.jsonl"
REPORT = ROOT / "reports/RELIABILITY.md"
WHOLE_SUITE = "BLEUPRINT_TEST_FAULTS"  # 1 runs what is marked slow_faults too

Kind = Literal["kill", "fault", "input"]
HEADINGS: dict[Kind, tuple[str, str, str, str]] = {
    "kill": ("Kills", "Killed at", "Tried", "Survived"),
    "fault": ("Faults", "Fault", "Injected", "Noticed"),
    "input": ("Bad input", "Input", "Tried", "Read or refused"),
}
SURVIVED = {
    "kill": "Survived: the same command then ends well, with the bytes of a run that nobody disturbed.",
    "fault": "Noticed: one sentence names it, and nothing wrong is taken for right.",
    "input": "Read or refused: by what the code says about such input, with one sentence, and never by a crash.",
}


class Figure(NamedTuple):
    """How often one kind of harm was done, how often it went well, and by which command that is seen again."""

    kind: Kind
    what: str
    tried: int
    held: int
    bytes: int  # of input tried; 0 where none is counted
    command: str


class Record(Protocol):
    """Keeps a figure of a test for the report."""

    def __call__(self, kind: Kind, what: str, tried: int, held: int, bytes: int = 0) -> None: ...


# --- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def toy_project(by_snakemake: Path, tmp_path: Path) -> Path:
    """Return a clone to break, in which the toy table is built and neither engine has anything to do."""
    shutil.copytree(by_snakemake, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Return what keeps a figure of this test, with the command that runs the test."""
    file = request.node.path.relative_to(ROOT).as_posix()
    switch = f"{WHOLE_SUITE}=1 " if request.node.get_closest_marker("slow_faults") else ""

    def keep(kind: Kind, what: str, tried: int, held: int, bytes: int = 0) -> None:
        append(Figure(kind, what, tried, held, bytes, f"{switch}python -m pytest {file}"))

    return keep


def skip_slow_faults(items: Sequence[pytest.Item]) -> None:
    """Mark the long half of the suite as skipped, unless the environment asks for it."""
    if os.environ.get(WHOLE_SUITE) != "1":
        for item in items:
            if item.get_closest_marker("slow_faults"):
                item.add_marker(pytest.mark.skip(reason=f"the long half of the fault suite; {WHOLE_SUITE}=1 runs it"))


# --- the record -------------------------------------------------------------------------------------------------------


def append(figure: Figure, path: Path = RECORD) -> None:
    """Add a figure to the record; in one write, for tests of several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(figure._asdict(), ensure_ascii=False) + "\n")


def read(path: Path = RECORD) -> list[Figure]:
    """Return the figures by kind and name; of several of one name the last holds."""
    figures = [Figure(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    last = {(figure.kind, figure.what): figure for figure in figures}
    return [last[key] for key in sorted(last)]


# --- the report -------------------------------------------------------------------------------------------------------


def render(figures: Sequence[Figure]) -> str:
    """Return reports/RELIABILITY.md."""
    tables = [render_kind(kind, [figure for figure in figures if figure.kind == kind]) for kind in HEADINGS]
    parts = (
        "# Reliability",
        "What the fault suite did to the pipeline, and what held. A test that fails, or was not run, records nothing: "
        "reports/LOG.md names those of the run that this file is of. `make test-faults` writes it; do not edit.",
        summary(figures),
        *(table for table in tables if table),
    )
    return "\n\n".join(parts) + "\n"


def summary(figures: Sequence[Figure]) -> str:
    """Return the three sums."""
    kills, faults, inputs = ([figure for figure in figures if figure.kind == kind] for kind in HEADINGS)
    size = sum(figure.bytes for figure in inputs)
    return "\n".join(
        (
            f"- kills survived: {share(kills)}",
            f"- faults noticed: {share(faults)}",
            f"- bad input read or refused: {share(inputs)}, {size:,} bytes in all",
        )
    )


def share(figures: Sequence[Figure]) -> str:
    """Return "19 of 20"."""
    return f"{sum(figure.held for figure in figures):,} of {sum(figure.tried for figure in figures):,}"


def render_kind(kind: Kind, figures: Sequence[Figure]) -> str:
    """Return the table of one kind; nothing where there are no such figures."""
    if not figures:
        return ""
    title, what, tried, held = HEADINGS[kind]
    rows = [f"| {escape(f.what)} | {f.tried:,} | {f.held:,} | {f.bytes:,} | `{f.command}` |" for f in figures]
    head = (f"| {what} | {tried} | {held} | Bytes | Command |", "|---|--:|--:|--:|---|")
    return "\n\n".join((f"## {title}", "\n".join((*head, *rows)), SURVIVED[kind]))


if __name__ == "__main__":
    REPORT.write_text(render(read()), encoding="utf-8")
