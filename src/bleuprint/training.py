"""The train stage: one run from its first update to its last, resumable at any point, bit for bit.

A work directory holds what a killed process leaves and the next one needs; its name carries a fingerprint of all that
decides the weights, so that a changed parameter, corpus or line of code starts afresh. Left out are `max_steps`: no
schedule looks at it, so a run that is given more updates goes on where it ended; and the number of processes, see
distributed.py.
"""

import hashlib
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.progress import Progress as Bar

from bleuprint.batching import Pairs, epoch_batches, open_pairs, ordered_batches
from bleuprint.checkpoint import load_state
from bleuprint.device import find_device
from bleuprint.distributed import begin_together, draw_apart, is_first, own_device, sum_over_ranks
from bleuprint.history import append_metrics, describe
from bleuprint.incidents import NotFinite, Update, enough_memory, first_not_finite, keep_divergence
from bleuprint.models import build_model, count_parameters
from bleuprint.objective import Plateau, build_optimizer, learning_rate, watch_plateau
from bleuprint.params import Machine, ModelSpec, PlateauSchedule, Splits, Train
from bleuprint.resume import (
    STATE,
    Learner,
    Progress,
    Stop,
    keep_weights,
    publish,
    resume,
    save_progress,
    saved_step,
    summarise,
)
from bleuprint.subwords import Subwords, open_subwords, redraw
from bleuprint.updates import epoch_term, evaluate, prepared, train_step

logger = logging.getLogger(__name__)

Observer = Callable[[int, Mapping[str, float]], None]  # called with an update's number and what was measured there


class Recipe(NamedTuple):
    """All that decides the weights of a run."""

    seed: int
    model: ModelSpec
    train: Train
    machine: Machine
    splits: Splits
    corpus: Path
    code: Mapping[str, str]  # sha256 of each module that decides the weights


def fingerprint(recipe: Recipe) -> str:
    """Return 16 hexadecimal digits that differ when anything differs that decides the weights after some update."""
    manifest = hashlib.sha256((recipe.corpus / "manifest.json").read_bytes()).hexdigest()
    train = recipe.train.model_dump(mode="json", exclude={"max_steps"})
    machine = {"device": find_device(recipe.machine).type, "threads": recipe.machine.threads}  # what auto means here
    sections = [recipe.model.model_dump(mode="json"), machine, recipe.splits.model_dump(mode="json")]
    values = [recipe.seed, train, *sections, manifest, dict(recipe.code)]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def work_directory(root: Path, run: str, recipe: Recipe) -> Path:
    """Return where the run keeps its state; a state that belongs to updates beyond max_steps is left alone."""
    directory = root / f"{run}-{fingerprint(recipe)}"
    state = directory / STATE
    if state.exists():
        progress = load_state(state)["progress"]
        # A state between two epochs belongs to the second one, in which a run that ends just there does no update.
        begun = progress["step"] + (progress["epoch_steps"] == 0)
        if begun > recipe.train.max_steps:
            return directory.with_name(f"{directory.name}-{recipe.train.max_steps}")
    return directory


def train_run(recipe: Recipe, work: Path, out: Path, observe: Observer) -> None:
    """Train to the end, resuming from `work` where a state lies there, and publish the results as `out`.

    `out` gets weights/best.safetensors (lowest validation loss; the last where none is finite), weights/step-*
    (ends of the last keep_last epochs), metrics.jsonl, history.csv and summary.json. A loss that is not finite ends the
    run: it has diverged, and its last weights are worth nothing. ValueError if the corpus is unusable. Of several
    processes (distributed.joined) all call this, with the same values, and only the first writes, logs and observes.
    """
    torch.set_num_threads(recipe.machine.threads)
    training, validation = (open_pairs(recipe.corpus, name) for name in (recipe.splits.train, recipe.splits.validation))
    ordered_batches(validation, recipe.train.batches)  # refuses a pair that is too long now, not after an epoch
    subwords = open_subwords(recipe.corpus, training) if recipe.train.regularizers.bpe_dropout else None
    learner = new_learner(recipe)
    progress = resume(learner, work)
    own = json.dumps([fingerprint(recipe), recipe.train.max_steps, asdict(progress)])
    begin_together(own, learner.model.parameters(), recipe.seed, progress.step)
    with Bar(disable=not (is_first() and sys.stderr.isatty())) as bar:
        task = bar.add_task("train", total=recipe.train.max_steps, completed=progress.step)

        def note(step: int, metrics: Mapping[str, float]) -> None:
            if not is_first():
                return
            append_metrics(work, step, progress.epoch, metrics)
            logger.info("step %d epoch %d %s", step, progress.epoch, describe(metrics))
            bar.update(task, completed=step)
            observe(step, metrics)

        stopped: Stop | None = None
        while stopped is None:
            finite = run_epoch(recipe, learner, progress, training, subwords, work, note)
            stopped = finish_epoch(recipe, learner, progress, validation, finite, work, note)
    if is_first():
        publish(summarise(learner, progress, stopped), progress.sha256, work, out)


