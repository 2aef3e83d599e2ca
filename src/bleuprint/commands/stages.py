"""The stages of the graph: each reads params.yaml and calls one stage function with values and paths.

What a stage needs is imported inside its command: `--help` answers at once, score and report never import torch.
"""

import os
from collections.abc import Mapping

from bleuprint.commands.arguments import CorpusName, DatasetName, RunName
from bleuprint.commands.unchanged import check_run_unchanged, check_unchanged
from bleuprint.console import only_errors, plain_errors, start_alone, start_log, wrote
from bleuprint.runs import (
    CHECKSUMS,
    CORPORA,
    DOWNLOADS,
    RAW,
    REPORTS,
    RESULTS,
    RUNS,
    WORK,
    code_files,
    note_processes,
    recipe_of,
    settings_of,
)


def download(dataset: DatasetName) -> None:
    """Fetch and verify a data set, or generate the toy one.

    Example: python -m bleuprint download multi30k
    """
    with plain_errors("starts where the download stopped"):
        from bleuprint.graph import load_params
        from bleuprint.inputs import make_dataset
        from bleuprint.progress import download_lines
        from bleuprint.strict import choose

        params = load_params()
        choose("dataset", dataset, params.datasets)
        start_alone("download", dataset)
        out = RAW / dataset
        with download_lines(DOWNLOADS / dataset):
            make_dataset(params.datasets[dataset], out, DOWNLOADS / dataset, CHECKSUMS / f"{dataset}.yaml")
        check_unchanged("download", dataset, params.datasets[dataset], load_params().datasets.get(dataset))
        wrote(out)


def tokenize(corpus: CorpusName) -> None:
    """Learn a corpus' tokenizer and store sentences as ids.

    Example: python -m bleuprint tokenize multi30k-bpe
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.inspection import inspect_ids, inspect_text
        from bleuprint.intact import check_raw
        from bleuprint.strict import choose
        from bleuprint.tokenizing import build_corpus

        params = load_params()
        choose("corpus", corpus, params.corpora)
        start_alone("tokenize", corpus)
        spec = params.corpora[corpus]
        splits = params.datasets[spec.dataset].splits
        check_raw(RAW / spec.dataset)
        inspect_text(spec, splits, RAW / spec.dataset)
        build_corpus(spec, splits, RAW / spec.dataset, CORPORA / corpus)
        inspect_ids(CORPORA / corpus, splits)
        now = load_params()
        check_unchanged(
            "tokenize",
            corpus,
            (spec, params.datasets[spec.dataset]),
            (now.corpora.get(corpus), now.datasets.get(spec.dataset)),
        )
        wrote(CORPORA / corpus)


def train(run: RunName) -> None:
    """Train a run to its end, or go on where it was cut off.

    Example: python -m bleuprint train tiny-1

    On two GPUs: torchrun --nproc-per-node 2 -m bleuprint train tiny-1
    """
    with plain_errors("goes on from the last saved state"):
        from bleuprint.files import held
        from bleuprint.graph import load_params
        from bleuprint.process import launch, prepare
        from bleuprint.progress import training_progress
        from bleuprint.tracking import tracked

        params = load_params()
        spec = params.training_named(run)
        launch("train", run)
        prepare()
        from bleuprint.device import find_device
        from bleuprint.distributed import find_place, joined
        from bleuprint.inspection import check_lengths
        from bleuprint.intact import check_corpus
        from bleuprint.training import fingerprint, train_run, work_directory

        place = find_place(os.environ)
        if place.rank == 0:
            start_log("train", run)
        else:
            only_errors()
        check_corpus(CORPORA / spec.corpus)
        with joined(place, find_device(params.machine)):
            recipe = recipe_of(params, run)
            check_lengths(recipe.corpus, recipe.splits, recipe.model.max_positions, recipe.train.batches)
            began_with = fingerprint(recipe), recipe.train
            work, out = work_directory(WORK / "train", run, recipe), RUNS / run / "train"
            if place.rank > 0:
                train_run(recipe, work, out, lambda step, metrics: None)
                return
            with (
                held(work),
                tracked(params.table, run, work / "mlflow_run_id", settings_of(params, run)) as observe,
                training_progress(run, recipe.train.max_steps) as show,
            ):
                note_processes(work, place.processes)

                def both(step: int, metrics: Mapping[str, float]) -> None:
                    observe(step, metrics)
                    show(step, metrics)

                train_run(recipe, work, out, both)
        now = recipe_of(load_params(), run)
        if (fingerprint(now), now.train) != began_with:
            # Both engines read parameters and code at the end again, and would take these weights for the new ones'.
            raise ValueError(f"parameters, corpus or code of {run} changed while it trained; train it again")
        wrote(out)


def average(run: RunName) -> None:
    """Average the last weights of a run.

    Example: python -m bleuprint average tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params

        params = load_params()
        spec = params.run_named(run)
        start_alone("average", run)
        from bleuprint.checkpoint import average_run

        out = RUNS / run / "average/weights.safetensors"
        average_run(RUNS / spec.trained / "train/weights", params.recipes[spec.experiment].average.last, out)
        check_run_unchanged("average", run, params)
        wrote(out)


