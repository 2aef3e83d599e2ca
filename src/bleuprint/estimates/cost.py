"""What a table takes: updates, hours and FLOPs of each run, by the trainings that have a result.

A training under way has no result and counts as not begun. A result counts for what its run's parameters are now.
A run without a time of its own is measured by the fastest training that did the same work and did not diverge, of those
on this kind of machine where there are any, else of all.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict

from bleuprint.graph import Params
from bleuprint.params import Experiment
from bleuprint.provenance import describe_machine
from bleuprint.scoring import Stopped
from bleuprint.strict import Count, NonNegative, Strict, read_json, validate


class Machine(Strict):
    """Where a run was scored, and as a rule trained: what of its provenance tells machines apart."""

    model_config = ConfigDict(extra="ignore")

    cpu: str | None
    cores: int | None
    gpus: tuple[str, ...] | None


class Finished(Strict):
    """What is taken from results/{run}.json."""

    model_config = ConfigDict(extra="ignore")

    run: str
    trained: str
    steps: Count
    stopped: Stopped
    flops: NonNegative


class Training(Strict):
    """The clock's seconds of a training, over all its processes; None where its log does not say."""

    model_config = ConfigDict(extra="ignore")

    seconds: NonNegative | None


class Provenance(Strict):
    """What is taken from results/{run}.provenance.json."""

    model_config = ConfigDict(extra="ignore")

    machine: Machine
    training: Training | None


class Measured(NamedTuple):
    """What an update of a training took, validation included, on which machine; `work` decides it."""

    run: str
    work: Mapping[str, Any]
    seconds: float
    flops: float
    machine: str
    diverged: bool


class Cost(NamedTuple):
    """The updates of a run, made and planned, and the training by which the cost of one is known, None without one."""

    run: str
    made: int
    planned: int
    by: Measured | None

    @property
    def left(self) -> int:
        """Updates that are still to be made."""
        return max(0, self.planned - self.made)


# --- from results to costs --------------------------------------------------------------------------------------------


def costs_of(runs: Sequence[str], params: Params, results: Path, here: str) -> list[Cost]:
    """Return what the trainings of runs take, each once, where possible on a machine of the name `here`.

    Only results of the same work are read. ValueError as for an unknown run, or where one of those is damaged.
    """
    wanted = {run: recipe_in(params, run) for run in (params.run_named(run).trained for run in runs)}
    works = [work_of(recipe) for recipe in wanted.values()]
    files = {
        run: path for run, path in result_files(params, results).items() if work_of(recipe_in(params, run)) in works
    }
    found = {run: read_finished(path, params) for run, path in files.items()}
    trainings = [
        measure(found[run], recipe_in(params, run), read_provenance(path.with_suffix(".provenance.json")))
        for run, path in files.items()
    ]
    measured = [training for training in trainings if training is not None]
    return [cost_of(run, recipe, found.get(run), measured, here) for run, recipe in wanted.items()]


def recipe_in(params: Params, run: str) -> Experiment:
    """Return the recipe of a run; ValueError as for an unknown run."""
    return params.recipes[params.run_named(run).experiment]


def is_run(name: str, params: Params) -> bool:
    """Return whether a name is EXPERIMENT-SEED."""
    try:
        params.run_named(name)
    except ValueError:
        return False
    return True


def result_files(params: Params, results: Path) -> dict[str, Path]:
    """Return for each training its result's file, else one of a run with its weights; files of no run are left out."""
    paths = [path for path in sorted(results.glob("*.json")) if is_run(path.stem, params)]
    named = [(path, params.run_named(path.stem).trained) for path in paths]
    return {trained: path for path, trained in sorted(named, key=lambda pair: pair[0].stem == pair[1])}


def read_finished(path: Path, params: Params) -> Finished:
    """Return the result of the run that the file is named after; ValueError where it is damaged or of another."""
    found, trained = validate(Finished, read_json(path), path), params.run_named(path.stem).trained
    if (found.run, found.trained) != (path.stem, trained):
        raise ValueError(
            f"{path} holds {found.run} (weights of {found.trained}), not {path.stem} (weights of {trained}); "
            f"make it again with: python -m bleuprint score {path.stem}"
        )
    return found


def read_provenance(path: Path) -> Provenance:
    """Return where and how long a run was trained; ValueError names the file and what is wrong in it."""
    return validate(Provenance, read_json(path), path)


