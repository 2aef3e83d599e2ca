"""Training, cut off and resumed or repeated, ends with the same bits; a changed recipe starts afresh."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from copy_task import (
    corpus,
    epoch_ends,
    finished,
    read_lines,
    recipe_for,
    reproducible_bytes,
    run,
    without_times,
    write_corpus,
)

from bleuprint.params import Machine, Splits
from bleuprint.provenance import summarise_training
from bleuprint.training import (
    Recipe,
    fingerprint,
    train_run,
    work_directory,
)

__all__ = ["corpus", "finished"]  # fixtures


# --- the same bits ----------------------------------------------------------------------------------------------------


def test_the_seed_decides_every_bit(corpus: Path, tmp_path: Path, finished: Path) -> None:
    torch.manual_seed(99)  # whatever was drawn before has no say
    again = run(recipe_for(corpus), tmp_path / "again")
    assert reproducible_bytes(again) == reproducible_bytes(finished)
    other = reproducible_bytes(run(recipe_for(corpus, seed=2), tmp_path / "other"))
    first = reproducible_bytes(finished)
    assert other["weights/best.safetensors"] != first["weights/best.safetensors"]
    assert other["history.csv"] != first["history.csv"]


class CutOff(Exception):
    """What ends a training in the middle, as a kill would."""


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5, 6, 9, 11])
def test_a_cut_off_run_ends_with_the_same_bits(corpus: Path, tmp_path: Path, finished: Path, lines: int) -> None:
    """Cut off at the first line of metrics, …, at the ends of epochs, before and after a checkpoint, at the last."""
    recipe, seen = recipe_for(corpus), 0

    def observe(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal seen
        seen += 1
        if seen == lines:
            raise CutOff

    work = work_directory(tmp_path / "work", "copy-1", recipe)
    with pytest.raises(CutOff):
        train_run(recipe, work, tmp_path / "out", observe)
    assert not (tmp_path / "out").exists()
    with (work / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ep')  # a line that a kill cut off
    out = run(recipe, tmp_path)
    assert reproducible_bytes(out) == reproducible_bytes(finished)
    assert without_times(out) == without_times(finished)


def test_a_finished_run_is_published_again(corpus: Path, tmp_path: Path) -> None:
    """As after a kill before the outputs were in place: nothing is done but what came after the last saved state."""
    recipe, steps = recipe_for(corpus), []
    first = reproducible_bytes(run(recipe, tmp_path))
    (tmp_path / "out/summary.json").unlink()
    work = work_directory(tmp_path / "work", "copy-1", recipe)
    train_run(recipe, work, tmp_path / "out", lambda step, metrics: steps.append(step))
    assert reproducible_bytes(tmp_path / "out") == first
    assert steps == [25], "the last checkpoint stood at 24"


def test_a_half_written_file_is_not_published(corpus: Path, tmp_path: Path, finished: Path) -> None:
    recipe = recipe_for(corpus)
    work = work_directory(tmp_path / "work", "copy-1", recipe)
    (work / "weights").mkdir(parents=True)
    for name in ("weights/step-00000025.safetensors", "weights/best-00000025.safetensors", "state.pt"):
        write_half(work / name)
    write_half(tmp_path / "out")
    out = run(recipe, tmp_path)
    assert reproducible_bytes(out) == reproducible_bytes(finished)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def write_half(path: Path) -> None:
    """Leave what a process that was killed in the middle of writing `path` leaves."""
    path.with_name(f"{path.name}.partial-123").write_bytes(b"half")


def test_a_run_that_ended_with_an_epoch_goes_on(corpus: Path, tmp_path: Path, finished: Path) -> None:
    """More in test_more_updates.py."""
    run(recipe_for(corpus, {"max_steps": epoch_ends(finished)[1]}), tmp_path)
    run(recipe_for(corpus), tmp_path)
    assert reproducible_bytes(tmp_path / "out") == reproducible_bytes(finished)
    assert without_times(tmp_path / "out") == without_times(finished)


def test_fewer_updates_may_end_where_the_state_stands(corpus: Path, tmp_path: Path, finished: Path) -> None:
    """The state of the longer run is that of the end of its last whole epoch; max_steps is lowered to just there."""
    seldom = {"checkpoint_every_steps": 1000}
    run(recipe_for(corpus, seldom), tmp_path)
    shorter = recipe_for(corpus, seldom | {"max_steps": epoch_ends(finished)[1]})
    assert reproducible_bytes(run(shorter, tmp_path)) == reproducible_bytes(run(shorter, tmp_path / "fresh"))


# --- the fingerprint --------------------------------------------------------------------------------------------------


def test_every_part_of_a_recipe_is_in_its_fingerprint(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_for(corpus)
    write_corpus(tmp_path / "copy", {"train": 1, "val": 1})
    manifest = json.loads((tmp_path / "copy/manifest.json").read_text())
    (tmp_path / "copy/manifest.json").write_text(json.dumps(manifest | {"pairs": {"train": 1}}))
    changed = [
        recipe._replace(seed=2),
        recipe._replace(model=recipe.model.model_copy(update={"norm_eps": 1e-6})),
        recipe._replace(train=recipe.train.model_copy(update={"label_smoothing": 0.2})),
        recipe._replace(machine=Machine(device="cpu", threads=2)),
        recipe._replace(splits=Splits(train="train", validation="test", tests=("test",))),
        recipe._replace(corpus=tmp_path / "copy"),
        recipe._replace(code={"training": "1"}),
    ]
    assert len(changed) == len(Recipe._fields)
    found = [fingerprint(recipe) for recipe in (recipe, *changed)]
    assert len(set(found)) == len(found)
    assert all(len(digits) == 16 and int(digits, 16) >= 0 for digits in found)
    assert fingerprint(recipe_for(corpus, {"max_steps": 26})) == found[0], "a longer run is the same run"


def test_a_changed_parameter_trains_afresh(corpus: Path, tmp_path: Path) -> None:
    """As the stage command does it: the state's directory carries the fingerprint."""
    before = reproducible_bytes(run(recipe_for(corpus, {"max_steps": 5}), tmp_path / "one"))
    changed = recipe_for(corpus, {"max_steps": 5, "label_smoothing": 0.2})
    after = reproducible_bytes(run(changed, tmp_path / "one"))
    assert after == reproducible_bytes(run(changed, tmp_path / "two"))
    assert after["weights/best.safetensors"] != before["weights/best.safetensors"]
    assert len(list((tmp_path / "one/work").iterdir())) == 2


def test_provenance_finds_the_time_that_training_took(finished: Path) -> None:
    """Both ends of one file: what training writes, and what a result's provenance reads."""
    found = summarise_training(finished / "metrics.jsonl")
    assert found is not None
    assert found["seconds"] == max(line["seconds"] for line in read_lines(finished) if "seconds" in line) > 0
    assert found["tokens_per_second"] is not None
    assert found["made_with"]["torch"] == torch.__version__
    assert found["made_with"]["threads"] == 1
