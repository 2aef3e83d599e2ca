"""reports/{table}: results.md and figures, from results/{run}.json and runs/{run}/train/history.csv alone.

The same inputs give the same bytes: no time, no machine, no commit. The part of results.md between two markers is what
`bleuprint readme` copies into README.md, with its relative links pointing into reports/.
"""

import csv
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

from bleuprint.claims import CLAIMS_FILE, Claim, Judgement, judge, load_claims, mean_score
from bleuprint.figures import bleu_chart, loss_chart, render_svg
from bleuprint.files import write_text
from bleuprint.params import Run
from bleuprint.scoring import METRICS, MetricName, Result, Score, read_result

BEGIN = "<!-- bleuprint:table:begin -->"
END = "<!-- bleuprint:table:end -->"
ABSENT = "—"


# --- the stage --------------------------------------------------------------------------------------------------------


def write_report(
    table: str,
    title: str,
    runs: Mapping[str, Run],
    *,
    results: Mapping[str, Path],
    histories: Mapping[str, Path],
    out: Path,
    claims_file: Path = CLAIMS_FILE,
) -> None:
    """Write `out`/results.md, figures/loss.svg and figures/bleu.svg for the runs of a table, in the table's order.

    `results` and `histories` have one file per run. Raises ValueError where one is missing or of another run.
    """
    found = [read_result_of(run, settings, results[run]) for run, settings in runs.items()]
    judgements = [judge(claim, found) for claim in load_claims(table, claims_file)]
    losses = [row for run in runs for row in read_history(run, histories[run])]
    figures = {
        "loss.svg": render_svg(loss_chart(losses)),
        "bleu.svg": render_svg(bleu_chart(found, [judgement.claim for judgement in judgements])),
    }
    for name, svg in figures.items():
        write_text(out / "figures" / name, svg)
    write_text(out / "results.md", render_report(title, found, judgements))


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


def read_history(run: str, path: Path) -> list[dict[str, Any]]:
    """Return {"run", "step", "loss of", "loss"} rows of a history.csv; ValueError names a missing file or column.

    An empty or non-finite loss gives no row: a curve that diverged ends there.
    """
    with require(path, f"train {run}").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = {"step", "train_loss", "validation_loss"} - set(reader.fieldnames or ())
        if missing:
            raise ValueError(f"{path} has no column {', '.join(sorted(missing))}")
        lines = list(reader)
    return [
        {"run": run, "step": int(line["step"]), "loss of": kind, "loss": float(line[column])}
        for kind, column in (("training", "train_loss"), ("validation", "validation_loss"))
        for line in lines
        if line[column] and math.isfinite(float(line[column]))
    ]


# --- Markdown ---------------------------------------------------------------------------------------------------------


def render_report(title: str, results: Sequence[Result], judgements: Sequence[Judgement]) -> str:
    """Return results.md: claims beside measurements, runs, what the columns mean, figures."""
    parts = [
        f"# {escape(title)}",
        "Written by `python -m bleuprint report`; do not edit.",
        "## Results",
        BEGIN,
        render_claims(judgements),
        render_runs(results),
        END,
        "## Metrics",
        render_metrics(results),
        "## Figures",
        "![Training and validation loss by update, one colour per run](figures/loss.svg)",
        "![BLEU on the official tokens with 95 % intervals, one panel per test set](figures/bleu.svg)",
    ]
    return "\n\n".join(parts) + "\n"


def render_claims(judgements: Sequence[Judgement]) -> str:
    """Return the table of claims beside what was measured and the rule of the verdicts; a sentence without claims."""
    if not judgements:
        return "reference/claims.yaml has no claim for this table: there is nothing to compare its runs with."
    header = ("Claimed by", "Claim", "Metric", "Split", "Claimed", "Measured [95 %]", "Verdict")
    rows = [claim_row(judgement) for judgement in judgements]
    notes = "\n".join(claim_note(judgement.claim) for judgement in judgements)
    tolerances = sorted({str(j.claim.tolerance) for j in judgements if j.claim.tolerance is not None})
    rule = (
        f"*Reproduced*: measured ≥ claimed − tolerance ({', '.join(tolerances)} points, fixed before the runs; seeds "
        "alone differ by that much). *Not comparable*: for the reason given below. "
        "*Not run*: no run of this table is a rerun of it."
    )
    return f"{markdown_table(header, rows, numbers=(4, 5))}\n\n{rule} What each claimed number is:\n\n{notes}"


