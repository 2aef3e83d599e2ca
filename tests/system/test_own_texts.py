"""Two parallel files of one's own, from `new-experiment` to BLEU, with parameters alone, under both engines."""

import json
import random
import re
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides

from bleuprint.toy import draw_pairs
from clones import JOBS, changed_stages, clone, commit, planned_jobs, run

PAIRS = 400


@pytest.fixture(scope="module")
def project(origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the table of an experiment on two files in languages that the project has nothing of, by DVC."""
    root = clone(origin, tmp_path_factory.mktemp("own") / "project")
    (root / "texts").mkdir()
    pairs = draw_pairs(random.Random(1), PAIRS, set())
    for side, language in enumerate(("sv", "nl")):
        (root / f"texts/all.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    files = ("--src-text", "texts/all.sv", "--tgt-text", "texts/all.nl")
    languages = ("--src", "sv", "--tgt", "nl")
    run(root, "python", "-m", "bleuprint", "new-experiment", "mine", "--from", "toy", *languages, *files)
    run(root, "python", "-m", "bleuprint", "use", "mine")
    apply_overrides(root / "params.yaml", ["experiments.mine.train.max_steps=240"])  # as its owner edits it
    commit(root)
    assert planned_jobs(root) == JOBS
    run(root, "dvc", "repro")
    return root


def test_it_is_scored_and_reported(project: Path) -> None:
    result = json.loads((project / "results/mine-1.json").read_text())
    assert result["test_sets"]["test"]["bleu_lc_tok"]["score"] > 3, "some seconds are enough to learn something"
    assert re.search(r"\| `mine-1` ", (project / "reports/mine/results.md").read_text())
    lines = (project / "runs/mine-1/decode/test.hyp.txt").read_text().splitlines()
    assert len(lines) == PAIRS // 10
    assert run(project, "git", "status", "--porcelain", "src", "dvc.yaml", "Snakefile", "workflow") == ""


def test_experiments_of_dvc_set_its_parameters(project: Path) -> None:
    commit(project)
    run(project, "dvc", "exp", "run", "--name", "short", "-S", "experiments.mine.train.max_steps=4", "train@mine-1")
    assert json.loads((project / "runs/mine-1/train/summary.json").read_text())["steps"] == 4
    shown = json.loads(run(project, "dvc", "exp", "show", "--json", "--hide-queued"))
    assert "short" in json.dumps(shown)
    run(project, "git", "checkout", "--quiet", ".")
    run(project, "dvc", "checkout", "--quiet")
    assert changed_stages(project) == []


def test_snakemake_sets_its_parameters(project: Path) -> None:
    """For one call: DVC is told nothing of what does not stand in params.yaml."""
    run(project, "snakemake", "--touch", "--forceall", "--quiet", "all")
    drawn = (project / "data/raw/mine/test.sv").read_text()
    steps = "experiments={mine: {train: {max_steps: 5}}}"
    assert planned_jobs(project, "--config", steps) == JOBS[2:]
    seed = "datasets={mine: {held_out: {seed: 2}}}"
    said = run(project, "snakemake", "--cores", "1", "--config", seed, "--", "data/raw/mine")
    assert "DVC is told nothing" in said
    assert (project / "data/raw/mine/test.sv").read_text() != drawn
    assert "download" in changed_stages(project)
    assert planned_jobs(project) == JOBS, "without --config the parameters are those of params.yaml again"


def test_a_word_that_sets_nothing_is_a_mistake(project: Path) -> None:
    said = run(project, "snakemake", "-n", "--config", "max_steps=5", fails=True)
    assert "--config max_steps=… sets nothing; valid: machine, scoring, datasets, corpora, experiments" in said
