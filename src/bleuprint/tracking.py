"""A copy of the numbers in MLflow, for human eyes: the only module that imports mlflow.

metrics.jsonl and results/ are the record; nothing reads MLflow back. A tracker that fails says so once and then does
nothing: no stage stops for it, and one waits minutes at most, once. mlflow takes seconds to import, hence the imports
inside functions.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bleuprint.database import LOCK_SECONDS, SQLITE, check_database, shown, tracking_uri
from bleuprint.files import write_text
from bleuprint.origin import ROOT_TAG, origin_tags, place, project_root

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

EXPERIMENT = "bleuprint"
PARENT_TAG = "bleuprint.parent"  # on the one parent run of a table: the table's name
TABLE_TAG = "bleuprint.table"  # on every child run
RUN_TAG = "bleuprint.run"

FLUSH_SECONDS = 10.0  # one batch takes some 20 ms: 0.2 % of the time
METRICS_PER_BATCH = 1000  # a limit of MLflow, as are the next three
PARAMETERS_PER_BATCH = 100
VALUE_CHARACTERS = 6000
DIGEST_CHARACTERS = 36
REASON_CHARACTERS = 200

# Where a variable is set already, it stays. MLflow alone would try a dead server 7 times, for minutes, and send usage
# data to its makers.
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}

logger = logging.getLogger(__name__)
Status = Literal["FINISHED", "FAILED", "KILLED"]


class Data(NamedTuple):
    """A data set that a run reads: its name, where it stands, the sha256 of its manifest."""

    name: str
    path: Path
    sha256: str


class Settings(NamedTuple):
    """What MLflow shows of a run: what decides its training, as parameters; what may change afterwards, as tags."""

    fixed: Mapping[str, Any]
    later: Mapping[str, Any]
    data: Sequence[Data]


@dataclass
class Tracker:
    """A run of MLflow that takes metrics: `client` is None once MLflow has failed, a caller stores `run_id`."""

    client: "MlflowClient | None"
    run_id: str | None
    waiting: "list[Metric]" = field(default_factory=list)
    flushed_at: float = field(default_factory=time.monotonic)


# --- what stages call -------------------------------------------------------------------------------------------------


@contextmanager
def tracked(
    table: str, run: str, id_file: Path, settings: Settings
) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Give the block a function of (step, metrics) that feeds MLflow, and the run its status at the end.

    `id_file`, kept with what training resumes from, names the MLflow run that a stopped run goes on with.
    """
    stored = stored_id(id_file)
    tracker = open_tracker(table, run, stored, settings)
    if tracker.run_id not in (None, stored):
        write_text(id_file, f"{tracker.run_id}\n")
    status: Status = "FAILED"
    try:
        yield partial(log, tracker)
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        close(tracker, status)


def stored_id(id_file: Path) -> str | None:
    """Return the id of the MLflow run that a training goes on with; of a damaged file one that MLflow does not have."""
    return id_file.read_text(encoding="utf-8", errors="replace").strip() if id_file.exists() else None


def open_tracker(table: str, run: str, run_id: str | None, settings: Settings) -> Tracker:
    """Continue the MLflow run `run_id`; where it is None or gone, start one below the parent run of `table`.

    Settings may be nested; there are tags for commit, dvc.lock and orchestrator too. Never raises: see `Tracker`.
    """
    tracker = Tracker(None, run_id)
    with guarded(tracker), connected() as client:
        if run_id is not None and exists(client, run_id):
            client.update_run(run_id, status="RUNNING")
        else:
            experiment_id = find_experiment(client)
            end_superseded(client, experiment_id, run)
            tracker.run_id = start_child(client, experiment_id, table, run)
            describe(client, tracker.run_id, settings.fixed, settings.data)
        assert tracker.run_id is not None, "continued or started"
        set_tags(client, tracker.run_id, settings.later)
        tracker.client = client
    return tracker


