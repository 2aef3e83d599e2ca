"""reports/{table}: results.md and figures, from results/{run}.json, runs/{run}/train/history.csv and the claims.

The same inputs give the same bytes: no time, no machine, no commit. The part of results.md between two markers is what
`bleuprint readme` copies into README.md, with its relative links pointing into reports/.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bleuprint.claims import CurveJudgement, Histories, Judgement, judge, judge_count, judge_curve
from bleuprint.curves import Curve, Epoch, read_curve, read_history
from bleuprint.evidence import EVIDENCE_FILE, Evidence, check_evidence, load_evidence
from bleuprint.figures import bleu_chart, curve_chart, loss_chart, loss_rows, render_svg
from bleuprint.files import write_text
from bleuprint.forensics import render_curves, render_evidence
from bleuprint.markdown import escape
from bleuprint.params import Run, Splits
from bleuprint.published import (
    CLAIMS_FILE,
    CURVES_DIR,
    AnyClaim,
    CountClaim,
    CurveClaim,
    ValueClaim,
    check_claims,
    load_claims,
)
from bleuprint.scoring import Result, read_result
from bleuprint.sections import (
    render_claims,
    render_metrics,
    render_runs,
    render_trainings,
    render_verdicts,
)

BEGIN = "<!-- bleuprint:table:begin -->"
END = "<!-- bleuprint:table:end -->"
FIGURES = {
    "loss.svg": "Training and validation loss by update, one colour per run",
    "bleu.svg": "BLEU on the official tokens with 95 % intervals, one panel per test set",
    "curves.svg": "Published and rerun training and validation loss by epoch, one panel per published log",
}


# --- the stage --------------------------------------------------------------------------------------------------------


def write_report(
    table: str,
    title: str,
    runs: Mapping[str, Run],
    *,
    splits: Mapping[str, Splits],
    results: Mapping[str, Path],
    histories: Mapping[str, Path],
    out: Path,
    claims_file: Path = CLAIMS_FILE,
    evidence_file: Path = EVIDENCE_FILE,
    curves_dir: Path = CURVES_DIR,
) -> None:
    """Write `out`/results.md and the figures beside it for the runs of a table, in the table's order.

    `results` and `histories` have one file per run, `splits` those of every experiment that there is. Raises ValueError
    where a file is missing, damaged or of another run or training, and where a claim cannot be answered: its experiment
    is unknown, or its runs lack its metric, split or epochs; and where evidence is about what the table does not claim.
    """
    claims = load_claims(table, claims_file)
    check_claims(claims, splits)
    evidence = load_evidence(table, evidence_file)
    check_evidence(evidence, table, claims)
    found = [read_result_of(run, settings, results[run]) for run, settings in runs.items()]
    epochs = {result.run: read_history_of(result, histories[result.run]) for result in found}
    judgements = [judge_claim(claim, table, found, epochs, curves_dir) for claim in claims]
    figures = draw(found, judgements, epochs)
    for name in FIGURES:
        if name in figures:
            write_text(out / "figures" / name, figures[name])
        else:
            (out / "figures" / name).unlink(missing_ok=True)  # of an earlier report
    write_text(out / "results.md", render_report(title, found, judgements, evidence, figures))


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
    expected = (run, settings.experiment, settings.seed, settings.corpus)
    if (result.run, result.experiment, result.seed, result.corpus) != expected:
        raise ValueError(f"{path} holds {result.run} (corpus {result.corpus}), not {run} (corpus {settings.corpus})")
    return result


def read_history_of(result: Result, path: Path) -> list[Epoch]:
    """Return the epochs of the training that a result is of; ValueError where the file is damaged or of another."""
    history = read_history(path, result.run, result.stopped == "diverged")
    last = history[-1]
    if (last.step, last.epoch) != (result.steps, result.epochs):
        raise ValueError(
            f"{path} ends after {last.step} updates in epoch {last.epoch}, the result of {result.run} after "
            f"{result.steps} in epoch {result.epochs}: they are of two trainings; make the result again with: "
            f"python -m bleuprint score {result.run}, after train, average and decode"
        )
    return history


def draw(
    results: Sequence[Result], judgements: Sequence[Judgement | CurveJudgement], histories: Histories
) -> dict[str, str]:
    """Return the figures as SVG by their file names; curves.svg only where a published curve was rerun."""
    values = [judgement for judgement in judgements if isinstance(judgement, Judgement)]
    rerun = [judgement for judgement in judgements if isinstance(judgement, CurveJudgement) and judgement.measured]
    charts: dict[str, Any] = {
        "loss.svg": loss_chart([row for run, history in histories.items() for row in loss_rows(run, history)]),
        "bleu.svg": bleu_chart(results, values),
        **({"curves.svg": curve_chart(rerun, histories)} if rerun else {}),
    }
    return {name: render_svg(chart) for name, chart in charts.items()}


def render_report(
    title: str,
    results: Sequence[Result],
    judgements: Sequence[Judgement | CurveJudgement],
    evidence: Evidence,
    figures: Mapping[str, str],
) -> str:
    """Return results.md: claims beside measurements, runs, evidence, curves, what the columns mean, figures."""
    curves = [judgement for judgement in judgements if isinstance(judgement, CurveJudgement)]
    parts = [
        f"# {escape(title)}",
        "Written by `python -m bleuprint report`; do not edit.",
        "## Results",
        BEGIN,
        render_claims(judgements),
        render_runs(results),
        END,
        *(("## Verdicts", render_verdicts(judgements)) if judgements else ()),
        *(("## How we know", render_evidence(evidence, judgements)) if evidence.evidence else ()),
        *(("## Curves", render_curves(curves)) if curves else ()),
        "## Trainings",
        render_trainings(results),
        "## Metrics",
        render_metrics(results),
        "## Figures",
        *(f"![{caption}](figures/{name})" for name, caption in FIGURES.items() if name in figures),
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
