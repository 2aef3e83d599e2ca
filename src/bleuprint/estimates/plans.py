"""What a training would take, as `bleuprint plan` found it: as text, and as data for the report.

reference/plans.json keeps those that were asked for with `--save`, one for each experiment; the report tells them of
what is not run.
"""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from bleuprint.estimates.cost import aligned
from bleuprint.files import write_text
from bleuprint.reporting.markdown import ABSENT
from bleuprint.strict import Count, Flag, Name, NonNegative, Strict, read_yaml, validate

PLANS_FILE = Path(__file__).parents[1] / "reference/plans.json"
# ASSUME: the share of a GPU's best rate that the training of a Transformer reaches; none of ours was measured on one.
UTILISATION = 0.3
# ASSUME: a batch takes at least so long, forward and backward: it is some thousand kernels, each started apart.
LEAST_BATCH_SECONDS = 0.02


class Plan(Strict):
    """A training to its last update, where nothing stops it early; `made_up` where sentences stood in for its corpus.

    `experiment` may be another than the run's, one that takes its weights. Tokens are the target's. `gpu_hours` are
    null where the GPU's memory is too small.
    """

    run: Name
    experiment: Name
    parameters: Count
    updates: Count
    target_tokens: NonNegative
    flops: NonNegative
    update_seconds: NonNegative
    hours: NonNegative
    memory_mb: Count
    gpu_hours: dict[str, NonNegative | None]
    made_up: Flag


class SavedPlan(Plan):
    """A plan with the machine and the day of its trial."""

    machine: str
    day: date


class SavedPlans(Strict):
    """reference/plans.json: a plan of each experiment."""

    plans: dict[Name, SavedPlan]


def load_plans(path: Path = PLANS_FILE) -> dict[str, SavedPlan]:
    """Return the saved plans by experiment; ValueError names what is wrong in the file."""
    return dict(validate(SavedPlans, read_yaml(path), path).plans)


def save_plans(plans: Sequence[Plan], machine: str, path: Path = PLANS_FILE) -> None:
    """Put plans in the place of earlier ones of the same experiments; of several seeds the first counts."""
    own = {
        plan.experiment: SavedPlan(**plan.model_dump(), machine=machine, day=date.today()) for plan in reversed(plans)
    }
    merged = SavedPlans(plans=dict(sorted((load_plans(path) | own).items())))
    write_text(path, json.dumps(merged.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n")


# --- text -------------------------------------------------------------------------------------------------------------


def describe_plan(plan: SavedPlan) -> str:
    """Return a sentence on what a training would take, where it was tried and what is guessed."""
    gpus = [f"{short(hours)} on an {name}" for name, hours in plan.gpu_hours.items() if hours is not None]
    guessed = f"; guessed hours: {', '.join(gpus)}" if gpus else ""
    made_up = ", on sentences that stood in for its corpus" if plan.made_up else ""
    return (
        f"It would take {plan.updates:,} updates, {plan.target_tokens:.2g} target tokens and {plan.flops:.2g} FLOPs: "
        f"{short(plan.hours)} hours on {plan.machine} (by some updates of it{made_up}){guessed} "
        f"(python -m bleuprint plan, {plan.day.isoformat()})."
    )


def render_plans(plans: Sequence[Plan], machine: str) -> str:
    """Return a table of trainings and their sums; below it what the columns are."""
    gpus = tuple(plans[0].gpu_hours)
    header = ("run", "parameters", "updates", "target tokens", "FLOPs", "s an update", "hours", "MB")
    rows = [(*header, *(f"hours, {gpu}" for gpu in gpus), ""), *map(plan_row, plans), sum_row(plans)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    notes = [
        f"s an update, hours and MB: tried on this machine, {machine}; one after the other, without decoding.",
        f"hours on GPUs: not measured; FLOPs at {UTILISATION:.0%} of the best rate in the maker's data sheet, at least "
        f"{LEAST_BATCH_SECONDS} s a batch; {ABSENT} where MB are more than the GPU has.",
        *(["* its corpus is not made: sentences of one length stood in for it."] if any_made_up(plans) else []),
    ]
    return "\n".join([*(aligned(row, widths) for row in rows), "", *notes])


def any_made_up(plans: Sequence[Plan]) -> bool:
    """Return whether a corpus was missing."""
    return any(plan.made_up for plan in plans)


def plan_row(plan: Plan) -> tuple[str, ...]:
    """Return one training's cells."""
    counts = (f"{plan.parameters:,}", f"{plan.updates:,}", f"{plan.target_tokens:.2e}", f"{plan.flops:.2e}")
    here = (f"{plan.update_seconds:.2f}", short(plan.hours), f"{plan.memory_mb:,}")
    there = (ABSENT if hours is None else short(hours) for hours in plan.gpu_hours.values())
    return (plan.run, *counts, *here, *there, "*" if plan.made_up else "")


def sum_row(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return the sums of what adds up; hours on a GPU are those of the trainings that fit."""
    updates, flops = sum(plan.updates for plan in plans), sum(plan.flops for plan in plans)
    there = (sum(plan.gpu_hours[gpu] or 0.0 for plan in plans) for gpu in plans[0].gpu_hours)
    totals = ("", f"{updates:,}", "", f"{flops:.2e}", "", short(sum(plan.hours for plan in plans)), "")
    return ("sum", *totals, *map(short, there), "")


def short(hours: float) -> str:
    """Return two digits at least, and no decimals from 10 hours on."""
    return f"{hours:,.0f}" if hours >= 10 or not hours else f"{hours:#.2g}"
