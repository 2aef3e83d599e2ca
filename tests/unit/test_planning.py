"""bleuprint plan: its arithmetic on made-up trials; real trials of a small training, and of one without a corpus."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from copy_task import TYPES, write_corpus
from specs import ROOT, bleuprint

from bleuprint.estimates import planning
from bleuprint.estimates.cost import recipe_in
from bleuprint.estimates.planning import (
    Gpu,
    Projection,
    hours_on,
    load_gpus,
    plan_of,
    plan_table,
    plans_of_experiments,
    project,
)
from bleuprint.estimates.trial import STAND_IN_PAIRS, STAND_IN_TOKENS, Trial, try_apart, try_here
from bleuprint.graph import Params, load_params, read_yaml, validate

PARAMS = load_params(ROOT / "params.yaml")
TOY = PARAMS.recipes["toy"].train
PAPER = PARAMS.recipes["paper"].train
# 600 updates of the toy are 30 epochs of 20; an update reads 1,000 tokens: 0.5 s.
TRIAL = Trial(1234, 20, (8_000, 12_000), 1e12, 5e-4, 6.0, 2.0, 300)
GPU = Gpu(bf16=100, fp32=10, memory_gb=24, source="made up")


def test_hours_are_those_of_updates_ends_of_epochs_and_states_inside_them() -> None:
    """1,000 updates of 0.5 s, four epochs and a short one that end in 9 s, a state of 3 s each 300 updates."""
    train = TOY.model_copy(update={"max_steps": 1000, "checkpoint_every_steps": 300})
    assert project(train, 240, 0.5, 9.0, 3.0) == Projection(1000, 5, 3, (500 + 45 + 9) / 3600)
    assert project(train, 250, 0.5, 9.0, 3.0).epochs == 4


def test_a_plan_follows_from_a_trial() -> None:
    assert (TOY.max_steps, TOY.checkpoint_every_steps, TOY.precision) == (600, 100, "fp32")
    plan = plan_of(PARAMS, "toy-1", TRIAL, {"made up": GPU})
    assert (plan.parameters, plan.updates, plan.target_tokens, plan.flops) == (1234, 600, 12_000 * 30, 3e13)
    assert plan.update_seconds == pytest.approx(0.5)
    assert plan.hours == pytest.approx((600 * 0.5 + 30 * 6.0 + 6 * 2.0) / 3600)
    assert plan.memory_mb == 300


def test_hours_on_a_gpu_follow_from_flops_but_for_the_shortest_batches_and_too_small_a_memory() -> None:
    """1e18 FLOPs at 30 % of 100 TFLOP/s are 33,333 s; a batch takes 0.02 s at least."""
    assert hours_on(GPU, PAPER, 1e18, 24_000) == pytest.approx(1e18 / 30e12 / 3600)
    assert hours_on(GPU, PAPER, 1.0, 24_000) == pytest.approx(PAPER.max_steps * 0.02 / 3600)
    assert hours_on(GPU, PAPER, 1e18, 24_001) is None
    in_fp32 = PAPER.model_copy(update={"precision": "fp32"})
    assert hours_on(GPU, in_fp32, 1e18, 1) == pytest.approx(1e18 / 3e12 / 3600)


def test_every_gpu_names_its_source() -> None:
    for gpu in load_gpus().values():
        assert gpu.source
        assert gpu.bf16 > gpu.fp32


def test_of_trainings_that_do_the_same_work_one_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The seeds of one experiment, and runs with another's weights; the seconds are shared by what is tried."""
    tried: list[tuple[str, float]] = []

    def record(params: Params, run: str, seconds: float, scratch: Path) -> Trial:
        tried.append((run, seconds))
        return TRIAL

    monkeypatch.setattr(planning, "try_apart", record)
    runs = ["ablate-greedy-1", "ablate-tiny-1", "ablate-tiny-2", "toy-1"]
    plans = plan_table(runs, PARAMS, 60.0, tmp_path, lambda text: None)
    assert [plan.run for plan in plans] == ["ablate-tiny-1", "ablate-tiny-2", "toy-1"]
    assert tried == [("ablate-tiny-1", 30.0), ("toy-1", 30.0)]
    saved = plans_of_experiments(plans, runs, PARAMS)
    assert [(plan.experiment, plan.run) for plan in saved] == [
        ("ablate-greedy", "ablate-tiny-1"),
        ("ablate-tiny", "ablate-tiny-1"),
        ("ablate-tiny", "ablate-tiny-2"),
        ("toy", "toy-1"),
    ]


