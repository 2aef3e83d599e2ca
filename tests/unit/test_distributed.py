"""Two processes learn what one does, whoever goes on; and none waits for ever for another that is gone."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from copy_ranks import TRAININGS, accumulated, up_to
from copy_task import TYPES, corpus, read_lines, reproducible_bytes, run
from specs import ROOT
from torch.nn import functional as F

from bleuprint import distributed
from bleuprint.distributed import Place, find_place, is_first, joined, own_device, share, sum_over_ranks, take_gpu
from bleuprint.graph import load_params
from bleuprint.models import build_model

__all__ = ["corpus"]  # a fixture

CPU = torch.device("cpu")
LOSSES = ("train_loss", "train_loss_epoch", "validation_loss")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
PYTHONPATH = f"{ROOT / 'src'}:{ROOT / 'tests/unit'}"
EXPERIMENTS = load_params(ROOT / "params.yaml").recipes


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("alone")
    for name, recipe in TRAININGS.items():
        run(recipe(corpus), root / name)
    return root


@pytest.fixture(scope="module")
def together(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train by two processes; a run that one has begun, two go on with, and one again."""
    root = tmp_path_factory.mktemp("together")
    run(up_to(accumulated(corpus), 20), root / "resumed")
    command = [*TORCHRUN, str(ROOT / "tests/unit/copy_ranks.py"), str(corpus), str(root)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    run(accumulated(corpus), root / "resumed")
    return root


def seen(root: Path) -> list[dict[str, Any]]:
    """Return what each rank saw."""
    return [json.loads((root / f"{rank}.json").read_text()) for rank in (0, 1)]


# --- the same as one process ------------------------------------------------------------------------------------------


def assert_alike(root: Path, other: Path) -> None:
    """The same lines of metrics but for times and rounding, and the same summary but for the best loss."""
    lines, others = read_lines(root / "out"), read_lines(other / "out")
    assert len(lines) == len(others)
    for line, expected in zip(lines, others, strict=True):
        for name in ("step", "epoch", "lr"):
            assert line[name] == expected[name]
        for name in LOSSES:
            assert (name in line) == (name in expected)
            assert name not in line or line[name] == pytest.approx(expected[name], abs=1e-5, nan_ok=True)
    summaries = [json.loads((where / "out/summary.json").read_text()) for where in (root, other)]
    best = [summary.pop("validation_loss") for summary in summaries]
    assert summaries[0] == summaries[1]
    assert best[0] == pytest.approx(best[1], abs=1e-5)


@pytest.mark.parametrize("name", ["accumulated", "few_rows", "sees_padding"])
def test_the_losses_are_those_of_one_process(alone: Path, together: Path, name: str) -> None:
    """With batches that are added up, with batches of a single row, and where padding matters."""
    lines = read_lines(alone / name / "out")
    assert lines[0]["train_loss"] - lines[-2]["train_loss"] > 0.1, "nothing is learnt"
    assert_alike(together / name, alone / name)


def test_another_number_of_processes_goes_on(alone: Path, together: Path) -> None:
    """One process to update 20, two to update 35, one to update 50."""
    assert_alike(together / "resumed", alone / "accumulated")


def test_a_resumed_run_of_two_ends_with_the_same_bits(together: Path) -> None:
    """With dropout; cut off after 7, 18 updates, when the last saved states are those of other ones."""
    assert reproducible_bytes(together / "cut/out") == reproducible_bytes(together / "dropout/out")


def test_each_draws_its_own_masks(together: Path) -> None:
    """The first those of one process."""
    first, second = (found["drawn"] for found in seen(together))
    assert first == torch.rand(2, generator=torch.Generator().manual_seed(1)).tolist() != second


@pytest.mark.parametrize(("name", "stopped"), [("patience", "patience"), ("diverged", "diverged")])
def test_all_stop_at_once(alone: Path, together: Path, name: str, stopped: str) -> None:
    """Or one would wait for the other."""
    assert json.loads((together / name / "out/summary.json").read_text())["stopped"] == stopped
    assert_alike(together / name, alone / name)


# --- sums and shares --------------------------------------------------------------------------------------------------


def test_every_row_is_some_process_s(together: Path) -> None:
    assert [found["rows"] for found in seen(together)] == [[[0, 2, 4], [0]], [[1, 3], []]]


def test_sums_are_the_same_in_all(together: Path) -> None:
    for found in seen(together):
        assert found["sums"] == [2.0, 1.0]
        assert found["gradients"] == [[1.0] * 2, [3.0] * 2, [3.0] * 3]
        assert found["weights"] == [[0.0] * 2, [0.0] * 2, [0.0] * 3], "those of the first"


def test_processes_that_differ_do_not_begin(together: Path) -> None:
    for found in seen(together):
        assert found["error"].startswith("process 1 has other parameters, code, data or saved state than process 0")


def test_one_process_is_left_alone() -> None:
    values = torch.arange(6.0)
    assert is_first()
    assert share(values) is values
    assert sum_over_ranks(values) is values
    with joined(Place(0, 0, 1), CPU):
        assert not dist.is_initialized()


@pytest.mark.parametrize("experiment", ["toy", "published", "readme", "pitau", "preln", "tiny"])
def test_every_weight_of_a_model_has_a_gradient(experiment: str) -> None:
    """So the zeros of a process without rows stand for nothing that one process would not have."""
    spec = EXPERIMENTS[experiment].model.model_copy(update={"d_model": 16, "d_ff": 16, "n_heads": 2})
    model = build_model(spec, TYPES, TYPES)
    ids = torch.randint(4, TYPES, (3, 6))
    F.linear(model(ids, ids), model.output_weight, model.output_bias).logsumexp(-1).sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


# --- who one is -------------------------------------------------------------------------------------------------------


TORCHRUN_SAYS = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_torchrun_says_who_one_is() -> None:
    assert find_place(TORCHRUN_SAYS) == Place(3, 1, 4)
    assert find_place({}) == find_place({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}) == Place(0, 0, 1)


@pytest.mark.parametrize("name", TORCHRUN_SAYS)
def test_a_missing_variable_is_named(name: str) -> None:
    environment = {key: value for key, value in TORCHRUN_SAYS.items() if key != name}
    with pytest.raises(ValueError, match=f"is set, but not {name}; start several processes with torchrun"):
        find_place(environment)


def test_all_missing_variables_are_named() -> None:
    with pytest.raises(ValueError, match="RANK is set, but not LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT;"):
        find_place({"RANK": "0"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORLD_SIZE", "", "WORLD_SIZE is '', not a whole number"),
        ("RANK", "-1", "RANK is '-1', not a whole number"),
        ("RANK", "4", "RANK 4 and LOCAL_RANK 1 are not both below WORLD_SIZE 4"),
    ],
)
def test_a_wrong_number_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_place(TORCHRUN_SAYS | {name: value})


def test_there_is_a_gpu_for_each_process() -> None:
    with pytest.raises(ValueError, match="process 2 of this host has no GPU, torch finds 1 here; start no more"):
        take_gpu(1, gpus=1)


def test_a_process_keeps_to_its_gpu_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's current GPU is the calling thread's own; batches are copied by another one."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    gpu = torch.device("cuda")
    assert own_device(gpu) is gpu, "one process"
    monkeypatch.setattr(distributed, "several", lambda: True)
    assert own_device(gpu) == torch.device("cuda", 1)
    assert own_device(CPU) is CPU


# --- who does not come, or is gone ------------------------------------------------------------------------------------


FIRST = Place(0, 0, 2)
# Rank argv[1] of two: says that it is ready, waits for a line, joins, gives a number, and says so; the first waits for
# another line and asks for one more number, which the second never gives.
ONE_OF_TWO = """
import sys, time, torch
from datetime import timedelta
from bleuprint import distributed

distributed.PATIENCE = timedelta(seconds=5)
rank = int(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    with distributed.joined(distributed.Place(rank, rank, 2), torch.device("cpu")):
        distributed.sum_over_ranks(torch.ones(1))
        print("together", flush=True)
        sys.stdin.readline()
        distributed.sum_over_ranks(torch.ones(1))
except ConnectionError as error:
    print(error)
"""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Be the first of two as torchrun says it, with little patience, and return the free port where all meet."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for name, value in (TORCHRUN_SAYS | {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(port)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "PATIENCE", timedelta(seconds=1))
    return port


def test_who_does_not_come_is_not_waited_for(port: int) -> None:
    with pytest.raises(ConnectionError, match="has ended or does not answer"), joined(FIRST, CPU):
        pass


def test_a_taken_port_is_named(port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        with pytest.raises(ConnectionError, match="MASTER_PORT is taken"), joined(FIRST, CPU):
            pass


@pytest.fixture
def two(port: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two processes that have summed a number; the first waits for a line before it asks for another."""
    processes = []
    for rank in ("0", "1"):
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "RANK": rank}
        command = [sys.executable, "-c", ONE_OF_TWO, rank]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe))
    try:
        assert [hear(process) for process in processes] == ["ready", "ready"]
        for process in processes:
            tell(process)
        assert [hear(process) for process in processes] == ["together", "together"]
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def tell(process: subprocess.Popen[str]) -> None:
    """Send a line to a process."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_who_is_gone_or_hangs_is_not_waited_for(two: list[subprocess.Popen[str]], fate: signal.Signals) -> None:
    first, second = two
    second.send_signal(fate)
    tell(first)
    assert hear(first).startswith("another process of this training has ended or does not answer; the same")
    assert first.wait() == 0