def decode(run: RunName) -> None:
    """Translate the test sets, and predict validation's words.

    With the averaged weights of a run; what is predicted of the validation split is all that the legacy score looks at.

    Example: python -m bleuprint decode tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.process import prepare

        params = load_params()
        spec = params.run_named(run)
        start_alone("decode", run)
        prepare()
        from bleuprint.decoding import decode_run
        from bleuprint.intact import check_corpus, check_raw

        experiment, corpus = params.recipes[spec.experiment], params.corpora[spec.corpus]
        check_raw(RAW / corpus.dataset)
        check_corpus(CORPORA / spec.corpus)
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
        check_run_unchanged("decode", run, params)
        wrote(RUNS / run / "decode")


def attend(run: RunName) -> None:
    """Write where a run's model looks, in a few short sentences.

    Example: python -m bleuprint attend tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.process import prepare

        params = load_params()
        spec = params.run_named(run)
        start_alone("attend", run)
        prepare()
        from bleuprint.attention import attend_run

        experiment = params.recipes[spec.experiment]
        attend_run(
            run,
            params.datasets[spec.dataset].splits.tests[0],
            CORPORA / spec.corpus,
            RUNS / run / "average/weights.safetensors",
            experiment.model,
            experiment.decode,
            params.machine,
            RESULTS / f"{run}.attention.json",
        )
        check_run_unchanged("attend", run, params)
        wrote(RESULTS / f"{run}.attention.json")


def score(run: RunName) -> None:
    """Score a run with sacreBLEU and write results/RUN.json.

    The texts that it scored, without the references, go into results/RUN for `verify` to score again.

    Example: python -m bleuprint score tiny-1
    """
    with plain_errors("starts again"):
        from bleuprint.first_translations import files_to_show
        from bleuprint.graph import load_params
        from bleuprint.hypotheses import keep_texts
        from bleuprint.replay import scores_of
        from bleuprint.scoring import score_run
        from bleuprint.tracking import track_scores

        params = load_params()
        spec = params.run_named(run)
        start_alone("score", run)
        corpus = params.corpora[spec.corpus]
        splits = params.datasets[corpus.dataset].splits
        trained, decoded, out = RUNS / spec.trained / "train", RUNS / run / "decode", RESULTS / f"{run}.json"
        manifests = {"raw": RAW / corpus.dataset, "corpus": CORPORA / spec.corpus}
        result = score_run(
            run,
            spec,
            corpus,
            splits,
            params.scoring,
            weights=RUNS / run / "average/weights.safetensors",
            train_summary=trained / "summary.json",
            train_metrics=trained / "metrics.jsonl",
            train_history=trained / "history.csv",
            decode_dir=decoded,
            data_files={name: directory / "manifest.json" for name, directory in manifests.items()},
            code_files=code_files(spec.model),
            threads=params.machine.threads,
            out=out,
            provenance_out=RESULTS / f"{run}.provenance.json",
        )
        keep_texts(decoded, trained / "history.csv", CORPORA / spec.corpus, splits, RESULTS / run)
        check_run_unchanged("score", run, params)
        wrote(out)
        track_scores(
            params.table,
            run,
            result.steps,
            settings_of(params, run),
            scores_of(result),
            lambda: files_to_show(out, manifests["raw"], decoded, splits.tests, corpus.source, corpus.target),
        )


def report() -> None:
    """Write the report of the active table.

    Example: python -m bleuprint report
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params, load_table
        from bleuprint.report import write_report
        from bleuprint.reporting.page import Inputs, write_page

        params = load_params()
        start_alone("report", params.table)
        table = load_table(params.table)
        if list(params.runs) != list(table.runs):
            raise ValueError(
                f"workflow/tables/{params.table}.yaml names other runs than params.yaml, or in another order; "
                f"take them over with: python -m bleuprint use {params.table}"
            )
        datasets = {name: params.corpora[recipe.corpus].dataset for name, recipe in params.recipes.items()}
        splits = {name: params.datasets[dataset].splits for name, dataset in datasets.items()}
        out, decoded = REPORTS / params.table, {run: RUNS / run / "decode" for run in params.runs}
        provenances = {run: RESULTS / f"{run}.provenance.json" for run in params.runs}
        reported = write_report(
            params.table,
            table.title,
            params.runs,
            table.comparisons,
            params.scoring,
            corpora=params.corpora,
            splits=splits,
            results={run: RESULTS / f"{run}.json" for run in params.runs},
            provenances=provenances,
            histories={run: RUNS / spec.trained / "train/history.csv" for run, spec in params.runs.items()},
            decoded=decoded,
            out=out,
        )
        inputs = Inputs(
            params.runs,
            {run: params.recipes[spec.experiment] for run, spec in params.runs.items()},
            params.corpora,
            {name: dataset.splits for name, dataset in params.datasets.items()},
            {name: RAW / name for name in params.datasets},
            decoded,
            provenances,
            {run: RESULTS / f"{run}.attention.json" for run in params.runs},
            REPORTS / "deviations.json",
        )
        write_page(params.table, reported, inputs, out / "report.html")
        wrote(out / "report.html")
