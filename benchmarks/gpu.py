"""How fast a GPU trains, by the train stage's own path, and how many hours the runs of a table would take there.

    python benchmarks/gpu.py                                                # on the GPU; on the CPU where there is none
    python benchmarks/gpu.py --device cpu --experiments toy --table demo    # a try in seconds

Measures `--experiments` and those of the table. An epoch's end validates, writes the weights, twice as for a best
epoch, and saves the state from which training resumes. What MLflow takes and how long a run starts are left out.
Bar: `readme` at 1,000 epochs in under half an hour on one H200.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from table import matmul_rate, print_table, spread
from training import corpus_of

from bleuprint.estimates.planning import Projection, project
from bleuprint.graph import TABLES_DIR, Params, load_params, load_table
from bleuprint.params import Machine, Train
from bleuprint.process import prepare
from bleuprint.runs import WORK, recipe_of

if TYPE_CHECKING:
    from bleuprint.estimates.speed import Cost

EXPERIMENTS = "tiny,readme,paper"
TABLE = "full"
EPOCH_ENDS = 3  # of which the median counts
PRODUCT_SIZE = {"cpu": 1024, "cuda": 8192}  # of the square matrices whose product is the measure
HEADER = (
    "experiment", "updates", "seconds an update", "tokens/s", "target tokens/s", "TFLOP/s", "of products",
    "an epoch's end: validation + weights + state, s", "never waits", "GPU MB",
)  # fmt: skip


def main() -> None:
    """Read the command line, measure each experiment and print the table."""
    prepare()  # as the train stage does, before torch starts
    params = load_params()
    chosen = arguments(params)
    runs = load_table(chosen.table).runs if chosen.table else ()
    machine = Machine(device=chosen.device, threads=params.machine.threads)
    names = trained_experiments(params, [*(f"{name}-1" for name in chosen.experiments), *runs])
    for name in names:
        corpus_of(params.recipes[name].corpus)  # the program ends now where there is none, not after the first
    print_costs(params, machine, measure_all(params, machine, names, chosen), runs)


def arguments(params: Params) -> argparse.Namespace:
    """Read the command line; the program ends with a sentence where something is wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=lambda text: text.split(","), default=EXPERIMENTS, metavar="A,B")
    parser.add_argument("--table", help=f"whose runs to project; {TABLE} where there is one", default=default_table())
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default=params.machine.device)
    parser.add_argument("--updates", type=int, default=200, help="of each experiment that are timed")
    parser.add_argument("--blocks", type=int, default=10, help="of updates; a GPU is waited for at their ends alone")
    parser.add_argument("--warm-up", type=int, default=20, help="updates before them")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.experiments) - set(params.recipes)):
        parser.error(f"unknown experiment {', '.join(unknown)}; valid: {', '.join(params.recipes)}")
    if chosen.blocks < 1 or chosen.updates < chosen.blocks or chosen.updates % chosen.blocks:
        parser.error(f"--updates {chosen.updates} are not {chosen.blocks} blocks of some updates each")
    return chosen


def default_table() -> str | None:
    """Return the table whose hours are asked for, where there is one."""
    return TABLE if (TABLES_DIR / f"{TABLE}.yaml").exists() else None


def trained_experiments(params: Params, runs: Sequence[str]) -> list[str]:
    """Return the experiments that are trained for runs, each once: an experiment with another's weights is that one."""
    return list(dict.fromkeys(params.run_named(run).recipe for run in runs))


def measure_all(
    params: Params, machine: Machine, names: Sequence[str], chosen: argparse.Namespace
) -> "dict[str, Cost]":
    """Return what each experiment costs; it is also said at once: a lent machine may be gone before the last one."""
    from bleuprint.estimates.speed import Effort, measure_cost

    costs = {}
    for name in names:
        recipe = recipe_of(params, f"{name}-1")._replace(machine=machine)
        effort = Effort(chosen.warm_up, chosen.blocks, chosen.updates // chosen.blocks, EPOCH_ENDS)
        costs[name] = measure_cost(recipe, effort, WORK)
        print(name, costs[name], file=sys.stderr, flush=True)
    return costs


# --- the table --------------------------------------------------------------------------------------------------------


def print_costs(params: Params, machine: Machine, costs: "dict[str, Cost]", runs: Sequence[str]) -> None:
    """Print and keep the table of costs; the hours of runs stand below it."""
    from bleuprint.device import find_device
    from bleuprint.estimates.speed import describe_device

    device = find_device(machine).type
    products = matmul_rate("bfloat16", device, PRODUCT_SIZE[device])
    rows = [row_of(name, params.recipes[name].train, cost, products) for name, cost in costs.items()]
    notes = [
        f"Products: {products / 1e12:,.3g} TFLOP/s (bf16, square, {PRODUCT_SIZE[device]:,}).",
        "Seconds an update: the median of the blocks' means [least, most]. Tokens are real ones, source and target.",
        *(f"{name} waits for the GPU: {cost.waits}." for name, cost in costs.items() if cost.waits),
        *hours_of(params, costs, runs),
    ]
    print_table(f"Training, device: {describe_device(machine)}", HEADER, rows, notes)


def row_of(name: str, train: Train, cost: "Cost", products: float) -> list[str]:
    """Return an experiment's line; whether an update waits, and memory, are a GPU's matter."""
    return [
        f"{name}, {train.precision}",
        f"{cost.updates:,}",
        spread(cost.seconds),
        f"{cost.tokens_per_second:,.0f}",
        f"{cost.target_tokens_per_second:,.0f}",
        f"{cost.flop_per_second / 1e12:.3g}",
        f"{cost.flop_per_second / products:.1%}",
        " + ".join(f"{seconds:.3g}" for seconds in cost.epoch_end),
        "" if cost.peak_mb is None else "NO" if cost.waits else "yes",
        "" if cost.peak_mb is None else f"{cost.peak_mb:,}",
    ]


# --- hours ------------------------------------------------------------------------------------------------------------


def hours_of(params: Params, costs: "dict[str, Cost]", runs: Sequence[str]) -> list[str]:
    """Return a line for each training of runs, and one for all of them; shared weights are trained once."""
    trainings = dict.fromkeys(params.run_named(run).trained for run in runs)
    found = {run: project_run(params, costs, run) for run in trainings}
    lines = [
        f"{run}: {p.updates:,} updates, {p.epochs:,} epochs, {p.saves:,} states inside epochs: {p.hours:.3g} hours."
        for run, p in found.items()
    ]
    total = sum(projection.hours for projection in found.values())
    return [*lines, f"All of them, one after the other: {total:.3g} hours."] if lines else []


def project_run(params: Params, costs: "dict[str, Cost]", run: str) -> Projection:
    """Return the length of a training by its experiment's cost."""
    name = params.training_named(run).experiment
    cost, train = costs[name], params.recipes[name].train
    update, epoch_end = statistics.median(cost.seconds), sum(cost.epoch_end)
    return project(train, cost.epoch_updates, update, epoch_end, cost.epoch_end.save_progress)


if __name__ == "__main__":
    main()
