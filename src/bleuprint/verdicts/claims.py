"""Claimed -> measured -> verdict. Claims are data (reference/claims.yaml and reference/curves); the rules are here.

The tolerance of 0.6 BLEU was fixed before every run; the form of the other rules on 2026-11-30, after Revisit-MMT's
system had been scored and before any other run was over. Later that day, without a change of any verdict given: whole
epochs alone count for `train_loss`, a seed without one does not count for a curve, each seed has a bound of its own.
The rule for counts came last, when the counts were known: whether two words of the vocabulary are the difference.

- `not comparable`: the claim is marked so (`comparable: false`), with the reason in `note`; at present none is;
- `diverged`: the training of one of its runs ended at a loss that is not finite;
- `not run`: the table has no run of the experiment that the claim is compared with, or no whole epoch for a curve.

A claim of a value, of which "better" is higher for scores and lower for losses:
- `reproduced`: the mean over the table's seeds is no worse than the claimed value by more than the tolerance or, with
  two seeds or more, by more than 2 standard deviations of the seeds, whichever is more.
  Seeds far apart thus allow much, [41.0, 20.0] 29.7 points: the report prints beside the verdict on several what is
  allowed;
- else `prefix only` where a run made fewer updates than the claimed one: nothing is said yet;
- else `not reproduced`.
A training loss is that of a whole epoch: not of a last one with fewer updates than the one before; a single one counts.

A claim of a count, of parameters or of the size of their file, is answered by any run that is over, after however many
updates, also where it diverged: `reproduced` where each seed's is off by no more than the tolerance, more or less, else
`not reproduced`.

A claim of a curve, over the whole epochs run (the mean over seeds of each), the absolute differences of training and
validation loss taken together: it agrees where their median is at most `median_tolerance`, their maximum at most
`max_tolerance` and, so that seeds on two sides of a curve do not make up for each other, the maximum of each seed alone
over the same epochs at most twice `max_tolerance`. A last epoch with fewer updates than the log's is cut off, also
where it is the only one; a seed without a whole epoch counts neither for the mean nor as a seed.
- `reproduced`: it agrees over all claimed epochs;
- `prefix only`: it agrees over fewer;
- `not reproduced`: it does not agree.

A log has one candidate or several, each a claim of its curve: `reproduced` and `prefix only` accept it, `diverged` and
`not reproduced` reject it. Two accepted or more: `more than one accepted`; else, while one is not run: `open`; else, of
several, `identified` where one is accepted and `none of these` where none is. One alone is `accepted` or `rejected`.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from bleuprint.metrics import Score
from bleuprint.scoring import Result
from bleuprint.verdicts.curves import (
    Curve,
    Distance,
    Epoch,
    distance,
    finite_epochs,
    mean_curve,
    whole_epochs,
    without_cut_off,
)
from bleuprint.verdicts.published import MEASURES, CountClaim, CurveClaim, ValueClaim

Verdict = Literal["reproduced", "not reproduced", "not comparable", "prefix only", "diverged", "not run"]
Outcome = Literal["identified", "none of these", "accepted", "rejected", "more than one accepted", "open"]
ACCEPTED: tuple[Verdict, ...] = ("reproduced", "prefix only")  # of a curve
REJECTED: tuple[Verdict, ...] = ("not reproduced", "diverged")
Histories = Mapping[str, Sequence[Epoch]]  # of each run
FLOAT32_BYTES = 4


# --- values -----------------------------------------------------------------------------------------------------------


class Judgement(NamedTuple):
    """A claim beside what the table's runs of its experiment gave: a score with its interval, or a number, for each."""

    claim: ValueClaim | CountClaim
    experiment: str | None
    runs: tuple[Result, ...]
    measured: tuple[Score | float, ...]
    verdict: Verdict


