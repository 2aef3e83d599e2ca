"""What a table will take, before it is run: parameters, tokens, FLOPs, hours and memory of each training.

Every kind of training is tried on this machine (trial.py); its hours are those of all updates and ends of epochs, one
after the other. Hours on GPUs that are not there follow from FLOPs alone. Decoding, which takes minutes, is left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bleuprint.estimates.cost import recipe_in, work_of
from bleuprint.estimates.plans import LEAST_BATCH_SECONDS, UTILISATION, Plan
from bleuprint.estimates.trial import Trial, is_made, try_apart
from bleuprint.graph import Params
from bleuprint.params import Train
from bleuprint.strict import Positive, Strict, read_yaml, validate

GPUS_FILE = Path(__file__).parents[1] / "reference/gpus.yaml"


class Gpu(Strict):
    """What a GPU can do at best: TFLOP/s of dense products in either precision; its memory in GB."""

    bf16: Positive
    fp32: Positive
    memory_gb: Positive
    source: str


class Gpus(Strict):
    """reference/gpus.yaml, under a key of its own."""

    gpus: dict[str, Gpu]


class Projection(NamedTuple):
    """What a whole training is made of, and the hours that it takes."""

    updates: int
    epochs: int
    saves: int  # of the state, inside epochs
    hours: float


def plan_table(
    runs: Sequence[str], params: Params, seconds: float, scratch: Path, say: Callable[[str], None]
) -> list[Plan]:
    """Return the plans of the trainings that runs need, each once; of those that do the same work one is tried.

    All trials together do updates for `seconds`, and at least two each; `say` is told what is tried. ValueError as for
    an unknown run, where a corpus is not made and cannot be guessed, and where memory is short.
    """
    trainings = dict.fromkeys(params.run_named(run).trained for run in runs)
    works = {
        run: (work_of(params.recipes[params.run_named(run).experiment]), corpus_of(params, run)) for run in trainings
    }
    first = {run: next(other for other in trainings if works[other] == works[run]) for run in trainings}
    trials = {}
    for run in dict.fromkeys(first.values()):
        say(f"{run}: some updates on this machine")
        trials[run] = try_apart(params, run, seconds / len(set(first.values())), scratch)
    gpus = load_gpus()
    return [plan_of(params, run, trials[first[run]], gpus) for run in trainings]


def plans_of_experiments(plans: Sequence[Plan], runs: Sequence[str], params: Params) -> list[Plan]:
    """Return for each run the plan of the training whose weights it has, under the name of its own experiment."""
    by_training, found = {plan.run: plan for plan in plans}, map(params.run_named, runs)
    return [by_training[run.trained].model_copy(update={"experiment": run.experiment}) for run in found]


def corpus_of(params: Params, run: str) -> str:
    """Return the name of the corpus that a run reads."""
    return params.run_named(run).corpus


def load_gpus() -> dict[str, Gpu]:
    """Return the GPUs of reference/gpus.yaml."""
    return validate(Gpus, {"gpus": read_yaml(GPUS_FILE)}, GPUS_FILE).gpus


# --- from trials to plans ---------------------------------------------------------------------------------------------


def plan_of(params: Params, run: str, trial: Trial, gpus: Mapping[str, Gpu]) -> Plan:
    """Return what a training takes by a trial of its kind."""
    train = recipe_in(params, run).train
    update_seconds = trial.token_seconds * sum(trial.epoch_tokens) / trial.epoch_updates
    epochs = train.max_steps / trial.epoch_updates
    flops = trial.epoch_flops * epochs
    return Plan(
        run=run,
        experiment=params.run_named(run).experiment,
        parameters=trial.parameters,
        updates=train.max_steps,
        target_tokens=trial.epoch_tokens[1] * epochs,
        flops=flops,
        update_seconds=update_seconds,
        hours=project(train, trial.epoch_updates, update_seconds, trial.epoch_end, trial.save).hours,
        memory_mb=trial.memory_mb,
        gpu_hours={name: hours_on(gpu, train, flops, trial.memory_mb) for name, gpu in gpus.items()},
        made_up=not is_made(corpus_of(params, run)),
    )


def project(train: Train, epoch_updates: int, update: float, epoch_end: float, save: float) -> Projection:
    """Return a training's length where it is not stopped early; `update`, `epoch_end` and `save` are seconds of one."""
    updates = train.max_steps
    epochs, saves = math.ceil(updates / epoch_updates), updates // train.checkpoint_every_steps
    return Projection(updates, epochs, saves, (updates * update + epochs * epoch_end + saves * save) / 3600)


def hours_on(gpu: Gpu, train: Train, flops: float, memory_mb: int) -> float | None:
    """Return a training's hours on a GPU that is not there, None where its memory is too small."""
    if memory_mb > gpu.memory_gb * 1000:
        return None
    rate = UTILISATION * 1e12 * (gpu.bf16 if train.precision == "bf16" else gpu.fp32)
    batches = train.max_steps * train.batches.batches_per_step
    return max(flops / rate, batches * LEAST_BATCH_SECONDS) / 3600
