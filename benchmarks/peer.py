"""A peer beside us: JoeyNMT trains the same model on the same BPE data, and both say their target tokens a second.

    python benchmarks/peer.py [--updates 200]

JoeyNMT comes from PyPI into an environment of its own, work/peer/venv, which borrows torch and all that it can from
ours. Both get the same number of threads and the same allocator settings; JoeyNMT's figure is the one that it logs.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from table import print_table
from training import experiment_of, run_form

from bleuprint.graph import load_params
from bleuprint.params import Experiment, InverseSqrtSchedule, TokenBatches, TransformerModel
from bleuprint.process import prepare

RELEASE = "joeynmt==2.3.0"
NEEDS = [
    "plotly",
    "sentencepiece",
    "subword-nmt",
    "tensorboard",
    "narwhals",
    "absl-py",
    "markdown",
    "tensorboard-data-server",
]
PEER = Path("work/peer")
LOGGED_EVERY = 5  # updates
WARM_UP = 2  # logged lines that are not counted


def main() -> None:
    """Read the command line; without --ours, run both and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200, help="of each; the first few are not counted")
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.ours:
        prepare()
        print(json.dumps(run_form("tiny", "ours", chosen.updates)))
        return
    theirs, ours = peer_rates(chosen.updates), our_rates(chosen.updates)
    times = statistics.median(ours) / statistics.median(theirs)
    rows = [[name, *summary(rates)] for name, rates in ((RELEASE, theirs), ("bleuprint", ours))]
    notes = [f"bleuprint trains {times:.1f} times as fast (medians)."]
    print_table("A peer: Transformer-Tiny, 4,096 tokens a batch", ["", "median", "least", "most"], rows, notes)


def summary(rates: list[float]) -> list[str]:
    """Return median, least and most target tokens a second."""
    return [f"{rate:,.0f}" for rate in (statistics.median(rates), min(rates), max(rates))]


def our_rates(updates: int) -> list[float]:
    """Return the target tokens a second of each of our updates but the first."""
    command = [sys.executable, __file__, "--ours", "--updates", str(updates)]
    output = subprocess.run(command, env=settings(), stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(output)
    return [tokens / seconds for tokens, seconds in zip(found["target_tokens"], found["seconds"], strict=True)]


def settings() -> dict[str, str]:
    """Return the environment of both: the threads of params.yaml, and what process.prepare asks of the allocator."""
    threads = str(load_params().machine.threads)
    allocator = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**62)}
    return {**os.environ, **allocator, "OMP_NUM_THREADS": threads, "GOMP_SPINCOUNT": "1000"}


# --- JoeyNMT ----------------------------------------------------------------------------------------------------------


def peer_rates(updates: int) -> list[float]:
    """Return the target tokens a second in JoeyNMT's log, one figure for LOGGED_EVERY updates."""
    experiment, corpus = experiment_of("tiny")
    write_text(corpus, PEER / "data")
    config = PEER / "config.yaml"
    config.write_text(json.dumps(peer_config(experiment, updates), indent=2))  # JSON is YAML
    command = [str(peer_python().absolute()), "-m", "joeynmt", "train", str(config.absolute()), "--skip-test"]
    output = subprocess.run(command, env=settings(), capture_output=True, text=True, check=False)
    found = [float(rate) for rate in re.findall(r"Tokens per Sec: +(\d+)", output.stderr + output.stdout)]
    if output.returncode or len(found) <= WARM_UP:
        sys.exit(f"{RELEASE} ended with status {output.returncode}:\n{output.stderr[-2000:]}")
    return found[WARM_UP:]


def peer_python() -> Path:
    """Return the python of JoeyNMT's environment, made if it is not there."""
    python = PEER / "venv/bin/python"
    if not (PEER / "venv/installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PEER / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", RELEASE, *NEEDS], check=True)
        folder = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        (Path(folder) / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        (PEER / "venv/installed").touch()
    return python


def write_text(corpus: Path, out: Path) -> None:
    """Write train and validation split as BPE tokens, space-joined, and their joint vocabulary, for JoeyNMT."""
    from bleuprint.batching import open_ids
    from bleuprint.tokenizers import BOS, EOS

    out.mkdir(parents=True, exist_ok=True)
    for split, name in (("train", "train"), ("val", "dev")):
        for side, language in (("source", "en"), ("target", "de")):
            ids = open_ids(corpus, f"{split}.{side}")
            rows = (ids.flat[a:b].tolist() for a, b in zip(ids.offsets[:-1], ids.offsets[1:], strict=True))
            lines = (" ".join(f"t{i}" for i in row if i not in (BOS, EOS)) for row in rows)
            (out / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    types = json.loads((corpus / "manifest.json").read_text())["vocabulary"]["target"]
    specials = ["<unk>", "<pad>", "<s>", "</s>"]
    (out / "vocabulary.txt").write_text(
        "".join(f"{word}\n" for word in [*specials, *(f"t{i}" for i in range(4, types))])
    )


def peer_config(experiment: Experiment, updates: int) -> dict[str, Any]:
    """Return the experiment in JoeyNMT's terms."""
    model, train, data = experiment.model, experiment.train, (PEER / "data").absolute()
    assert isinstance(model, TransformerModel), "JoeyNMT has no other"
    assert isinstance(train.batches, TokenBatches)
    assert isinstance(train.schedule, InverseSqrtSchedule)
    side = {
        "max_length": model.max_positions,
        "lowercase": False,
        "level": "word",
        "voc_file": str(data / "vocabulary.txt"),
    }
    return {
        "name": "peer",
        "model_dir": str((PEER / "model").absolute()),
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": str(data / "train"),
            "dev": str(data / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "en", **side},
            "trg": {"lang": "de", **side},
        },
        "testing": {"beam_size": 1, "eval_metrics": []},
        "training": {
            "optimizer": "adam",
            "adam_betas": list(train.optimizer.betas),
            "scheduling": "warmupinversesquareroot",
            "learning_rate": train.schedule.lr,
            "learning_rate_warmup": train.schedule.warmup_steps,
            "learning_rate_min": 0.0001,  # PyYAML would read 1e-05 as a word
            "loss": "crossentropy",
            "label_smoothing": train.label_smoothing,
            "normalization": "tokens",
            "batch_type": "token",
            "batch_size": train.batches.max_tokens,
            "batch_multiplier": 1,
            "epochs": 1000,
            "updates": updates,
            "validation_freq": 10 * updates,
            "logging_freq": LOGGED_EVERY,
            "overwrite": True,
            "shuffle": True,
            "early_stopping_metric": "loss",
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": peer_stack(model),
            "decoder": peer_stack(model),
        },
    }


def peer_stack(model: TransformerModel) -> dict[str, Any]:
    """Return an encoder or a decoder in JoeyNMT's terms."""
    return {
        "type": "transformer",
        "num_layers": model.n_layers,
        "num_heads": model.n_heads,
        "embeddings": {"embedding_dim": model.d_model, "scale": True, "dropout": model.embedding_dropout},
        "hidden_size": model.d_model,
        "ff_size": model.d_ff,
        "dropout": model.residual_dropout,
        "layer_norm": "post",
    }


if __name__ == "__main__":
    main()
