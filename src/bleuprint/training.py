"""The train stage: one run from its first update to its last, resumable at any point, bit for bit.

A work directory holds what a killed process leaves and the next one needs; its name carries a fingerprint of all that
decides the weights, so that a changed parameter, corpus or line of code starts afresh. Only `max_steps` is left out: no
schedule looks at it, so a run that is given more updates goes on where it ended.
"""

import hashlib
import json
import logging
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from rich.progress import Progress as Bar
from torch import nn

from bleuprint.batching import Batch, Pairs, collate, epoch_batches, open_pairs, ordered_batches
from bleuprint.checkpoint import load_state
from bleuprint.device import find_device
from bleuprint.files import atomic_directory
from bleuprint.history import METRICS, append_metrics, describe, read_metrics, write_history
from bleuprint.models import build_model, count_parameters
from bleuprint.objective import Loss, Plateau, build_optimizer, cross_entropy, learning_rate, watch_plateau
from bleuprint.params import Machine, ModelSpec, PlateauSchedule, Splits, Train
from bleuprint.resume import STATE, Learner, Progress, keep_weights, resume, save_progress
from bleuprint.tokenizers import PAD

logger = logging.getLogger(__name__)

Observer = Callable[[int, Mapping[str, float]], None]  # called with an update's number and what was measured there
Stop = Literal["max_steps", "patience"]  # why a run is over


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

    `out` gets weights/best.safetensors (lowest validation loss), weights/step-*.safetensors (ends of the last keep_last
    epochs), metrics.jsonl, history.csv and summary.json. ValueError if the corpus is unusable or a loss is not finite.
    """
    torch.set_num_threads(recipe.machine.threads)
    training, validation = (open_pairs(recipe.corpus, name) for name in (recipe.splits.train, recipe.splits.validation))
    ordered_batches(validation, recipe.train.batches)  # refuses a pair that is too long now, not after an epoch
    (work / "weights").mkdir(parents=True, exist_ok=True)
    learner = new_learner(recipe)
    progress = resume(learner, work)
    with Bar(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("train", total=recipe.train.max_steps, completed=progress.step)

        def note(step: int, metrics: Mapping[str, float]) -> None:
            append_metrics(work, step, progress.epoch, metrics)
            logger.info("step %d epoch %d %s", step, progress.epoch, describe(metrics))
            bar.update(task, completed=step)
            observe(step, metrics)

        stopped: Stop | None = None
        while stopped is None:
            run_epoch(recipe, learner, progress, training, work, note)
            stopped = finish_epoch(recipe, learner, progress, validation, work, note)
    publish(progress, stopped, work, out)


def new_learner(recipe: Recipe) -> Learner:
    """Return the model with the initial weights of the run's seed, and its optimizer."""
    device = find_device(recipe.machine)
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


# --- updates and epochs -----------------------------------------------------------------------------------------------


def run_epoch(recipe: Recipe, learner: Learner, progress: Progress, pairs: Pairs, work: Path, note: Observer) -> None:
    """Do the updates that are left of the epoch under way."""
    train = recipe.train
    began, tokens_seen = time.perf_counter(), 0
    for rows in epoch_steps(pairs, train, recipe.seed, progress.epoch)[progress.epoch_steps :]:
        if progress.step == train.max_steps:
            break
        batches = [collate(pairs, batch) for batch in rows]
        lr = learning_rate(train.schedule, progress.step + 1, recipe.model.d_model, progress.plateau_factor)
        loss, tokens = train_step(learner, batches, lr)
        count_step(progress, train, loss, tokens)
        tokens_seen += tokens + sum(int((batch.source != PAD).sum()) for batch in batches)
        if progress.step % train.log_every_steps == 0:
            elapsed = time.perf_counter() - began
            note(progress.step, window_metrics(progress, lr, tokens_seen / elapsed))
            progress.seconds += elapsed
            began, tokens_seen = time.perf_counter(), 0
        if progress.step % train.checkpoint_every_steps == 0:
            save_progress(learner, progress, work)
    progress.seconds += time.perf_counter() - began


def epoch_steps(pairs: Pairs, train: Train, seed: int, epoch: int) -> list[list[np.ndarray]]:
    """Return the row numbers of each batch of each update of an epoch."""
    batches, size = epoch_batches(pairs, train.batches, seed, epoch), train.batches.batches_per_step
    return [batches[i : i + size] for i in range(0, len(batches), size)]


