"""`bleuprint train` is killed again and again, and ends with the bits of the run that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bleuprint.files import sha256_of

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
TRAIN = {"max_steps": 60, "log_every_steps": 1, "checkpoint_every_steps": 7, "keep_last": 2}
PATIENCE_SECONDS = 600
# In this order: the state, the weights of an epoch, the best weights after those, the finished outputs.
WRITES = (("state.pt", 2), ("step-*.safetensors", 1), ("best-*.safetensors", 1), ("toy-1/train", 1))

# Runs the command line, but when a file of this name is about to be put in place for the n-th time, half of it is lost
# and the process is killed, as when the power fails in the middle of a write.
KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path

name, count = sys.argv.pop(1), int(sys.argv.pop(1))

def fatal(rename):
    def rename_or_die(self, target):
        global count
        count -= Path(target).match(name)
        if not count and self.is_file():
            os.truncate(self, self.stat().st_size // 2)
        if not count:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)
    return rename_or_die

Path.replace, Path.rename = fatal(Path.replace), fatal(Path.rename)
from bleuprint.cli import main
main()
"""


def bleuprint(where: Path, *arguments: str) -> str:
    """Run a stage to its end and return its log."""
    command = [sys.executable, "-m", "bleuprint", *arguments]
    done = subprocess.run(
        command, cwd=where, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def kill_while_writing(where: Path, name: str, count: int) -> str:
    """Train until `name` is written for the count-th time, die there, and return the log."""
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, name, str(count), "train", "toy-1"]
    done = subprocess.run(
        command, cwd=where, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == -signal.SIGKILL, done.stdout
    return done.stdout


def kill_after(where: Path, step: int) -> None:
    """Train until a line of metrics tells of `step`, and kill the process from outside."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bleuprint", "train", "toy-1"], cwd=where, env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    waited_until = time.monotonic() + PATIENCE_SECONDS
    try:
        while last_step(where) < step:
            assert process.poll() is None, f"ended before step {step}"
            assert time.monotonic() < waited_until
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL, f"ended by itself when it was to be killed after step {step}"


def last_step(where: Path) -> int:
    """Return how many updates are recorded in the resume state's metrics; one line each, ends of epochs aside."""
    lines = [line for file in where.glob("work/train/*/metrics.jsonl") for line in file.read_text().splitlines()]
    return sum('"train_loss":' in line for line in lines)


def hashes(where: Path) -> dict[str, str]:
    """Return the sha256 of what must be the same in every repetition."""
    out = where / "runs/toy-1/train"
    files = [*out.glob("weights/[!.]*"), out / "history.csv", out / "summary.json"]
    return {str(file.relative_to(out)): sha256_of(file) for file in files}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a project with the toy corpus and a short recipe."""
    where = tmp_path_factory.mktemp("resume") / "project"
    where.mkdir()
    params = YAML().load(ROOT / "params.yaml")
    params["datasets"]["toy"]["pairs"] = {"train": 500, "val": 50, "test": 10}
    params["experiments"]["toy"]["train"].update(TRAIN)
    params["experiments"]["toy"]["average"]["last"] = 1
    YAML().dump(params, where / "params.yaml")
    bleuprint(where, "download", "toy")
    bleuprint(where, "tokenize", "toy-words")
    return where


def test_a_killed_training_ends_with_the_same_bits(project: Path) -> None:
    victim = project.with_name("victim")
    shutil.copytree(project, victim)
    bleuprint(project, "train", "toy-1")
    expected = hashes(project)
    assert len(expected) == 6, "two last weights, the best, their manifest, history and summary"

    kill_after(victim, random.randrange(1, 20))
    logs = [kill_while_writing(victim, name, count) for name, count in WRITES]
    logs.append(bleuprint(victim, "train", "toy-1"))
    assert all("resuming after step" in log for log in logs[1:])
    assert "resuming after step 56" in logs[-1], "the last checkpoint; only the outputs were missing"
    assert hashes(victim) == expected
