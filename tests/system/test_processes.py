"""`torchrun -m bleuprint train`: two processes write what one does, and when one dies the other ends and both go on."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bleuprint.provenance import summarise_training

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
TRAIN = {"max_steps": 50, "log_every_steps": 1, "checkpoint_every_steps": 7, "keep_last": 2}
NO_DROPOUT = {"embedding_dropout": 0.0, "residual_dropout": 0.0}
# At toy's own rate of 5e-5 an update more, rounding grows beyond 1e-5 within 30 updates, between one thread and two as
# well as between one process and two (reports/LOG.md).
SCHEDULE = {"kind": "inverse_sqrt", "lr": 5e-3, "warmup_steps": 1000}
TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2"
TRAIN_TOY = ["-m", "bleuprint", "train", "toy-1"]
PATIENCE_SECONDS = 600


def bleuprint(where: Path, *command: str) -> str:
    """Run a command to its end and return its log."""
    done = subprocess.run(
        command, cwd=where, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a project with the toy corpus and a recipe of 50 updates without dropout: two batches each, 5 an epoch."""
    where = tmp_path_factory.mktemp("processes") / "project"
    where.mkdir()
    params = YAML().load(ROOT / "params.yaml")
    params["machine"]["threads"] = 1
    params["datasets"]["toy"]["pairs"] = {"train": 500, "val": 50, "test": 10}
    toy = params["experiments"]["toy"]
    toy["model"].update(NO_DROPOUT)
    toy["train"].update(TRAIN | {"schedule": SCHEDULE})
    toy["train"]["batches"]["batches_per_step"] = 2
    toy["average"]["last"] = 1
    YAML().dump(params, where / "params.yaml")
    bleuprint(where, sys.executable, "-m", "bleuprint", "download", "toy")
    bleuprint(where, sys.executable, "-m", "bleuprint", "tokenize", "toy-words")
    return where


def train_until_one_dies(where: Path, step: int) -> str:
    """Train by two processes, as an engine would start them; kill the second after an update; return the log."""
    log = where / "killed.log"
    with log.open("w") as file:
        command = [sys.executable, *TRAIN_TOY]
        environment = {**ENVIRONMENT, "BLEUPRINT_LAUNCHER": TORCHRUN}
        process = subprocess.Popen(command, cwd=where, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        waited_until = time.monotonic() + PATIENCE_SECONDS
        while last_step(where) < step:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < waited_until
            time.sleep(0.02)
        os.kill(process_of_rank(where, 1), signal.SIGKILL)
        assert process.wait(PATIENCE_SECONDS) == 1
    finally:
        process.terminate()  # torchrun ends its processes
        process.wait()
    return log.read_text()


def last_step(where: Path) -> int:
    """Return how many updates are recorded in the resume state's metrics."""
    lines = [line for file in where.glob("work/train/*/metrics.jsonl") for line in file.read_text().splitlines()]
    return sum('"train_loss":' in line for line in lines)


def process_of_rank(where: Path, rank: int) -> int:
    """Return the process that torchrun started with this rank in the directory."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() != where:
                continue
            if f"RANK={rank}" in (process / "environ").read_text().split("\0"):
                return int(process.name)
        except OSError:  # it has ended, or is another user's
            continue
    raise AssertionError(f"no process of rank {rank}")


def losses(where: Path) -> dict[tuple[str, int], float]:
    """Return every loss of metrics.jsonl; each stands there once."""
    lines = [json.loads(line) for line in (where / "runs/toy-1/train/metrics.jsonl").read_text().splitlines()]
    names = ("train_loss", "train_loss_epoch", "validation_loss")
    found = [((name, line["step"]), line[name]) for line in lines for name in names if name in line]
    assert len(found) == len(dict(found)) == 50 + 2 * 10
    return dict(found)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the process to kill in /proc")
def test_two_processes_train_as_one_though_one_dies(project: Path) -> None:
    two = project.with_name("two")
    shutil.copytree(project, two)
    bleuprint(project, sys.executable, *TRAIN_TOY)

    killed = train_until_one_dies(two, step=10)
    assert "2 processes train together (gloo)" in killed
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", killed), killed
    assert not (two / "runs").exists()

    log = bleuprint(two, *TORCHRUN.split(), *TRAIN_TOY)
    assert len(re.findall("resuming after step", log)) == len(re.findall("step 50 .* train_loss_epoch ", log)) == 1
    found, expected = losses(two), losses(project)
    assert expected["train_loss", 1] - expected["train_loss", 50] > 0.5
    assert found == pytest.approx(expected, abs=1e-5)
    summaries = [json.loads((where / "runs/toy-1/train/summary.json").read_text()) for where in (two, project)]
    best = [summary.pop("validation_loss") for summary in summaries]
    assert summaries[0] == summaries[1]
    assert best[0] == pytest.approx(best[1], abs=1e-5)
    logs = [summarise_training(where / "runs/toy-1/train/metrics.jsonl") for where in (project, two)]
    assert [log and log["processes"] for log in logs] == [[1], [2]]
    with closing(sqlite3.connect(two / "mlflow.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM runs").fetchone() == (2,), "the table's and the training's"


def test_a_launcher_that_is_not_there_is_named(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, *TRAIN_TOY],
        cwd=project,
        env={**ENVIRONMENT, "BLEUPRINT_LAUNCHER": "torchrunn --nproc-per-node 2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "BLEUPRINT_LAUNCHER is 'torchrunn --nproc-per-node 2', but there is no program torchrunn" in done.stderr