def new_learner(recipe: Recipe) -> Learner:
    """Return the model with the initial weights of the run's seed, and its optimizer."""
    device = own_device(find_device(recipe.machine))
    torch.manual_seed(recipe.seed)
    model = build_model(recipe.model, *vocabulary_sizes(recipe.corpus)).to(device)
    logger.info("%d parameters on %s", count_parameters(model), device)
    return Learner(model, build_optimizer(model, recipe.train.optimizer), device, recipe.train)


def vocabulary_sizes(corpus: Path) -> tuple[int, int]:
    """Return the numbers of source and target types of a corpus; ValueError where its manifest is damaged."""
    path = corpus / "manifest.json"
    try:
        sizes = json.loads(path.read_text())["vocabulary"]
        return sizes["source"], sizes["target"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged; make it again with: python -m bleuprint tokenize {corpus.name}") from None


# --- epochs -----------------------------------------------------------------------------------------------------------


def epoch_pairs(recipe: Recipe, pairs: Pairs, subwords: Subwords | None, epoch: int) -> Pairs:
    """Return the training pairs as an epoch reads them: in other pieces each time where BPE-dropout is on."""
    if subwords is None:
        return pairs
    return redraw(subwords, pairs, recipe.train.regularizers.bpe_dropout, recipe.seed, epoch)


def run_epoch(
    recipe: Recipe,
    learner: Learner,
    progress: Progress,
    training: Pairs,
    subwords: Subwords | None,
    work: Path,
    note: Observer,
) -> bool:
    """Do the updates that are left of the epoch under way; return whether their losses and gradients are finite.

    Those are fetched where they are logged, saved or at the end: a GPU need not be waited for at every update.
    ValueError where the memory does not suffice.
    """
    train, began, read, pending = recipe.train, time.perf_counter(), 0, Pending([], [])
    pairs = epoch_pairs(recipe, training, subwords, progress.epoch)
    steps = epoch_steps(pairs, train, recipe.seed, progress.epoch)
    left, bad = steps[progress.epoch_steps :], None
    with enough_memory(pairs, steps, lambda: progress.epoch_steps, train.batches):
        for batches in prepared(pairs, left[: train.max_steps - progress.step], learner.device):
            lr = learning_rate(train.schedule, progress.step + 1, recipe.model.d_model, progress.plateau_factor)
            pending.sums.append(train_step(learner, batches, lr))
            pending.tokens.append(sum(batch.tokens for batch in batches))
            source_tokens = sum(batch.source_tokens for batch in batches)
            count_update(progress, source_tokens, pending.tokens[-1])
            read += source_tokens + pending.tokens[-1]
            logs, saves = (progress.step % n == 0 for n in (train.log_every_steps, train.checkpoint_every_steps))
            if (logs or saves) and (bad := settle(progress, train, pending)):
                break
            if logs:
                elapsed = time.perf_counter() - began
                note(progress.step, window_metrics(progress, lr, read / elapsed))
                progress.seconds += elapsed
                began, read = time.perf_counter(), 0
            if saves:
                save(recipe, learner, progress, work)
    if bad := bad or settle(progress, train, pending):
        tell_divergence(recipe, bad, progress, pairs, steps, work)
    progress.seconds += time.perf_counter() - began
    return bad is None


def tell_divergence(
    recipe: Recipe, bad: NotFinite, progress: Progress, pairs: Pairs, steps: Sequence[Update], work: Path
) -> None:
    """Log which update was the first with a number that is not finite, and keep what leads there again."""
    if is_first():
        lr = learning_rate(recipe.train.schedule, bad.step, recipe.model.d_model, progress.plateau_factor)
        update = steps[progress.epoch_steps - (progress.step - bad.step) - 1]
        logger.warning("%s", keep_divergence(bad, lr, pairs, update, saved_step(work), work))


def epoch_steps(pairs: Pairs, train: Train, seed: int, epoch: int) -> list[list[np.ndarray]]:
    """Return the row numbers of each batch of each update of an epoch; tell how many pairs drop_last leaves out."""
    batches, size = epoch_batches(pairs, train.batches, seed, epoch), train.batches.batches_per_step
    if left_out := len(pairs) - sum(len(rows) for rows in batches):
        logger.info("epoch %d leaves out %d of %d pairs: drop_last", epoch, left_out, len(pairs))
    return [batches[i : i + size] for i in range(0, len(batches), size)]


def count_update(progress: Progress, source_tokens: int, target_tokens: int) -> None:
    """Add one update and what it read."""
    progress.step += 1
    progress.epoch_steps += 1
    progress.source_tokens += source_tokens
    progress.target_tokens += target_tokens


class Pending(NamedTuple):
    """Updates whose losses are not fetched yet: what train_step returned, on the device, and all tokens."""

    sums: list[torch.Tensor]
    tokens: list[int]


def settle(progress: Progress, train: Train, pending: Pending) -> NotFinite | None:
    """Fetch what waits and add the losses to the sums; return the first loss or gradient that is not finite."""
    found = sum_over_ranks(torch.stack(pending.sums)).tolist() if pending.sums else []
    for (loss, _), tokens in zip(found, pending.tokens, strict=True):
        total, terms = epoch_term(train, loss, tokens)
        progress.epoch_loss += total
        progress.epoch_terms += terms
        progress.window_loss += loss
        progress.window_tokens += tokens
    pending.sums.clear()
    pending.tokens.clear()
    return first_not_finite(found, progress.step, progress.epoch)


def window_metrics(progress: Progress, lr: float, tokens_per_second: float) -> dict[str, float]:
    """Return the metrics since the last call, and begin a new window; tokens are source and target, no padding."""
    loss = progress.window_loss / progress.window_tokens
    progress.window_loss, progress.window_tokens = 0.0, 0
    return {"train_loss": loss, "lr": lr, "tokens_per_second": tokens_per_second}


def finish_epoch(
    recipe: Recipe, learner: Learner, progress: Progress, validation: Pairs, finite: bool, work: Path, note: Observer
) -> Stop | None:
    """Validate and keep the weights; return why the run is over, or begin the next epoch and save the state.

    It is over where the epoch's losses are not finite, or validation's is not: nothing comes back from there.

    The state of a run that is over is the last one before its end: max_steps may cut an epoch in two, and a run that is
    given more updates must finish that epoch first.
    """
    train, began = recipe.train, time.perf_counter()
    loss = evaluate(learner, validation) if finite else math.nan
    lr = learning_rate(train.schedule, progress.step, recipe.model.d_model, progress.plateau_factor)
    keep_weights(learner, progress, loss, train.keep_last, work)
    metrics = {"train_loss_epoch": progress.epoch_loss / progress.epoch_terms, "validation_loss": loss}
    progress.seconds += time.perf_counter() - began
    note(progress.step, {**metrics, "lr": lr, "seconds": progress.seconds})
    if not math.isfinite(loss):
        logger.warning(
            "training has diverged in epoch %d, after update %d, at lr %g", progress.epoch, progress.step, lr
        )
        return "diverged"
    follow_validation(progress, train, loss)
    if progress.bad_epochs >= train.patience_epochs:
        return "patience"
    if progress.step == train.max_steps:
        return "max_steps"
    progress.epoch += 1
    progress.epoch_steps, progress.epoch_loss, progress.epoch_terms = 0, 0.0, 0
    save(recipe, learner, progress, work)
    return None


def save(recipe: Recipe, learner: Learner, progress: Progress, work: Path) -> None:
    """Save the state; each process but the first goes on with the random numbers that belong to it."""
    save_progress(learner, progress, work)
    draw_apart(recipe.seed, progress.step)


def follow_validation(progress: Progress, train: Train, loss: float) -> None:
    """Update the best loss, the epochs since then, and the plateau schedule."""
    if loss < progress.best:
        progress.best, progress.bad_epochs = loss, 0
    else:
        progress.bad_epochs += 1
    if isinstance(train.schedule, PlateauSchedule):
        before = Plateau(progress.plateau_factor, progress.plateau_best, progress.plateau_bad_epochs)
        after = watch_plateau(train.schedule, before, progress.epoch, loss)
        progress.plateau_factor, progress.plateau_best, progress.plateau_bad_epochs = after
