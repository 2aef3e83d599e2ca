"""`python -m bleuprint STAGE NAME`: read params.yaml, call one stage function with values and paths.

What a stage needs is imported inside its command: `--help` answers at once, score and report never import torch.
"""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from bleuprint.console import only_errors, plain_errors, start_log, wrote
from bleuprint.runs import CORPORA, code_files, recipe_of, settings_of

RAW = Path("data/raw")
RUNS = Path("runs")
RESULTS = Path("results")
REPORTS = Path("reports")
WORK = Path("work")
DOWNLOADS = WORK / "downloads"
CHECKSUMS = Path("workflow/checksums")

app = typer.Typer(
    help="Rerun the systems of a Transformer README's results table, stage by stage.",
    rich_markup_mode=None,  # rich's help takes twice the time
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="A key of `datasets` in params.yaml.")]
CorpusName = Annotated[str, typer.Argument(metavar="CORPUS", help="A key of `corpora` in params.yaml.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="EXPERIMENT-SEED; EXPERIMENT is a key of `experiments`.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A file of workflow/tables/, without .yaml.")]
OptionalTable = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="A file of workflow/tables/, without .yaml; else the active one."),
]
Engine = Annotated[Literal["ctranslate2"], typer.Option("--to", help="The engine that will read the model.")]
Quantization = Annotated[Literal["none", "int8"], typer.Option(help="none: float32; int8: a quarter of the size.")]
SourceTypes = Annotated[
    int | None, typer.Option("--src-vocab", min=1, max=10_000_000, help="Source types, if not the corpus's.")
]
TargetTypes = Annotated[
    int | None, typer.Option("--tgt-vocab", min=1, max=10_000_000, help="Target types, if not the corpus's.")
]
TrialSeconds = Annotated[float, typer.Option("--seconds", min=0.0, help="Of updates, over all kinds of training.")]
SavePlan = Annotated[bool, typer.Option("--save", help="Keep it in reference/plans.json, for the report to tell.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")]


def main() -> None:
    """Run the command line."""
    app()


# --- stages ----------------------------------------------------------------------------------------------------------


@app.command()
def download(dataset: DatasetName) -> None:
    """Fetch and verify a data set, or generate the toy one.

    Example: python -m bleuprint download multi30k
    """
    with plain_errors("starts where the download stopped"):
        from bleuprint import archives, corpus, toy
        from bleuprint.datasets import ArchivesDataset, MirroredDataset
        from bleuprint.graph import load_params
        from bleuprint.strict import choose

        params = load_params()
        choose("dataset", dataset, params.datasets)
        start_log("download", dataset)
        spec, out, cache = params.datasets[dataset], RAW / dataset, DOWNLOADS / dataset
        if isinstance(spec, MirroredDataset):
            corpus.download(spec, out, cache, corpus.mirrors_in_order(spec, os.environ))
        elif isinstance(spec, ArchivesDataset):
            mirrors = corpus.mirrors_in_order(spec, os.environ)
            archives.download(spec, out, cache, CHECKSUMS / f"{dataset}.yaml", mirrors)
        else:
            toy.generate(spec, out)
        wrote(out)


