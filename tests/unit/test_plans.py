"""Plans as text and as data."""

from datetime import date
from pathlib import Path

import pytest
from claimed import claim

from bleuprint.estimates.plans import PLANS_FILE, Plan, SavedPlan, describe_plan, load_plans, render_plans, save_plans
from bleuprint.reporting.sections import claim_note
from bleuprint.verdicts.claims import Judgement, judge
from bleuprint.verdicts.published import ValueClaim, load_claims

PLAN = Plan(
    run="a-1",
    experiment="a",
    parameters=1000,
    updates=10,
    target_tokens=1e5,
    flops=2e12,
    update_seconds=0.5,
    hours=1.25,
    memory_mb=400,
    gpu_hours={"L4": 0.5, "H100": None},
    made_up=False,
)


def test_the_table_has_sums_and_says_what_is_guessed() -> None:
    other = PLAN.model_copy(update={"run": "b-1", "flops": 1e12, "hours": 1000.0, "made_up": True})
    header, first, second, total, _, *notes = render_plans([PLAN, other], "a laptop").splitlines()
    assert header.split("  ")[0] == "run"
    assert first.split() == ["a-1", "1,000", "10", "1.00e+05", "2.00e+12", "0.50", "1.2", "400", "0.50", "—"]
    assert second.split()[-1] == "*"
    assert total.split() == ["sum", "20", "3.00e+12", "1,001", "1.0", "0"]
    assert "a laptop" in notes[0]
    assert notes[-1].startswith("*")
    assert len(render_plans([PLAN], "a laptop").splitlines()) == 6


def test_a_sentence_says_what_was_tried_and_what_is_guessed() -> None:
    saved = SavedPlan(**PLAN.model_dump(), machine="a laptop", day=date(2026, 11, 30))
    assert describe_plan(saved) == (
        "It would take 10 updates, 1e+05 target tokens and 2e+12 FLOPs: 1.2 hours on a laptop (by some updates of it); "
        "guessed hours: 0.50 on an L4 (python -m bleuprint plan, 2026-11-30)."
    )
    assert "stood in for its corpus" in describe_plan(saved.model_copy(update={"made_up": True}))
    assert "guessed" not in describe_plan(saved.model_copy(update={"gpu_hours": {"L4": None}}))


def test_a_claim_that_is_not_run_says_what_that_would_take() -> None:
    saved = SavedPlan(**PLAN.model_dump(), machine="a laptop", day=date(2026, 11, 30))
    not_run = Judgement(claim(), "small", (), (), "not run")
    assert "a note It would take 10 updates" in claim_note(not_run, {"small": saved})
    assert "It would take" not in claim_note(not_run, {"other": saved})
    assert "It would take" not in claim_note(not_run._replace(verdict="reproduced"), {"small": saved})
    assert "It would take" not in claim_note(not_run._replace(experiment=None), {"small": saved})


def test_a_saved_plan_replaces_its_experiments_earlier_one_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text('{"plans": {}}')
    other = PLAN.model_copy(update={"run": "b-1", "experiment": "b"})
    save_plans([PLAN, other], "a laptop", path)
    again = PLAN.model_copy(update={"hours": 7.0})
    save_plans([again, again.model_copy(update={"run": "a-2", "hours": 8.0})], "a server", path)
    plans = load_plans(path)
    assert list(plans) == ["a", "b"]
    assert (plans["a"].run, plans["a"].hours, plans["a"].machine) == ("a-1", 7.0, "a server")
    assert plans["b"].model_dump(exclude={"machine", "day"}) == other.model_dump()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    path.write_text('{"plans": {"a": {}}}')
    with pytest.raises(ValueError, match=r"plans\.json: plans\.a\.run is missing"):
        load_plans(path)


def test_the_projects_own_plans_are_those_of_the_papers_runs() -> None:
    plans = load_plans(PLANS_FILE)
    assert all(plan.experiment == experiment for experiment, plan in plans.items())
    paper = next(found for found in load_claims("default") if isinstance(found, ValueClaim))
    not_run = judge(paper, "default", [], {})
    assert (paper.id, not_run.verdict) == ("readme-original-paper", "not run")
    assert "It would take 100,000 updates" in claim_note(not_run, plans)
