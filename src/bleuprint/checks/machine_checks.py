"""Checks of the machine for `doctor`: Python, packages, torch and GPU, threads, allocator, disk. None imports torch."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from bleuprint.checks.findings import Finding, worst
from bleuprint.process import keep_freed_memory
from bleuprint.provenance import installed_version, output_of
from bleuprint.segmentation import usable_cores

OLDEST_PYTHON = (3, 11)
TORCH_SECONDS = 120  # for importing it, on a busy disk
GIB = 2**30
LITTLE_DISK = 1 * GIB  # a training keeps some weights, DVC a copy of each
SOME_DISK = 5 * GIB
NAMED = 3  # packages that are named; the others are counted

# What torch says of itself, in a process of its own: a build that does not fit the machine may crash. The product is
# computed, for a build may know the driver and not the GPU.
ASK_TORCH = """
import json, torch
cuda = torch.version.cuda or torch.version.hip
found = {"version": torch.__version__, "cuda": cuda, "gpu": torch.cuda.is_available()}
if found["gpu"]:
    found["sum"] = float((torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")).sum())
print(json.dumps(found))
"""


def check_python(environment: Mapping[str, str] = os.environ) -> Finding:
    """Look at the release, and at which Python the engines start: they call `python -m bleuprint`."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return Finding("problem", f"Python {version} is too old", "make PYTHON=python3.12 venv")
    found = shutil.which("python", path=environment["PATH"])
    if found is None or Path(found).parent != Path(sys.executable).parent:
        return Finding(
            "problem",
            f"dvc and snakemake start {found or 'no python'}, and this is {sys.executable}",
            f"put {Path(sys.executable).parent} first on PATH: source .venv/bin/activate",
        )
    return Finding("ok", f"{version}, {found}")


def check_packages(lock: Path) -> Finding:
    """Compare the installed releases with requirements.lock; another release may give other numbers."""
    if not lock.is_file():
        return Finding("warning", f"{lock} is not there: releases are not compared", "run in a clone of the project")
    wanted = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    installed = {name: installed_version(name) for name in wanted}
    missing = [name for name, version in installed.items() if version is None]
    other = [
        f"{name} {version}, not {wanted[name]}"
        for name, version in installed.items()
        if version is not None and version.partition("+")[0] != wanted[name].partition("+")[0]
    ]
    if missing:
        return Finding("problem", f"missing: {shortened(missing)}", "make venv")
    if other:
        return Finding("warning", f"not as locked: {shortened(other)}", "make venv")
    return Finding("ok", f"{len(wanted)} packages as in {lock}")


def shortened(names: list[str]) -> str:
    """Return the first names, and how many there are besides."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def check_torch(device: Literal["auto", "cpu", "cuda"], environment: Mapping[str, str] = os.environ) -> Finding:
    """Compare torch's build with the GPUs that are there, and let it compute on one."""
    gpus = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK_TORCH], capture_output=True, text=True, timeout=TORCH_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "problem", f"torch was not imported within {TORCH_SECONDS} s", "look at the disk, and at the GPU"
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return Finding("problem", f"torch cannot be used: {reason}", fitting_build(gpus))
    return judge_torch(json.loads(done.stdout.splitlines()[-1]), gpus, device, done.stderr)


def judge_torch(
    found: Mapping[str, Any], gpus: str | None, device: Literal["auto", "cpu", "cuda"], said: str
) -> Finding:
    """Return what torch's own answer means, given nvidia-smi's and machine.device."""
    build = f"torch {found['version']}" + (f", CUDA {found['cuda']}" if found["cuda"] else ", for the CPU")
    if found["gpu"]:
        used = "" if device != "cpu" else "; machine.device is cpu, so it is not used"
        return Finding("ok", f"{build}, computes on {gpus or 'a GPU'}{used}")
    if gpus is None and device != "cuda":
        return Finding("ok", f"{build}; no GPU here")
    if gpus is None:
        return Finding("problem", f"machine.device is cuda, and there is no GPU ({build})", "set it to auto or cpu")
    state: Literal["problem", "warning"] = "problem" if found["cuda"] or device == "cuda" else "warning"
    if not found["cuda"]:
        return Finding(state, f"{build}, and a GPU is there: {gpus}", fitting_build(gpus))
    reason = (said.strip().splitlines() or ["torch finds no GPU"])[-1]
    return Finding(state, f"{build} cannot use {gpus}: {reason}", "a newer driver, or a build for an older CUDA")


def fitting_build(gpus: str | None) -> str:
    """Return how to get another build of the same release."""
    what = "for the CPU" if gpus is None else "with CUDA"
    return f"install the release of requirements.lock {what}: https://pytorch.org/get-started/locally"


def check_threads(threads: int, environment: Mapping[str, str] = os.environ, cores: int | None = None) -> Finding:
    """Compare machine.threads with the cores that this process may run on, and with OpenMP's own variables."""
    cores = cores or usable_cores()
    said = f"machine.threads {threads}, {cores} cores"
    limit, count = environment.get("OMP_THREAD_LIMIT", ""), environment.get("OMP_NUM_THREADS", "")
    if limit.isdecimal() and int(limit) < threads:
        return Finding("problem", f"{said}, but OMP_THREAD_LIMIT is {limit}", "unset OMP_THREAD_LIMIT")
    if threads > cores:
        return Finding(
            "warning", f"{said}: threads wait for each other", f"machine.threads: {cores}, which gives other bits"
        )
    if count and count != str(threads):
        return Finding("ok", f"{said}; OMP_NUM_THREADS={count} does not count, stages set their own")
    return Finding("ok", said)


def check_allocator(environment: Mapping[str, str] = os.environ) -> Finding:
    """Say whether freed memory is kept: glibc as it is gives large tensors back on every step."""
    preloaded = environment.get("LD_PRELOAD", "")
    if found := re.search(r"(jemalloc|tcmalloc|mimalloc)", preloaded):
        return Finding("ok", f"{found[1]}, by LD_PRELOAD")
    if keep_freed_memory():
        return Finding("ok", "glibc, told to keep what is freed")
    return Finding(
        "warning",
        f"{platform.system()}'s allocator takes no settings: training may be slower",
        "LD_PRELOAD=…/libjemalloc.so",
    )


def check_disk(folders: list[Path], free_of: Mapping[Path, int] | None = None) -> Finding:
    """Look at the space that is left where data, runs and temporary files go."""
    free = free_of or {folder: shutil.disk_usage(folder).free for folder in folders}
    findings = []
    for folder, left in free.items():
        text = f"{left / GIB:.1f} GiB free in {folder}"
        state: Literal["problem", "warning", "ok"] = (
            "problem" if left < LITTLE_DISK else "warning" if left < SOME_DISK else "ok"
        )
        findings.append(Finding(state, text, "" if state == "ok" else "make room: dvc gc --workspace, make clean"))
    return worst(findings)


def check_installation() -> Finding:
    """Say which bleuprint this is: one that is installed elsewhere would run other code than the clone's."""
    code = Path(__file__).parents[1]
    own = Path("src/bleuprint").resolve()
    if own.is_dir() and own != code.resolve():
        return Finding("problem", f"the code that runs is {code}, and not src/bleuprint here", "export PYTHONPATH=src")
    try:
        return Finding("ok", f"bleuprint {metadata.version('bleuprint')} in {code}")
    except metadata.PackageNotFoundError:
        return Finding("ok", f"{code}, not installed")