@app.command()
def tokenize(corpus: CorpusName) -> None:
    """Learn the tokenizer of a corpus and store sentences as ids.

    Example: python -m bleuprint tokenize multi30k-bpe
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.strict import choose
        from bleuprint.tokenizing import build_corpus

        params = load_params()
        choose("corpus", corpus, params.corpora)
        start_log("tokenize", corpus)
        spec = params.corpora[corpus]
        build_corpus(spec, params.datasets[spec.dataset].splits, RAW / spec.dataset, CORPORA / corpus)
        wrote(CORPORA / corpus)


@app.command()
def train(run: RunName) -> None:
    """Train a run to its end, or go on where it was cut off.

    Example: python -m bleuprint train tiny-1

    On two GPUs: torchrun --nproc-per-node 2 -m bleuprint train tiny-1
    """
    with plain_errors("goes on from the last saved state"):
        from bleuprint.files import held
        from bleuprint.graph import load_params
        from bleuprint.process import launch, prepare
        from bleuprint.provenance import hash_files
        from bleuprint.tracking import Data, tracked

        params = load_params()
        spec = params.training_named(run)
        launch("train", run)
        prepare()
        from bleuprint.device import find_device
        from bleuprint.distributed import find_place, joined
        from bleuprint.training import fingerprint, train_run, work_directory

        place = find_place(os.environ)
        if place.rank == 0:
            start_log("train", run)
        else:
            only_errors()
        with joined(place, find_device(params.machine)):
            recipe = recipe_of(params, run)
            began_with = fingerprint(recipe), recipe.train
            work, out = work_directory(WORK / "train", run, recipe), RUNS / run / "train"
            if place.rank > 0:
                train_run(recipe, work, out, lambda step, metrics: None)
                return
            data = [Data(spec.corpus, recipe.corpus, hash_files({"corpus": recipe.corpus / "manifest.json"})["corpus"])]
            settings, id_file = settings_of(params, run), work / "mlflow_run_id"
            with held(work), tracked(params.table, run, id_file, *settings, data) as observe:
                train_run(recipe, work, out, observe)
        now = recipe_of(load_params(), run)
        if (fingerprint(now), now.train) != began_with:
            # Both engines read parameters and code at the end again, and would take these weights for the new ones'.
            raise ValueError(f"parameters, corpus or code of {run} changed while it trained; train it again")
        wrote(out)


@app.command()
def average(run: RunName) -> None:
    """Average the last weights of a run.

    Example: python -m bleuprint average tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params

        params = load_params()
        spec = params.run_named(run)
        start_log("average", run)
        from bleuprint.checkpoint import average_run

        out = RUNS / run / "average/weights.safetensors"
        average_run(RUNS / spec.trained / "train/weights", params.recipes[spec.experiment].average.last, out)
        wrote(out)


@app.command()
def decode(run: RunName) -> None:
    """Translate the test sets, and predict the words of validation.

    With the averaged weights of a run; what is predicted of the validation split is all that the legacy score looks at.

    Example: python -m bleuprint decode tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.process import prepare

        params = load_params()
        spec = params.run_named(run)
        start_log("decode", run)
        prepare()
        from bleuprint.decoding import decode_run

        experiment, corpus = params.recipes[spec.experiment], params.corpora[spec.corpus]
        decode_run(
            CORPORA / spec.corpus,
            RAW / corpus.dataset,
            RUNS / run / "average/weights.safetensors",
            RUNS / spec.trained / "train/weights",
            experiment.model,
            experiment.train.batches,
            experiment.decode,
            corpus,
            params.datasets[corpus.dataset].splits,
            params.machine,
            RUNS / run / "decode",
        )
        wrote(RUNS / run / "decode")


@app.command()
def score(run: RunName) -> None:
    """Score a run with sacreBLEU and write results/RUN.json.

    Example: python -m bleuprint score tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.scoring import score_run
        from bleuprint.tracking import track_scores

        params = load_params()
        spec = params.run_named(run)
        start_log("score", run)
        corpus = params.corpora[spec.corpus]
        manifests = {"raw": RAW / corpus.dataset, "corpus": CORPORA / spec.corpus}
        result = score_run(
            run,
            spec,
            corpus,
            params.datasets[corpus.dataset].splits,
            params.scoring,
            weights=RUNS / run / "average/weights.safetensors",
            train_summary=RUNS / spec.trained / "train/summary.json",
            train_metrics=RUNS / spec.trained / "train/metrics.jsonl",
            train_history=RUNS / spec.trained / "train/history.csv",
            decode_dir=RUNS / run / "decode",
            data_files={name: directory / "manifest.json" for name, directory in manifests.items()},
            code_files=code_files(spec.model),
            threads=params.machine.threads,
            out=RESULTS / f"{run}.json",
            provenance_out=RESULTS / f"{run}.provenance.json",
        )
        wrote(RESULTS / f"{run}.json")
        scores = {f"{test}/{name}": s.score for test, found in result.test_sets.items() for name, s in found.items()}
        scores[f"{result.legacy_score.split}/legacy_score"] = result.legacy_score.score
        track_scores(params.table, run, result.steps, settings_of(params, run)[1], scores)


