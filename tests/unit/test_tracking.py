"""The copy of the numbers in MLflow, in a real SQLite store: what is in it, and that its failures stop nothing."""

import hashlib
import logging
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bleuprint import tracking
from bleuprint.database import tracking_uri
from bleuprint.origin import orchestrator, project_root
from bleuprint.tracking import (
    Data,
    Settings,
    Tracker,
    close,
    connected,
    find_experiment,
    flatten,
    flush,
    log,
    open_tracker,
    track_scores,
    tracked,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

SOURCE = Path(__file__).parents[2] / "src"
OPEN_ONE = """
import sys
from bleuprint.tracking import Settings, close, log, open_tracker
tracker = open_tracker("demo", sys.argv[1], None, Settings({}, {}, []))
log(tracker, 1, {"train_loss": 1.0})
close(tracker, "FINISHED")
"""
NONE = Settings({}, {}, [])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which two processes were the first to open the database, at once."""
    root = tmp_path_factory.mktemp("project")
    command = [sys.executable, "-c", OPEN_ONE]
    environment = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "DVC_STAGE": "train@a-1"}
    both = [
        subprocess.Popen([*command, run], cwd=root, env=environment, stderr=subprocess.PIPE, text=True)
        for run in ("a-1", "b-1")
    ]
    assert [process.communicate()[1] for process in both] == ["", ""]
    return root


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in the project where a test uses it, else in an empty directory."""
    monkeypatch.chdir(request.getfixturevalue("root") if "root" in request.fixturenames else tmp_path)
    for name in ("DVC_ROOT", "DVC_STAGE", "BLEUPRINT_ORCHESTRATOR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tracker(root: Path) -> Iterator[Tracker]:
    tracker = open_tracker("demo", "c-1", None, NONE)
    yield tracker
    close(tracker, "FINISHED")


@cache
def client() -> "MlflowClient":
    with tracking.connected() as client:
        return client


def stored(run_id: str | None) -> "Run":
    assert run_id is not None
    return client().get_run(run_id)


def all_runs() -> "list[Run]":
    return list(client().search_runs([tracking.find_experiment(client())]))


def history(run_id: str | None, metric: str) -> list[tuple[int, float]]:
    assert run_id is not None
    return [(point.step, point.value) for point in client().get_metric_history(run_id, metric)]


# --- runs ------------------------------------------------------------------------------------------------------------


def test_two_processes_at_once_share_a_database_and_a_parent(root: Path) -> None:
    runs = {run.info.run_name: run for run in all_runs() if run.info.run_name in ("demo", "a-1", "b-1")}
    assert len(runs) == len([run for run in all_runs() if run.info.run_name in runs]) == 3
    for name in ("a-1", "b-1"):
        assert runs[name].data.tags["mlflow.parentRunId"] == runs["demo"].info.run_id
        assert runs[name].data.tags["orchestrator"] == "dvc"
        assert runs[name].data.metrics == {"train_loss": 1.0}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert sorted(path.name for path in root.iterdir()) == ["mlflow.db", "work"]


def test_a_run_has_parameters_tags_and_data(root: Path) -> None:
    (root / "dvc.lock").write_text("schema: '2.0'\n")
    parameters = {"seed": 1, "train": {"lr": 1e-05, "betas": [0.9, 0.98], "clip_norm": None, "precision": "bf16"}}
    many = {f"p{i:03}": i for i in range(150)}  # more than one batch of MLflow
    settings = Settings(parameters | many, {"experiment": "d"}, [Data("c", Path("data/c"), "ab" * 32)])
    tracker = open_tracker("full", "d-1", None, settings)
    (root / "dvc.lock").unlink()
    run = stored(tracker.run_id)
    assert run.data.params == {
        "seed": "1",
        "train.lr": "1e-05",
        "train.betas": "[0.9, 0.98]",
        "train.clip_norm": "null",
        "train.precision": "bf16",
        **{name: str(value) for name, value in many.items()},
    }
    assert run.data.tags["dvc.lock"] == hashlib.sha256(b"schema: '2.0'\n").hexdigest()
    assert (run.data.tags["orchestrator"], run.data.tags["experiment"]) == ("shell", "d")
    assert "mlflow.source.git.commit" not in run.data.tags  # no checkout here
    assert stored(run.data.tags["mlflow.parentRunId"]).data.tags[tracking.PARENT_TAG] == "full"
    assert run.inputs is not None
    data = run.inputs.dataset_inputs[0].dataset
    assert (data.name, data.digest, data.source) == ("c", "ab" * 18, '{"uri": "data/c"}')
    close(tracker, "FINISHED")


def test_metrics_wait_and_go_together(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tracker, 10, {"train_loss": 5.0, "lr": 0.1})
    assert history(tracker.run_id, "train_loss") == []
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.0)
    log(tracker, 20, {"train_loss": float("nan")})
    assert [step for step, _ in history(tracker.run_id, "train_loss")] == [10, 20]
    assert history(tracker.run_id, "lr") == [(10, 0.1)]
    assert tracker.waiting == []


def test_more_metrics_than_one_batch_holds_arrive(tracker: Tracker) -> None:
    for step in range(1100):
        log(tracker, step, {"train_loss": float(step)})
    flush(tracker)
    assert history(tracker.run_id, "train_loss") == [(step, float(step)) for step in range(1100)]


def test_a_killed_run_goes_on_under_its_id(root: Path) -> None:
    killed = open_tracker("demo", "e-1", None, Settings({"lr": 1}, {}, []))
    assert stored(killed.run_id).info.status == "RUNNING"
    again = open_tracker("demo", "e-1", killed.run_id, Settings({"lr": 1}, {}, []))
    assert again.run_id == killed.run_id
    close(again, "FINISHED")
    once_more = open_tracker("demo", "e-1", killed.run_id, Settings({"lr": 1}, {}, []))
    assert stored(once_more.run_id).info.status == "RUNNING"
    close(once_more, "FINISHED")
    assert len([run for run in all_runs() if run.info.run_name == "e-1"]) == 1


def test_settings_that_may_change_for_the_same_weights_are_those_of_the_last_call(root: Path) -> None:
    for steps in (100, 200):
        with tracked("demo", "m-1", root / "m", Settings({"seed": 1}, {"train": {"max_steps": steps}}, [])):
            pass
    track_scores("demo", "m-1", 200, Settings({}, {"decode": {"beam": 4}}, []), {"test/chrf": 1.0}, dict)
    track_scores("demo", "m-1", 200, Settings({}, {"decode": {"beam": 5}}, []), {"test/chrf": 2.0}, dict)
    [run] = [run for run in all_runs() if run.info.run_name == "m-1"]
    assert run.data.params == {"seed": "1"}
    assert (run.data.tags["train.max_steps"], run.data.tags["decode.beam"]) == ("200", "5")


def test_a_killed_run_that_none_resumes_is_marked(root: Path) -> None:
    killed = open_tracker("demo", "f-1", None, Settings({"lr": 1}, {}, []))
    changed = open_tracker("demo", "f-1", None, Settings({"lr": 2}, {}, []))
    assert stored(killed.run_id).info.status == "KILLED"
    assert stored(changed.run_id).info.status == "RUNNING"
    close(changed, "FINISHED")


@pytest.mark.parametrize("gone", ["0" * 32, "", "cut off \ufffd", "deleted"])
def test_an_id_that_mlflow_no_longer_has_starts_a_new_run(root: Path, gone: str) -> None:
    if gone == "deleted":
        old = open_tracker("demo", "g-1", None, NONE)
        assert old.run_id is not None
        gone = old.run_id
        client().delete_run(gone)
    tracker = open_tracker("demo", "g-1", gone, NONE)
    assert tracker.client is not None
    assert tracker.run_id != gone
    close(tracker, "FINISHED")


def test_a_database_of_another_mlflow_is_named(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    close(open_tracker("demo", "h-1", None, NONE), "FINISHED")
    shutil.copy(root / "mlflow.db", tmp_path / "other.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(ConnectionError, match=r"other\.db cannot be used: Detected out-of-date"), connected() as found:
        find_experiment(found)


def test_another_clone_may_make_the_experiment_first(root: Path) -> None:
    """The lock is one clone's; a server has runs of several."""
    from mlflow import MlflowClient

    class Late(MlflowClient):
        looked = 0

        def get_experiment_by_name(self, name: str) -> "Experiment | None":
            self.looked += 1
            return None if self.looked == 1 else super().get_experiment_by_name(name)

    late = Late(tracking_uri=tracking_uri(root))
    assert tracking.find_experiment(late) == tracking.find_experiment(client())
    assert late.looked == 2


def test_scores_go_to_the_newest_run(root: Path) -> None:
    for _ in range(2):
        newest = open_tracker("demo", "h-1", None, NONE)
        close(newest, "FINISHED")
    track_scores("full", "h-1", 600, Settings({}, {"decode": {"beam": 5}}, []), {"test/bleu_lc_tok": 41.0}, dict)
    assert history(newest.run_id, "test/bleu_lc_tok") == [(600, 41.0)]
    assert stored(newest.run_id).data.tags["decode.beam"] == "5"
    track_scores("demo", "i-1", 600, NONE, {"test/bleu_lc_tok": 12.0}, dict)
    alone = [run for run in all_runs() if run.info.run_name == "i-1"]
    assert [run.data.metrics for run in alone] == [{"test/bleu_lc_tok": 12.0}]


def test_scores_alone_start_a_run_with_its_parameters_and_data(root: Path) -> None:
    """Nobody trained it here: its weights are another run's, or came by `dvc pull`."""
    settings = Settings({"seed": 3}, {"trained": "a-1"}, [Data("c", Path("data/c"), "ab" * 32)])
    track_scores("demo", "n-1", 600, settings, {"test/chrf": 1.0}, dict)
    [run] = [run for run in all_runs() if run.info.run_name == "n-1"]
    assert (run.data.params, run.data.tags["trained"], run.info.status) == ({"seed": "3"}, "a-1", "FINISHED")
    assert run.inputs is not None
    assert [used.dataset.name for used in run.inputs.dataset_inputs] == ["c"]


# --- artifacts -------------------------------------------------------------------------------------------------------

TEXTS = {"results/o-1.json": "{}\n", "translations/test.txt": "Zwei Männer\n"}


def artifacts(run_id: str) -> dict[str, str]:
    """Return a run's artifacts: name and text."""
    folders = [item.path for item in client().list_artifacts(run_id)]
    names = [item.path for folder in folders for item in client().list_artifacts(run_id, folder)]
    return {name: Path(client().download_artifacts(run_id, name)).read_text(encoding="utf-8") for name in names}


def newest(result: str) -> dict[str, str]:
    return {**TEXTS, "results/o-1.json": result}


def test_texts_become_artifacts_in_the_place_of_earlier_ones(root: Path) -> None:
    for old in ("older", "newer"):
        track_scores("demo", "o-1", 1, NONE, {"test/chrf": 1.0}, partial(newest, old))
    [run] = [run for run in all_runs() if run.info.run_name == "o-1"]
    assert artifacts(run.info.run_id) == {**TEXTS, "results/o-1.json": "newer"}
    assert (root / "work/mlartifacts").is_dir()


@pytest.mark.parametrize("broken", ["place", "text"])
def test_artifacts_that_cannot_be_kept_are_one_warning_and_lose_no_score(
    root: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_name = {"place": "p-1", "text": "q-1"}[broken]
    track_scores("demo", run_name, 1, NONE, {}, dict)
    [run] = [run for run in all_runs() if run.info.run_name == run_name]
    place = root / "work/mlartifacts" / run.info.run_id
    place.parent.mkdir(exist_ok=True)
    if broken == "place":
        place.write_text("a file in the way")
    missing = root / "no such file"
    track_scores(
        "demo", run_name, 2, NONE, {"test/chrf": 2.0}, lambda: {"a": missing.read_text()} if broken == "text" else TEXTS
    )
    assert [text.partition(":")[0] for text in warnings_of(caplog)] == [
        "MLflow takes no more files of this run, the run goes on"
    ]
    assert history(run.info.run_id, "test/chrf") == [(2, 2.0)]
    assert stored(run.info.run_id).info.status == "FINISHED"


# --- around training -------------------------------------------------------------------------------------------------


def test_a_run_that_is_interrupted_and_started_again_is_one_run(root: Path) -> None:
    id_file = root / "work/train/j-1-ff/mlflow_run_id"

    def train(first: int, end: int, error: type[BaseException] | None) -> None:
        with tracked("demo", "j-1", id_file, NONE) as observe:
            for step in range(first, end):
                observe(step, {"train_loss": float(step)})
            if error:
                raise error

    for first, error, status in ((0, KeyboardInterrupt, "KILLED"), (2, ValueError, "FAILED"), (4, None, "FINISHED")):
        if error:
            with pytest.raises(error):
                train(first, first + 2, error)
        else:
            train(first, first + 2, None)
        assert stored(id_file.read_text().strip()).info.status == status
    assert history(id_file.read_text().strip(), "train_loss") == [(step, float(step)) for step in range(6)]


# --- failures --------------------------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("store", ["file/mlflow.db", "file", "."])  # below a file; no database; a directory
def test_a_store_that_cannot_be_used_warns_once_and_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: str
) -> None:
    (tmp_path / "file").write_text("no database " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/{store}")
    began = time.monotonic()
    with tracked("demo", "k-1", tmp_path / "id", NONE) as observe:
        for step in range(3):
            observe(step, {"train_loss": 1.0})
    assert time.monotonic() - began < 60  # MLflow alone tries for 100 seconds
    track_scores("demo", "k-1", 3, NONE, {"test/chrf": 1.0}, dict)
    assert len(warnings_of(caplog)) == 2  # one for each tracker
    assert all(
        text.startswith("MLflow takes no more numbers of this run, the run goes on:") for text in warnings_of(caplog)
    )
    assert not (tmp_path / "id").exists()


def test_a_store_that_breaks_on_the_way_warns_once(
    tracker: Tracker, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(root / "mlflow.db") as database:
        database.execute("ALTER TABLE metrics RENAME TO hidden")
    try:
        for step in range(3):
            log(tracker, step, {"train_loss": 1.0})
            flush(tracker)
    finally:
        with sqlite3.connect(root / "mlflow.db") as database:
            database.execute("ALTER TABLE hidden RENAME TO metrics")
    assert len(warnings_of(caplog)) == 1
    assert tracker.client is None
    assert tracker.run_id is not None  # the run can go on under its id when the store is back


def test_an_error_of_the_work_itself_passes(root: Path) -> None:
    with pytest.raises(ZeroDivisionError), tracked("demo", "l-1", root / "l", NONE):
        _ = 1 / 0


# --- values ----------------------------------------------------------------------------------------------------------


def test_values_are_cut_where_the_column_of_mlflow_ends() -> None:
    assert flatten({"a": {"b": "x" * 7000}, "c": True}) == {"a.b": "x" * 6000, "c": "true"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "shell"),
        ({"DVC_STAGE": "train@tiny-1"}, "dvc"),
        ({"BLEUPRINT_ORCHESTRATOR": "snakemake"}, "snakemake"),
        ({"BLEUPRINT_ORCHESTRATOR": "snakemake", "DVC_STAGE": "train@tiny-1"}, "dvc"),
    ],
)
def test_the_orchestrator_is_known_by_its_variables(
    environment: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert orchestrator() == name


def test_the_database_stands_at_the_root_unless_a_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking_uri(project_root()) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "other"))
    assert tracking_uri(project_root()) == f"sqlite:///{tmp_path}/other/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_uri(project_root()) == "http://127.0.0.1:5000"
