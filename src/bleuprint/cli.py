"""`python -m bleuprint COMMAND`: the command line, in the order in which `--help` lists it."""

import sys

import typer

from bleuprint.commands import estimates, project, records, results, stages, translation

COMMANDS = (
    stages.download,
    stages.tokenize,
    stages.train,
    stages.average,
    stages.decode,
    stages.attend,
    stages.score,
    stages.report,
    project.check,
    project.doctor,
    project.use,
    project.new_experiment,
    results.readme,
    results.deviations,
    results.verify,
    results.explain,
    results.compare,
    results.card,
    estimates.describe,
    estimates.cost,
    estimates.plan,
    translation.translate,
    project.export,
    records.track,
    project.unlock,
    project.ui,
)

app = typer.Typer(
    help="Rerun the systems of a Transformer README's results table, stage by stage.",
    rich_markup_mode=None,  # rich's help takes twice the time
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in COMMANDS:
    app.command()(command)

COMPLETION = {"--install-completion", "--show-completion"}


def main() -> None:
    """Run the command line.

    A shell completes one word, `bleuprint`: of `python -m bleuprint` its script would take `python` and `-m`.
    """
    app(prog_name="bleuprint" if COMPLETION & set(sys.argv[1:]) else None)