def train_step(learner: Learner, batches: Sequence[Batch], lr: float) -> tuple[float, int]:
    """Do one update over all batches together; return the summed cross-entropy and the number of target tokens.

    The gradient is that of the sum over all tokens divided by their number, however they are spread over batches.
    """
    tokens = sum(int((batch.labels != PAD).sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        loss = batch_loss(learner, batch, learner.train.label_smoothing)
        (loss.smoothed / tokens).backward()
        total += loss.plain.item()
    check_finite(total, lr)
    clip_norm = learner.train.optimizer.clip_norm
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(learner.model.parameters(), clip_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = lr
    learner.optimizer.step()
    learner.optimizer.zero_grad(set_to_none=True)
    return total, tokens


def check_finite(loss: float, lr: float) -> None:
    """Raise ValueError on a loss that is no number."""
    if not math.isfinite(loss):
        raise ValueError(f"the loss is {loss} at lr {lr:g}: training has diverged; lower the learning rate")


def batch_loss(learner: Learner, batch: Batch, smoothing: float) -> Loss:
    """Return the summed loss over the tokens of a batch; logits are made at real positions only."""
    model, device = learner.model, learner.device
    labels = batch.labels.flatten()
    real = (labels != PAD).nonzero().squeeze(1)
    with learner.precision():
        hidden = model(batch.source.to(device), batch.inputs.to(device)).flatten(0, 1)
        hidden = hidden.index_select(0, real.to(device))
        return cross_entropy(hidden, model.output_weight, model.output_bias, labels[real].to(device), smoothing)


def count_step(progress: Progress, train: Train, loss: float, tokens: int) -> None:
    """Add one update to the sums."""
    total, terms = epoch_term(train, loss, tokens)
    progress.step += 1
    progress.epoch_steps += 1
    progress.epoch_loss += total
    progress.epoch_terms += terms
    progress.window_loss += loss
    progress.window_tokens += tokens


def epoch_term(train: Train, loss: float, tokens: int) -> tuple[float, int]:
    """Return what a batch with this summed loss adds to the sum and to the divisor of an epoch's loss."""
    return (loss, tokens) if train.epoch_loss == "tokens" else (loss / tokens, 1)


def window_metrics(progress: Progress, lr: float, tokens_per_second: float) -> dict[str, float]:
    """Return the metrics since the last call, and begin a new window; tokens are source and target, no padding."""
    loss = progress.window_loss / progress.window_tokens
    progress.window_loss, progress.window_tokens = 0.0, 0
    return {"train_loss": loss, "lr": lr, "tokens_per_second": tokens_per_second}


@torch.no_grad()
def evaluate(learner: Learner, pairs: Pairs) -> float:
    """Return the mean cross-entropy per target token, in nats, without dropout or smoothing."""
    learner.model.eval()
    total, terms = 0.0, 0
    for rows in ordered_batches(pairs, learner.train.batches):
        batch = collate(pairs, rows)
        loss = batch_loss(learner, batch, 0.0).plain.item()
        more, count = epoch_term(learner.train, loss, int((batch.labels != PAD).sum()))
        total, terms = total + more, terms + count
    learner.model.train()
    return total / terms


def finish_epoch(
    recipe: Recipe, learner: Learner, progress: Progress, validation: Pairs, work: Path, note: Observer
) -> Stop | None:
    """Validate and keep the weights; return why the run is over, or begin the next epoch and save the state.

    The state of a run that is over is the last one before its end: max_steps may cut an epoch in two, and a run that is
    given more updates must finish that epoch first.
    """
    train, began = recipe.train, time.perf_counter()
    loss = evaluate(learner, validation)
    lr = learning_rate(train.schedule, progress.step, recipe.model.d_model, progress.plateau_factor)
    check_finite(loss, lr)
    keep_weights(learner, progress, loss, train.keep_last, work)
    metrics = {"train_loss_epoch": progress.epoch_loss / progress.epoch_terms, "validation_loss": loss}
    progress.seconds += time.perf_counter() - began
    note(progress.step, {**metrics, "lr": lr, "seconds": progress.seconds})
    follow_validation(progress, train, loss)
    if progress.bad_epochs >= train.patience_epochs:
        return "patience"
    if progress.step == train.max_steps:
        return "max_steps"
    progress.epoch += 1
    progress.epoch_steps, progress.epoch_loss, progress.epoch_terms = 0, 0.0, 0
    save_progress(learner, progress, work)
    return None


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


# --- files ------------------------------------------------------------------------------------------------------------


def publish(progress: Progress, stopped: Stop, work: Path, out: Path) -> None:
    """Replace `out` by the finished run's weights, metrics, history and summary, all at once."""
    summary = {"epochs": progress.epoch, "steps": progress.step, "stopped": stopped, "validation_loss": progress.best}
    with atomic_directory(out) as directory:
        (directory / "weights").mkdir()
        for file in sorted((work / "weights").glob("step-*.safetensors")):
            shutil.copy(file, directory / "weights")
        best = max((work / "weights").glob("best-*.safetensors"))
        shutil.copy(best, directory / "weights" / "best.safetensors")
        shutil.copy(work / METRICS, directory)
        write_history(read_metrics(work), directory / "history.csv")
        (directory / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
