"""Clones of this checkout in which the toy table is built, as more than one file of tests needs them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides

ROOT = Path(__file__).parents[1]
MAKE = ("make", f"VENV={sys.prefix}", "STAMP=")  # in the environment that runs the tests: nothing is installed
JOBS = ["download", "tokenize", "train", "average", "decode", "attend", "score", "report"]
SAME_BYTES = (
    "results/toy-1.json",
    "results/toy-1.attention.json",
    "results/toy-1/test.hyp.txt",
    "results/toy-1/val.forced-rows.txt",
    "runs/toy-1/average/weights.safetensors",
    "runs/toy-1/train/history.csv",
    "reports/demo/results.md",
    "reports/demo/figures/loss.svg",
    "reports/demo/figures/bleu.svg",
)


def environment() -> dict[str, str]:
    """Return what commands in a clone are run with: `make`'s PATH, and the clone's own code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": "src"}


def run(where: Path, *command: str, fails: bool = False) -> str:
    """Run a command in a clone and return what it prints, stdout and stderr; it must end well, or must not."""
    done = subprocess.run(
        command, cwd=where, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert (done.returncode != 0) == fails, f"{' '.join(command)} in {where}\n{done.stdout}"
    return done.stdout


def commit(where: Path) -> None:
    run(where, "git", "add", "--all")
    run(where, "git", "commit", "--quiet", "--message", "state")


def clone(origin: Path, target: Path) -> Path:
    run(origin, "git", "clone", "--quiet", str(origin), str(target))
    return target


def set_parameter(where: Path, key: str, value: int) -> None:
    """Change one value of params.yaml as `dvc exp run -S` does."""
    apply_overrides(where / "params.yaml", [f"{key}={value}"])


def changed_stages(where: Path) -> list[str]:
    """Return the stages that `dvc repro` would look at again, without their names: the toy table has one of each."""
    return [stage.partition("@")[0] for stage in json.loads(run(where, "dvc", "status", "--json"))]


def planned_jobs(where: Path, *options: str) -> list[str]:
    """Return the rules that `snakemake` would run, in the graph's order."""
    text = run(where, "snakemake", "-n", *options)
    found = set(re.findall(r"^(?:local)?rule (\w+):$", text, flags=re.MULTILINE))
    assert found or "Nothing to be done" in text
    return [job for job in JOBS if job in found]


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commit this checkout, changed and new files too, with the toy table active and without its results."""
    origin = tmp_path_factory.mktemp("origin")
    for name in run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith(("results/toy-", "reports/demo/")):
            (origin / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, origin / name)
    run(origin, "git", "init", "--quiet")
    run(origin, "python", "-m", "bleuprint", "use", "demo")
    commit(origin)
    return origin


@pytest.fixture(scope="session")
def by_snakemake(origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the table in a clone of its own, by Snakemake on this machine."""
    root = clone(origin, tmp_path_factory.mktemp("clone") / "snakemake")
    run(root, *MAKE, "snakemake")
    return root
