"""Sections of results.md: claims beside measurements, verdicts, trainings, metrics."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from bleuprint.estimates.plans import SavedPlan, describe_plan
from bleuprint.metrics import Score
from bleuprint.reporting.markdown import ABSENT, code, escape, markdown_table
from bleuprint.scoring import Result
from bleuprint.verdicts.claims import CurveJudgement, Judgement, allowed, number_of
from bleuprint.verdicts.published import COUNTS, MEASURES, AnyClaim, CountClaim, CurveClaim, ValueClaim, digits_of

SIGNATURES = "[signatures](results.md#metrics)"
CLAIM_HEADER = (
    "Claim",
    "As claimed (metric, split)",
    "Same metric, measured",
    f"sacreBLEU, measured ({SIGNATURES})",
    "Parameters, claimed / measured",
    "Seeds",
    "Updates, run of claimed",
    "Verdict",
)


# --- claims -----------------------------------------------------------------------------------------------------------


def render_claims(judgements: Sequence[Judgement | CurveJudgement]) -> str:
    """Return the table of claims beside what was measured; a sentence without claims."""
    if not judgements:
        return "reference/claims.yaml has no claim for this table: there is nothing to compare its runs with."
    rows = [claim_row(judgement) for judgement in judgements]
    links = (
        "[What each claim is](results.md#claims), [by which rules it is judged](results.md#verdicts), and "
        "[every score of every run](results.md#scores)."
    )
    return f"{markdown_table(CLAIM_HEADER, rows)}\n\n{links}"


def render_claim_notes(judgements: Sequence[Judgement | CurveJudgement], plans: Mapping[str, SavedPlan]) -> str:
    """Return what each claim is, and its source.

    `plans` are those of experiments: a claim whose runs are not run says what that would take.
    """
    return "\n".join(claim_note(judgement, plans) for judgement in judgements)


def claim_row(judgement: Judgement | CurveJudgement) -> tuple[str, ...]:
    """Return one row of the claims table."""
    claim, runs = judgement.claim, judgement.runs
    return (
        f"{escape(claim.who)}: {escape(claim.text)}",
        claimed_value(judgement.claim) if isinstance(judgement, Judgement) else claimed_curve(judgement),
        measured_value(judgement) if isinstance(judgement, Judgement) else measured_curve(judgement),
        bleu_beside(claim, runs),
        f"{count(claim.parameters)} / {', '.join(sorted({count(run.parameters) for run in runs})) or ABSENT}",
        ", ".join(str(run.seed) for run in runs) or ABSENT,
        f"{count(min((run.steps for run in runs), default=None))} of {count(claimed_steps(judgement))}",
        verdict_of(judgement),
    )


def verdict_of(judgement: Judgement | CurveJudgement) -> str:
    """Return a verdict; on a value of several seeds with how much worse than claimed their mean may be."""
    verdict = f"**{judgement.verdict}**"
    if isinstance(judgement, CurveJudgement) or isinstance(judgement.claim, CountClaim) or len(judgement.measured) < 2:
        return verdict
    width = allowed(judgement.claim, [number_of(item) for item in judgement.measured])
    return f"{verdict} (allowed: {width:.{digits_of(judgement.claim.metric)}f})"


def count(number: int | None) -> str:
    """Return a number with its thousands set apart, a dash where it is not known."""
    return ABSENT if number is None else f"{number:,}"


def claimed_steps(judgement: Judgement | CurveJudgement) -> int | None:
    """Return how many updates a claim was made with."""
    if isinstance(judgement, Judgement):
        return judgement.claim.steps if isinstance(judgement.claim, ValueClaim) else None
    return len(judgement.claimed) * judgement.claim.steps_per_epoch


def claimed_value(claim: ValueClaim | CountClaim) -> str:
    """Return "26.4 (`legacy_score`, `val`)", or "55,207,087 (`parameters`)"."""
    if isinstance(claim, ValueClaim):
        return f"{claim.value:g} ({code(claim.metric)}, {code(claim.split)})"
    return f"{claim.value:,.12g} ({code(claim.metric)})"


def claimed_curve(judgement: CurveJudgement) -> str:
    """Return what a curve holds."""
    return f"curve of {len(judgement.claimed):,} epochs (training and validation loss)"


def measured_value(judgement: Judgement) -> str:
    """Return a count or one run's number, with its interval if it has one, or mean and standard deviation of seeds."""
    if not judgement.measured:
        return ABSENT
    digits = digits_of(judgement.claim.metric)
    values = [number_of(item) for item in judgement.measured]
    if len(values) == 1 or isinstance(judgement.claim, CountClaim):
        found = judgement.measured[0]
        return with_interval(found) if isinstance(found, Score) else f"{found:,.{digits}f}"
    return f"{fmean(values):.{digits}f} (sd {stdev(values):.{digits}f}, {len(values)} seeds)"


