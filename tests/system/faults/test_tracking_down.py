"""MLflow goes away while a run trains: training goes on, its record is whole, `track` puts there what is missing."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from copy_task import corpus, finished, recipe_for, reproducible_bytes
from team_server import SOURCE, mlflow_server

from bleuprint import tracking
from bleuprint.history import read_metrics
from bleuprint.replay import Point, points_of
from bleuprint.tracking import Settings, tracked
from bleuprint.training import train_run, work_directory
from reliability import Record

__all__ = ["corpus", "finished"]  # fixtures

GONE_AT = 9  # the update at which MLflow goes away
PARAMETERS = {"seed": 1, "lr": 1e-5}
POINTS = "SELECT key, step, value FROM metrics WHERE run_uuid = ?"
REPLAY = f"""
import sys
from pathlib import Path
from bleuprint.history import read_metrics
from bleuprint.replay import Record, points_of, replay

record = Record("demo", "copy-1", {PARAMETERS}, {{}}, [], points_of(read_metrics(Path(sys.argv[1]))), True)
print(replay(record, Path(sys.argv[2])))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty project, and send each number at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.0)
    for name in ("DVC_ROOT", "DVC_STAGE", "BLEUPRINT_ORCHESTRATOR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


def train(corpus: Path, root: Path, harm: Callable[[], None]) -> Path:
    """Train with MLflow, do harm to it at GONE_AT, and return the work directory."""
    recipe = recipe_for(corpus)
    work = work_directory(root / "work", "copy-1", recipe)
    with tracked("demo", "copy-1", work / "mlflow_run_id", Settings(PARAMETERS, {}, [])) as observe:

        def observe_and_harm(step: int, metrics: Mapping[str, float]) -> None:
            if step == GONE_AT:
                harm()
            observe(step, metrics)

        train_run(recipe, work, root / "out", observe_and_harm)
    return work


def stored(database: Path) -> list[tuple[str, list[Point]]]:
    """Return each MLflow run's status and points, all of them, also such as stand there twice."""
    with closing(sqlite3.connect(database)) as connection:
        runs = connection.execute("SELECT run_uuid, status FROM runs WHERE name = 'copy-1'").fetchall()
        return [
            (status, sorted(Point(key, step, str(value)) for key, step, value in connection.execute(POINTS, (run_id,))))
            for run_id, status in runs
        ]


def replayed(root: Path, work: Path) -> int:
    """Replay in a process of its own, as the command does: MLflow keeps a deleted database open."""
    command = [sys.executable, "-c", REPLAY, str(root / "out"), str(work / "mlflow_run_id")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ConnectionError(done.stderr)
    return int(done.stdout.split()[-1])


def whole(root: Path, finished: Path) -> list[Point]:
    """Return all points of the run, and see that it is the one that nobody disturbed."""
    assert reproducible_bytes(root / "out") == reproducible_bytes(finished)
    points = points_of(read_metrics(root / "out"))
    assert len(points) == 8 * 3 + 3 * 4 - 2  # windows, ends of epochs; at updates 12 and 24 both have the rate
    return sorted(points)


def warned_once(caplog: pytest.LogCaptureFixture) -> None:
    said = [record.message for record in caplog.records if record.name == tracking.__name__]
    assert len(said) == 1, said
    assert said[0].startswith("MLflow takes no more numbers of this run, the run goes on:")


def test_a_deleted_database_is_noticed_and_filled_again(
    corpus: Path, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, record: Record
) -> None:
    work = train(corpus, tmp_path, (tmp_path / "mlflow.db").unlink)
    warned_once(caplog)
    points = whole(tmp_path, finished)
    assert replayed(tmp_path, work) == len(points)
    assert stored(tmp_path / "mlflow.db") == [("FINISHED", points)]
    assert replayed(tmp_path, work) == 0
    assert stored(tmp_path / "mlflow.db") == [("FINISHED", points)]
    record("fault", "MLflow's database deleted during training", 1, 1)


@pytest.mark.slow_faults
def test_a_locked_database_is_noticed_and_filled_up(
    corpus: Path, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, record: Record
) -> None:
    """The lock is held to the end of training; MLflow has the first updates already, and the run's id is known."""
    locks = []

    def lock() -> None:
        connection = sqlite3.connect(tmp_path / "mlflow.db")
        connection.execute("BEGIN EXCLUSIVE")
        locks.append(connection)

    began = time.monotonic()
    work = train(corpus, tmp_path, lock)
    assert time.monotonic() - began < 300
    warned_once(caplog)
    locks[0].close()
    points = whole(tmp_path, finished)
    [(status, before)] = stored(tmp_path / "mlflow.db")
    assert status == "RUNNING"
    assert {point.step for point in before} == {3, 6}
    assert replayed(tmp_path, work) == len(points) - len(before)
    assert stored(tmp_path / "mlflow.db") == [("FINISHED", points)]
    assert replayed(tmp_path, work) == 0
    record("fault", "MLflow's database locked during training", 1, 1)


@pytest.mark.slow_faults
def test_a_server_that_is_killed_is_noticed_and_filled_up(
    corpus: Path,
    finished: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    record: Record,
) -> None:
    database = f"sqlite:///{tmp_path}/server.db"
    with mlflow_server(database, tmp_path) as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        groups = children()

        def kill() -> None:
            for group in children() & groups:
                os.killpg(group, signal.SIGKILL)

        work = train(corpus, tmp_path, kill)
    warned_once(caplog)
    points = whole(tmp_path, finished)
    [(_, before)] = stored(tmp_path / "server.db")
    assert {point.step for point in before} == {3, 6}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)  # another server over the same numbers
    assert replayed(tmp_path, work) == len(points) - len(before)
    assert stored(tmp_path / "server.db") == [("FINISHED", points)]
    record("fault", "MLflow's server killed during training", 1, 1)


def children() -> set[int]:
    """Return the process groups of this process's children that are not its own."""
    lines = (path.read_text().rpartition(")")[2].split() for path in processes())
    return {int(line[2]) for line in lines if int(line[1]) == os.getpid() and int(line[2]) != os.getpgrp()}


def processes() -> Iterator[Path]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        if path.exists():
            yield path


@pytest.mark.slow_faults
def test_an_mlflow_that_is_not_there_takes_nothing_and_says_so(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Record
) -> None:
    """Nothing listens at this address from the beginning; the run is tracked when there is a database."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    work = train(corpus, tmp_path, lambda: None)
    points = whole(tmp_path, finished)
    with pytest.raises(ConnectionError, match="MLflow did not take all numbers of copy-1"):
        replayed(tmp_path, work)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert replayed(tmp_path, work) == len(points)
    assert stored(tmp_path / "mlflow.db") == [("FINISHED", points)]
    record("fault", "MLflow not there from the beginning", 1, 1)
