"""What a table's report is made of: results, verdicts, comparisons and figures, put together from the files named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bleuprint.estimates.cost import read_provenance
from bleuprint.estimates.plans import SavedPlan
from bleuprint.graph import Comparison, Run
from bleuprint.params import Corpus, Scoring
from bleuprint.reporting.figures import bleu_chart, curve_chart, difference_chart, loss_chart, loss_rows
from bleuprint.reporting.run_tables import render_comparisons
from bleuprint.scoring import Result, read_result
from bleuprint.verdicts.claims import CurveJudgement, Histories, Judgement, judge, judge_count, judge_curve
from bleuprint.verdicts.comparisons import Compared, compare
from bleuprint.verdicts.curves import Curve, Epoch, read_curve, read_history
from bleuprint.verdicts.evidence import Evidence
from bleuprint.verdicts.published import AnyClaim, CountClaim, CurveClaim, ValueClaim


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