def measured_curve(judgement: CurveJudgement) -> str:
    """Return how far a measured curve is from the claimed one."""
    gap = judgement.distance
    if gap is None:
        return ABSENT
    return f"median difference {gap.median:.3f} nats, largest {gap.maximum:.3f}; epochs: {gap.epochs}"


def bleu_beside(claim: AnyClaim, runs: Sequence[Result]) -> str:
    """Return BLEU on the official tokens of the claim's test set or else of the first one, the mean over seeds."""
    if not runs:
        return ABSENT
    tests = list(runs[0].test_sets)
    test = claim.split if isinstance(claim, ValueClaim) and claim.split in tests else tests[0]
    mean = fmean(run.test_sets[test]["bleu_lc_tok"].score for run in runs)
    return f"{mean:.2f} ({code('bleu_lc_tok')}, {code(test)})"


def claim_note(judgement: Judgement | CurveJudgement, plans: Mapping[str, SavedPlan]) -> str:
    """Return a list item: what a claim is, what its runs would take where there are none, and its source."""
    claim, plan = judgement.claim, plans.get(judgement.experiment or "")
    not_run = f" {escape(describe_plan(plan))}" if plan is not None and judgement.verdict == "not run" else ""
    what = f"Curve {code(claim.file)}" if isinstance(claim, CurveClaim) else claimed_value(claim)
    beside = f" beside {code(judgement.experiment)}" if judgement.experiment is not None else ""
    return f"- {what}{beside}: {escape(claim.note)}{not_run} Source: {escape(claim.source)}."


def render_verdicts(judgements: Sequence[Judgement | CurveJudgement]) -> str:
    """Return the rules of the verdicts with this table's tolerances."""
    claims = [judgement.claim for judgement in judgements]
    values = [claim for claim in claims if isinstance(claim, ValueClaim) and claim.tolerance is not None]
    widths = sorted({f"{claim.tolerance:g} {claim.unit}" for claim in values})
    counts = sorted({f"{claim.tolerance:,g} {claim.unit}" for claim in claims if isinstance(claim, CountClaim)})
    bounds = sorted({(c.median_tolerance, c.max_tolerance) for c in claims if isinstance(c, CurveClaim)})
    pairs = [f"{middle:g} and {largest:g}" for middle, largest in bounds]
    seeds = ", ".join(f"{2 * largest:g}" for largest in sorted({largest for _, largest in bounds}))
    marked = sum(isinstance(claim, ValueClaim) and not claim.comparable for claim in claims)
    return f"""The tolerance of 0.6 BLEU was fixed before every run; the form of the other rules on 2026-11-30, after
Revisit-MMT's system had been scored and before any other run was over. Later that day, without a
change of any verdict given: whole epochs alone count for `train_loss`, a seed without one does not count for a curve,
each seed has a bound of its own. The rule for counts came last, when the counts were known
(`src/bleuprint/verdicts/claims.py`).

- *not comparable*: only where a claim is marked so in `claims.yaml`, with the reason in its note (in this table:
  {marked or "none"}); *diverged*: the training of one of its runs ended at a loss that is not finite; *not run*: no
  run of this table is a rerun of it, or none has a whole epoch for a curve.
- A value is *reproduced* where the mean over seeds is no worse than claimed by more than a tolerance (here:
  {", ".join(widths) or ABSENT}) or, with two seeds or more, by more than 2 standard deviations of the seeds. Seeds
  far apart thus allow much, 41.0 and 20.0 as much as 29.7 points: what is allowed stands beside a verdict on several.
  Losses are
  better when lower, scores when higher. Else it is *prefix only* where a run made fewer updates than the claimed one,
  which then says nothing yet, and *not reproduced* where it did not. A training loss is that of a whole epoch: not of
  a last one with fewer updates than the one before; a single one counts.
- A count, of parameters or of the size of their file, is *reproduced* where it is off by no more than a tolerance, more
  or less (here: {", ".join(counts) or ABSENT}), else *not reproduced*: after however many updates, also of a run that
  diverged.
- A curve agrees where, over the whole epochs run (the mean over seeds of each), the absolute differences of training
  and validation loss have a median and a maximum of at most {"; ".join(pairs) or ABSENT} nats and, so that
  seeds on two sides of a curve do not make up for each other, each seed alone over the same epochs a maximum of at most
  twice that ({seeds or ABSENT} nats): *reproduced* over all claimed epochs, *prefix only* over fewer. It is
  *not reproduced* where it does not agree. A last epoch with fewer updates than the log's is cut off, also where it is
  the only one; a seed without a whole epoch counts neither for the mean nor as a seed.
- A log has one candidate or several, each a claim of its curve: *reproduced* and *prefix only* accept it, *diverged*
  and *not reproduced* reject it. Where two or more are accepted, that is said; else the log is *open* while one is not
  run; else, of several, the only accepted one is *identified*, or it is *none of these*. One alone is accepted or
  rejected."""