@app.command()
def report() -> None:
    """Write the report of the active table.

    Example: python -m bleuprint report
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params, load_table
        from bleuprint.report import write_report

        params = load_params()
        start_log("report", params.table)
        table = load_table(params.table)
        if list(params.runs) != list(table.runs):
            raise ValueError(
                f"workflow/tables/{params.table}.yaml names other runs than params.yaml, or in another order; "
                f"take them over with: python -m bleuprint use {params.table}"
            )
        datasets = {name: params.corpora[recipe.corpus].dataset for name, recipe in params.recipes.items()}
        splits = {name: params.datasets[dataset].splits for name, dataset in datasets.items()}
        write_report(
            params.table,
            table.title,
            params.runs,
            table.comparisons,
            params.scoring,
            splits=splits,
            results={run: RESULTS / f"{run}.json" for run in params.runs},
            provenances={run: RESULTS / f"{run}.provenance.json" for run in params.runs},
            histories={run: RUNS / spec.trained / "train/history.csv" for run, spec in params.runs.items()},
            decoded={run: RUNS / run / "decode" for run in params.runs},
            out=REPORTS / params.table,
        )
        wrote(REPORTS / params.table / "results.md")


# --- around the graph ------------------------------------------------------------------------------------------------


@app.command()
def use(table: TableName) -> None:
    """Make a table the active one of params.yaml.

    Rewrites the keys `table`, `inputs`, `trainings` and `runs` from workflow/tables/TABLE.yaml and nothing else.

    Example: python -m bleuprint use demo
    """
    with plain_errors("starts again"):
        from bleuprint.tables import use

        typer.echo(f"params.yaml: {table} is the active table" + ("" if use(table) else ", as before"))


@app.command()
def readme() -> None:
    """Copy the table of reports/default into README.md.

    Example: python -m bleuprint readme
    """
    with plain_errors("starts again"):
        from bleuprint.report import update_readme

        update_readme(Path("README.md"), REPORTS / "default")


@app.command()
def deviations() -> None:
    """List every ASSUME and DEVIATES in reports/deviations.md.

    Example: python -m bleuprint deviations
    """
    with plain_errors("starts again"):
        from bleuprint.deviations import write_deviations

        write_deviations(Path(), REPORTS / "deviations.md")


@app.command()
def describe(run: RunName, src_vocab: SourceTypes = None, tgt_vocab: TargetTypes = None) -> None:
    """Count the parameters of a run's model, part by part.

    Example: python -m bleuprint describe readme-1 --src-vocab 5893 --tgt-vocab 7855
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params

        params = load_params()
        spec = params.run_named(run)
        from bleuprint.describe import describe_model, vocabularies

        types = vocabularies(CORPORA / spec.corpus, src_vocab, tgt_vocab)
        typer.echo(describe_model(params.recipes[spec.experiment].model, *types))


@app.command()
def cost(table: OptionalTable = None) -> None:
    """Say what a table takes: updates, hours and FLOPs.

    Hours are those of the clock on the machine that is named: of the run itself where results/ has it, else of the
    fastest run with the same model, batches and precision that did not diverge, on a machine like this one where there
    is one. A training under way counts as not begun.

    Example: python -m bleuprint cost full
    """
    with plain_errors("starts again"):
        from bleuprint.cost import costs_of, render_costs, this_machine
        from bleuprint.graph import load_params, load_table

        params = load_params()
        runs = load_table(table or params.table).runs
        typer.echo(render_costs(costs_of(runs, params, RESULTS, this_machine())))


@app.command()
def plan(table: OptionalTable = None, seconds: TrialSeconds = 60.0, save: SavePlan = False) -> None:
    """Say what a table will take, before it is run.

    That is parameters, tokens, FLOPs, hours and memory of each training.

    Each kind of training does some updates, and nothing of them is kept. Hours on GPUs are guessed from FLOPs. What
    trainings did take, once there are results, says `cost`.

    Example: python -m bleuprint plan full --seconds 60
    """
    with plain_errors("starts again"):
        from bleuprint.cost import this_machine
        from bleuprint.graph import load_params, load_table
        from bleuprint.planning import plan_table
        from bleuprint.plans import PLANS_FILE, render_plans, save_plans

        params = load_params()
        runs = load_table(table or params.table).runs
        plans = plan_table(runs, params, seconds, WORK / "plan", lambda text: typer.echo(text, err=True))
        typer.echo(render_plans(plans, this_machine()))
        if save:
            save_plans(plans, this_machine())
            wrote(PLANS_FILE)


@app.command()
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
        from bleuprint.export import export_run

        corpus, weights, out = CORPORA / spec.corpus, RUNS / run / "average/weights.safetensors", RUNS / run / to
        export_run(corpus, weights, model, marks, quantization, out)
        wrote(out)


@app.command()
def ui(port: Port = 5000) -> None:
    """Show the runs in the browser, by MLflow on 127.0.0.1.

    Example: python -m bleuprint ui --port 5001
    """
    with plain_errors("starts it again"):
        from bleuprint.ui import serve

        serve(port)
