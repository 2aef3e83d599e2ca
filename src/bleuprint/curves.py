"""A logged curve beside a measured one: losses by epoch, how far they are apart, how soon they fall.

A curve is a mapping {epoch: Point}, epochs from 1 on, losses in nats.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

TARGETS = (6.0, 5.5, 5.0)  # validation losses: after how many epochs is each reached?


class Point(NamedTuple):
    """Losses of an epoch in nats, and the legacy score after it where there is one."""

    train_loss: float
    validation_loss: float
    legacy_score: float | None


Curve = Mapping[int, Point]


class Epoch(NamedTuple):
    """A row of history.csv; an empty loss is not a number."""

    epoch: int
    step: int
    train_loss: float
    validation_loss: float


class Distance(NamedTuple):
    """Absolute differences in nats of both losses over the epochs that both curves have."""

    epochs: int
    median: float
    maximum: float


# --- files ------------------------------------------------------------------------------------------------------------


def read_curve(path: Path) -> Curve:
    """Return the curve in a file of reference/curves; ValueError where it is missing, has gaps or is not finite."""
    lines = read_columns(path, ("epoch", "train_loss", "val_loss"))
    curve = {int(line["epoch"]): read_point(line) for line in lines}
    if not lines or list(curve) != list(range(1, len(lines) + 1)):
        raise ValueError(f"{path} does not have the epochs 1, 2, 3, … in their order")
    if not all(math.isfinite(number) for point in curve.values() for number in point if number is not None):
        raise ValueError(f"{path} has a number that is not finite")
    return curve


def read_point(line: Mapping[str, str]) -> Point:
    """Return the numbers of a row of a logged curve."""
    score = float(line["legacy_score"]) if "legacy_score" in line else None
    return Point(float(line["train_loss"]), float(line["val_loss"]), score)


def read_history(path: Path) -> list[Epoch]:
    """Return the rows of a run's history.csv; ValueError names a missing file or column."""
    lines = read_columns(path, ("epoch", "step", "train_loss", "validation_loss"))
    return [
        Epoch(
            int(line["epoch"]), int(line["step"]), *(number(line[f"{kind}_loss"]) for kind in ("train", "validation"))
        )
        for line in lines
    ]


def read_columns(path: Path, names: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file; ValueError names a missing file or column."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = set(names) - set(reader.fieldnames or ())
        if missing:
            raise ValueError(f"{path} has no column {', '.join(sorted(missing))}")
        return list(reader)


def number(text: str) -> float:
    """Return a loss; an empty one is not a number."""
    return float(text) if text else math.nan


# --- arithmetic -------------------------------------------------------------------------------------------------------


def mean_curve(histories: Sequence[Sequence[Epoch]], scores: Sequence[Mapping[int, float]]) -> Curve:
    """Return the mean over one or more seeds of each epoch that all of them have; a score where all have one."""
    rows = [{row.epoch: row for row in history} for history in histories]
    shared = sorted(set.intersection(*(set(seed) for seed in rows)))
    return {
        epoch: mean_point([seed[epoch] for seed in rows], [s[epoch] for s in scores if epoch in s]) for epoch in shared
    }


def mean_point(epochs: Sequence[Epoch], scores: Sequence[float]) -> Point:
    """Return the mean over seeds of one epoch; its score only where there is one for each seed."""
    losses = (fmean(row.train_loss for row in epochs), fmean(row.validation_loss for row in epochs))
    return Point(*losses, fmean(scores) if len(scores) == len(epochs) else None)


def distance(claimed: Curve, measured: Curve) -> Distance:
    """Return how far two curves are apart over the epochs that both have, one at least."""
    shared = [epoch for epoch in claimed if epoch in measured]
    assert shared, "curves without a common epoch"
    gaps = [abs(gap) for epoch in shared for gap in loss_gaps(claimed[epoch], measured[epoch])]
    return Distance(len(shared), median(gaps), max(gaps))


def loss_gaps(claimed: Point, measured: Point) -> tuple[float, float]:
    """Return measured less claimed, of the training and of the validation loss."""
    return measured.train_loss - claimed.train_loss, measured.validation_loss - claimed.validation_loss


def epochs_to_reach(curve: Curve) -> dict[float, int | None]:
    """Return for each of TARGETS the first epoch whose validation loss is not above it, None where none is."""
    return {target: next((e for e, p in curve.items() if p.validation_loss <= target), None) for target in TARGETS}
