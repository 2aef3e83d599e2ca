"""reports/{table}/report.html: the report as one page that needs nothing else, for a browser that is offline.

Everything is in the file: styles, scripts, Vega (bundled by vl-convert) and the data of every chart. A policy in its
head forbids the browser to fetch anything. The templates escape what they are given; the same inputs give the same
bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bleuprint.attended import Attention, Sentence
from bleuprint.files import write_text
from bleuprint.graph import Run
from bleuprint.params import Corpus, Experiment, Splits
from bleuprint.reporting.figures import LABELS, bar_name
from bleuprint.reporting.forensics import render_curves, render_evidence
from bleuprint.reporting.hypertext import inline, named, to_html, visible
from bleuprint.reporting.interactive import FIGURES, describe, interactive
from bleuprint.reporting.lengths import length_chart, length_rows
from bleuprint.reporting.licences import LICENCES_FILE, load_licences
from bleuprint.reporting.reported import Reported, require
from bleuprint.reporting.run_facts import Facts, RunProvenance, facts_of
from bleuprint.reporting.run_tables import render_runs, render_single_runs
from bleuprint.reporting.samples import choose_samples
from bleuprint.reporting.sections import (
    CLAIM_HEADER,
    claim_note,
    claim_row,
    render_metrics,
    render_trainings,
    render_verdicts,
)
from bleuprint.scoring import Result, read_json
from bleuprint.strict import validate
from bleuprint.verdicts.claims import CurveJudgement, Judgement
from bleuprint.verdicts.published import CountClaim
from bleuprint.verdicts.statistics import by_experiment

TEMPLATES = Path(__file__).parent / "templates"
INK = "#1b1f24", "#e9edf1"  # of text, light and dark; what is black in a chart is drawn in it
GRID = "#dfe3e8", "#3a4149"
SCORED = "bleu", "lengths"  # the charts in which runs of two directions stand beside each other
BLEU_BESIDE = 3  # the column of CLAIM_HEADER with sacreBLEU, which tells nothing of a count of parameters


class Inputs(NamedTuple):
    """What the page reads besides the table's report, by run; `corpora` by corpus, `splits` and `raw` by data set."""

    runs: Mapping[str, Run]
    recipes: Mapping[str, Experiment]
    corpora: Mapping[str, Corpus]
    splits: Mapping[str, Splits]
    raw: Mapping[str, Path]
    decoded: Mapping[str, Path]
    provenances: Mapping[str, Path]
    attention: Mapping[str, Path]
    deviations: Path


def write_page(table: str, reported: Reported, inputs: Inputs, out: Path, licences_file: Path = LICENCES_FILE) -> None:
    """Write `out`, the page of a table. ValueError where texts or a provenance are missing or damaged."""
    pages, attention = environment(), [read_attention(inputs, run) for run in inputs.runs]
    page = pages.get_template("report.html").render(
        title=reported.title,
        table=table,
        claims=[claim_values(judgement) for judgement in reported.judgements],
        claim_header=[inline(in_page(head)) for head in CLAIM_HEADER],
        claim_notes=to_html("\n".join(claim_note(judgement, reported.plans) for judgement in reported.judgements)),
        verdicts=Counter(judgement.verdict for judgement in reported.judgements).most_common(),
        charts=charts_of(reported, inputs),
        themes={"light": theme(0), "dark": theme(1)},
        inks=INK,
        samples=choose_samples(inputs.runs, inputs.corpora, inputs.splits, inputs.raw, inputs.decoded),
        licences=load_licences(licences_file),
        maps=maps_of(attention),
        no_maps=no_maps_of(attention),
        facts=[facts_in(table, reported, inputs, run) for run in inputs.runs],
        parts=parts_of(reported),
        deviations=read_json(inputs.deviations),
        vega=bundled_vega(),
    )
    write_text(out, page)


def environment() -> Environment:
    """Return the templates, which escape every value that is not said to be HTML, and accept no unknown one."""
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters |= {"visible": visible, "named": named}
    return pages


# --- claims and texts -------------------------------------------------------------------------------------------------


def claim_values(judgement: Judgement | CurveJudgement) -> dict[str, Any]:
    """Return a row of the claims table: its verdict, every cell as HTML, and which cells a narrow screen leaves out."""
    counted = isinstance(judgement.claim, CountClaim)
    return {
        "verdict": judgement.verdict,
        "cells": [inline(in_page(cell)) for cell in claim_row(judgement)],
        "beside_the_point": [BLEU_BESIDE] if counted else [],
    }


def in_page(markdown: str) -> str:
    """Return Markdown of results.md with its links leading to the same place of the page."""
    return markdown.replace("](results.md#", "](#")