def judge(claim: ValueClaim, table: str, results: Sequence[Result], histories: Histories) -> Judgement:
    """Return a table's verdict on a value; ValueError where its results lack the claim's metric or split."""
    experiment = claim.tables[table]
    runs = runs_of(experiment, results)
    if not claim.comparable:
        return Judgement(claim, experiment, runs, (), "not comparable")
    if not runs:
        return Judgement(claim, experiment, runs, (), "not run")
    if any(run.stopped == "diverged" for run in runs):
        return Judgement(claim, experiment, runs, (), "diverged")
    measured = tuple(measure(claim, run, histories[run.run]) for run in runs)
    verdict = value_verdict(claim, [number_of(item) for item in measured], runs)
    return Judgement(claim, experiment, runs, measured, verdict)


def runs_of(experiment: str | None, results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the results of one experiment."""
    return tuple(result for result in results if result.experiment == experiment)


def measure(claim: ValueClaim, result: Result, history: Sequence[Epoch]) -> Score | float:
    """Return what a run gave in the claim's metric; ValueError lists what it has instead."""
    if claim.metric == "train_loss":
        return min(row.train_loss for row in without_cut_off(history))
    if claim.metric == "validation_loss":
        assert result.validation_loss is not None, "a diverged run is not measured"
        return result.validation_loss
    if claim.metric == "legacy_score":
        choose_split(claim, result, (result.legacy_score.split,))
        return result.legacy_score.score
    choose_split(claim, result, tuple(result.test_sets))
    scores = {str(name): score for name, score in result.test_sets[claim.split].items()}
    if claim.metric not in scores:
        raise ValueError(f"claim {claim.id} is in {claim.metric}; run {result.run} was scored in: {', '.join(scores)}")
    return scores[claim.metric]


def choose_split(claim: ValueClaim, result: Result, valid: Sequence[str]) -> None:
    """Raise ValueError unless a run was scored on the claim's split."""
    if claim.split not in valid:
        raise ValueError(f"claim {claim.id} is about {claim.split}; run {result.run} was scored on: {', '.join(valid)}")


def number_of(measured: Score | float) -> float:
    """Return a measured number without its interval."""
    return measured.score if isinstance(measured, Score) else measured


def value_verdict(claim: ValueClaim, values: Sequence[float], runs: Sequence[Result]) -> Verdict:
    """Return the verdict on one or more seeds' values."""
    missing = fmean(values) - claim.value if MEASURES[claim.metric].lower_is_better else claim.value - fmean(values)
    if round(missing, 9) <= allowed(claim, values):  # rounded: 41.02 - 40.42 is a little more than 0.6
        return "reproduced"
    shorter = claim.steps is not None and any(run.steps < claim.steps for run in runs)
    return "prefix only" if shorter else "not reproduced"


def allowed(claim: ValueClaim, values: Sequence[float]) -> float:
    """Return by how much the mean of one or more seeds' values may be worse than claimed."""
    assert claim.tolerance is not None, claim.id  # ValueClaim.check_comparison
    return max(claim.tolerance, 2 * stdev(values) if len(values) > 1 else 0.0)


# --- counts -----------------------------------------------------------------------------------------------------------


def judge_count(claim: CountClaim, table: str, results: Sequence[Result]) -> Judgement:
    """Return a table's verdict on a count."""
    experiment = claim.tables[table]
    runs = runs_of(experiment, results)
    measured = tuple(count(claim.metric, run) for run in runs)
    if not runs:
        return Judgement(claim, experiment, runs, measured, "not run")
    near = all(round(abs(found - claim.value), 9) <= claim.tolerance for found in measured)
    return Judgement(claim, experiment, runs, measured, "reproduced" if near else "not reproduced")


def count(metric: str, result: Result) -> float:
    """Return one of COUNTS of a run's model."""
    return result.parameters if metric == "parameters" else result.parameters * FLOAT32_BYTES / 1024 / 1000


# --- curves -----------------------------------------------------------------------------------------------------------


class CurveJudgement(NamedTuple):
    """A curve beside the mean over seeds of the table's runs that have a whole epoch; empty where none has.

    `runs` are those, or all where one diverged. `distance` is that of the mean, `widest` the largest difference in nats
    of any seed alone over the same epochs; None where nothing is measured or a run diverged.
    """

    claim: CurveClaim
    experiment: str
    runs: tuple[Result, ...]
    claimed: Curve
    measured: Curve
    distance: Distance | None
    widest: float | None
    verdict: Verdict


def judge_curve(
    claim: CurveClaim, claimed: Curve, table: str, results: Sequence[Result], histories: Histories
) -> CurveJudgement:
    """Return a table's verdict on a curve; ValueError where a run's epochs have another number of updates."""
    experiment = claim.tables[table]
    found = runs_of(experiment, results)
    whole = {
        run.run: whole_epochs(
            claim.steps_per_epoch, finite_epochs(histories[run.run]), f"claim {claim.id}, run {run.run}"
        )
        for run in found
    }
    runs = tuple(run for run in found if whole[run.run])
    epochs = [whole[run.run] for run in runs]
    measured = mean_curve(epochs, [run.legacy_score.epochs for run in runs]) if runs else {}
    if any(run.stopped == "diverged" for run in found):
        return CurveJudgement(claim, experiment, found, claimed, measured, None, None, "diverged")
    shared = {epoch: claimed[epoch] for epoch in measured if epoch in claimed}
    if not shared:
        return CurveJudgement(claim, experiment, runs, claimed, {}, None, None, "not run")
    gap = distance(claimed, measured)
    widest = max(distance(shared, mean_curve([seed], [])).maximum for seed in epochs)
    verdict = curve_verdict(claim, gap, widest, len(claimed))
    return CurveJudgement(claim, experiment, runs, claimed, measured, gap, widest, verdict)


def curve_verdict(claim: CurveClaim, gap: Distance, widest: float, epochs: int) -> Verdict:
    """Return the verdict on a curve of so many claimed epochs from its distance and that of the seed farthest away."""
    allowed = (claim.median_tolerance, claim.max_tolerance, 2 * claim.max_tolerance)
    gaps = (gap.median, gap.maximum, widest)
    if any(
        round(found, 9) > round(bound, 9) for found, bound in zip(gaps, allowed, strict=True)
    ):  # as in value_verdict
        return "not reproduced"
    return "reproduced" if gap.epochs == epochs else "prefix only"


# --- candidates -------------------------------------------------------------------------------------------------------


class Identification(NamedTuple):
    """Which of its candidates drew a log; each group has the nearest first."""

    file: str
    outcome: Outcome
    accepted: tuple[CurveJudgement, ...]
    rejected: tuple[CurveJudgement, ...]
    not_run: tuple[CurveJudgement, ...]


def identify(file: str, judgements: Sequence[CurveJudgement]) -> Identification:
    """Return what follows for a log from the verdicts on its candidates."""
    nearest = sorted((found for found in judgements if found.claim.file == file), key=farness)
    accepted, rejected, not_run = (
        tuple(found for found in nearest if found.verdict in verdicts)
        for verdicts in (ACCEPTED, REJECTED, ("not run",))
    )
    return Identification(file, outcome_of(len(accepted), len(rejected), len(not_run)), accepted, rejected, not_run)


def outcome_of(accepted: int, rejected: int, not_run: int) -> Outcome:
    """Return what follows from so many accepted, rejected and unrun candidates for a log."""
    if accepted > 1:
        return "more than one accepted"
    if not_run:
        return "open"
    if accepted + rejected == 1:
        return "accepted" if accepted else "rejected"
    return "identified" if accepted else "none of these"


def farness(judgement: CurveJudgement) -> tuple[float, float]:
    """Return by what candidates are ordered: median and maximum, without a distance behind all others."""
    gap = judgement.distance
    return (gap.median, gap.maximum) if gap else (math.inf, math.inf)
