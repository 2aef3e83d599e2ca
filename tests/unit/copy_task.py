"""A small training for tests: a model learns to copy up to eight words; some 10 updates an epoch."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bleuprint.idstore import write_ids
from bleuprint.params import Machine, Splits, Train, TransformerModel
from bleuprint.tokenizers import BOS, EOS
from bleuprint.training import (
    Recipe,
    train_run,
    work_directory,
)

TYPES = 12  # four special ones and eight words
MODEL = {
    "kind": "transformer",
    "norm": "pre",
    "d_model": 32,
    "d_ff": 64,
    "n_heads": 4,
    "n_layers": 1,
    "max_positions": 32,
    "tie_embeddings": "none",
    "scale_embeddings": True,
    "embedding_dropout": 0.1,
    "residual_dropout": 0.1,
    "attention_dropout": 0.0,
    "ffn_dropout": 0.0,
    "output_bias": False,
    "norm_eps": 1e-5,
    "init": "fairseq",
}
NO_DROPOUT = {"embedding_dropout": 0.0, "residual_dropout": 0.0}
TRAIN = {  # 10 to 12 updates an epoch
    "precision": "fp32",
    "label_smoothing": 0.1,
    "regularizers": {"r_drop": 0.0, "bpe_dropout": 0.0},
    "batches": {"kind": "tokens", "max_tokens": 64, "batches_per_step": 1},
    "schedule": {"kind": "inverse_sqrt", "lr": 5e-3, "warmup_steps": 20},
    "optimizer": {"kind": "adam", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0, "clip_norm": 1.0},
    "epoch_loss": "tokens",
    "max_steps": 25,
    "patience_epochs": 100,
    "keep_last": 2,
    "checkpoint_every_steps": 4,
    "log_every_steps": 3,
}
Lines = list[dict[str, float]]


def write_corpus(corpus: Path, pairs: Mapping[str, int]) -> None:
    """Write splits in which the target is the source again: 1 to 8 words, drawn from eight."""
    corpus.mkdir()
    random = np.random.default_rng(0)
    for split, count in pairs.items():
        words = [random.integers(4, TYPES, random.integers(1, 9)).tolist() for _ in range(count)]
        write_ids(corpus, f"{split}.source", [[*line, EOS] for line in words], TYPES)
        write_ids(corpus, f"{split}.target", [[BOS, *line, EOS] for line in words], TYPES)
    (corpus / "manifest.json").write_text(json.dumps({"vocabulary": {"source": TYPES, "target": TYPES}}))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = tmp_path_factory.mktemp("corpora") / "copy"
    write_corpus(corpus, {"train": 120, "val": 30})
    return corpus


def recipe_for(
    corpus: Path, train: Mapping[str, object] | None = None, model: Mapping[str, object] | None = None, seed: int = 1
) -> Recipe:
    return Recipe(
        seed,
        TransformerModel.model_validate(MODEL | dict(model or {})),
        Train.model_validate(TRAIN | dict(train or {})),
        Machine(device="cpu", threads=1),
        Splits(train="train", validation="val", tests=("test",)),
        corpus,
        {"training": "0"},
    )


def ignore(step: int, metrics: Mapping[str, float]) -> None:
    """Observe nothing."""


def run(recipe: Recipe, root: Path) -> Path:
    """Train below `root`, with the resume state where the stage command keeps it, and return the outputs."""
    train_run(recipe, work_directory(root / "work", "copy-1", recipe), root / "out", ignore)
    return root / "out"


def read_lines(out: Path) -> Lines:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def epoch_ends(out: Path) -> list[int]:
    return [int(line["step"]) for line in read_lines(out) if "validation_loss" in line]


def without_times(out: Path) -> Lines:
    times = ("seconds", "tokens_per_second")
    return [{name: value for name, value in line.items() if name not in times} for line in read_lines(out)]


def reproducible_bytes(out: Path) -> dict[str, bytes]:
    """Return the files of a run that must be the same in every repetition."""
    files = [*(out / "weights").iterdir(), out / "history.csv", out / "summary.json"]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(recipe_for(corpus), tmp_path_factory.mktemp("finished"))