def parts_of(reported: Reported) -> dict[str, Markup]:
    """Return the sections that results.md has too, by their titles; those without content are left out."""
    results, judgements = reported.results, reported.judgements
    curves = [judgement for judgement in judgements if isinstance(judgement, CurveJudgement)]
    parts = {
        "Scores": render_runs(results, reported.directions),
        "Comparisons": reported.comparisons,
        "Single runs": render_single_runs(results, reported.directions),
        "Verdicts": render_verdicts(judgements) if judgements else None,
        "How we know": render_evidence(reported.evidence, judgements),
        "Published curves": render_curves(curves) if curves else None,
        "Trainings": render_trainings(results),
        "Metrics": render_metrics(results),
    }
    return {title: to_html(in_page(text)) for title, text in parts.items() if text}


def facts_in(table: str, reported: Reported, inputs: Inputs, run: str) -> Facts:
    """Return what the page tells of one run."""
    result = next(result for result in reported.results if result.run == run)
    path, spec = inputs.provenances[run], inputs.runs[run]
    provenance = validate(RunProvenance, read_json(path), path)
    return facts_of(table, spec, result, inputs.recipes[run], inputs.corpora[spec.corpus], provenance)


# --- attention --------------------------------------------------------------------------------------------------------


def read_attention(inputs: Inputs, run: str) -> Attention:
    """Return where a run's model looks; ValueError where the file is missing, damaged or another run's."""
    path = require(inputs.attention[run], f"attend {run}")
    found = validate(Attention, read_json(path), path)
    if found.run != run:
        raise ValueError(f"{path} is of {found.run}, not of {run}; make it again: python -m bleuprint attend {run}")
    return found


def maps_of(found: Sequence[Attention]) -> list[dict[str, Any]]:
    """Return the attention maps of the runs that have some."""
    return [
        {
            "run": attention.run,
            "layers": attention.layers,
            "heads": attention.heads,
            "sentences": [shown_sentence(sentence) for sentence in attention.sentences],
        }
        for attention in found
        if attention.sentences
    ]


def shown_sentence(sentence: Sentence) -> dict[str, Any]:
    """Return a sentence and its maps, its tokens as they can be shown."""
    tokens = {key: [named(token) for token in getattr(sentence, key)] for key in ("read", "before", "written")}
    return {**sentence.model_dump(), **tokens}


def no_maps_of(found: Sequence[Attention]) -> list[dict[str, str]]:
    """Return the runs without maps, each with the reason."""
    return [
        {"run": attention.run, "why": attention.why_not or f"no sentence of {attention.test} is short enough"}
        for attention in found
        if not attention.sentences
    ]


# --- charts -----------------------------------------------------------------------------------------------------------


def charts_of(reported: Reported, inputs: Inputs) -> list[dict[str, Any]]:
    """Return the page's figures in their order: name, title, caption, axes that zoom, and Vega-Lite."""
    charts = {name.removesuffix(".svg"): chart for name, chart in reported.figures.items()}
    charts["lengths"] = length_chart(length_rows(reported.results, inputs.decoded))
    usual, others = unusual_names(reported.results, reported.directions)
    figures = []
    for name, shown in FIGURES.items():
        if name in charts:
            said = f" {usual} where no direction stands behind a name." if others and name in SCORED else ""
            spec = interactive(charts[name], shown, describe(name, reported.results) + said)
            figures.append(
                {
                    "name": name,
                    "title": shown.title,
                    "caption": shown.caption + said,
                    "zoomed": shown.zoomed,
                    "spec": renamed(spec, others) if name in SCORED else spec,
                }
            )
    return figures


def unusual_names(results: Sequence[Result], directions: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the direction of most runs, "en → de", and the names in charts of runs of another one, with it behind."""
    usual = Counter(directions[result.corpus] for result in results).most_common(1)[0][0]
    names = {bar_name(runs): directions[runs[0].corpus] for runs in by_experiment(results).values()}
    names |= {result.run: directions[result.corpus] for result in results}
    return usual, {name: f"{name} ({way})" for name, way in names.items() if way != usual}


def renamed(spec: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a chart with other names for its runs."""
    rows = {
        key: [row | {"run": names.get(row["run"], row["run"])} for row in found]
        for key, found in spec["datasets"].items()
    }
    return spec | {"datasets": rows}


def theme(number: int) -> dict[str, Any]:
    """Return Vega-Lite's settings for light (0) or dark (1)."""
    ink, grid = INK[number], GRID[number]
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "aria": False,  # a figure is told in words: nobody wants to hear a thousand points
        "background": "transparent",
        "font": "system-ui, sans-serif",
        "view": {"stroke": grid},
        "axis": {
            **words,
            **LABELS,
            "gridColor": grid,
            "domainColor": grid,
            "tickColor": grid,
            "titleFontWeight": "normal",
        },
        "legend": {**words, "orient": "bottom", "labelLimit": 0, "titleFontWeight": "normal"},
        "header": words,
        "title": {"color": ink},
    }


def bundled_vega() -> Markup:
    """Return Vega, Vega-Lite and vega-embed as one script, which defines `vegaEmbed`."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    assert "</script" not in script.lower(), "the script would end its own element"
    return Markup(script)
