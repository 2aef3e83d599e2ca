"""What MLflow missed of a run, put there later: `bleuprint track RUN`.

metrics.jsonl is the record. What MLflow has already is left as it is, so that the same call twice does nothing the
second time. Points that are put there later have the time of that call.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bleuprint.tracking import (
    RUN_TAG,
    Data,
    Tracker,
    connected,
    describe,
    exists,
    find_experiment,
    flatten,
    flush,
    guarded,
    log,
    runs_here,
    set_tags,
    start_child,
    stored_id,
)

if TYPE_CHECKING:
    from bleuprint.scoring import Result
    from bleuprint.tracking import MlflowClient

NOT_METRICS = ("step", "epoch", "processes")  # what else a line of metrics.jsonl has


class Point(NamedTuple):
    """A value of a metric; as text, so that nan equals itself."""

    key: str
    step: int
    value: str


class Record(NamedTuple):
    """All that MLflow is to have of a run."""

    table: str
    run: str
    parameters: Mapping[str, Any]  # what decides the training
    later: Mapping[str, Any]  # what may change afterwards
    datasets: Sequence[Data]
    points: Sequence[Point]
    finished: bool


def points_of(lines: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the values in lines of metrics.jsonl, each once: the rate of an epoch's last update may stand twice."""
    values = (
        Point(key, line["step"], str(float(value)))
        for line in lines
        for key, value in line.items()
        if key not in NOT_METRICS
    )
    return list(dict.fromkeys(values))


def scores_of(result: "Result") -> dict[str, float]:
    """Return the scores of a result as MLflow names them, e.g. {"test/chrf": 63.2}."""
    scores = {
        f"{test}/{name}": score.score for test, found in result.test_sets.items() for name, score in found.items()
    }
    return scores | {f"{result.legacy_score.split}/legacy_score": result.legacy_score.score}


def replay(record: Record, id_file: Path) -> int:
    """Put the points that MLflow lacks into the run's MLflow run and return how many those are.

    That is the run that `id_file` names, else the newest with its name and its parameters, else a new one.
    ConnectionError where MLflow does not take them; what it took is not sent again by the next call.
    """
    tracker, missing = Tracker(None, None), list[Point]()
    with guarded(tracker), connected() as client:
        run_id = find_run(client, record, id_file)
        set_tags(client, run_id, record.later)
        tracker.client, tracker.run_id = client, run_id
        missing = missing_in(client, run_id, record.points)
    for point in missing:
        log(tracker, point.step, {point.key: float(point.value)})
    flush(tracker)
    with guarded(tracker):
        if tracker.client is not None and tracker.run_id is not None and record.finished:
            finish(tracker.client, tracker.run_id)
    if tracker.client is None:
        raise ConnectionError(f"MLflow did not take all numbers of {record.run}; give the same command again later")
    return len(missing)


def find_run(client: "MlflowClient", record: Record, id_file: Path) -> str:
    """Return the id of the MLflow run that a record belongs to, made where there is none."""
    stored = stored_id(id_file)
    if stored is not None and exists(client, stored):
        return stored
    experiment_id, parameters = find_experiment(client), flatten(record.parameters)
    for earlier in runs_here(client, experiment_id, f"tags.`{RUN_TAG}` = '{record.run}'"):
        if not earlier.data.params or earlier.data.params == parameters:  # `score` alone starts a run without any
            return earlier.info.run_id
    run_id = start_child(client, experiment_id, record.table, record.run)
    describe(client, run_id, record.parameters, record.datasets)
    return run_id


def missing_in(client: "MlflowClient", run_id: str, points: Sequence[Point]) -> list[Point]:
    """Return the points that an MLflow run does not have yet."""
    known = {
        Point(key, metric.step, str(float(metric.value)))
        for key in {point.key for point in points}
        for metric in client.get_metric_history(run_id, key)
    }
    return [point for point in points if point not in known]


def finish(client: "MlflowClient", run_id: str) -> None:
    """Call a run finished, at the time at which it ended where MLflow knows it."""
    info = client.get_run(run_id).info
    if info.status != "FINISHED":
        client.set_terminated(run_id, "FINISHED", info.end_time)