def measure(result: Finished, experiment: Experiment, provenance: Provenance) -> Measured | None:
    """Return what an update of a training took, None where its provenance does not say how long it trained."""
    if provenance.training is None or provenance.training.seconds is None:
        return None
    seconds, machine = provenance.training.seconds / result.steps, name_of(provenance.machine)
    flops, diverged = result.flops / result.steps, result.stopped == "diverged"
    return Measured(result.trained, work_of(experiment), seconds, flops, machine, diverged)


def work_of(experiment: Experiment) -> dict[str, Any]:
    """Return what decides how long an update takes: the model but for its first weights, batches, precision, R-Drop."""
    train = experiment.train
    model = experiment.model.model_dump(exclude={"init"})
    batches, regularizers = train.batches.model_dump(), train.regularizers.model_dump()
    return {"model": model, "batches": batches, "precision": train.precision, "regularizers": regularizers}


def this_machine() -> str:
    """Return the name of the machine that this runs on."""
    return name_of(Machine.model_validate(describe_machine()))


def name_of(machine: Machine) -> str:
    """Return "2 cores of AMD EPYC", or the names of the GPUs where it has any."""
    return ", ".join(machine.gpus) if machine.gpus else f"{machine.cores} cores of {machine.cpu}"


def cost_of(run: str, experiment: Experiment, result: Finished | None, measured: Sequence[Measured], here: str) -> Cost:
    """Return what a run takes: by itself where it is measured, else by the fastest training that does the same work.

    The fastest, since pauses and neighbours only add time; of those on the machine `here`, where there are any. One
    that diverged measures no other: it had next to no updates. A training that ended before its last update is over.
    """
    own = [training for training in measured if training.run == run]
    alike = [training for training in measured if training.work == work_of(experiment) and not training.diverged]
    near = [training for training in alike if training.machine == here]
    by = min(own or near or alike, key=lambda training: training.seconds, default=None)
    if result is None:
        return Cost(run, 0, experiment.train.max_steps, by)
    planned = experiment.train.max_steps if result.stopped == "max_steps" else result.steps
    return Cost(run, result.steps, planned, by)


# --- text -------------------------------------------------------------------------------------------------------------


def render_costs(costs: Sequence[Cost]) -> str:
    """Return a table of runs, and their sums over those that are measured."""
    header = ("run", "updates", "planned", "s an update", "hours left", "in all", "FLOPs in all", "measured by")
    rows = [header, *map(cost_row, costs), sum_row(costs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(aligned(row, widths) for row in rows)


def cost_row(cost: Cost) -> tuple[str, ...]:
    """Return one run; dashes where nothing is measured."""
    counts = (cost.run, f"{cost.made:,}", f"{cost.planned:,}")
    if cost.by is None:
        return (*counts, "—", "—", "—", "—", "not measured")
    hours = (f"{cost.by.seconds * updates / 3600:,.1f}" for updates in (cost.left, cost.planned))
    flops = f"{cost.by.flops * cost.planned:.1e}"
    return (*counts, f"{cost.by.seconds:.2f}", *hours, flops, f"{cost.by.run}: {cost.by.machine}")


def sum_row(costs: Sequence[Cost]) -> tuple[str, ...]:
    """Return the sums; hours and FLOPs are those of the runs that are measured. It says where machines differ."""
    known = [(cost, cost.by) for cost in costs if cost.by is not None]
    left = sum(by.seconds * cost.left for cost, by in known) / 3600
    whole = sum(by.seconds * cost.planned for cost, by in known) / 3600
    flops = sum(by.flops * cost.planned for cost, by in known)
    updates = (f"{sum(cost.made for cost in costs):,}", f"{sum(cost.planned for cost in costs):,}")
    sums = (f"{left:,.1f}", f"{whole:,.1f}", f"{flops:.1e}") if known else ("—", "—", "—")
    machines = len({by.machine for _, by in known})
    mixed = f", hours on {machines} unlike machines added up" if machines > 1 else ""
    return ("sum", *updates, "", *sums, f"rates of {len(known)} of {len(costs)} runs{mixed}")


def aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return cells in columns: the first and the last flush left, numbers flush right."""
    first, *numbers, last = (
        cell.ljust(width) if column in (0, len(widths) - 1) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join((first, *numbers, last)).rstrip()
