"""Engines that are struck by a signal at a chosen call of a chosen function: for the tests of kills and of neighbours.

Where a process is struck is decided by what it does, not by a clock: see tests/system/faults/killer/sitecustomize.py.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bleuprint.files import sha256_of
from clones import environment

KILLER = Path(__file__).parent / "system/faults/killer"
PATIENCE_SECONDS = 1800


class Place(NamedTuple):
    """A function of a command: `file` is the end of its path."""

    command: str  # words of the process's command line
    file: str
    function: str


class Stage(NamedTuple):
    """A stage under both engines, with the function in which it is killed."""

    what: str  # in the report
    stage: str  # DVC's name
    target: str  # Snakemake's
    outputs: tuple[str, ...]  # files and folders
    place: Place


def killed_in(what: str, name: str, outputs: tuple[str, ...], file: str, function: str) -> Stage:
    """Return the stage, with `outputs[0]` as Snakemake's target and `function` of bleuprint/`file` to be killed in."""
    command = name.partition("@")[0]
    return Stage(what, name, outputs[0], outputs, Place(f"bleuprint {command}", f"bleuprint/{file}", function))


class Ended(NamedTuple):
    """How a struck command ended: where it was struck, None where it ended before, and all that it printed."""

    struck_at: str | None
    returncode: int
    output: str


def start(where: Path, command: Sequence[str], place: Place, number: int, signal: int) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, which gets `signal` at the number-th call within `place`."""
    strike_log(where).unlink(missing_ok=True)
    own = environment()
    own["PYTHONPATH"] = os.pathsep.join((str(KILLER), own["PYTHONPATH"]))
    own["BLEUPRINT_TEST_STRIKE"] = json.dumps([*place, number, signal, str(strike_log(where))])
    return subprocess.Popen(
        command,
        cwd=where,
        env=own,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def strike(
    where: Path,
    command: Sequence[str],
    place: Place,
    number: int,
    sent: int,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Ended:
    """Run a command to its end, whether it comes to the strike or not."""
    with start(where, command, place, number, sent) as process:
        try:
            output = process.communicate(timeout=patience_seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Ended(struck(where), process.returncode, output)


def count_calls(where: Path, command: Sequence[str], place: Place) -> int:
    """Run a command undisturbed and return how many calls there are within `place`."""
    ended = strike(where, command, place, 0, signal.SIGKILL)
    assert ended.returncode == 0, ended.output
    assert ended.struck_at is not None, f"no process with {place.command!r} in its command line\n{ended.output}"
    calls = int(ended.struck_at)
    assert calls > 0, f"{place} was never called\n{ended.output}"
    return calls


def struck(where: Path) -> str | None:
    """Return where the process was struck, or None."""
    log = strike_log(where)
    return log.read_text(encoding="utf-8").splitlines()[-1] if log.exists() else None


def strike_log(where: Path) -> Path:
    return where.with_name(f"{where.name}.strikes")


# --- stages, and what they leave --------------------------------------------------------------------------------------

SHORT_TRAINING = {"max_steps": 40, "log_every_steps": 5, "checkpoint_every_steps": 10}
RAW, CORPUS = "data/raw/toy", "data/corpora/toy-words"
MODEL, DECODED = "runs/toy-1/average/weights.safetensors", "runs/toy-1/decode"
SCORED = ("results/toy-1.json", "results/toy-1.provenance.json", "results/toy-1")
REPORTED = tuple(f"reports/demo/{part}" for part in ("results.md", "figures", "report.html"))
STAGES = (
    killed_in("download", "download@toy", (RAW,), "toy.py", "generate"),
    killed_in("tokenize", "tokenize@toy-words", (CORPUS,), "tokenizing.py", "build_corpus"),
    killed_in("average", "average@toy-1", (MODEL,), "checkpoint.py", "average_run"),
    killed_in("decode", "decode@toy-1", (DECODED,), "decoding.py", "decode_run"),
    killed_in("attend", "attend@toy-1", ("results/toy-1.attention.json",), "attention.py", "attend_run"),
    killed_in("score", "score@toy-1", SCORED, "scoring.py", "score_run"),
    killed_in("report", "report@demo", REPORTED, "report.py", "write_report"),
)
# They hold the times of this run: two are never the same.
NOT_THE_SAME = ("metrics.jsonl", "provenance.json")


def call(engine: str, stage: Stage) -> tuple[str, ...]:
    """Return the engine's command for one stage."""
    if engine == "dvc":
        return ("dvc", "repro", "--single-item", stage.stage)
    return ("snakemake", "--cores", "1", stage.target)


def hashes(where: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the sha256 of the files in outputs that are the same in every run."""
    paths = [path for name in names for path in (where / name, *(where / name).rglob("*"))]
    files = [path for path in paths if path.is_file() and path.name != ".snakemake_timestamp"]
    return {str(file.relative_to(where)): sha256_of(file) for file in files if not file.name.endswith(NOT_THE_SAME)}


def begin_anew(where: Path, stage: Stage) -> None:
    """Take a stage's outputs and the state of a training away, and what DVC would bring back in their place."""
    for name in (*stage.outputs, ".dvc/cache", "work/train"):
        path = where / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True) if not path.is_dir() else None
