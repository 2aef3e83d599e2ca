"""Commands around the graph: which table is built, what is added, where runs are seen, what else reads the models."""

from pathlib import Path

import typer

from bleuprint.commands.arguments import (
    DataName,
    Engine,
    FromExperiment,
    NewName,
    Port,
    Quantization,
    RunName,
    SourceLanguage,
    SourceText,
    TableName,
    TargetLanguage,
    TargetText,
)
from bleuprint.console import LOCKS, plain_errors, start_log, wrote
from bleuprint.runs import CORPORA, RAW, RUNS

PARAMS_LOCK = (LOCKS / "params", "another command changes params.yaml")  # each would write back what the other changed


def use(table: TableName) -> None:
    """Make a table the active one of params.yaml.

    Rewrites the keys `table`, `inputs`, `trainings` and `runs` from workflow/tables/TABLE.yaml and nothing else.

    Example: python -m bleuprint use demo
    """
    with plain_errors("starts again"):
        from bleuprint.files import locked
        from bleuprint.tables import use

        with locked(*PARAMS_LOCK):
            changed = use(table)
        typer.echo(f"params.yaml: {table} is the active table" + ("" if changed else ", as before"))


def check() -> None:
    """Check params.yaml, and say nothing where it is right.

    `make repro` does so first: DVC pastes names into commands, so that a name must not be one before DVC reads it.

    Example: python -m bleuprint check
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params

        load_params()


def new_experiment(
    name: NewName,
    of: FromExperiment,
    src: SourceLanguage = None,
    tgt: TargetLanguage = None,
    data: DataName = None,
    src_text: SourceText = None,
    tgt_text: TargetText = None,
) -> None:
    """Add an experiment to params.yaml, a copy of another one.

    It has a table of its own, workflow/tables/NAME.yaml, and a stub in workflow/claims.yaml.

    With --src or --tgt it is of other languages, with --src-text and --tgt-text of two parallel files of your own: a
    tenth of their pairs each, 1,000 at most, is taken out for validation and for the test.

    Example: python -m bleuprint new-experiment tiny-fr --from tiny --src en --tgt fr

    Of your own: python -m bleuprint new-experiment mine --from tiny --src en --tgt nl --src-text my.en --tgt-text my.nl
    """
    with plain_errors("starts again"):
        from bleuprint.files import locked
        from bleuprint.new_experiment import Wish, add_experiment

        if (src_text is None) != (tgt_text is None) or (src_text and not (src and tgt)):
            raise ValueError("--src-text and --tgt-text go together, with --src and --tgt: their languages")
        texts = (src_text, tgt_text) if src_text and tgt_text else None
        with locked(*PARAMS_LOCK):
            files = add_experiment(Wish(name, of, src, tgt, data, texts))
        for path in files:
            wrote(path)
        typer.echo(f"Next: python -m bleuprint use {name} && dvc repro")


def doctor() -> None:
    """Check machine and project, and say what to do.

    A line for each: Python, packages, torch and GPU, threads, allocator, disk, folders, mirrors, DVC, MLflow, git. Exit
    code 1 where there is a problem; a warning is none.

    Example: python -m bleuprint doctor
    """
    with plain_errors("starts again"):
        from bleuprint.checks.doctor import examine, report

        if not report(examine(Path(), RAW), typer.echo):
            raise typer.Exit(1)


def export(run: RunName, to: Engine, quantization: Quantization = "none") -> None:
    """Write a run's averaged weights in another engine's format.

    Example: python -m bleuprint export tiny-1 --to ctranslate2 --quantization int8
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.params import TransformerModel

        params = load_params()
        spec = params.run_named(run)
        model, marks = params.recipes[spec.experiment].model, params.corpora[spec.corpus].source_marks
        if not isinstance(model, TransformerModel):
            raise ValueError(f"the model of {run} is of kind {model.kind}: only transformer models can be exported")
        start_log("export", run)
        from bleuprint.translation.export import export_run

        corpus, weights, out = CORPORA / spec.corpus, RUNS / run / "average/weights.safetensors", RUNS / run / to
        export_run(corpus, weights, model, marks, quantization, out)
        wrote(out)


def unlock() -> None:
    """Remove what a killed DVC left locked or half written.

    What still works here keeps its lock; of a dvc.lock that was cut off all that was written stays. `make repro` and
    Snakemake do so first.

    Example: python -m bleuprint unlock
    """
    with plain_errors("starts again"):
        from bleuprint.engines import forget_killed, mend_lock_file

        if gone := forget_killed(Path()):
            typer.echo(f"{gone} locks of killed processes are removed")
        mend_lock_file(Path())


def ui(port: Port = 5000) -> None:
    """Show the runs in the browser, by MLflow on 127.0.0.1.

    Example: python -m bleuprint ui --port 5001
    """
    with plain_errors("starts it again"):
        from bleuprint.ui import serve

        serve(port)
