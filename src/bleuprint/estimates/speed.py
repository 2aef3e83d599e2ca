"""What a training costs on this machine: seconds an update by the train stage's own path, seconds an epoch's end.

A benchmark and `bleuprint plan` ask. Imports torch: call bleuprint.process.prepare first. Nothing waits for a GPU but
the ends of blocks of updates.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import torch

from bleuprint.batching import Pairs, open_pairs
from bleuprint.device import find_device
from bleuprint.objective import learning_rate
from bleuprint.params import Machine
from bleuprint.resume import Learner, Progress, count_flops, keep_weights, save_progress
from bleuprint.subwords import open_subwords
from bleuprint.training import Recipe, count_update, epoch_pairs, epoch_steps, new_learner
from bleuprint.updates import Prepared, evaluate, prepared, train_step

LEAST_BLOCKS = 2
WATCHED = 3  # updates in which a GPU must not be waited for


class EpochEnd(NamedTuple):
    """Seconds of what follows an epoch's last update; the weights are written twice, as those of a best epoch."""

    evaluate: float
    keep_weights: float
    save_progress: float


class Effort(NamedTuple):
    """How long is measured: blocks of updates, and no further one begins when `seconds` are over, but LEAST_BLOCKS."""

    warm_up: int  # updates that are not timed
    blocks: int
    block_updates: int
    epoch_ends: int  # of which the median counts
    seconds: float = math.inf


class Cost(NamedTuple):
    """What was measured of an experiment; a rate is over all blocks, tokens are real ones."""

    seconds: list[float]  # of an update, a mean for each block
    token_seconds: list[float]  # of a source or target token, a mean for each block
    updates: int  # that were timed
    tokens_per_second: float  # source and target
    target_tokens_per_second: float
    flop_per_second: float  # by resume.count_flops
    epoch_updates: int  # in the first epoch
    epoch_end: EpochEnd
    waits: str | None  # where an update waits for the GPU: the error's first line
    peak_mb: int | None  # of a GPU's memory


def describe_device(machine: Machine) -> str:
    """Return "cpu" or the GPU's name."""
    device = find_device(machine)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def measure_cost(recipe: Recipe, effort: Effort, scratch: Path) -> Cost:
    """Train a run from its beginning for some updates; nothing of it is kept.

    Files are written below `scratch`, on the disk that is to be timed.
    """
    torch.set_num_threads(recipe.machine.threads)
    on_gpu = find_device(recipe.machine).type == "cuda"
    training, validation = (open_pairs(recipe.corpus, name) for name in (recipe.splits.train, recipe.splits.validation))
    learner, progress = new_learner(recipe), Progress()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()  # not before torch has used the GPU, which would be an error
    with closing(endless_updates(recipe, training, learner.device)) as updates:
        time_block(recipe, learner, Progress(), islice(updates, effort.warm_up))  # a GPU has done them, too
        seconds, tokens = time_blocks(recipe, learner, progress, updates, effort)
    epoch_end = time_epoch_end(learner, progress, validation, effort.epoch_ends, scratch)
    peak_mb = torch.cuda.max_memory_allocated() // 2**20 if on_gpu else None
    total = sum(seconds)
    return Cost(
        [block / effort.block_updates for block in seconds],
        [block / read for block, read in zip(seconds, tokens, strict=True)],
        progress.step,
        sum(tokens) / total,
        progress.target_tokens / total,
        count_flops(learner, progress) / total,
        len(epoch_steps(training, recipe.train, recipe.seed, 1)),
        epoch_end,
        find_wait(recipe, learner, training) if on_gpu else None,
        peak_mb,
    )


def time_blocks(
    recipe: Recipe, learner: Learner, progress: Progress, updates: Iterator[list[Prepared]], effort: Effort
) -> tuple[list[float], list[int]]:
    """Do blocks of updates, counted in `progress`; return the seconds and the tokens of each."""
    seconds: list[float] = []
    tokens: list[int] = []
    while len(seconds) < effort.blocks and (len(seconds) < LEAST_BLOCKS or sum(seconds) < effort.seconds):
        read = progress.source_tokens + progress.target_tokens
        seconds.append(time_block(recipe, learner, progress, islice(updates, effort.block_updates)))
        tokens.append(progress.source_tokens + progress.target_tokens - read)
    return seconds, tokens


def endless_updates(recipe: Recipe, training: Pairs, device: torch.device) -> Generator[list[Prepared], None, None]:
    """Yield the batches of each update of one epoch after the other, made ahead of time as the train stage does."""
    subwords = open_subwords(recipe.corpus, training) if recipe.train.regularizers.bpe_dropout else None
    for epoch in count(1):
        pairs = epoch_pairs(recipe, training, subwords, epoch)
        yield from prepared(pairs, epoch_steps(pairs, recipe.train, recipe.seed, epoch), device)


def time_block(recipe: Recipe, learner: Learner, progress: Progress, updates: Iterable[list[Prepared]]) -> float:
    """Do some updates and return their seconds; a GPU has done them then."""
    began = time.perf_counter()
    do_updates(recipe, learner, progress, updates)
    if learner.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def do_updates(recipe: Recipe, learner: Learner, progress: Progress, updates: Iterable[list[Prepared]]) -> None:
    """Do some updates and count them in `progress`; a GPU may still be at work."""
    for batches in updates:
        lr = learning_rate(recipe.train.schedule, progress.step + 1, recipe.model.d_model, progress.plateau_factor)
        train_step(learner, batches, lr)
        count_update(progress, sum(batch.source_tokens for batch in batches), sum(batch.tokens for batch in batches))


def time_epoch_end(learner: Learner, progress: Progress, validation: Pairs, repeats: int, scratch: Path) -> EpochEnd:
    """Return the median seconds of each part; the files are written below `scratch`."""
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as work:
        Path(work, "weights").mkdir()
        parts = [one_epoch_end(learner, progress, validation, Path(work)) for _ in range(repeats)]
    return EpochEnd(*map(statistics.median, zip(*parts, strict=True)))


def one_epoch_end(learner: Learner, progress: Progress, validation: Pairs, work: Path) -> EpochEnd:
    """Return the seconds of each part, done once; each fetches something last, so that a GPU has done it then."""
    times = [time.perf_counter()]
    loss = evaluate(learner, validation)
    times.append(time.perf_counter())
    keep_weights(learner, progress, loss, learner.train.keep_last, work)
    times.append(time.perf_counter())
    save_progress(learner, progress, work)
    times.append(time.perf_counter())
    return EpochEnd(times[1] - times[0], times[2] - times[1], times[3] - times[2])


def find_wait(recipe: Recipe, learner: Learner, training: Pairs) -> str | None:
    """Return the first line of torch's error where an update waits for the GPU, or None where none does."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        with closing(endless_updates(recipe, training, learner.device)) as updates:
            do_updates(recipe, learner, Progress(), islice(updates, WATCHED))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None
