"""Numbers that are none, memory that does not suffice, schedules across a kill: nothing of it passes unsaid."""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from copy_task import (
    NO_DROPOUT,
    corpus,
    epoch_ends,
    read_lines,
    recipe_for,
    reproducible_bytes,
    run,
    without_times,
)

from bleuprint import training
from bleuprint.batching import collate, epoch_batches, open_pairs
from bleuprint.incidents import DIVERGED
from bleuprint.resume import Learner, resume
from bleuprint.training import Recipe, epoch_steps, new_learner, train_run, work_directory
from bleuprint.updates import prepare, train_step
from reliability import Record

__all__ = ["corpus"]  # a fixture

ROOT = Path(__file__).parents[3]
WILD = {"kind": "inverse_sqrt", "lr": 1e30, "warmup_steps": 1}


# --- not finite -------------------------------------------------------------------------------------------------------


def diverged(recipe: Recipe, root: Path) -> dict:
    """Train, and return what is kept to look at."""
    out = run(recipe, root)
    assert json.loads((out / "summary.json").read_text())["stopped"] == "diverged"
    return json.loads((work_directory(root / "work", "copy-1", recipe) / DIVERGED).read_text())


def test_a_loss_that_is_none_is_told_with_its_update_and_kept(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, record: Record
) -> None:
    recipe = recipe_for(corpus, {"schedule": WILD, "log_every_steps": 4})
    kept = diverged(recipe, tmp_path)
    assert {name: kept[name] for name in ("update", "epoch", "what", "value", "lr", "state_of_update")} == {
        "update": 2, "epoch": 1, "what": "loss", "value": "nan", "lr": pytest.approx(1e30 / 2**0.5),
        "state_of_update": 0,
    }  # fmt: skip
    pairs = open_pairs(corpus, "train")
    [rows] = epoch_steps(pairs, recipe.train, 1, 1)[1]
    [batch] = kept["batches"]
    assert batch["rows"] == rows.tolist()
    made = collate(pairs, rows)
    assert (batch["source"], batch["target"]) == (list(made.source.shape), list(made.target.shape))
    assert "the loss of update 2, of epoch 1, is nan at lr 7.07107e+29, in a batch of " in caplog.text
    record("fault", "a loss that is nan", 1, 1)


