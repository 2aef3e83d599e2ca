"""What every benchmark shares: a timing loop, the machine's matmul rate, a table on the screen and in RESULTS.md."""

import datetime
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"


def measure(function: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of each of `repeats` calls, after one that is not counted."""
    function()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return seconds


def spread(seconds: Sequence[float]) -> str:
    """Return "median [least, most]" in seconds."""
    return f"{statistics.median(seconds):.3g} [{min(seconds):.3g}, {max(seconds):.3g}]"


def ratio(ours: Sequence[float], other: Sequence[float]) -> str:
    """Return how many times as long the other takes, by the medians."""
    return f"{statistics.median(other) / statistics.median(ours):.2f}x"


def matmul_rate(dtype: str, device: str = "cpu", size: int = 2048, repeats: int = 9) -> float:
    """Return FLOP/s of the fastest of some square products in `dtype` ("bfloat16", "float32"), with torch's threads."""
    import torch

    left, right = (torch.randn(size, size, dtype=getattr(torch, dtype), device=device) for _ in range(2))

    def product() -> None:
        torch.mm(left, right)
        if device != "cpu":
            torch.cuda.synchronize()

    return 2 * size**3 / min(measure(product, repeats))


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> None:
    """Print a table and append it, with the command's date and machine, to benchmarks/RESULTS.md."""
    cells = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    text = "\n".join([f"### {title}", "", f"{machine()}", "", *lines, "", *(f"{note}  " for note in notes)]).rstrip()
    print(text, flush=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


def machine() -> str:
    """Return date, commit, processor and its number of cores: what a figure depends on besides the code."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{datetime.date.today()}, commit {commit()}, {processor()}, {cores} cores"


def commit() -> str:
    """Return the commit's short name, "unknown" in a copy without git: a machine that is lent may have none."""
    try:
        done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def processor() -> str:
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
