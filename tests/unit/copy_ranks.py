"""Trainings of the copy task, and sums, for two processes; test_distributed.py starts this file by torchrun.

python copy_ranks.py CORPUS ROOT: each training has ROOT/NAME to itself, and what rank R saw is written to ROOT/R.json.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from copy_task import NO_DROPOUT, recipe_for, run
from torch import nn

from bleuprint import distributed
from bleuprint.params import HyunwoongkoModel
from bleuprint.training import Recipe

EVERY_LOSS = {
    "max_steps": 50,
    "log_every_steps": 1,
    "checkpoint_every_steps": 16,
    "schedule": {"kind": "inverse_sqrt", "lr": 5e-3, "warmup_steps": 1000},
}
TWO_BATCHES = {"kind": "tokens", "max_tokens": 64, "batches_per_step": 2}
ONE_ROW_OR_FEW = {"kind": "tokens", "max_tokens": 10, "batches_per_step": 1}
UNSORTED = {
    "kind": "sentences",
    "sentences": 5,
    "pool_batches": 3,
    "sort_by": "none",
    "shuffle_batches": True,
    "drop_last": False,
    "validation_sort_by": "none",
    "batches_per_step": 1,
}
# Padding is not hidden from it: in a narrower batch a row has other losses.
SEES_PADDING = HyunwoongkoModel(
    kind="hyunwoongko",
    d_model=32,
    d_ff=64,
    n_heads=4,
    n_layers=1,
    max_positions=32,
    dropout=0.0,
    output_projection=False,
    score_scale="d_model",
    norm_eps=1e-12,
    init="xavier_uniform",
)


def accumulated(corpus: Path) -> Recipe:
    return recipe_for(corpus, EVERY_LOSS | {"batches": TWO_BATCHES}, NO_DROPOUT)


def few_rows(corpus: Path) -> Recipe:
    r_drop = {"regularizers": {"r_drop": 5.0, "bpe_dropout": 0.0}}
    return recipe_for(corpus, EVERY_LOSS | r_drop | {"batches": ONE_ROW_OR_FEW}, NO_DROPOUT)


def sees_padding(corpus: Path) -> Recipe:
    changes = {"batches": UNSORTED, "epoch_loss": "batches", "label_smoothing": 0.0}
    return recipe_for(corpus, EVERY_LOSS | changes)._replace(model=SEES_PADDING)


def patience(corpus: Path) -> Recipe:
    """Updates too small for fp32: every epoch validates like the first."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e-30, "warmup_steps": 1}
    return recipe_for(corpus, {"schedule": schedule, "patience_epochs": 2, "max_steps": 1000}, NO_DROPOUT)


def diverged(corpus: Path) -> Recipe:
    schedule = {"kind": "inverse_sqrt", "lr": 1e30, "warmup_steps": 1}
    return recipe_for(corpus, {"schedule": schedule, "log_every_steps": 4}, NO_DROPOUT)


def dropout(corpus: Path) -> Recipe:
    return recipe_for(corpus)


TRAININGS = {each.__name__: each for each in (accumulated, few_rows, sees_padding, patience, diverged, dropout)}


def up_to(recipe: Recipe, max_steps: int) -> Recipe:
    return recipe._replace(train=recipe.train.model_copy(update={"max_steps": max_steps}))


def main(corpus: Path, root: Path, rank: int) -> None:
    found = observe(rank)
    for name, recipe in TRAININGS.items():
        run(recipe(corpus), root / name)
    run(up_to(accumulated(corpus), 35), root / "resumed")
    for steps in (7, 18, 25):
        run(up_to(dropout(corpus), steps), root / "cut")
    (root / f"{rank}.json").write_text(json.dumps(found))


def observe(rank: int) -> dict[str, Any]:
    """Return what this rank has after sums, and after a beginning with others of another mind."""
    found: dict[str, Any] = {}
    found["rows"] = [distributed.share(torch.arange(rows)).tolist() for rows in (5, 1)]
    found["sums"] = distributed.sum_over_ranks(torch.tensor([1.0, rank])).tolist()
    distributed.BUCKET = 3
    weights = [nn.Parameter(torch.full((size,), float(rank))) for size in (2, 2, 3)]
    for weight in weights[rank:]:  # the second rank has nothing to say about the first weight
        weight.grad = torch.full_like(weight, rank + 1.0)
    distributed.sum_gradients(weights)
    found["gradients"] = [weight.grad.tolist() for weight in weights if weight.grad is not None]
    torch.manual_seed(1)
    distributed.begin_together("one mind", weights, seed=1, step=0)
    found["drawn"] = torch.rand(2).tolist()
    found["weights"] = [weight.tolist() for weight in weights]
    try:
        distributed.begin_together(f"mind {rank}", weights, seed=1, step=0)
    except ValueError as error:
        found["error"] = str(error)
    return found


if __name__ == "__main__":
    distributed.PATIENCE = timedelta(minutes=2)
    place = distributed.find_place(os.environ)
    with distributed.joined(place, torch.device("cpu")):
        main(Path(sys.argv[1]), Path(sys.argv[2]), place.rank)
