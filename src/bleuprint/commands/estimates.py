"""Commands that count: parameters, hours, memory."""

import typer

from bleuprint.commands.arguments import OptionalTable, RunName, SavePlan, SourceTypes, TargetTypes, TrialSeconds
from bleuprint.console import plain_errors, wrote
from bleuprint.runs import CORPORA, RESULTS, WORK


def describe(run: RunName, src_vocab: SourceTypes = None, tgt_vocab: TargetTypes = None) -> None:
    """Count the parameters of a run's model, part by part.

    Example: python -m bleuprint describe readme-1 --src-vocab 5893 --tgt-vocab 7855
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params

        params = load_params()
        spec = params.run_named(run)
        from bleuprint.estimates.describe import describe_model, vocabularies

        types = vocabularies(CORPORA / spec.corpus, src_vocab, tgt_vocab)
        typer.echo(describe_model(params.recipes[spec.experiment].model, *types))


def cost(table: OptionalTable = None) -> None:
    """Say what a table takes: updates, hours and FLOPs.

    Hours are those of the clock on the machine that is named: of the run itself where results/ has it, else of the
    fastest run with the same model, batches and precision that did not diverge, on a machine like this one where there
    is one. A training under way counts as not begun.

    Example: python -m bleuprint cost full
    """
    with plain_errors("starts again"):
        from bleuprint.estimates.cost import costs_of, render_costs, this_machine
        from bleuprint.graph import load_params, load_table

        params = load_params()
        runs = load_table(table or params.table).runs
        typer.echo(render_costs(costs_of(runs, params, RESULTS, this_machine())))


def plan(table: OptionalTable = None, seconds: TrialSeconds = 60.0, save: SavePlan = False) -> None:
    """Say what a table will take, before it is run.

    That is parameters, tokens, FLOPs, hours and memory of each training.

    Each kind of training does some updates, and nothing of them is kept. Hours on GPUs are guessed from FLOPs. What
    trainings did take, once there are results, says `cost`.

    Example: python -m bleuprint plan full --seconds 60
    """
    with plain_errors("starts again"):
        from bleuprint.estimates.cost import this_machine
        from bleuprint.estimates.planning import plan_table, plans_of_experiments
        from bleuprint.estimates.plans import PLANS_FILE, render_plans, save_plans
        from bleuprint.graph import load_params, load_table

        params = load_params()
        runs = load_table(table or params.table).runs
        plans = plan_table(runs, params, seconds, WORK / "plan", lambda text: typer.echo(text, err=True))
        typer.echo(render_plans(plans, this_machine()))
        if save:
            save_plans(plans_of_experiments(plans, runs, params), this_machine())
            wrote(PLANS_FILE)