# --- trials -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose toy corpus is a small one; the others are not made."""
    root = tmp_path_factory.mktemp("project")
    (root / "data/corpora").mkdir(parents=True)
    write_corpus(root / "data/corpora/toy-words", {"train": 300, "val": 50})
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    shutil.copy(ROOT / "params.yaml", root)
    return root


def test_the_command_tries_a_training_and_keeps_nothing_of_it(root: Path) -> None:
    done = bleuprint(root, "plan", "demo", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "toy-1: some updates on this machine\n"
    cells = done.stdout.splitlines()[1].split()
    assert cells[0] == "toy-1"
    assert cells[2] == "600"
    assert float(cells[5]) > 0
    assert 100 < int(cells[7].replace(",", "")) < 10_000
    assert list((root / "work/plan").iterdir()) == []
    assert not (root / "runs").exists()


def test_tokens_and_flops_are_those_of_the_corpus(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each pair has n words and its marks: n + 1 source tokens are read, n + 1 target tokens predicted."""
    monkeypatch.chdir(root)
    trial = try_here(PARAMS, "toy-1", 0.0, tmp_path)
    words = read_words(root / "data/corpora/toy-words")
    assert trial.epoch_tokens == (words + 300, words + 300)
    model = recipe_in(PARAMS, "toy-1").model
    assert trial.parameters > TYPES * model.d_model
    assert trial.epoch_flops > 6 * trial.epoch_tokens[1] * TYPES * model.d_model
    assert trial.token_seconds > 0
    assert trial.save < trial.epoch_end


def read_words(corpus: Path) -> int:
    """Return the number of words on the source side of the train split."""
    import numpy as np

    return len(np.load(corpus / "train.source.ids.npy")) - 300


def with_small(key: str, value: Any) -> Params:
    """Return the parameters with another value of the experiment tiny."""
    data = read_yaml(ROOT / "params.yaml")
    *path, last = key.split("/")
    section = data["experiments"]["tiny"]
    for part in path:
        section = section[part]
    section[last] = value
    return validate(Params, data, Path("params.yaml"))


def test_sentences_of_one_length_stand_in_for_a_bpe_corpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setitem(STAND_IN_PAIRS, "train", 400)
    monkeypatch.setitem(STAND_IN_PAIRS, "validation", 10)
    params = with_small("train/batches/max_tokens", 320)
    trial = try_here(params, "tiny-1", 0.0, root / "work/plan")
    batches = params.recipes["tiny"].train.batches
    in_update = 320 // (STAND_IN_TOKENS + 2) * batches.batches_per_step
    assert trial.epoch_updates == math.ceil(400 / in_update)
    assert trial.epoch_tokens == (400 * (STAND_IN_TOKENS + 2), 400 * (STAND_IN_TOKENS + 1))


def test_words_that_are_not_there_cannot_be_guessed(root: Path) -> None:
    done = bleuprint(root, "plan", "forensics")
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "data/corpora/multi30k-words is not made; make it with: python -m bleuprint download multi30k;" in last


def test_a_trial_that_the_system_ends_is_one_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of which the manifest is there, and a process that is killed as for its memory."""
    monkeypatch.chdir(root)
    monkeypatch.setattr("bleuprint.estimates.trial.try_here", die)
    with pytest.raises(ValueError, match=r"the system ended the trial of toy-1.*train\.batches"):
        try_apart(PARAMS, "toy-1", 0.0, root / "work/plan")


def die(params: Params, run: str, seconds: float, scratch: Path) -> None:
    """End as the kernel ends a process."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