def claim_row(judgement: Judgement) -> tuple[str, ...]:
    """Return one row of the claims table."""
    claim = judgement.claim
    names = (escape(claim.who), escape(claim.text), code(claim.metric), code(claim.split))
    return (*names, f"{claim.value:g}", measured(judgement.scores), f"**{judgement.verdict}**")


def claim_note(claim: Claim) -> str:
    """Return a list item: what a claimed number is, and its source."""
    return f"- {claim.value:g} on {code(claim.split)}: {escape(claim.note)} Source: {escape(claim.source)}."


def measured(scores: Sequence[Score]) -> str:
    """Return one run's score with its interval, or the mean and standard deviation over seeds."""
    if not scores:
        return ABSENT
    if len(scores) == 1:
        return with_interval(scores[0])
    spread = stdev(score.score for score in scores)
    return f"{mean_score(scores):.2f} (sd {spread:.2f}, {len(scores)} seeds)"


def render_runs(results: Sequence[Result]) -> str:
    """Return the table of runs, one row per run and test set."""
    metrics = [code(name) for name in METRICS]
    header = ("Run", "Corpus", "Parameters", "Updates", "Validation loss", "Test set", *metrics)
    rows = [run_row(result, test) for result in results for test in result.test_sets]
    note = (
        "Scores with 95 % bootstrap intervals; `bleu_13a` only where the corpus is cased. "
        "[What each column measures, with sacreBLEU's signatures](results.md#metrics)."
    )
    return f"{markdown_table(header, rows, numbers=(2, 3, 4, 6, 7, 8, 9))}\n\n{note}"


def run_row(result: Result, test: str) -> tuple[str, ...]:
    """Return one row of the runs table."""
    loss = "diverged" if result.validation_loss is None else f"{result.validation_loss:.3f}"
    scores = result.test_sets[test]
    cells = (with_interval(scores[name]) if name in scores else ABSENT for name in METRICS)
    names = (code(result.run), code(result.corpus), f"{result.parameters:,}", f"{result.steps:,}", loss, code(test))
    return (*names, *cells)


def with_interval(score: Score) -> str:
    """Return "41.02 [39.80, 42.31]"."""
    return f"{score.score:.2f} [{score.low:.2f}, {score.high:.2f}]"


def render_metrics(results: Sequence[Result]) -> str:
    """Return the table of metrics: what each measures and every sacreBLEU signature that these results carry."""
    rows = [(code(name), escape(facts.definition), signatures_of(name, results)) for name, facts in METRICS.items()]
    note = (
        "The interval is sacreBLEU's: the mean of the bootstrap resamples ± half the width of their central 95 %. "
        "The `sacrebleu` command gives the same scores from the files in `runs/{run}/decode/`: `{test}.ref.lc-tok.txt` "
        "and `{test}.hyp.lc-tok.txt` for `bleu_lc_tok`, `{test}.ref.txt` and `{test}.hyp.txt` for the others. "
        "The validation loss is the best one, in nats per target token."
    )
    return f"{markdown_table(('Metric', 'What it measures', 'Signature'), rows)}\n\n{note}"


def signatures_of(name: MetricName, results: Sequence[Result]) -> str:
    """Return the distinct signatures of one metric over all runs and test sets."""
    scores = [scores[name] for result in results for scores in result.test_sets.values() if name in scores]
    return "<br>".join(code(signature) for signature in sorted({score.signature for score in scores})) or ABSENT


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a GitHub table of ready-made cells; columns whose index is in `numbers` are set flush right."""
    assert all(len(row) == len(header) for row in rows), header
    rule = ["---:" if column in numbers else "---" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def escape(text: str) -> str:
    """Return text that GitHub Markdown shows as it is, in a table cell too; white space becomes single blanks."""
    marked = re.sub(r"([\\`*{}\[\]<>|#&~$!])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", marked)  # an underscore within a word is no markup


def code(text: str) -> str:
    """Return text as inline code in a table cell: only the bar needs an escape there, and backquotes another fence."""
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{' '.join(text.split())}{space}{fence}".replace("|", "\\|")


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
