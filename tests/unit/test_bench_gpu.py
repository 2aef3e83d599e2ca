"""benchmarks/gpu.py: its arithmetic on made-up numbers, and all of it on the CPU with the toy experiment."""

import re
import shutil
from pathlib import Path

import pytest
from copy_task import write_corpus
from gpu import hours_of, row_of, trained_experiments
from specs import ROOT, start

from bleuprint.estimates.speed import Cost, EpochEnd
from bleuprint.graph import load_params
from bleuprint.runs import recipe_of

PARAMS = load_params(ROOT / "params.yaml")
TOY = PARAMS.recipes["toy"].train
COST = Cost([0.5, 0.25, 9.0], [1e-4, 5e-5, 2e-3], 6, 3000.0, 2000.0, 2e12, 200, EpochEnd(4.0, 2.0, 3.0), None, None)


def test_runs_are_projected_by_the_median_update_of_their_experiment() -> None:
    """600 updates of 0.5 s, 3 epochs that end in 4 + 2 + 3 s, and a state of 3 s each 100 updates: 345 s a run."""
    assert (TOY.max_steps, TOY.checkpoint_every_steps) == (600, 100)
    assert hours_of(PARAMS, {"toy": COST}, ["toy-1", "toy-2"]) == [
        "toy-1: 600 updates, 3 epochs, 6 states inside epochs: 0.0958 hours.",
        "toy-2: 600 updates, 3 epochs, 6 states inside epochs: 0.0958 hours.",
        "All of them, one after the other: 0.192 hours.",
    ]
    assert hours_of(PARAMS, {"toy": COST}, []) == []


def test_weights_of_several_runs_are_measured_and_counted_once() -> None:
    """Of the table ablation: two of its runs have the weights of ablate-tiny-1."""
    runs = ["ablate-greedy-1", "ablate-tiny-1", "ablate-no-averaging-1", "toy-1"]
    names = trained_experiments(PARAMS, runs)
    assert names == ["ablate-tiny", "toy"]
    for name in names:
        recipe_of(PARAMS, f"{name}-1")
    lines = hours_of(PARAMS, dict.fromkeys(names, COST), runs)
    assert [line.partition(":")[0] for line in lines] == ["ablate-tiny-1", "toy-1", "All of them, one after the other"]


@pytest.mark.parametrize(("waits", "said"), [(None, "yes"), ("called a synchronizing CUDA operation", "NO")])
def test_the_line_of_a_gpu_says_whether_updates_wait_and_its_memory(waits: str | None, said: str) -> None:
    line = row_of("tiny", PARAMS.recipes["tiny"].train, COST._replace(waits=waits, peak_mb=2048), 8e14)
    rates, end = ["3,000", "2,000", "2", "0.2%"], "4 + 2 + 3"
    assert line == ["tiny, bf16", "6", "0.5 [0.25, 9]", *rates, end, said, "2,048"]
    assert row_of("toy", TOY, COST, 8e14)[-2:] == ["", ""]


@pytest.fixture(scope="module")
def project_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a small corpus under the toy's name, and with benchmarks that keep their own RESULTS.md."""
    root = tmp_path_factory.mktemp("project")
    (root / "data/corpora").mkdir(parents=True)
    write_corpus(root / "data/corpora/toy-words", {"train": 300, "val": 50})
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    (root / "benchmarks").mkdir()
    for name in ("gpu.py", "table.py", "training.py"):
        shutil.copy(ROOT / "benchmarks" / name, root / "benchmarks")
    shutil.copy(ROOT / "params.yaml", root)
    return root


BRIEF = ("--device", "cpu", "--experiments", "toy", "--table", "demo")


def test_the_script_measures_the_toy_experiment_on_the_cpu(project_copy: Path) -> None:
    """Of an epoch of a few updates, so that the timed ones are not all of one epoch."""
    done = start(project_copy, "benchmarks/gpu.py", *BRIEF, "--updates", "4", "--blocks", "2", "--warm-up", "1")
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.rstrip().splitlines()
    assert title == "### Training, device: cpu"
    number = r"[\d.,e+-]+"
    row = rf"\| toy, fp32 +\| 4 +\| {number} \[{number}, {number}\] +\|( {number} +\|){{3}} {number}% +\| "
    assert any(re.fullmatch(rf"{row}{number} \+ {number} \+ {number} +\|( +\|){{2}}", line) for line in lines), lines
    assert re.match(r"toy-1: 600 updates, 200 epochs, 6 states inside epochs: ", lines[-2])
    assert (project_copy / "benchmarks/RESULTS.md").read_text() == f"\n{done.stdout}"
    assert list((project_copy / "work").iterdir()) == []  # what it wrote to be timed is gone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--experiments", "tiny"], "data/corpora/multi30k-bpe does not exist: python -m bleuprint download multi30k"),
        (["--experiments", "tyny"], "unknown experiment tyny; valid: toy, tiny, "),
        (["--updates", "7", "--blocks", "2"], "--updates 7 are not 2 blocks of some updates each"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_measured(project_copy: Path, words: list[str], said: str) -> None:
    done = start(project_copy, "benchmarks/gpu.py", *BRIEF, *words)
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]
    assert done.stdout == ""
