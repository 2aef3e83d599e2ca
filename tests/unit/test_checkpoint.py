"""Weights and states are written whole or not at all, read without executing anything, and averaged."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from bleuprint.checkpoint import (
    average,
    average_run,
    load_into,
    load_state,
    load_weights,
    save_state,
    save_weights,
    weights_of,
)
from bleuprint.files import write_atomically


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def save(directory: Path, step: int, value: float) -> Path:
    path = directory / f"step-{step:08d}.safetensors"
    save_weights({"w": torch.full((2, 3), value)}, path)
    return path


# --- averages ---------------------------------------------------------------------------------------------------------


def test_the_average_of_1_and_2(tmp_path: Path) -> None:
    found = average([save(tmp_path, 1, 1.0), save(tmp_path, 2, 2.0)])
    assert found.keys() == {"w"}
    assert torch.equal(found["w"], torch.full((2, 3), 1.5))
    assert found["w"].dtype == torch.float32


def test_sums_are_in_float64(tmp_path: Path) -> None:
    """2^25 + 1 is no float32: summed there, the mean of 2^25 and three 1s would lose them."""
    files = [save(tmp_path, step, value) for step, value in enumerate([2.0**25, 1.0, 1.0, 2.0])]
    assert torch.equal(average(files)["w"], torch.full((2, 3), 2.0**23 + 1))


def test_the_last_k_by_step_are_averaged(tmp_path: Path) -> None:
    for step, value in ((9, 100.0), (10, 1.0), (900, 2.0), (1000, 6.0)):
        save(tmp_path / "weights", step, value)
    save_weights({"w": torch.full((2, 3), 1e6)}, tmp_path / "weights/best.safetensors")
    for last, mean in ((1, 6.0), (2, 4.0), (3, 3.0), (9, 27.25)):
        average_run(tmp_path / "weights", last, tmp_path / "average/weights.safetensors")
        assert float(load_weights(tmp_path / "average/weights.safetensors")["w"][0, 0]) == mean


def test_nothing_to_average(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no step-\*\.safetensors to average; train the run first"):
        average_run(tmp_path, 3, tmp_path / "out.safetensors")


# --- atomic writes ----------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep/file"
    write_atomically(path, lambda partial: partial.write_text("old"))

    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert names_in(path.parent) == ["file"]


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    """As root, `--out /dev/null` would leave a file there."""
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "device or a pipe"), (tmp_path, "folder")):
        with pytest.raises(ValueError, match=f"{path} is no file but a {what}: name another one"):
            write_atomically(path, lambda partial: partial.write_text("new"))
    assert (tmp_path / "pipe").is_fifo()


def test_only_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for name in ("*.partial-1", "a.partial-1", "a.partial-mine"):
        (tmp_path / name).write_text("x")
    write_atomically(tmp_path / "*", lambda partial: partial.write_text("new"))
    assert names_in(tmp_path) == ["*", "a.partial-1", "a.partial-mine"]
    write_atomically(tmp_path / "a", lambda partial: partial.write_text("new"))
    assert names_in(tmp_path) == ["*", "a", "a.partial-mine"]


def test_a_disk_that_refuses_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    """The command line turns it into one sentence; safetensors and torch raise classes of their own."""

    class LibraryError(Exception):
        pass

    def fail(_: Path) -> None:
        raise LibraryError("I/O error: No space left on device\n(os error 28)")

    with pytest.raises(OSError, match=r"weights cannot be written: I/O error: No space left on device \(os error 28\)"):
        write_atomically(tmp_path / "weights", fail)


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write(partial: Path) -> None:
        partial.write_text("new")
        assert path.read_text() == "old"
        assert partial.parent == path.parent, "a rename across file systems would not be atomic"

    with path.open() as reader:
        write_atomically(path, write)
        assert reader.read() == "old", "replaced, not overwritten: who reads it reads on"
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["file"]


def test_saving_replaces(tmp_path: Path) -> None:
    path = save(tmp_path, 1, 1.0)
    assert save(tmp_path, 1, 7.0) == path
    assert float(load_weights(path)["w"][0, 0]) == 7.0
    assert names_in(tmp_path) == [path.name]


# --- reading weights --------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """A model with a matrix that stands under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.outer = nn.Linear(3, 3, bias=False)
        self.outer.weight = self.inner.weight


@torch.no_grad()
def test_weights_return_into_a_model(tmp_path: Path) -> None:
    first, second = Tied(), Tied()
    assert list(weights_of(first)) == ["inner.weight", "inner.bias"]
    save_weights(weights_of(first), tmp_path / "w")
    load_into(second, load_weights(tmp_path / "w"), tmp_path / "w")
    for name, value in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], value)
    assert second.outer.weight is second.inner.weight
    with torch.no_grad():
        first.inner.bias.add_(1)
    assert not torch.equal(first.inner.bias, second.inner.bias), "copied, not shared"


@torch.no_grad()
def test_weights_of_another_model_are_refused() -> None:
    model = nn.Linear(3, 2)
    kept = model.weight.clone()
    weight, bias = torch.zeros(2, 3), torch.zeros(2)
    with pytest.raises(ValueError, match=r"^from\.here holds the weights of another model; .* has: bias, scale$"):
        load_into(model, {"weight": weight, "scale": bias}, Path("from.here"))
    with pytest.raises(ValueError, match=r"^from\.here: weight is \(3, 2\), the model's \(2, 3\)$"):
        load_into(model, {"weight": weight.t(), "bias": bias}, Path("from.here"))
    assert torch.equal(model.weight, kept)


def test_missing_and_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing cannot be read as weights"):
        load_weights(tmp_path / "nothing")
    path = save(tmp_path, 1, 1.0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"step-00000001\.safetensors cannot be read as weights"):
        load_weights(path)


# --- resumable state --------------------------------------------------------------------------------------------------


def test_a_state_returns_as_it_was(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    random, stored = torch.get_rng_state(), optimizer.state_dict()
    save_state({"optimizer": stored, "random": random, "best": float("inf"), "stopped": None}, tmp_path / "state.pt")
    found = load_state(tmp_path / "state.pt")
    assert (found["best"], found["stopped"]) == (float("inf"), None)
    assert torch.equal(found["random"], random)
    for name, value in stored["state"][0].items():
        assert torch.equal(found["optimizer"]["state"][0][name], value)


class Malicious:
    """Runs code when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.target),)


def pickle_plainly(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value, protocol=2))  # the one that torch writes


def unpickle_plainly(path: Path) -> object:
    return pickle.loads(path.read_bytes())


def unpickle_by_torch(path: Path) -> object:
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize(
    ("write", "obey"), [(torch.save, unpickle_by_torch), (pickle_plainly, unpickle_plainly)], ids=["torch", "pickle"]
)
def test_a_pickle_is_not_executed(
    tmp_path: Path, write: Callable[[object, Path], None], obey: Callable[[Path], object]
) -> None:
    path, target = tmp_path / "state.pt", tmp_path / "owned"
    write({"progress": Malicious(target)}, path)
    with pytest.raises(ValueError, match=r"state\.pt is damaged"):
        load_state(path)
    assert not target.exists()
    obey(path)
    assert target.exists(), "the file does carry the attack"