def poison(monkeypatch: pytest.MonkeyPatch, update: int, value: float) -> None:
    """Let one gradient of that update be `value`, while the loss is finite."""
    make, done = training.new_learner, 0

    def poisoned(recipe: Recipe) -> Learner:
        learner = make(recipe)

        def change(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal done
            done += 1
            return torch.full_like(gradient, value) if done == update else gradient

        next(iter(learner.model.parameters())).register_hook(change)
        return learner

    monkeypatch.setattr(training, "new_learner", poisoned)


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_gradient_that_is_none_is_told_though_the_loss_is_finite(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    record: Record,
    clip_norm: float | None,
    value: float,
) -> None:
    optimizer = {"kind": "adam", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0, "clip_norm": clip_norm}
    poison(monkeypatch, 7, value)
    kept = diverged(recipe_for(corpus, {"optimizer": optimizer}), tmp_path)
    assert (kept["update"], kept["what"], kept["value"]) == (7, "gradient", str(value))
    assert kept["state_of_update"] == 4, "the last one before it"
    assert "the gradient of update 7" in caplog.text
    assert "training has diverged in epoch 1" in caplog.text
    record("fault", f"a gradient that is {value}, {'not clipped' if clip_norm is None else 'clipped'}", 1, 1)


def test_what_is_kept_leads_to_the_update_again(corpus: Path, tmp_path: Path) -> None:
    """A weight decay so large that each update turns the weights round and doubles them, until they are none."""
    doubling = {"kind": "adamw", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 3000.0, "clip_norm": None}
    schedule = {"kind": "plateau", "lr": 1e-3, "factor": 0.5, "patience_epochs": 1000, "warmup_epochs": 0}
    recipe = recipe_for(corpus, {"schedule": schedule, "optimizer": doubling, "max_steps": 4000}, NO_DROPOUT)
    kept = diverged(recipe, tmp_path)
    assert kept["update"] > kept["state_of_update"] >= 4
    learner = new_learner(recipe)
    progress = resume(learner, work_directory(tmp_path / "work", "copy-1", recipe))
    assert progress.step == kept["state_of_update"]
    pairs = open_pairs(corpus, "train")
    steps = epoch_steps(pairs, recipe.train, 1, progress.epoch)[progress.epoch_steps :]
    for rows in steps:
        progress.step += 1
        lr = training.learning_rate(recipe.train.schedule, progress.step, recipe.model.d_model, 1.0)
        found = train_step(learner, [prepare(collate(pairs, batch), learner.device) for batch in rows], lr)
        if not found.isfinite().all():
            break
    assert progress.step == kept["update"]
    assert [batch.tolist() for batch in rows] == [batch["rows"] for batch in kept["batches"]]


# --- nothing skipped --------------------------------------------------------------------------------------------------


def test_pairs_that_are_left_out_are_counted(corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batches = {
        "kind": "sentences", "sentences": 32, "pool_batches": 100, "sort_by": "tokens", "shuffle_batches": True,
        "drop_last": True, "validation_sort_by": "tokens", "batches_per_step": 1,
    }  # fmt: skip
    caplog.set_level(logging.INFO)
    recipe = recipe_for(corpus, {"batches": batches, "max_steps": 6})
    out = run(recipe, tmp_path)
    assert epoch_ends(out) == [3, 6]
    for epoch in (1, 2):
        assert f"epoch {epoch} leaves out 24 of 120 pairs: drop_last" in caplog.text
    read = [np.concatenate(epoch_batches(open_pairs(corpus, "train"), recipe.train.batches, 1, e)) for e in (1, 2)]
    tokens = sum(int(open_pairs(corpus, "train").source.lengths[rows].sum()) for rows in read)
    assert json.loads((out / "summary.json").read_text())["source_tokens"] == tokens


# --- across a kill ----------------------------------------------------------------------------------------------------


class CutOff(Exception):
    """What ends a training in the middle, as a kill would."""


def cut_off(recipe: Recipe, root: Path, line: int) -> None:
    """Train until the line of metrics with this number."""
    seen = 0

    def observe(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal seen
        seen += 1
        if seen == line:
            raise CutOff

    with pytest.raises(CutOff):
        train_run(recipe, work_directory(root / "work", "copy-1", recipe), root / "out", observe)


def test_plateau_and_patience_survive_kills(corpus: Path, tmp_path: Path, record: Record) -> None:
    """With such an eps Adam does not move, so that nothing improves: the rate falls, and the run ends of patience."""
    changes = {
        "schedule": {"kind": "plateau", "lr": 1e-3, "factor": 0.5, "patience_epochs": 1, "warmup_epochs": 0},
        "optimizer": {"kind": "adam", "betas": [0.9, 0.98], "eps": 1e20, "weight_decay": 0.0, "clip_norm": None},
        "patience_epochs": 5,
        "max_steps": 500,
    }
    recipe = recipe_for(corpus, changes)
    whole = run(recipe, tmp_path / "whole")
    ends = [line for line in read_lines(whole) if "validation_loss" in line]
    assert json.loads((whole / "summary.json").read_text())["stopped"] == "patience"
    assert [line["lr"] for line in ends] == pytest.approx([1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4])
    lines = range(2, len(read_lines(whole)), 5)
    for line in lines:
        cut_off(recipe, tmp_path / "cut", line if line == 2 else 5)
    again = run(recipe, tmp_path / "cut")
    assert reproducible_bytes(again) == reproducible_bytes(whole)
    assert without_times(again) == without_times(whole)
    record("fault", "training with plateau and patience cut off, and gone on with", len(lines), len(lines))


# --- memory -----------------------------------------------------------------------------------------------------------

SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path
from copy_task import NO_DROPOUT, recipe_for, run, write_corpus

root, train, val = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
write_corpus(root / "corpus", {"train": train, "val": val})
batches = {"kind": "tokens", "max_tokens": 10**6, "batches_per_step": 1}
recipe = recipe_for(root / "corpus", {"batches": batches, "max_steps": 1}, {"d_ff": 4096})
run(recipe_for(root / "corpus", {"max_steps": 1}), root / "warm")  # what is loaded once, is
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 150 * 2**20,) * 2)
try:
    run(recipe, root)
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("train", "val"), [(6000, 10), (10, 12000)], ids=["training", "validation"])
def test_out_of_memory_names_the_batch_and_what_to_lower(tmp_path: Path, record: Record, train: int, val: int) -> None:
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(tmp_path), str(train), str(val)]
    environment = {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests/unit'}",
        "PATH": "/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    pairs = max(train, val)
    assert f"the memory does not suffice for a batch of {pairs} x 9 source and {pairs} x 10 target" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "lower train.batches.max_tokens of the experiment, which is 1000000" in done.stdout
    record("fault", f"out of memory in {'training' if train > val else 'validation'}", 1, 1)


def test_another_error_of_torch_is_not_taken_for_one_of_memory(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(learner: Learner, batches: list, lr: float) -> torch.Tensor:
        raise RuntimeError("expected scalar type Float")

    monkeypatch.setattr(training, "train_step", fail)
    with pytest.raises(RuntimeError, match="expected scalar type Float"):
        run(recipe_for(corpus), tmp_path)
