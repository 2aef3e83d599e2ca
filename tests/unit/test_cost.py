"""What a table takes, by results and provenances that are over."""

import json
import shutil
from pathlib import Path

import pytest
from specs import ROOT, bleuprint

from bleuprint.estimates.cost import Cost, costs_of, render_costs, work_of
from bleuprint.graph import load_params
from bleuprint.scoring import LegacyScore, Result, Tokens, write_json

PARAMS = load_params(ROOT / "params.yaml")
HERE = "2 cores of X"
FULL = PARAMS.recipes["published-full"].train.max_steps


def put(
    root: Path,
    run: str,
    seconds: float | None = 900.0,
    stopped: str = "max_steps",
    steps: int = 454,
    trained: str | None = None,
    cpu: str = "X",
) -> None:
    """Write the result of a run, 4.54e15 FLOPs, and where and how long it was trained."""
    experiment, _, seed = run.rpartition("-")
    data = {
        "run": run,
        "experiment": experiment,
        "seed": int(seed),
        "trained": trained or run,
        "corpus": "c",
        "parameters": 1,
        "steps": steps,
        "epochs": 2,
        "stopped": stopped,
        "validation_loss": None if stopped == "diverged" else 2.0,
        "tokens": Tokens(source=1, target=1),
        "flops": 4.54e15,
        "test_sets": {},
        "legacy_score": LegacyScore(split="val", score=1.0, epochs={}),
        "data": {},
        "code": {},
    }
    write_json(root / f"{run}.json", Result.model_validate(data).model_dump())
    machine = {"cpu": cpu, "cores": 2, "gpus": None, "more": "ignored"}
    training = None if seconds is None else {"seconds": seconds, "tokens_per_second": 5.0}
    write_json(root / f"{run}.provenance.json", {"run": run, "machine": machine, "training": training})


def cost(root: Path, run: str) -> Cost:
    [found] = costs_of([run], PARAMS, root, HERE)
    return found


def by(root: Path, run: str) -> str | None:
    """Return the run by which another one's cost is known."""
    found = cost(root, run).by
    return found.run if found else None


def test_a_run_is_measured_by_itself_and_others_by_the_fastest_that_does_the_same(tmp_path: Path) -> None:
    put(tmp_path, "published-1", seconds=1000.0)
    put(tmp_path, "published-2", seconds=908.0)
    put(tmp_path, "tiny-1", seconds=1.0)
    assert by(tmp_path, "published-1") == "published-1"
    assert by(tmp_path, "published-full-3") == "published-2", "another length and seed"
    assert by(tmp_path, "published-kaiming-normal-1") == "published-2", "another initialisation"
    for other in ("readme-1", "log-ded5bcf-1", "log-c1c22a3-1", "tiny-cased-1"):
        assert by(tmp_path, other) is None, other
    found = cost(tmp_path, "published-full-3")
    assert found.by is not None
    assert (found.by.seconds, found.by.flops, found.by.machine) == (2.0, 1e13, "2 cores of X")
    assert (found.made, found.planned, found.left) == (0, FULL, FULL)


def test_batches_and_precision_decide_as_the_model_does() -> None:
    recipe = PARAMS.recipes["published"]
    train = recipe.train
    changes = (
        {"precision": "fp32"},
        {"batches": PARAMS.recipes["log-b1e73da"].train.batches},
    )
    for change in changes:
        other = recipe.model_copy(update={"train": train.model_copy(update=change)})
        assert work_of(other) != work_of(recipe)
    assert work_of(PARAMS.recipes["published-full"]) == work_of(recipe)


@pytest.mark.parametrize(
    ("stopped", "steps", "planned", "left"),
    [
        ("max_steps", 454, FULL, FULL - 454),  # max_steps was raised since: it goes on
        ("max_steps", FULL, FULL, 0),
        ("max_steps", FULL + 1, FULL, 0),
        ("patience", 454, 454, 0),
        ("diverged", 30, 30, 0),
    ],
)
def test_what_is_left(tmp_path: Path, stopped: str, steps: int, planned: int, left: int) -> None:
    put(tmp_path, "published-full-1", stopped=stopped, steps=steps)
    found = cost(tmp_path, "published-full-1")
    assert (found.made, found.planned, found.left) == (steps, planned, left)


def test_a_result_without_a_time_measures_nothing_but_its_updates(tmp_path: Path) -> None:
    put(tmp_path, "published-1", seconds=None)
    put(tmp_path, "published-2", seconds=908.0)
    assert by(tmp_path, "published-1") == "published-2"
    assert cost(tmp_path, "published-1").made == 454
    text = (tmp_path / "published-2.provenance.json").read_text()
    (tmp_path / "published-2.provenance.json").write_text(text.replace("908.0", "null"))
    assert by(tmp_path, "published-2") is None


def test_a_training_of_several_runs_counts_once(tmp_path: Path) -> None:
    """It is known by a run with its weights; and by its own result, where there is one."""
    runs = ["ablate-greedy-1", "ablate-tiny-1", "ablate-no-averaging-1"]
    put(tmp_path, "ablate-greedy-1", seconds=300.0, steps=3000, trained="ablate-tiny-1")
    [found] = costs_of(runs, PARAMS, tmp_path, HERE)
    assert found.by is not None
    assert (found.run, found.left, found.by.run, found.by.seconds) == ("ablate-tiny-1", 0, "ablate-tiny-1", 0.1)
    put(tmp_path, "ablate-tiny-1", seconds=600.0, steps=3000)
    [found] = costs_of(runs, PARAMS, tmp_path, HERE)
    assert found.by is not None
    assert found.by.seconds == 0.2


