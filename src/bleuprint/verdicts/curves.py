"""A logged curve beside a measured one: losses by epoch, how far they are apart, how soon they fall.

A curve is a mapping {epoch: Point}, epochs from 1 on, losses in nats.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple, TypeVar

TARGETS = (6.0, 5.5, 5.0)  # validation losses: after how many epochs is each reached?
Row = TypeVar("Row")


class Point(NamedTuple):
    """Losses of an epoch in nats, and the legacy score after it where there is one."""

    train_loss: float
    validation_loss: float
    legacy_score: float | None


Curve = Mapping[int, Point]


class Epoch(NamedTuple):
    """A row of history.csv; the last one of a run that diverged has a loss that is not finite."""

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
    """Return the curve in a file of reference/curves; ValueError where it is missing, damaged, has gaps or no epoch."""
    remedy = f"it comes with bleuprint's code: restore it with: git restore {path}"
    rows = read_rows(path, ("epoch", "train_loss", "val_loss"), read_point, remedy)
    check_order(path, [epoch for epoch, _ in rows], remedy)
    if not all(math.isfinite(number) for _, point in rows for number in point if number is not None):
        raise ValueError(f"{path} has a number that is not finite; {remedy}")
    return dict(rows)


def read_point(line: Mapping[str, str]) -> tuple[int, Point]:
    """Return the epoch and the numbers of a row of a logged curve."""
    score = float(line["legacy_score"]) if "legacy_score" in line else None
    return int(line["epoch"]), Point(float(line["train_loss"]), float(line["val_loss"]), score)


def read_history(path: Path, run: str, diverged: bool) -> list[Epoch]:
    """Return the rows of a run's history.csv; ValueError where it is missing, damaged, has gaps or no epoch.

    A loss that is not finite stands in the last row of a run that diverged, and nowhere else.
    """
    remedy = f"make it with: python -m bleuprint train {run}"
    rows = read_rows(path, ("epoch", "step", "train_loss", "validation_loss"), read_epoch, remedy)
    check_order(path, [row.epoch for row in rows], remedy)
    if any(after <= before for before, after in pairwise((0, *(row.step for row in rows)))):
        raise ValueError(f"{path} has an epoch without an update; {remedy}")
    if finite_epochs(rows) != (rows[:-1] if diverged else rows):
        end = "diverged" if diverged else "did not diverge"
        raise ValueError(
            f"{path} is not of a run that {end}: a loss is not finite in the last row of one that did, and nowhere "
            f"else; {remedy}"
        )
    return rows


def read_epoch(line: Mapping[str, str]) -> Epoch:
    """Return a row of history.csv."""
    losses = (float(line[name]) for name in ("train_loss", "validation_loss"))
    return Epoch(int(line["epoch"]), int(line["step"]), *losses)


def read_rows(path: Path, names: Sequence[str], read_row: Callable[[Mapping[str, str]], Row], remedy: str) -> list[Row]:
    """Return the rows of a CSV file, one at least; ValueError names the file, what is wrong in it and the remedy."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; {remedy}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = set(names) - set(reader.fieldnames or ())
            rows = [] if missing else [read_row(full(line)) for line in reader]
    except (csv.Error, ValueError):
        raise ValueError(f"{path} is damaged; {remedy}") from None
    if missing:
        raise ValueError(f"{path} has no column {', '.join(sorted(missing))}; {remedy}")
    if not rows:
        raise ValueError(f"{path} has no epoch; {remedy}")
    return rows


def full(line: dict[str, str]) -> dict[str, str]:
    """Return a row of csv.DictReader; ValueError where it has fewer or more cells than the header."""
    if None in line or None in line.values():
        raise ValueError(f"a row has another number of cells than the header: {line}")
    return line


def check_order(path: Path, epochs: Sequence[int], remedy: str) -> None:
    """Raise ValueError unless a file's epochs are 1, 2, 3, … in their order."""
    if list(epochs) != list(range(1, len(epochs) + 1)):
        raise ValueError(f"{path} does not have the epochs 1, 2, 3, … in their order; {remedy}")


# --- arithmetic -------------------------------------------------------------------------------------------------------


def finite_epochs(history: Sequence[Epoch]) -> list[Epoch]:
    """Return the epochs of a run whose losses both are finite."""
    return [row for row in history if math.isfinite(row.train_loss) and math.isfinite(row.validation_loss)]


def without_cut_off(history: Sequence[Epoch]) -> Sequence[Epoch]:
    """Return the whole epochs of a run: without a last one of fewer updates than the one before; a single one counts.

    A run may end inside its last epoch alone. Batches of so many tokens make epochs of slightly different lengths: a
    last one that is whole may be left out with them, a part never counts.
    """
    lengths = [after - before for before, after in pairwise((0, *(row.step for row in history)))]
    return history[:-1] if len(lengths) > 1 and lengths[-1] < lengths[-2] else history


def whole_epochs(steps_per_epoch: int, history: Sequence[Epoch], where: str) -> list[Epoch]:
    """Return a run's epochs of so many updates without a last one that was cut off; ValueError where one has others.

    A last epoch with fewer updates is cut off, also where it is the only one: that a run has shorter epochs shows only
    once one of them is followed by another. `where` begins the message.
    """
    for row in history:
        end = row.epoch * steps_per_epoch
        if row.step > end or (row.step < end and row is not history[-1]):
            raise ValueError(
                f"{where}: {row.step} updates were made after epoch {row.epoch}, not {end}, {steps_per_epoch} an epoch"
            )
    return [row for row in history if row.step == row.epoch * steps_per_epoch]


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
