"""Two clones log at once to one server of MLflow that keeps its numbers in a PostgreSQL."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from team_server import PASSWORD, SOURCE, mlflow_server, postgresql, why_not

STEPS = 60
KEYS = ("lr", "train_loss", "validation_loss")
METRICS_OF = "SELECT key, step, value FROM metrics WHERE run_uuid = :id ORDER BY key, step"
# Imports first, so that both begin in the same moment; and sends the numbers of every update at once.
LOG_ONE_RUN = f"""
import sys, time
from pathlib import Path
import mlflow
from bleuprint import tracking

tracking.FLUSH_SECONDS = 0.0
run, go = sys.argv[1], Path(sys.argv[2])
Path("ready").touch()
settings = tracking.Settings({{"seed": 1}}, {{"decode": {{"beam": 4}}}}, [])
while not go.exists():
    time.sleep(0.001)
with tracking.tracked("demo", run, Path("mlflow_run_id"), settings) as observe:
    for step in range({STEPS}):
        observe(step, {{key: float(step) + len(run) for key in {KEYS}}})
"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with postgresql() as uri:
        yield uri


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("server")
    with mlflow_server(database, place) as uri:
        yield uri
    assert PASSWORD not in (place / "log").read_text()


def test_two_runs_that_log_at_once_are_both_complete(server: str, database: str, tmp_path: Path) -> None:
    runs = {"tiny-1": tmp_path / "one", "tiny-10": tmp_path / "other"}
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MLFLOW_TRACKING_URI": server}
    processes = []
    for run, clone in runs.items():
        clone.mkdir()
        command = [sys.executable, "-c", LOG_ONE_RUN, run, str(tmp_path / "go")]
        processes.append(subprocess.Popen(command, cwd=clone, env=environment, stderr=subprocess.PIPE, text=True))
    while not all((clone / "ready").exists() for clone in runs.values()):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert [process.communicate()[1] for process in processes] == ["", ""]  # no warning that MLflow takes no more

    ids = {run: (clone / "mlflow_run_id").read_text().strip() for run, clone in runs.items()}
    with create_engine(database).connect() as connection:
        for run, run_id in ids.items():
            rows = connection.execute(text(METRICS_OF), {"id": run_id})
            stored = [tuple(row) for row in rows]
            assert stored == [(key, step, float(step) + len(run)) for key in KEYS for step in range(STEPS)]
        names = connection.execute(text("SELECT name, status FROM runs ORDER BY name"))
        expected = ("demo", "demo", *runs)  # each clone has a parent run of its own
        assert [tuple(row) for row in names] == [(name, "FINISHED") for name in expected]
    for clone in runs.values():
        assert sorted(path.name for path in clone.iterdir()) == ["mlflow_run_id", "ready", "work"]  # no mlflow.db
