"""How fast a training step is: against a naive fp32 form with the same weights and batches, and against the arithmetic.

    python benchmarks/training.py tiny    # Transformer-Tiny, 4,096 target tokens a batch
    python benchmarks/training.py base    # the README's size, 128 sentences a batch

Each form runs in a process of its own, in turn, twice; the naive one with the allocator's defaults. Tokens are real
ones, source and target. The floor is the time of the products that our step executes, at the measured bf16 matmul rate.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from table import matmul_rate, print_table, ratio, spread

from bleuprint.graph import load_params
from bleuprint.params import Experiment, TransformerModel
from bleuprint.process import prepare

if TYPE_CHECKING:
    from bleuprint.batching import Batch

ROUNDS = 2
WARM_UP = 2
BATCHES = {"tiny": 12, "base": 6}
# The README's model and as many sentences a batch, sorted by length, which its own are not (reports/LOG.md); its
# optimizer does not matter to the time.
BASE_MODEL: dict[str, Any] = {
    "norm": "post", "d_model": 512, "d_ff": 2048, "n_heads": 8, "n_layers": 6, "max_positions": 256,
    "tie_embeddings": "none", "scale_embeddings": False, "embedding_dropout": 0.1, "residual_dropout": 0.1,
    "attention_dropout": 0.0, "ffn_dropout": 0.1, "output_bias": True, "norm_eps": 1e-12, "init": "kaiming_uniform",
}  # fmt: skip
BASE_BATCHES = {
    "kind": "sentences", "sentences": 128, "pool_batches": 100, "sort_by": "interleaved", "shuffle_batches": True,
    "drop_last": False, "validation_sort_by": "interleaved", "batches_per_step": 1,
}  # fmt: skip


def main() -> None:
    """Read the command line; without --form, start a process for each form and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=BATCHES)
    parser.add_argument("--form", choices=["naive", "ours"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.form == "ours":
        prepare()
    if chosen.form:
        print(json.dumps(run_form(chosen.size, chosen.form, BATCHES[chosen.size])))
    else:
        compare(chosen.size)


def compare(size: str) -> None:
    """Run both forms in turn and print their table."""
    found: dict[str, list[dict[str, Any]]] = {"naive": [], "ours": []}
    for _ in range(ROUNDS):
        for form, runs in found.items():
            command = [sys.executable, __file__, size, "--form", form]
            runs.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    seconds = {form: [s for run in runs for s in run["seconds"]] for form, runs in found.items()}
    rows = []
    for form, runs in found.items():
        rate = sum(sum(run["tokens"]) for run in runs) / sum(seconds[form])
        memory = max(run["resident_mb"] for run in runs)
        rows.append([form, spread(seconds[form]), f"{rate:,.0f}", f"{ratio(seconds[form], seconds['naive'])}", memory])
    ours = found["ours"]
    speed = max(run["flop_per_second"] for run in ours)
    floor = [flop / speed for run in ours for flop in run["flop"]]
    above = statistics.median(s / f for s, f in zip(seconds["ours"], floor, strict=True))
    rows.append(["floor", spread(floor), "", ratio(floor, seconds["naive"]), ""])
    notes = [f"Ours takes {above:.2f} times the floor, which is at {speed / 1e9:,.0f} GFLOP/s (bf16, square products)."]
    header = ["form", "seconds a step", "tokens/s", "against naive", "resident MB"]
    print_table(f"A training step, {size} size", header, rows, notes)


def run_form(size: str, form: str, count: int) -> dict[str, Any]:
    """Return seconds, real tokens and, for ours, FLOP of each of `count` steps, and the peak of resident memory."""
    import torch

    from bleuprint.tokenizers import PAD

    experiment, corpus = experiment_of(size)
    torch.set_num_threads(load_params().machine.threads)
    batches = first_batches(experiment, corpus, WARM_UP + count)
    step = (our_step if form == "ours" else naive_step)(experiment, corpus)
    seconds = []
    for batch in batches:
        began = time.perf_counter()
        step(batch)
        seconds.append(time.perf_counter() - began)
    measured: dict[str, Any] = {
        "seconds": seconds[WARM_UP:],
        "tokens": [real_tokens(batch) for batch in batches[WARM_UP:]],
        "target_tokens": [int((batch.labels != PAD).sum()) for batch in batches[WARM_UP:]],
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    if form == "ours":
        measured |= {"flop": [count_flop(step, batch) for batch in batches[WARM_UP : WARM_UP + BATCHES[size]]]}
        measured |= {"flop_per_second": matmul_rate("bfloat16")}
    return measured


def experiment_of(size: str) -> tuple[Experiment, Path]:
    """Return the experiment that is measured, and its corpus."""
    tiny = load_params().recipes["tiny"]
    if size == "tiny":
        batches = tiny.train.batches.model_copy(update={"batches_per_step": 1})
        return tiny.model_copy(update={"train": tiny.train.model_copy(update={"batches": batches})}), corpus_of(
            tiny.corpus
        )
    values = tiny.model_dump()
    values["model"] |= BASE_MODEL
    values["train"] |= {"batches": BASE_BATCHES, "label_smoothing": 0.0}
    return Experiment.model_validate(values), corpus_of("multi30k-words")


def corpus_of(name: str) -> Path:
    """Return a corpus' folder; the program ends where it does not exist."""
    path = Path("data/corpora") / name
    if not path.exists():
        dataset = load_params().corpora[name].dataset
        sys.exit(
            f"{path} does not exist: python -m bleuprint download {dataset} && python -m bleuprint tokenize {name}"
        )
    return path


def first_batches(experiment: Experiment, corpus: Path, count: int) -> "list[Batch]":
    """Return the first batches of the first epoch with seed 1."""
    from bleuprint.batching import collate, epoch_batches, open_pairs

    pairs = open_pairs(corpus, "train")
    return [collate(pairs, rows) for rows in epoch_batches(pairs, experiment.train.batches, 1, 1)[:count]]


def real_tokens(batch: "Batch") -> int:
    """Return the number of source tokens and predicted target tokens that are not padding."""
    from bleuprint.tokenizers import PAD

    return int((batch.source != PAD).sum() + (batch.labels != PAD).sum())


def our_step(experiment: Experiment, corpus: Path) -> Any:
    """Return a function that does one update with a batch, as the train stage does it."""
    import torch

    from bleuprint.models import build_model
    from bleuprint.objective import build_optimizer
    from bleuprint.resume import Learner
    from bleuprint.training import vocabulary_sizes
    from bleuprint.updates import prepare, train_step

    torch.manual_seed(1)
    model = build_model(experiment.model, *vocabulary_sizes(corpus))
    learner = Learner(model, build_optimizer(model, experiment.train.optimizer), torch.device("cpu"), experiment.train)
    return lambda batch: train_step(learner, [prepare(batch, learner.device)], 1e-4)


def naive_step(experiment: Experiment, corpus: Path) -> Any:
    """Return the same for the naive form with the same weights."""
    import torch
    from naive import NaiveTransformer, copy_weights, mean_loss

    from bleuprint.models import build_model
    from bleuprint.training import vocabulary_sizes

    torch.manual_seed(1)
    sizes = vocabulary_sizes(corpus)
    assert isinstance(experiment.model, TransformerModel), "what the naive form is a form of"
    model = NaiveTransformer(experiment.model, *sizes)
    copy_weights(build_model(experiment.model, *sizes), model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(batch: "Batch") -> None:
        optimizer.zero_grad()
        mean_loss(model, batch.source, batch.target, experiment.train.label_smoothing).backward()
        optimizer.step()

    return step


def count_flop(step: Any, batch: "Batch") -> int:
    """Return the floating-point operations of the products in a step."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step(batch)
    return counter.get_total_flops()


if __name__ == "__main__":
    main()
