"""Batches made ahead of time, and updates that never wait for a GPU."""

import contextlib
import threading
from typing import Any

import pytest
import torch
from copy_task import TYPES

from bleuprint import distributed, objective
from bleuprint.graph import load_params
from bleuprint.models import build_model
from bleuprint.objective import build_optimizer
from bleuprint.resume import Learner
from bleuprint.updates import AHEAD, Prepared, ahead, train_step

META = torch.device("meta")
EXPERIMENTS = load_params().recipes


# --- ahead ------------------------------------------------------------------------------------------------------------


def test_items_are_made_in_order_in_one_other_thread_and_ahead_of_time() -> None:
    made: list[tuple[int, int]] = []

    def make(number: int) -> int:
        made.append((number, threading.get_ident()))
        return number * number

    asked = ahead(make, range(20))
    assert [next(asked), next(asked)] == [0, 1]
    assert list(asked) == [number * number for number in range(2, 20)]
    assert [number for number, _ in made] == list(range(20))
    threads = {thread for _, thread in made}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_no_more_is_made_ahead_than_a_few() -> None:
    """Who stops early has not paid for the rest."""
    made: list[int] = []
    asked = ahead(made.append, range(1000))
    next(asked)
    asked.close()  # type: ignore[attr-defined]
    assert len(made) <= AHEAD + 1


def test_an_error_in_the_other_thread_is_raised_where_its_item_is_asked_for() -> None:
    asked = ahead(lambda number: 10 // (3 - number), range(6))
    assert [next(asked) for _ in range(3)] == [3, 5, 10]
    with pytest.raises(ZeroDivisionError):
        next(asked)


# --- a GPU is not waited for ------------------------------------------------------------------------------------------


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let losses be made of meta tensors, which have a shape and no numbers: what asks for one, fails.

    On a GPU the same would wait until all work before it is done. torch.autocast does not know the device.
    """
    autocast, enabled = torch.autocast, torch.is_autocast_enabled

    def cast(device: str, *args: Any, **options: Any) -> Any:
        return contextlib.nullcontext() if device == "meta" else autocast(device, *args, **options)

    monkeypatch.setattr(torch, "autocast", cast)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device != "meta" and enabled(device))
    monkeypatch.setitem(objective.ROWS, "meta", 64)


@pytest.mark.parametrize("r_drop", [0.0, 5.0])
@pytest.mark.parametrize("experiment", ["tiny", "readme", "published", "pitau", "preln"])
def test_an_update_asks_the_device_for_no_number(meta: None, experiment: str, r_drop: float) -> None:
    """The path of a GPU: fused attention, nothing packed; the test fails with `.item()` or `nonzero` in any model."""
    found = update_without_numbers(experiment, r_drop)
    assert (found.device, found.dtype, found.shape) == (META, torch.float64, (2,))
    with pytest.raises(RuntimeError, match="meta tensor"):
        found.tolist()


def test_an_update_of_several_processes_asks_for_no_number(meta: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No backend sums meta tensors; that is left out, the rest of the way is gone."""
    summed: list[torch.Size] = []

    class Work:
        def wait(self) -> None:
            pass

    def all_reduce(values: torch.Tensor, async_op: bool) -> Work:
        summed.append(values.shape)
        return Work()

    monkeypatch.setattr(distributed, "several", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    update_without_numbers("tiny", 0.0)
    assert len(summed) == 1


def update_without_numbers(experiment: str, r_drop: float) -> torch.Tensor:
    """Do an update of an experiment's model on meta tensors, and return its loss and the gradient's norm."""
    recipe = EXPERIMENTS[experiment]
    regularizers = recipe.train.regularizers.model_copy(update={"r_drop": r_drop})
    train = recipe.train.model_copy(update={"regularizers": regularizers})
    with META:
        model = build_model(recipe.model, TYPES, TYPES)
    optimizer = build_optimizer(model, train.optimizer)
    for group in optimizer.param_groups:
        group["fused"] = False  # not made for meta tensors
    source, inputs, real, labels = (torch.zeros(shape, dtype=torch.int64, device=META) for shape in SHAPES)
    batches = [Prepared(source, inputs, real, labels, 20, 17)] * 2
    return train_step(Learner(model, optimizer, META, train), batches, 1e-3)


SHAPES = ((4, 7), (4, 6), (17,), (17,))
