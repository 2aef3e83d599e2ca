"""reports/{table}: results.md and figures, from results/{run}.json, runs/{run}/train/history.csv and the claims.

A table's comparisons read the texts in runs/{run}/decode too, and from results/{run}.provenance.json how long training
took. The same inputs give the same bytes: no other time, no machine, no commit. The part of results.md between two
markers is what `bleuprint readme` copies into README.md, with its relative links pointing into reports/.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bleuprint.estimates.plans import PLANS_FILE, load_plans
from bleuprint.files import atomic_directory, write_text
from bleuprint.graph import TABLES_DIR, Comparison, Run
from bleuprint.params import Corpus, Scoring, Splits
from bleuprint.reporting.figures import render_svg
from bleuprint.reporting.forensics import render_curves, render_evidence
from bleuprint.reporting.markdown import escape
from bleuprint.reporting.reported import Reported, put_together, read_history_of, read_result_of, require
from bleuprint.reporting.run_tables import render_runs, render_single_runs
from bleuprint.reporting.sections import (
    render_claim_notes,
    render_claims,
    render_metrics,
    render_trainings,
    render_verdicts,
)
from bleuprint.verdicts.claims import CurveJudgement
from bleuprint.verdicts.evidence import EVIDENCE_FILE, check_evidence, load_evidence
from bleuprint.verdicts.published import CLAIMS_FILE, CURVES_DIR, check_claims, load_claims
from bleuprint.verdicts.statistics import refuse_mixtures

BEGIN = "<!-- bleuprint:table:begin -->"
END = "<!-- bleuprint:table:end -->"
FIGURES = {
    "loss.svg": "Training and validation loss by update, one colour per training",
    "bleu.svg": "BLEU on the official tokens with 95 % intervals, one panel per test set; rings: single seeds",
    "ablation.svg": "Difference in BLEU from the baseline with 95 % intervals, one panel per test set",
    "curves.svg": "Published and rerun training and validation loss by epoch, one panel per published log",
}


# --- the stage --------------------------------------------------------------------------------------------------------


def write_report(
    table: str,
    title: str,
    runs: Mapping[str, Run],
    comparisons: Sequence[Comparison],
    scoring: Scoring,
    *,
    corpora: Mapping[str, Corpus],
    splits: Mapping[str, Splits],
    results: Mapping[str, Path],
    provenances: Mapping[str, Path],
    histories: Mapping[str, Path],
    decoded: Mapping[str, Path],
    out: Path,
    claims_file: Path = CLAIMS_FILE,
    evidence_file: Path = EVIDENCE_FILE,
    plans_file: Path = PLANS_FILE,
    curves_dir: Path = CURVES_DIR,
    tables_dir: Path = TABLES_DIR,
) -> Reported:
    """Write `out`/results.md and the figures beside it for the runs of a table, in the table's order; return its parts.

    `results`, `provenances` and `histories` have one file per run, `decoded` the directory of its texts, `splits` those
    of every experiment that there is. Raises ValueError where a file is missing, damaged or of another run or training,
    where a claim cannot be answered (its experiment is unknown, or its runs lack its metric, split or epochs), where
    evidence is about no table or about what its table does not claim, and where a comparison is of other sentences than
    its baseline.
    """
    claims = load_claims(table, claims_file, tables_dir=tables_dir)
    check_claims(claims, splits)
    evidence = load_evidence(table, evidence_file, tables_dir)
    check_evidence(evidence, table, claims)
    found = [read_result_of(run, settings, results[run]) for run, settings in runs.items()]
    refuse_mixtures(found)
    reported = put_together(
        table,
        title,
        found,
        {result.run: read_history_of(result, histories[result.run]) for result in found},
        comparisons,
        scoring,
        corpora=corpora,
        provenances=provenances,
        decoded=decoded,
        claims=claims,
        evidence=evidence,
        plans=load_plans(plans_file),
        curves_dir=curves_dir,
    )
    with atomic_directory(out / "figures") as folder:  # those of an earlier report go with it
        for name, figure in reported.figures.items():
            write_text(folder / name, render_svg(figure))
    write_text(out / "results.md", render_report(reported))
    return reported


def render_report(reported: Reported) -> str:
    """Return results.md: claims beside measurements, runs, comparisons, evidence, curves, what the columns mean."""
    results, judgements, comparisons = reported.results, reported.judgements, reported.comparisons
    single = render_single_runs(results, reported.directions)
    known = render_evidence(reported.evidence, judgements)
    curves = [judgement for judgement in judgements if isinstance(judgement, CurveJudgement)]
    parts = [
        f"# {escape(reported.title)}",
        "Written by `python -m bleuprint report`; do not edit.",
        "## Results",
        BEGIN,
        render_claims(judgements),
        END,
        *(("## Claims", render_claim_notes(judgements, reported.plans)) if judgements else ()),
        "## Scores",
        render_runs(results, reported.directions),
        *(("## Comparisons", comparisons) if comparisons else ()),
        *(("## Single runs", single) if single else ()),
        *(("## Verdicts", render_verdicts(judgements)) if judgements else ()),
        *(("## How we know", known) if known else ()),
        *(("## Curves", render_curves(curves)) if curves else ()),
        "## Trainings",
        render_trainings(results),
        "## Metrics",
        render_metrics(results),
        "## Figures",
        *(f"![{caption}](figures/{name})" for name, caption in FIGURES.items() if name in reported.figures),
        "## Deviations",
        "Where a source is silent and where we depart from it: [every ASSUME and DEVIATES](../deviations.md).",
    ]
    return "\n\n".join(parts) + "\n"


# --- README -----------------------------------------------------------------------------------------------------------


def update_readme(readme: Path, report_dir: Path) -> None:
    """Put a report's block between README.md's markers; ValueError without one pair of markers in each."""
    before, _, after = split_block(readme.read_bytes().decode("utf-8"), readme)  # bytes: keep the user's line ends
    write_text(readme, f"{before}{BEGIN}{readme_block(report_dir, readme.parent)}{END}{after}")


def readme_block(report_dir: Path, readme_dir: Path) -> str:
    """Return what stands between the markers of results.md, its relative links made relative to `readme_dir`."""
    path = require(report_dir / "results.md", "report")
    block = split_block(path.read_text(encoding="utf-8"), path)[1]
    prefix = Path(os.path.relpath(report_dir, readme_dir)).as_posix()
    return re.sub(r"\]\((?![a-z]+:|[/#])", f"]({prefix}/", block)


def split_block(text: str, path: Path) -> tuple[str, str, str]:
    """Return the text before, between and after the markers; ValueError unless there is one of each, in order."""
    for marker in (BEGIN, END):
        if text.count(marker) != 1:
            raise ValueError(f"{path} has the marker {marker} {text.count(marker)} times instead of once")
    if text.index(END) < text.index(BEGIN):
        raise ValueError(f"{path} has {END} before {BEGIN}")
    before, block, after = re.split(f"{re.escape(BEGIN)}|{re.escape(END)}", text)
    return before, block, after
