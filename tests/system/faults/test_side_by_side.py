"""Two at once in one project: one waits or is refused with a sentence that says why, and nothing is broken."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bleuprint.tracking import PARENT_TAG, RUN_TAG
from clones import environment, planned_jobs, run, set_parameter
from reliability import Record
from strikes import PATIENCE_SECONDS, RAW, SHORT_TRAINING, STAGES, begin_anew, call, hashes, start, struck

DOWNLOAD = STAGES[0]
SOMEWHERE = 1000  # calls after the stage began; it makes some hundred thousand


@contextmanager
def stopped_in_the_stage(where: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command whose process group stands still in the middle of its download as long as the block runs.

    After the block it ends well, unless it was killed there; its stage does so in any case.
    """
    process = start(where, command, DOWNLOAD.place, SOMEWHERE, signal.SIGSTOP)
    try:
        waited_until = time.monotonic() + PATIENCE_SECONDS
        while struck(where) is None:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < waited_until
            time.sleep(0.05)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        said = process.communicate(timeout=PATIENCE_SECONDS)[0]  # the stage has the pipe too, until it ends
    assert process.returncode in (0, -signal.SIGKILL), said


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        ("dvc", "snakemake", "DVC works in"),
        # tests/unit/test_engines.py asks the same without engines.
        pytest.param("dvc", "dvc", "it is being blocked by", marks=pytest.mark.slow_faults),
        pytest.param("snakemake", "dvc", "): snakemake", marks=pytest.mark.slow_faults),
        pytest.param("snakemake", "snakemake", "another snakemake works in", marks=pytest.mark.slow_faults),
    ],
)
def test_of_two_engines_the_second_is_refused(
    toy_project: Path, record: Record, first: str, second: str, refusal: str
) -> None:
    whole = hashes(toy_project, (RAW,))
    begin_anew(toy_project, DOWNLOAD)
    with stopped_in_the_stage(toy_project, call(first, DOWNLOAD)):
        said = run(toy_project, *call(second, DOWNLOAD), fails=True)
    assert refusal in said
    assert "Traceback" not in said
    assert hashes(toy_project, (RAW,)) == whole
    run(toy_project, *call(second, DOWNLOAD))
    assert hashes(toy_project, (RAW,)) == whole
    record("fault", f"{second} beside {first}", 1, 1)


@pytest.mark.slow_faults
def test_a_stage_outlives_its_engine(toy_project: Path, record: Record) -> None:
    """The next engine is refused as long as the stage writes; then it takes over."""
    whole = hashes(toy_project, (RAW,))
    begin_anew(toy_project, DOWNLOAD)
    command = call("snakemake", DOWNLOAD)
    with stopped_in_the_stage(toy_project, command) as process:
        process.kill()
        process.wait()
        assert "another process makes download toy; wait until it ends, or end it" in run(
            toy_project, *command, fails=True
        )
    assert hashes(toy_project, (RAW,)) == whole, "the stage went on and ended"
    run(toy_project, *command)
    assert hashes(toy_project, (RAW,)) == whole
    assert planned_jobs(toy_project, RAW) == []
    record("fault", "a stage whose engine was killed alone", 1, 1)


TWO = "title: Two seeds\nruns: [toy-1, toy-2]\n"


@pytest.mark.slow_faults
def test_two_trainings_at_once_share_nothing_that_breaks(toy_project: Path, record: Record) -> None:
    root, runs = toy_project, ("toy-1", "toy-2")
    for key, value in SHORT_TRAINING.items():
        set_parameter(root, f"experiments.toy.train.{key}", value)
    (root / "workflow/tables/two.yaml").write_text(TWO)
    run(root, "python", "-m", "bleuprint", "use", "two")
    for name in runs:
        run(root, "python", "-m", "bleuprint", "train", name)
    outputs = tuple(f"runs/{name}/train" for name in runs)
    alone = hashes(root, outputs)
    for name in (*outputs, "work"):
        shutil.rmtree(root / name)
    for file in root.glob("mlflow.db*"):
        file.unlink()

    command = [sys.executable, "-m", "bleuprint", "train"]
    both = [
        subprocess.Popen([*command, name], cwd=root, env=environment(), text=True, stderr=subprocess.PIPE)
        for name in runs
    ]
    for process in both:
        said = process.communicate(timeout=PATIENCE_SECONDS)[1]
        assert process.returncode == 0, said
        assert "MLflow takes no more" not in said
    assert hashes(root, outputs) == alone
    for name in runs:
        log = (root / f"work/logs/train-{name}.log").read_text()
        assert f"wrote runs/{name}/train" in log
        assert len(log.split("parameters on")) == 2, "one training's log"
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        tags = "SELECT value FROM tags WHERE key = ? ORDER BY value"
        assert database.execute(tags, (PARENT_TAG,)).fetchall() == [("two",)]
        assert database.execute(tags, (RUN_TAG,)).fetchall() == [("toy-1",), ("toy-2",)]
        assert database.execute("SELECT DISTINCT status FROM runs").fetchall() == [("FINISHED",)]
    record("fault", "two trainings at once", 1, 1)