# --- trainings --------------------------------------------------------------------------------------------------------


def render_trainings(results: Sequence[Result]) -> str:
    """Return the table of trainings: why each was over, and what it read and computed until then.

    A training whose weights several runs have stands once.
    """
    header = ("Run", "Ended by", "Epochs", "Updates", "Source tokens", "Target tokens", "FLOPs")
    rows = [training_row(result) for result in {result.trained: result for result in results}.values()]
    note = (
        "`max_steps`: all updates of params.yaml; `patience`: no lower validation loss for as many epochs as it says; "
        "`diverged`: a loss that was not finite. Tokens are those read in all updates, without padding; FLOPs are the "
        "products of forward and backward passes."
    )
    return f"{markdown_table(header, rows, numbers=range(2, 7))}\n\n{note}"


def training_row(result: Result) -> tuple[str, ...]:
    """Return one row of the trainings table."""
    counts = (result.epochs, result.steps, result.tokens.source, result.tokens.target)
    return (code(result.trained), code(result.stopped), *map(count, counts), f"{result.flops:.2e}")


def with_interval(score: Score) -> str:
    """Return "41.02 [39.80, 42.31]"."""
    return f"{score.score:.2f} [{score.low:.2f}, {score.high:.2f}]"


# --- metrics ----------------------------------------------------------------------------------------------------------


def render_metrics(results: Sequence[Result]) -> str:
    """Return the table of metrics: what each measures and every sacreBLEU signature that these results carry."""
    measures = {name: facts.definition for facts_of in (MEASURES, COUNTS) for name, facts in facts_of.items()}
    rows = [(code(name), escape(definition), signatures_of(name, results)) for name, definition in measures.items()]
    note = (
        "The interval is sacreBLEU's: the mean of the bootstrap resamples ± half the width of their central 95 %. "
        "The `sacrebleu` command gives the same scores from the files in `runs/{run}/decode/`: `{test}.ref.lc-tok.txt` "
        "and `{test}.hyp.lc-tok.txt` for `bleu_lc_tok`, `{test}.ref.txt` and `{test}.hyp.txt` for the others; for "
        "`bleu_compound_split` their text is tokenised and split first (`src/bleuprint/compound_split.py` says how). "
        "Losses are in nats; which mean over tokens or batches an epoch's is stands in params.yaml (`epoch_loss`)."
    )
    return f"{markdown_table(('Metric', 'What it measures', 'Signature'), rows)}\n\n{note}"


def signatures_of(name: str, results: Sequence[Result]) -> str:
    """Return the distinct signatures of one metric over all runs and test sets."""
    found = {
        score.signature
        for result in results
        for scores in result.test_sets.values()
        for metric, score in scores.items()
        if metric == name
    }
    return "<br>".join(code(signature) for signature in sorted(found)) or ABSENT
