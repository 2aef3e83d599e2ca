"""reports/{table}: results.md and figures, from results/{run}.json, runs/{run}/train/history.csv and the claims.

A table's comparisons read the texts in runs/{run}/decode too, and from results/{run}.provenance.json how long training
took. The same inputs give the same bytes: no other time, no machine, no commit. The part of results.md between two
markers is what `bleuprint readme` copies into README.md, with its relative links pointing into reports/.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bleuprint.estimates.cost import read_provenance
from bleuprint.estimates.plans import PLANS_FILE, SavedPlan, load_plans
from bleuprint.files import atomic_directory, write_text
from bleuprint.graph import TABLES_DIR, Comparison, Run
from bleuprint.params import Corpus, Scoring, Splits
from bleuprint.reporting.figures import bleu_chart, curve_chart, difference_chart, loss_chart, loss_rows, render_svg
from bleuprint.reporting.forensics import render_curves, render_evidence
from bleuprint.reporting.markdown import escape
from bleuprint.reporting.run_tables import render_comparisons, render_runs, render_single_runs
from bleuprint.reporting.sections import (
    render_claim_notes,
    render_claims,
    render_metrics,
    render_trainings,
    render_verdicts,
)
from bleuprint.scoring import Result, read_result
from bleuprint.verdicts.claims import CurveJudgement, Histories, Judgement, judge, judge_count, judge_curve
from bleuprint.verdicts.comparisons import Compared, compare
from bleuprint.verdicts.curves import Curve, Epoch, read_curve, read_history
from bleuprint.verdicts.evidence import EVIDENCE_FILE, Evidence, check_evidence, load_evidence
from bleuprint.verdicts.published import (
    CLAIMS_FILE,
    CURVES_DIR,
    AnyClaim,
    CountClaim,
    CurveClaim,
    ValueClaim,
    check_claims,
    load_claims,
)
from bleuprint.verdicts.statistics import refuse_mixtures

BEGIN = "<!-- bleuprint:table:begin -->"
END = "<!-- bleuprint:table:end -->"
FIGURES = {
    "loss.svg": "Training and validation loss by update, one colour per training",
    "bleu.svg": "BLEU on the official tokens with 95 % intervals, one panel per test set; rings: single seeds",
    "ablation.svg": "Difference in BLEU from the baseline with 95 % intervals, one panel per test set",
    "curves.svg": "Published and rerun training and validation loss by epoch, one panel per published log",
}


class Reported(NamedTuple):
    """What results.md was made of, and the page is made of too.

    `directions`: of each corpus, e.g. "en → de"; `figures`: by their files' names.
    """

    title: str
    directions: Mapping[str, str]
    results: tuple[Result, ...]
    judgements: tuple[Judgement | CurveJudgement, ...]
    plans: Mapping[str, SavedPlan]
    comparisons: str | None
    evidence: Evidence
    figures: Mapping[str, Any]


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


def put_together(
    table: str,
    title: str,
    results: Sequence[Result],
    histories: Histories,
    comparisons: Sequence[Comparison],
    scoring: Scoring,
    *,
    corpora: Mapping[str, Corpus],
    provenances: Mapping[str, Path],
    decoded: Mapping[str, Path],
    claims: Sequence[AnyClaim],
    evidence: Evidence,
    plans: Mapping[str, SavedPlan],
    curves_dir: Path,
) -> Reported:
    """Return what a report is made of: verdicts, comparisons and figures, from results and the files named for them."""
    judgements = [judge_claim(claim, table, results, histories, curves_dir) for claim in claims]
    compared = [compare(comparison, results, decoded, scoring) for comparison in comparisons]
    trainings = {run: read_provenance(path).training for run, path in provenances.items()} if compared else {}
    seconds = {run: training.seconds if training else None for run, training in trainings.items()}
    versus = render_comparisons(compared, seconds, scoring.bootstrap_resamples) if compared else None
    figures = draw(results, judgements, histories, compared)
    directions = {name: f"{corpus.source} → {corpus.target}" for name, corpus in corpora.items()}
    return Reported(title, directions, tuple(results), tuple(judgements), plans, versus, evidence, figures)


def judge_claim(
    claim: AnyClaim, table: str, results: Sequence[Result], histories: Histories, curves_dir: Path
) -> Judgement | CurveJudgement:
    """Return a table's verdict on a claim of any kind."""
    if isinstance(claim, ValueClaim):
        return judge(claim, table, results, histories)
    if isinstance(claim, CountClaim):
        return judge_count(claim, table, results)
    return judge_curve(claim, load_curve(claim, curves_dir), table, results, histories)


def load_curve(claim: CurveClaim, curves_dir: Path) -> Curve:
    """Return the curve of a claim; ValueError lists the files where it is missing."""
    if not (curves_dir / claim.file).is_file():
        names = ", ".join(path.name for path in sorted(curves_dir.glob("*.csv")))
        raise ValueError(f"claim {claim.id}: {curves_dir / claim.file} is missing; there are: {names}")
    return read_curve(curves_dir / claim.file)


def require(path: Path, stage: str) -> Path:
    """Return `path`; ValueError names the stage that makes it where it is missing."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; make it with: python -m bleuprint {stage}")
    return path


def read_result_of(run: str, settings: Run, path: Path) -> Result:
    """Return the result of one run; ValueError where the file is missing or holds another run, seed or corpus."""
    result = read_result(require(path, f"score {run}"))
    expected = (run, settings.experiment, settings.seed, settings.corpus, settings.trained)
    if (result.run, result.experiment, result.seed, result.corpus, result.trained) != expected:
        raise ValueError(
            f"{path} holds {result.run} (corpus {result.corpus}, weights of {result.trained}), "
            f"not {run} (corpus {settings.corpus}, weights of {settings.trained})"
        )
    return result


def read_history_of(result: Result, path: Path) -> list[Epoch]:
    """Return the epochs of the training that a result is of; ValueError where the file is damaged or of another."""
    history = read_history(path, result.trained, result.stopped == "diverged")
    last = history[-1]
    if (last.step, last.epoch) != (result.steps, result.epochs):
        raise ValueError(
            f"{path} ends after {last.step} updates in epoch {last.epoch}, the result of {result.run} after "
            f"{result.steps} in epoch {result.epochs}: they are of two trainings; make the result again with: "
            f"python -m bleuprint score {result.run}, after train, average and decode"
        )
    return history


def draw(
    results: Sequence[Result],
    judgements: Sequence[Judgement | CurveJudgement],
    histories: Histories,
    compared: Sequence[Compared],
) -> dict[str, Any]:
    """Return the figures' charts by their file names.

    curves.svg only where a published curve was rerun, ablation.svg only where there is a difference.
    """
    differ = any(row.difference is not None for comparison in compared for row in comparison.rows)
    trained = {result.trained: histories[result.run] for result in results}
    values = [judgement for judgement in judgements if isinstance(judgement, Judgement)]
    rerun = [judgement for judgement in judgements if isinstance(judgement, CurveJudgement) and judgement.measured]
    return {
        "loss.svg": loss_chart([row for run, history in trained.items() for row in loss_rows(run, history)]),
        "bleu.svg": bleu_chart(results, values),
        **({"ablation.svg": difference_chart(compared)} if differ else {}),
        **({"curves.svg": curve_chart(rerun, histories)} if rerun else {}),
    }


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