def test_results_of_experiments_that_are_gone_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "gone-1")
    assert by(tmp_path, "published-1") is None


def edit(path: Path, **changes: object) -> None:
    """Change keys of a JSON file; a value may be one that strict JSON does not have."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: float) -> None:
    put(tmp_path, "published-1")
    edit(tmp_path / "published-1.provenance.json", training={"seconds": seconds})
    with pytest.raises(ValueError, match=r"published-1\.provenance\.json: training\.seconds is (nan|inf|-1\.0): it sh"):
        cost(tmp_path, "published-1")


def test_a_result_without_an_update_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "published-1")
    edit(tmp_path / "published-1.json", steps=0)
    with pytest.raises(ValueError, match=r"published-1\.json: steps is 0: it should be greater than or equal to 1"):
        cost(tmp_path, "published-1")


def test_a_run_that_diverged_measures_itself_alone(tmp_path: Path) -> None:
    put(tmp_path, "published-1", seconds=1.0, stopped="diverged", steps=10)
    assert by(tmp_path, "published-1") == "published-1"
    assert by(tmp_path, "published-2") is None
    put(tmp_path, "published-3")
    assert by(tmp_path, "published-2") == "published-3"


def test_machines_like_this_one_come_first(tmp_path: Path) -> None:
    put(tmp_path, "published-1", seconds=1.0, cpu="fast")
    assert by(tmp_path, "published-full-1") == "published-1", "the only one"
    put(tmp_path, "published-2", seconds=1000.0)
    put(tmp_path, "published-3", seconds=900.0)
    assert by(tmp_path, "published-full-1") == "published-3"
    assert by(tmp_path, "published-1") == "published-1", "its own clock"
    [found] = costs_of(["published-full-1"], PARAMS, tmp_path, "2 cores of fast")
    assert found.by is not None
    assert found.by.run == "published-1"


def test_a_sum_over_unlike_machines_says_so(tmp_path: Path) -> None:
    put(tmp_path, "published-1", cpu="fast")
    put(tmp_path, "published-2")
    last = render_costs(costs_of(["published-1", "published-2"], PARAMS, tmp_path, HERE)).splitlines()[-1]
    assert last.endswith("rates of 2 of 2 runs, hours on 2 unlike machines added up")


def test_files_of_other_work_are_not_read(tmp_path: Path) -> None:
    put(tmp_path, "published-1")
    for name in ("tiny-1", "notes", "tiny-x", "tiny-", "published-01"):
        (tmp_path / f"{name}.json").write_text("{")
    assert by(tmp_path, "published-1") == "published-1"
    with pytest.raises(ValueError, match=r"tiny-1\.json is not JSON"):
        cost(tmp_path, "tiny-2")


def test_the_result_of_another_run_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "published-1")
    shutil.copy(tmp_path / "published-1.json", tmp_path / "published-2.json")
    with pytest.raises(ValueError, match=r"published-2\.json holds published-1 .*, not published-2 .* score publish"):
        cost(tmp_path, "published-1")


def test_a_damaged_provenance_is_named(tmp_path: Path) -> None:
    put(tmp_path, "published-1")
    (tmp_path / "published-1.provenance.json").write_text("{}")
    with pytest.raises(ValueError, match=r"published-1\.provenance\.json: machine is missing"):
        cost(tmp_path, "published-1")


def test_the_table_with_its_sums(tmp_path: Path) -> None:
    put(tmp_path, "published-1", seconds=908.0)
    text = render_costs(costs_of(["published-1", "published-full-1", "readme-full-1"], PARAMS, tmp_path, HERE))
    assert text.splitlines() == [
        "run               updates  planned  s an update  hours left  in all  FLOPs in all  measured by",
        "published-1           454      454         2.00         0.0     0.3       4.5e+15  published-1: 2 cores of X",
        "published-full-1        0  227,000         2.00       126.1   126.1       2.3e+18  published-1: 2 cores of X",
        "readme-full-1           0  227,000            —           —       —             —  not measured",
        "sum                   454  454,454                    126.1   126.4       2.3e+18  rates of 2 of 3 runs",
    ]
    nothing = render_costs(costs_of(["toy-1"], PARAMS, tmp_path, HERE)).splitlines()[-1].split()
    assert nothing == ["sum", "0", "600", "—", "—", "—", "rates", "of", "0", "of", "1", "runs"]


def test_a_gpu_names_the_machine(tmp_path: Path) -> None:
    put(tmp_path, "published-1")
    data = json.loads((tmp_path / "published-1.provenance.json").read_text())
    data["machine"]["gpus"] = ["NVIDIA H200"]
    write_json(tmp_path / "published-1.provenance.json", data)
    found = cost(tmp_path, "published-1").by
    assert found is not None
    assert found.machine == "NVIDIA H200"


def test_the_command_on_the_committed_results(tmp_path: Path) -> None:
    """Of the active table where none is named; the full table is known by the prefixes that were run."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "workflow/tables", tmp_path / "workflow/tables")
    shutil.copytree(ROOT / "results", tmp_path / "results")
    done = bleuprint(tmp_path, "cost", "full")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert list(rows)[1:-1] == [f"{name}-full-{seed}" for name in ("published", "readme") for seed in (1, 2, 3)]
    assert "  published-" in rows["published-full-1"]  # the fastest of those with other first weights
    active = bleuprint(tmp_path, "cost").stdout.splitlines()
    assert [line.split()[0] for line in active[1:-1]] == list(PARAMS.runs)
    unknown = bleuprint(tmp_path, "cost", "ful")
    assert unknown.stderr.startswith("error: unknown table 'ful' (did you mean full?); valid: ")