def track_scores(
    table: str,
    run: str,
    step: int,
    settings: Settings,
    scores: Mapping[str, float],
    texts: Callable[[], Mapping[str, str]],
) -> None:
    """Add scores, e.g. {"test/chrf": 63.2}, to the newest MLflow run of `run`; start one where there is none.

    Tags say by which settings of averaging and decoding they were made. What `texts` gives becomes artifacts of those
    names, e.g. "results/tiny-1.json", where the project or the server keeps them.
    """
    tracker = Tracker(None, None)
    with guarded(tracker), connected() as client:
        experiment_id = find_experiment(client)
        earlier = runs_here(client, experiment_id, f"tags.`{RUN_TAG}` = '{run}'")
        if earlier:
            tracker.run_id = earlier[0].info.run_id
        else:
            tracker.run_id = start_child(client, experiment_id, table, run)
            describe(client, tracker.run_id, settings.fixed, settings.data)
        set_tags(client, tracker.run_id, settings.later)
        tracker.client = client
    kept = Tracker(tracker.client, tracker.run_id)  # where artifacts cannot be kept, the run is over all the same
    log(tracker, step, scores)
    close(tracker, "FINISHED")
    if kept.client is not None:
        keep_artifacts(kept, texts)


def keep_artifacts(tracker: Tracker, texts: Callable[[], Mapping[str, str]]) -> None:
    """Store texts by their names with a run of MLflow; a text that cannot be made is a warning too."""
    with guarded(tracker, "files"):
        assert tracker.client is not None and tracker.run_id is not None, "a client comes with a run"  # noqa: PT018
        for name, text in texts().items():
            tracker.client.log_text(tracker.run_id, text, name)


def log(tracker: Tracker, step: int, metrics: Mapping[str, float]) -> None:
    """Note metrics of an update; they reach MLflow together with others, about every FLUSH_SECONDS."""
    if tracker.client is None:
        return
    with guarded(tracker):
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        tracker.waiting += [Metric(key, float(value), now, step) for key, value in metrics.items()]
    if time.monotonic() - tracker.flushed_at >= FLUSH_SECONDS:
        flush(tracker)


def flush(tracker: Tracker) -> None:
    """Send what waits to MLflow now, for instance when a checkpoint has been written."""
    with guarded(tracker):
        while tracker.client is not None and tracker.waiting:
            assert tracker.run_id is not None, "a client comes with a run"
            batch = tracker.waiting[:METRICS_PER_BATCH]
            tracker.client.log_batch(tracker.run_id, metrics=batch, synchronous=True)
            del tracker.waiting[:METRICS_PER_BATCH]
    tracker.flushed_at = time.monotonic()


def close(tracker: Tracker, status: Status) -> None:
    """Send what waits and give the run its final status; the tracker takes nothing after that."""
    flush(tracker)
    with guarded(tracker):
        if tracker.client is not None:
            assert tracker.run_id is not None, "a client comes with a run"
            tracker.client.set_terminated(tracker.run_id, status)
    tracker.client = None


@contextmanager
def guarded(tracker: Tracker, what: str = "numbers") -> Iterator[None]:
    """Turn any failure into one warning and an inactive tracker."""
    try:
        yield
    except Exception as error:  # whatever MLflow, its database or the network raise: a copy must not stop the work
        tracker.client = None
        tracker.waiting.clear()
        reason = " ".join(str(error).split())[:REASON_CHARACTERS] or type(error).__name__
        logger.warning("MLflow takes no more %s of this run, the run goes on: %s", what, reason)


# --- the store -------------------------------------------------------------------------------------------------------


