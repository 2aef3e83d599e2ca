"""A run that is given more updates goes on where it ended, to the bits of a run that had them from the start."""

from pathlib import Path

import pytest
from copy_task import corpus, ignore, recipe_for, reproducible_bytes

from bleuprint.checkpoint import load_state
from bleuprint.resume import STATE
from bleuprint.training import train_run, work_directory

__all__ = ["corpus"]  # the fixture


def train(corpus: Path, root: Path, max_steps: int) -> dict[str, bytes]:
    """Train as the stage command does, with the state below `root`, and return what is reproducible."""
    recipe = recipe_for(corpus, {"max_steps": max_steps, "keep_last": 5})
    train_run(recipe, work_directory(root / "work", "copy-1", recipe), root / "out", ignore)
    return reproducible_bytes(root / "out")


@pytest.mark.parametrize("first", [1, 15, 24])
def test_more_updates_continue(corpus: Path, tmp_path: Path, first: int) -> None:
    """The first end lies inside an epoch: the rest of that epoch must follow, not the next one."""
    train(corpus, tmp_path / "twice", first)
    assert train(corpus, tmp_path / "twice", 40) == train(corpus, tmp_path / "once", 40)
    assert len(list((tmp_path / "twice/work").iterdir())) == 1, "both used one state"


def test_the_state_of_a_longer_run_is_left_alone(corpus: Path, tmp_path: Path) -> None:
    train(corpus, tmp_path / "both", 40)
    [longer] = (tmp_path / "both/work").iterdir()
    before = load_state(longer / STATE)["progress"]
    assert before["step"] > 15
    assert train(corpus, tmp_path / "both", 15) == train(corpus, tmp_path / "once", 15)
    assert load_state(longer / STATE)["progress"] == before


def test_a_finished_run_ends_the_same_again(corpus: Path, tmp_path: Path) -> None:
    assert train(corpus, tmp_path, 25) == train(corpus, tmp_path, 25)
