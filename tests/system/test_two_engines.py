"""The toy table from nothing, under both engines, in fresh clones; and what each engine believes afterwards."""

import json
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from clones import JOBS, MAKE, SAME_BYTES, changed_stages, clone, commit, environment, planned_jobs, run, set_parameter

CPU_SECONDS = 5  # of an engine that has nothing to do; the clock on the wall would measure the neighbours as well


@pytest.fixture(scope="module")
def by_dvc(origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = clone(origin, tmp_path_factory.mktemp("clone") / "dvc")
    run(root, *MAKE, "repro")
    return root


@pytest.fixture(params=["dvc", "snakemake"])
def finished(request: pytest.FixtureRequest) -> Path:
    """Return the clone in which one of the engines has built the whole table."""
    return request.getfixturevalue(f"by_{request.param}")


@pytest.fixture
def finished_copy(by_snakemake: Path, tmp_path: Path) -> Path:
    """Return a copy, free to change, of a clone where both engines have nothing to do."""
    shutil.copytree(by_snakemake, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAME_BYTES)
def test_both_engines_write_the_same_bytes(by_dvc: Path, by_snakemake: Path, name: str) -> None:
    assert (by_dvc / name).read_bytes() == (by_snakemake / name).read_bytes()


def test_the_toy_is_learnt(by_dvc: Path) -> None:
    result = json.loads((by_dvc / "results/toy-1.json").read_text())
    assert result["test_sets"]["test"]["bleu_lc_tok"]["score"] >= 90


def test_its_numbers_follow_from_its_texts(finished: Path) -> None:
    assert re.search(
        r"^\d+ numbers of 2 files agree$", run(finished, "python", "-m", "bleuprint", "verify", "demo"), re.M
    )


# --- what is recorded as done -----------------------------------------------------------------------------------------


def test_nothing_is_left_to_do(finished: Path) -> None:
    assert changed_stages(finished) == []
    assert planned_jobs(finished) == []


def test_with_nothing_to_do_both_engines_are_quick(finished: Path) -> None:
    for command in (("dvc", "repro"), ("snakemake", "-n")):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(finished, *command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < CPU_SECONDS


def test_a_partial_target_records_what_it_ran_and_no_more(origin: Path, tmp_path: Path) -> None:
    root = clone(origin, tmp_path / "partial")
    run(root, "snakemake", "--cores", "2", "data/corpora/toy-words")
    assert changed_stages(root) == JOBS[2:]
    set_parameter(root, "datasets.toy.pairs.train", 1000)
    run(root, "snakemake", "--cores", "2", "data/raw/toy")
    assert changed_stages(root) == JOBS[1:], "the corpus of the old data must not pass for one of the new data"


@pytest.mark.parametrize("whole", [True, False], ids=["edited", "being-written"])
def test_an_edit_while_jobs_run_is_not_recorded(origin: Path, tmp_path: Path, whole: bool) -> None:
    """DVC would note the parameters of the end beside the outputs of those of the beginning.

    An editor, and DVC itself, leave the file empty for a moment.
    """
    root = clone(origin, tmp_path / "clone")
    params = (root / "params.yaml").read_text()
    set_parameter(root, "datasets.toy.pairs.train", 1999)
    edited = (root / "params.yaml").read_text() if whole else ""  # now: reading the file takes as long as the job
    (root / "params.yaml").write_text(params)
    command, log = ("snakemake", "--cores", "2", "data/raw/toy"), root / "work/logs/download-toy.log"
    with subprocess.Popen(
        command, cwd=root, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as call:
        while not log.exists():  # it is begun when the job has read its parameters
            assert call.poll() is None, "snakemake ended before its job began"
            time.sleep(0.02)
        (root / "params.yaml").write_text(edited)
        said = call.communicate()[0]
    assert "DVC is told nothing" in said
    if not whole:
        (root / "params.yaml").write_text(params)
    assert "download" in changed_stages(root)
    assert not (root / "data/raw/toy").exists(), "the job fails, and Snakemake removes what a failed job wrote"


def test_after_a_failure_the_finished_jobs_are_recorded(origin: Path, tmp_path: Path) -> None:
    root = clone(origin, tmp_path / "failure")
    with (root / "src/bleuprint/tokenizers.py").open("a") as file:
        file.write("\nraise ValueError('broken by a test')\n")
    run(root, "snakemake", "--cores", "2", fails=True)
    assert changed_stages(root) == JOBS[1:]


def test_changed_parameters_are_seen_by_both_engines(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy, symlinks=True)
    set_parameter(copy, "experiments.toy.train.max_steps", 7)
    assert changed_stages(copy) == ["train"]
    assert planned_jobs(copy) == JOBS[2:]


def test_a_touch_records_nothing_in_dvc(finished_copy: Path) -> None:
    """`snakemake --touch` runs no job: what DVC calls changed stays changed."""
    set_parameter(finished_copy, "experiments.toy.train.max_steps", 7)
    run(finished_copy, "snakemake", "--touch", "--forceall")
    assert changed_stages(finished_copy) == ["train"]


def test_an_edit_of_the_report_retrains_nothing(finished_copy: Path) -> None:
    with (finished_copy / "src/bleuprint/report.py").open("a") as file:
        file.write("# edited\n")
    assert changed_stages(finished_copy) == ["report"]
    assert planned_jobs(finished_copy) == ["report"]


def test_an_edit_of_the_tracker_runs_nothing(finished_copy: Path) -> None:
    with (finished_copy / "src/bleuprint/tracking.py").open("a") as file:
        file.write("# edited\n")
    assert changed_stages(finished_copy) == []
    assert planned_jobs(finished_copy) == []


def test_a_fresh_clone_with_committed_results(finished_copy: Path, tmp_path: Path) -> None:
    """Snakemake makes everything anew; DVC says without any data whether the results belong to the code."""
    commit(finished_copy)
    fresh = clone(finished_copy, tmp_path / "fresh")
    assert (fresh / "results/toy-1.json").exists()
    assert planned_jobs(fresh) == JOBS
    check = ("dvc", "repro", "--dry", "--allow-missing")
    assert "Running stage" not in run(fresh, *check)
    with (fresh / "src/bleuprint/objective.py").open("a") as file:
        file.write("# edited\n")
    assert "'train@toy-1'" in run(fresh, *check, fails=True), "the first stage whose code is not that of the results"


# --- a run with the weights of another --------------------------------------------------------------------------------

GREEDY = """
  toy-greedy:
    weights: toy
    average: {last: 1}
    decode: {search: greedy, beam: 1, length_penalty: {kind: length, alpha: 1.0}, max_extra_tokens: 50, \
max_batch_tokens: 4096, forced: averaged}
"""
COMPARED = """
title: Beam search and averaging on the toy grammar
runs: [toy-1, toy-greedy-1]
comparisons: [{baseline: toy, experiments: [toy-greedy]}]
"""


@pytest.mark.parametrize("engine", [("dvc", "repro"), ("snakemake", "--cores", "2")])
def test_a_run_with_the_weights_of_another_trains_nothing(finished_copy: Path, engine: tuple[str, ...]) -> None:
    root = finished_copy
    with (root / "params.yaml").open("a") as file:
        file.write(GREEDY)
    (root / "workflow/tables/compared.yaml").write_text(COMPARED)
    run(root, "python", "-m", "bleuprint", "use", "compared")
    weights = (root / "runs/toy-1/train/weights").stat().st_mtime_ns
    later = ["average", "decode", "attend", "score", "report"]
    assert changed_stages(root) == later
    assert planned_jobs(root) == later
    run(root, *engine)
    assert (root / "runs/toy-1/train/weights").stat().st_mtime_ns == weights
    assert sorted(path.name for path in (root / "runs/toy-greedy-1").iterdir()) == ["average", "decode"]
    own, other = (json.loads((root / f"results/{name}.json").read_text()) for name in ("toy-greedy-1", "toy-1"))
    assert (own["trained"], own["flops"]) == ("toy-1", other["flops"])
    assert changed_stages(root) == []
    report = (root / "reports/compared/results.md").read_text()
    assert "### Beside `toy`" in report
    assert re.search(r"^\| `toy-greedy` \| 1 \| `test` \| [\d.]+ \| [+-][\d.]+ \|", report, re.MULTILINE)
    assert (root / "reports/compared/figures/ablation.svg").exists()


# --- a remote ---------------------------------------------------------------------------------------------------------

MODEL = "runs/toy-1/average/weights.safetensors"


@pytest.fixture(scope="module")
def pushed(by_snakemake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of a finished clone whose bytes are in a remote and whose results are committed."""
    folder = tmp_path_factory.mktemp("pushed")
    root = folder / "project"
    shutil.copytree(by_snakemake, root, symlinks=True)
    run(root, "dvc", "remote", "add", "--default", "team", str(folder / "remote"))
    run(root, "dvc", "push")
    commit(root)
    return root


def test_a_fresh_clone_pulls_all_and_has_nothing_to_do(pushed: Path, tmp_path: Path) -> None:
    fresh = clone(pushed, tmp_path / "fresh")
    run(fresh, "dvc", "pull")
    assert "Running stage" not in run(fresh, "dvc", "repro")
    assert changed_stages(fresh) == []
    assert run(fresh, "git", "status", "--porcelain") == ""
    assert (fresh / MODEL).read_bytes() == (pushed / MODEL).read_bytes()


def test_a_fresh_clone_fetches_one_model_and_trains_nothing(pushed: Path, tmp_path: Path) -> None:
    fresh = clone(pushed, tmp_path / "fresh")
    alone = run(fresh, "dvc", "repro", "--pull", "--single-item", "average@toy-1")
    there = [path for folder in ("data", "runs") for path in (fresh / folder).rglob("*") if path.is_file()]
    assert there == [fresh / MODEL]
    with_the_rest = run(fresh, "dvc", "repro", "--pull", "average@toy-1")
    assert (fresh / "runs/toy-1/train/weights").is_dir()
    assert "Running stage" not in alone + with_the_rest


# --- what users do with it --------------------------------------------------------------------------------------------


def test_dvc_shows_metrics_and_plots(finished_copy: Path) -> None:
    commit(finished_copy)
    metrics = json.loads(run(finished_copy, "dvc", "metrics", "show", "--json"))[""]["data"]
    assert metrics["results/toy-1.json"]["data"]["test_sets"]["test"]["bleu_lc_tok"]["score"] > 0
    assert metrics["runs/toy-1/train/summary.json"]["data"]["steps"] > 0
    plots = json.loads(run(finished_copy, "dvc", "plots", "diff", "HEAD", "--json"))
    assert any("runs/toy-1/train/history.csv" in name for name in plots["data"])


@pytest.mark.parametrize("stage", [("score", "toy-1"), ("report",)])
def test_scores_and_report_import_no_torch(finished_copy: Path, stage: tuple[str, ...]) -> None:
    code = (
        "import sys; from bleuprint.cli import app; "
        f"app({list(stage)}, standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    run(finished_copy, "python", "-c", code)
