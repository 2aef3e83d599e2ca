"""By which numbers a verdict came about, in words: the rules themselves are claims.py's."""

from statistics import fmean, stdev

from bleuprint.verdicts.claims import CurveJudgement, Judgement, allowed, number_of
from bleuprint.verdicts.published import MEASURES, CountClaim, ValueClaim

RULES = {
    "value": (
        "reproduced where the mean over seeds is no worse than claimed by more than is allowed; else prefix only where "
        "a run made fewer updates than the claimed one; else not reproduced"
    ),
    "count": "reproduced where each seed's is off by no more than the tolerance; else not reproduced",
    "curve": (
        "agrees where the median, the largest difference and that of each seed alone are within their bounds: "
        "reproduced over all claimed epochs, prefix only over fewer; else not reproduced"
    ),
}


def arithmetic(judgement: Judgement | CurveJudgement) -> list[str]:
    """Return by which numbers a verdict came about."""
    if judgement.verdict == "not run":
        if judgement.experiment is None:
            return ["no experiment of this table is a rerun of it"]
        what = "whole epoch" if isinstance(judgement, CurveJudgement) else "run"
        return [f"this table has no {what} of {judgement.experiment}"]
    if judgement.verdict == "diverged":
        return ["the training of one of its runs ended at a loss that is not finite"]
    if judgement.verdict == "not comparable":
        return ["claims.yaml marks it so"]
    if isinstance(judgement, CurveJudgement):
        return curve_arithmetic(judgement)
    if isinstance(judgement.claim, ValueClaim):
        return value_arithmetic(judgement, judgement.claim)
    return [count_arithmetic(judgement.claim, number_of(found)) for found in judgement.measured]


def value_arithmetic(judgement: Judgement, claim: ValueClaim) -> list[str]:
    """Return how a value's verdict is reckoned."""
    values = [number_of(found) for found in judgement.measured]
    lower = MEASURES[claim.metric].lower_is_better
    worse = fmean(values) - claim.value if lower else claim.value - fmean(values)
    first, second = (fmean(values), claim.value) if lower else (claim.value, fmean(values))
    width = allowed(claim, values)
    sd = f" or 2 standard deviations of {len(values)} seeds, {2 * stdev(values):.6g}" if len(values) > 1 else ""
    within = round(worse, 9) <= width
    lines = [
        f"{'measured less claimed' if lower else 'claimed less measured'}: {first:.9g} - {second:.9g} = {worse:.6g}",
        f"{worse:.6g} {'<=' if within else '>'} {width:.6g}, the tolerance {claim.tolerance:g}{sd}",
    ]
    fewest = min(run.steps for run in judgement.runs)
    if not within and claim.steps is not None:
        lines.append(f"updates: {fewest:,} {'<' if fewest < claim.steps else '>='} {claim.steps:,} claimed")
    elif not within:
        lines.append("updates: how many the claimed one made is not known")
    return lines


def count_arithmetic(claim: ValueClaim | CountClaim, found: float) -> str:
    """Return how a count's verdict is reckoned for one seed."""
    assert claim.tolerance is not None, "a CountClaim has one"
    off = round(abs(found - claim.value), 9)
    sign = "<=" if off <= claim.tolerance else ">"
    return f"|{found:,.12g} - {claim.value:,.12g}| = {off:,.6g} {sign} {claim.tolerance:,g}, the tolerance"


def curve_arithmetic(judgement: CurveJudgement) -> list[str]:
    """Return how a curve's verdict is reckoned."""
    claim, gap, widest = judgement.claim, judgement.distance, judgement.widest
    assert gap is not None, judgement.verdict
    assert widest is not None, judgement.verdict
    bounds = (
        ("median difference", gap.median, claim.median_tolerance),
        ("largest difference", gap.maximum, claim.max_tolerance),
        ("largest of any one seed", widest, 2 * claim.max_tolerance),
    )
    lines = [
        f"{name}: {found:.6g} {'<=' if round(found, 9) <= bound else '>'} {bound:g} nats"
        for name, found, bound in bounds
    ]
    return [
        *lines,
        f"epochs: {gap.epochs:,} of {len(judgement.claimed):,}",
    ]
