"""Commands that tell what the committed results say, outside the graph."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bleuprint.commands.arguments import CardFile, ClaimName, OptionalTable, RunName, RunNames, SentenceCount
from bleuprint.console import plain_errors, wrote
from bleuprint.runs import CHECKSUMS, CORPORA, DOWNLOADS, PACKAGE, RAW, REPORTS, RESULTS, RUNS, WORK

if TYPE_CHECKING:
    from bleuprint.inputs import Places


def readme() -> None:
    """Copy the table of reports/default into README.md.

    Example: python -m bleuprint readme
    """
    with plain_errors("starts again"):
        from bleuprint.report import update_readme

        update_readme(Path("README.md"), REPORTS / "default")


def deviations() -> None:
    """List every ASSUME and DEVIATES in reports/deviations.md.

    Example: python -m bleuprint deviations
    """
    with plain_errors("starts again"):
        from bleuprint.reporting.deviations import write_deviations

        write_deviations(Path(), REPORTS / "deviations.md")


def places() -> "Places":
    """Return where the commands of this file look, and make what is missing."""
    from bleuprint.inputs import Places

    return Places(RESULTS, REPORTS, Path("README.md"), RAW, CORPORA, DOWNLOADS, CHECKSUMS, WORK / "verify")


def verify(table: OptionalTable = None) -> None:
    """Score the committed texts again and compare every number.

    Those of results/RUN.json for the runs of a table, the tables of its report and, of the table default, README.md's.
    Nothing is trained. Data that are missing are fetched and tokenised below work/verify. Exits with 1 where anything
    differs or is missing.

    Example: python -m bleuprint verify default
    """
    with plain_errors("starts again"):
        from bleuprint.estimates.plans import PLANS_FILE
        from bleuprint.graph import load_params, load_table
        from bleuprint.verdicts.published import CURVES_DIR
        from bleuprint.verify import summary, verify_table

        params = load_params()
        name = table or params.table
        runs = {run: params.run_named(run) for run in load_table(name).runs}
        checked = []
        for one in verify_table(name, runs, params, places(), CURVES_DIR, PLANS_FILE):
            checked.append(one)
            for line in one.wrong:
                typer.echo(line)
        typer.echo(summary(checked))
        if any(one.wrong for one in checked):
            raise typer.Exit(1)


def explain(claim: ClaimName) -> None:
    """Go from a number of the table back to what it was made of.

    That is claim, rule and arithmetic of the verdict, result and signature, commands, parameters, code and hashes, in
    the active table where that prints the claim, else in another one.

    Example: python -m bleuprint explain revisit-mmt-2016-flickr
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params, load_table
        from bleuprint.reporting.explain import Sources, all_claims, find_claim, judgements_of
        from bleuprint.reporting.explain import explain as account_of
        from bleuprint.verdicts.published import CURVES_DIR

        params, claims = load_params(), all_claims()
        sources = Sources(RESULTS, PACKAGE, CURVES_DIR, RAW)
        name = claim
        if claim not in claims:
            printed = [one for one in claims.values() if params.table in one.tables]
            name = find_claim(
                claim, [j for j, _ in judgements_of(printed, params.table, params.runs, sources).values()]
            )
        tables = claims[name].tables
        table = params.table if params.table in tables else next(iter(tables))
        runs = {run: params.run_named(run) for run in load_table(table).runs}
        judgement, histories = judgements_of([claims[name]], table, runs, sources)[name]
        typer.echo(account_of(judgement, histories, table, params, sources))


def compare(runs: RunNames, sentences: SentenceCount = 3) -> None:
    """Compare runs with the first, by sacreBLEU's paired tests.

    For each test set: scores, differences, and the p-values of paired bootstrap and of paired approximate
    randomisation; then the sentences that differ most. Texts are read from runs/RUN/decode or, where that is not there,
    from results/RUN.

    Example: python -m bleuprint compare paper-1 tiny-1 --sentences 5
    """
    with plain_errors("starts again"):
        from bleuprint.graph import load_params
        from bleuprint.metrics import METRICS
        from bleuprint.verdicts.significance import (
            HOW_TO_READ,
            check_comparable,
            fair_metrics,
            paired_tests,
            read_sources,
            read_texts,
            render_sentences,
            render_tests,
        )

        params = load_params()
        for test in check_comparable(runs, params):
            tested = {}
            for name in fair_metrics(runs, params):
                texts = read_texts(runs, test, METRICS[name].suffix, params, places(), RUNS)
                tested[name] = paired_tests(name, texts, params.scoring)
            typer.echo(render_tests(test, tested, len(texts.references)) + "\n")
            if sentences:
                texts = read_texts(runs, test, "txt", params, places(), RUNS)
                sources = read_sources(runs[0], test, params, places())
                for other in range(1, len(runs)):
                    typer.echo(render_sentences(texts, other, sources, sentences) + "\n")
        typer.echo(HOW_TO_READ)


def card(run: RunName, out: CardFile = None) -> None:
    """Write a run's model card in Hugging Face's form.

    Metadata with all scores, intended use, data and their licence, procedure with every parameter, evaluation with
    signatures, limitations, how to get started, citation.

    Example: python -m bleuprint card tiny-1 --out runs/tiny-1/README.md
    """
    with plain_errors("starts again"):
        from bleuprint.files import write_text
        from bleuprint.graph import load_params
        from bleuprint.reporting.card import Subject, load_facts, render_card
        from bleuprint.reporting.licences import load_licences
        from bleuprint.reporting.reported import read_result_of, require
        from bleuprint.reporting.run_facts import RunProvenance
        from bleuprint.strict import read_json, validate

        params = load_params()
        spec, licences = params.run_named(run), load_licences()
        result = read_result_of(run, spec, RESULTS / f"{run}.json")
        provenance = require(RESULTS / f"{run}.provenance.json", f"score {run}")
        subject = Subject(
            spec,
            result,
            validate(RunProvenance, read_json(provenance), provenance),
            params.recipes[spec.experiment],
            params.corpora[spec.corpus],
            load_facts(spec.dataset),
            {spec.dataset: None, **licences}[spec.dataset],
        )
        if out is None:
            typer.echo(render_card(subject), nl=False)
            return
        write_text(out.resolve(), render_card(subject))  # a link stays one
        wrote(out)
