"""metrics.jsonl, the primary record of a run, and history.csv, its reproducible part."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bleuprint.files import write_text

METRICS = "metrics.jsonl"


def append_metrics(work: Path, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
    """Add a line to metrics.jsonl, the primary record of a run."""
    with (work / METRICS).open("a") as file:
        file.write(json.dumps({"step": step, "epoch": epoch, **metrics}) + "\n")


def read_metrics(work: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl; a last line that was cut off by a kill is left out.

    ValueError where another one is damaged.
    """
    path = work / METRICS
    text = path.read_text() if path.exists() else ""
    try:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); remove {work} to train the run afresh") from None


def rewrite_metrics(work: Path, step: int, epoch: int) -> None:
    """Keep the lines up to an update and leave out those of a validation in or after its epoch."""
    kept = [
        line
        for line in read_metrics(work)
        if line["step"] <= step and ("validation_loss" not in line or line["epoch"] < epoch)
    ]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    write_text(work / METRICS, text)


def describe(metrics: Mapping[str, float]) -> str:
    """Return metrics as one line for a log."""
    return " ".join(f"{name} {value:.5g}" for name, value in metrics.items())


def write_history(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write one row per epoch: the part of the metrics that is the same in every repetition."""
    names = ("epoch", "step", "train_loss", "validation_loss", "lr")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for line in lines:
            if "validation_loss" in line:
                row = {**line, "train_loss": line["train_loss_epoch"]}
                writer.writerow([row[name] for name in names])
