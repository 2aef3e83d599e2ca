"""What is said, and kept to look at, where a training cannot go on: its numbers are none, or the memory is used up."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from bleuprint.batching import Pairs
from bleuprint.files import write_text
from bleuprint.params import Batches, TokenBatches

DIVERGED = "diverged.json"
# torch has no class of its own for a processor without memory.
NO_MEMORY = ("can't allocate memory", "bad_alloc", "out of memory")

Update = Sequence[np.ndarray]  # the row numbers of each of its batches


class NotFinite(NamedTuple):
    """The first number of a training that is infinite or none."""

    step: int
    epoch: int
    what: Literal["loss", "gradient"]  # of the gradient it is the norm
    value: float


def first_not_finite(found: Sequence[Sequence[float]], step: int, epoch: int) -> NotFinite | None:
    """Return which of (loss, norm of the gradient) of the updates before and with `step` is the first not finite."""
    for number, (loss, norm) in enumerate(found, step - len(found) + 1):
        if not math.isfinite(loss):
            return NotFinite(number, epoch, "loss", loss)
        if not math.isfinite(norm):
            return NotFinite(number, epoch, "gradient", norm)
    return None


def keep_divergence(bad: NotFinite, lr: float, pairs: Pairs, update: Update, saved_step: int, work: Path) -> str:
    """Write `work`/diverged.json and return the sentence that says so.

    It names the pairs of the update by their numbers in the train split. The state of `saved_step` that lies beside it
    (0: none, the seed gives the first weights) leads to the update again, on a processor bit for bit.
    """
    shapes = [shape_of(pairs, rows) for rows in update]
    batches = [
        {"source": shape.source, "target": shape.target, "rows": rows.tolist()}
        for shape, rows in zip(shapes, update, strict=True)
    ]
    seen = {"update": bad.step, "epoch": bad.epoch, "what": bad.what, "value": str(bad.value), "lr": lr}
    path = work / DIVERGED
    write_text(path, json.dumps({**seen, "state_of_update": saved_step, "batches": batches}, indent=2) + "\n")
    return (
        f"the {bad.what} of update {bad.step}, of epoch {bad.epoch}, is {bad.value:g} at lr {lr:g}, in a batch of "
        f"{max(shapes, key=Shape.size)}; {path} names its pairs"
    )


# --- memory -----------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A batch with its padding: B x S, and B x T with both marks."""

    source: tuple[int, int]
    target: tuple[int, int]

    def size(self) -> int:
        """Return how many tokens the batch takes."""
        return math.prod(self.source) + math.prod(self.target)

    def __str__(self) -> str:
        (sentences, source), (_, target) = self
        return f"{sentences} x {source} source and {sentences} x {target} target tokens"


def shape_of(pairs: Pairs, rows: np.ndarray) -> Shape:
    """Return the shape of the batch of the pairs `rows`."""
    source, target = (int((side.offsets[rows + 1] - side.offsets[rows]).max()) for side in (pairs.source, pairs.target))
    return Shape((len(rows), source), (len(rows), target))


@contextmanager
def enough_memory(pairs: Pairs, updates: Sequence[Update], done: Callable[[], int], batches: Batches) -> Iterator[None]:
    """Say where memory ends in the block which batch took it, and what to lower: a ValueError.

    `done` tells how many of the updates are done.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error) or done() >= len(updates):
            raise
        shape = max((shape_of(pairs, rows) for rows in updates[done()]), key=Shape.size)
        key = "max_tokens" if isinstance(batches, TokenBatches) else "sentences"
        raise ValueError(
            f"the memory does not suffice for a batch of {shape}; lower train.batches.{key} of the experiment, which "
            f"is {getattr(batches, key)} (with as many more batches_per_step an update stays as large): "
            f"{' '.join(str(error).split())[:200] or 'MemoryError'}"
        ) from error


def ran_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    """Return whether an error means that: numpy's and a GPU's have classes, a processor's only says so."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(part in str(error) for part in NO_MEMORY)