@contextmanager
def connected() -> "Iterator[MlflowClient]":
    """Give a client of the project's store while no other process of the project has one.

    Two that create the database, or a table's parent run, at once would race. The first one builds the database.
    ConnectionError where a database cannot be used.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # 60 lines about migrations of an empty database
    from filelock import FileLock
    from mlflow import MlflowClient  # takes seconds: not under the lock
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # its tracebacks: one warning of our own is enough
    root = project_root()
    uri = tracking_uri(root)
    (root / "work").mkdir(exist_ok=True)
    with FileLock(root / "work/mlflow.lock", timeout=LOCK_SECONDS):
        check_database(uri)
        try:
            yield MlflowClient(tracking_uri=uri)
        except MlflowException as error:  # for instance a database that another release of MLflow made
            raise ConnectionError(f"{shown(uri)} cannot be used: {' '.join(str(error).split())}") from error


def find_experiment(client: "MlflowClient") -> str:
    """Return the id of the experiment of that name, made where there is none."""
    from mlflow.exceptions import MlflowException

    root = project_root()
    local = tracking_uri(root).startswith(SQLITE)  # a server has its own place for artifacts
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            return client.create_experiment(EXPERIMENT, (root / "work/mlartifacts").as_uri() if local else None)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(EXPERIMENT)  # another clone was first: the lock is this clone's
    assert found is not None, "it exists already"
    return found.experiment_id


# --- runs ------------------------------------------------------------------------------------------------------------


def runs_here(client: "MlflowClient", experiment_id: str, where: str) -> list[Any]:
    """Return the runs of this directory that match, the newest first: a server may hold those of other clones too."""
    found = client.search_runs([experiment_id], where, order_by=["attributes.start_time DESC"])
    return [run for run in found if run.data.tags.get(ROOT_TAG) == place(project_root())]


def exists(client: "MlflowClient", run_id: str) -> bool:
    """Return whether MLflow still has a run: its database may have been deleted, or the run in the browser."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):  # the latter: a file cut off
            return False
        raise


def find_parent(client: "MlflowClient", experiment_id: str, table: str) -> str:
    """Return the id of a table's parent run, made where there is none. It only groups, so that it is over at once."""
    found = runs_here(client, experiment_id, f"tags.`{PARENT_TAG}` = '{table}'")
    if found:
        return found[0].info.run_id
    tags = {PARENT_TAG: table, **origin_tags(project_root())}
    parent = client.create_run(experiment_id, tags=tags, run_name=table)
    client.set_terminated(parent.info.run_id)
    return parent.info.run_id


def start_child(client: "MlflowClient", experiment_id: str, table: str, run: str) -> str:
    """Start a run below its table's parent and return its id."""
    own = {"mlflow.parentRunId": find_parent(client, experiment_id, table), TABLE_TAG: table, RUN_TAG: run}
    child = client.create_run(experiment_id, tags={**origin_tags(project_root()), **own}, run_name=run)
    return child.info.run_id


def set_tags(client: "MlflowClient", run_id: str, later: Mapping[str, Any]) -> None:
    """Give a run's changeable settings their present values."""
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in flatten(later).items()], synchronous=True)


def end_superseded(client: "MlflowClient", experiment_id: str, run: str) -> None:
    """Mark earlier runs of that name as killed: SIGKILL leaves them RUNNING, and with other parameters none resumes."""
    for old in runs_here(client, experiment_id, f"tags.`{RUN_TAG}` = '{run}' and attributes.status = 'RUNNING'"):
        client.set_terminated(old.info.run_id, "KILLED")


def describe(client: "MlflowClient", run_id: str, parameters: Mapping[str, Any], datasets: Sequence[Data]) -> None:
    """Log the parameters and the data sets of a new run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Param

    flat = [Param(key, value) for key, value in flatten(parameters).items()]
    for start in range(0, len(flat), PARAMETERS_PER_BATCH):
        client.log_batch(run_id, params=flat[start : start + PARAMETERS_PER_BATCH], synchronous=True)
    context = [InputTag("mlflow.data.context", "training")]
    used = [
        Dataset(name, sha[:DIGEST_CHARACTERS], "local", json.dumps({"uri": str(path)})) for name, path, sha in datasets
    ]
    if used:
        client.log_inputs(run_id, [DatasetInput(dataset, context) for dataset in used])


def flatten(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested parameters as {"train.schedule.lr": "0.005"}; values are cut where MLflow's column ends."""
    flat: dict[str, str] = {}
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[f"{prefix}{key}"] = text[:VALUE_CHARACTERS]
    return flat
