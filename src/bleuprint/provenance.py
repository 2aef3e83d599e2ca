"""Where a result comes from: what can differ between two machines that give the same bytes.

`results/{run}.json` holds what is reproducible, hashes of the deciding files included; `results/{run}.provenance.json`
holds the rest: commit, times, machine, versions, speed.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from bleuprint.files import sha256_of
from bleuprint.lines import read_lines

LIBRARIES = (
    "bleuprint", "torch", "numpy", "safetensors", "tokenizers", "sacremoses", "spacy", "sacrebleu", "dvc", "snakemake",
    "mlflow",
)  # fmt: skip
# What the graph itself writes and git tracks: a run in progress must not call its own checkout changed.
GENERATED = ("results", "reports", "dvc.lock")
COMMAND_SECONDS = 20  # git or nvidia-smi that does not answer by then counts as absent


def collect(started: datetime, threads: int, train_metrics: Path, root: Path = Path()) -> dict[str, Any]:
    """Return the provenance of a run that is being scored; `started` is when the stage began, in UTC.

    Everything unknown is null: no git checkout at `root`, no GPU, a library that is not installed.
    """
    return {
        "git": describe_git(root),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "threads": threads,
        "python": platform.python_version(),
        "versions": {name: installed_version(name) for name in LIBRARIES},
        "training": summarise_training(train_metrics),
    }


def hash_files(files: Mapping[str, Path]) -> dict[str, str]:
    """Return the sha256 of every file under its given name, e.g. {"raw": data/raw/toy/manifest.json}."""
    return {name: sha256_of(path) for name, path in files.items()}


# --- code -------------------------------------------------------------------------------------------------------------


def describe_git(root: Path) -> dict[str, Any]:
    """Return {"commit", "dirty"} of the checkout at `root`; both null outside of one or before its first commit."""
    commit = output_of("git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None}
    outside = [f":(exclude){path}" for path in GENERATED]
    changes = output_of("git", "-C", str(root), "status", "--porcelain", "--", ".", *outside)
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, null where there is none of that name."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# --- machine ----------------------------------------------------------------------------------------------------------


def describe_machine() -> dict[str, Any]:
    """Return the machine that scores: operating system, CPU model, cores, memory in bytes, names of the GPUs."""
    gpus = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return {
        "system": platform.platform(),
        "cpu": cpu_model(Path("/proc/cpuinfo")),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": None if gpus is None else gpus.splitlines(),
    }


def cpu_model(cpuinfo: Path) -> str | None:
    """Return the model's name from Linux' cpuinfo, else what the platform module knows, else null."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def output_of(*command: str) -> str | None:
    """Return what a command prints, stripped; null where it is not installed, fails or does not answer."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# --- training ---------------------------------------------------------------------------------------------------------


def summarise_training(metrics: Path) -> dict[str, Any] | None:
    """Return {"seconds", "tokens_per_second", "processes", "made_with"} of a training log (JSON lines).

    Null where the file is gone.

    `seconds` is the largest `seconds` of its lines, which training counts up, `tokens_per_second` the median of
    theirs, `processes` how many trained together, in order where one number went on from another's state; null where no
    line has the key. `made_with` stands in the manifest of the weights beside the log. Raise ValueError on a line that
    is not JSON.
    """
    if not metrics.exists():
        return None
    rows = [parse_line(line, metrics) for line in read_lines(metrics)]
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    starts = {row["step"]: row["processes"] for row in rows if "processes" in row}  # of two from one state the last did
    return {
        "seconds": max(seconds) if seconds else None,
        "tokens_per_second": round(statistics.median(speeds), 1) if speeds else None,
        "processes": [count for count, _ in groupby(starts.values())] or None,
        "made_with": read_made_with(metrics.parent / "weights"),
    }


def parse_line(line: str, path: Path) -> dict[str, float]:
    """Return the numbers by name in one JSON line of `path`; ValueError shows a line that is none."""
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(f"{path} holds a line that is not JSON: {line[:80]!r}") from None
    if not isinstance(row, dict) or not all(isinstance(value, int | float) for value in row.values()):
        raise ValueError(f"{path} holds a line that is no numbers by name: {line[:80]!r}")
    return row


def read_made_with(weights: Path) -> dict[str, Any] | None:
    """Return what the manifest of a training's weights says of its environment; null where that is not known."""
    try:
        return json.loads((weights / "manifest.json").read_text(encoding="utf-8"))["made_with"]
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None
