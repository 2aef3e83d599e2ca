"""Sections of results.md on who drew which curve: logs beside candidates, the chain of evidence, what follows."""

from collections import Counter
from collections.abc import Mapping, Sequence

from bleuprint.reporting.markdown import ABSENT, code, escape, markdown_table
from bleuprint.reporting.sections import claimed_steps, claimed_value, count, measured_value, verdict_of
from bleuprint.verdicts.claims import CurveJudgement, Identification, Judgement, identify
from bleuprint.verdicts.curves import TARGETS, Curve, Point, epochs_to_reach, loss_gaps
from bleuprint.verdicts.evidence import Consequence, Evidence, Item, Place

SHOWN_EPOCHS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)  # of curves longer than MANY_EPOCHS, and the last one
MANY_EPOCHS = 12


# --- curves -----------------------------------------------------------------------------------------------------------


def render_curves(judgements: Sequence[CurveJudgement]) -> str:
    """Return, for each published log, its candidates with their distances, what follows, and the losses by epoch."""
    header = ("Log", "Code state", "Seeds", "Epochs, run of logged", "Median difference", "Largest", "Verdict")
    table = markdown_table(header, [candidate_row(judgement) for judgement in judgements], numbers=(3, 4, 5))
    follows = "\n".join(f"- {code(found.file)}: {follow(found)}" for found in identifications(judgements))
    details = [render_curve(judgement) for judgement in judgements if judgement.measured]
    return "\n\n".join((table, f"What follows, nearest first:\n\n{follows}", *details))


def identifications(judgements: Sequence[CurveJudgement]) -> list[Identification]:
    """Return what follows for each log that is claimed, in the claims' order."""
    return [identify(file, judgements) for file in dict.fromkeys(judgement.claim.file for judgement in judgements)]


def candidate_row(judgement: CurveJudgement) -> tuple[str, ...]:
    """Return one candidate for a log, with its distance beside what the rule allows."""
    claim, gap = judgement.claim, judgement.distance
    return (
        code(claim.file),
        code(judgement.experiment),
        ", ".join(str(run.seed) for run in judgement.runs) or ABSENT,
        f"{gap.epochs if gap else ABSENT} of {len(judgement.claimed):,}",
        f"{gap.median:.3f} (≤ {claim.median_tolerance:g})" if gap else ABSENT,
        f"{gap.maximum:.3f} (≤ {claim.max_tolerance:g}){widest_of(judgement)}" if gap else ABSENT,
        f"**{judgement.verdict}**",
    )


def widest_of(judgement: CurveJudgement) -> str:
    """Return "; one seed 0.180 (≤ 0.24)" for several seeds, nothing for one, which is its own mean."""
    if judgement.widest is None or len(judgement.runs) < 2:
        return ""
    return f"; one seed {judgement.widest:.3f} (≤ {2 * judgement.claim.max_tolerance:g})"


def follow(found: Identification) -> str:
    """Return the outcome for a log and its candidates, each with how near it comes, the nearest first."""
    groups = (found.accepted, found.rejected, found.not_run)
    accepted, rejected, not_run = (", ".join(map(nearness, group)) for group in groups)
    sentence = {
        "identified": f"**identified**: {accepted}, the only accepted candidate of {sum(map(len, groups))}",
        "none of these": "**none of these**",
        "accepted": f"**accepted**: {accepted}, the only candidate",
        "rejected": "**rejected**, the only candidate",
        "more than one accepted": f"**more than one candidate accepted**: {accepted}",
        "open": f"**open**; accepted so far: {accepted}" if accepted else "**open**",
    }[found.outcome]
    others = {"rejected": rejected, "not run": not_run}
    return "; ".join((sentence, *(f"{group}: {names}" for group, names in others.items() if names))) + "."


def nearness(judgement: CurveJudgement) -> str:
    """Return "`published` (median 0.015, largest 0.026; 2 of 1,065 epochs)"."""
    name, gap = code(judgement.experiment), judgement.distance
    if gap is None:
        return f"{name} (diverged)" if judgement.verdict == "diverged" else name
    epochs = f"{gap.epochs} of {len(judgement.claimed):,} epochs"
    return f"{name} (median {gap.median:.3f}, largest {gap.maximum:.3f}; {epochs})"


def render_curve(judgement: CurveJudgement) -> str:
    """Return the losses of a log and of its rerun by epoch, and how soon each reaches TARGETS."""
    claimed, measured = judgement.claimed, judgement.measured
    shared = [epoch for epoch in measured if epoch in claimed]
    header = ("Epoch", "Logged, train / val", "Measured", "Difference", "`legacy_score`, logged / measured")
    rows = [epoch_row(epoch, claimed[epoch], measured[epoch]) for epoch in shown(shared)]
    title = f"### {code(judgement.claim.file)} beside {code(judgement.experiment)}"
    soon = (
        f"Validation loss of {' / '.join(str(target) for target in TARGETS)} reached after epoch: "
        f"{reached(claimed)} as logged, {reached(measured)} as measured."
    )
    return f"{title}\n\n{markdown_table(header, rows, numbers=range(5))}\n\n{soon}"


def shown(epochs: Sequence[int]) -> list[int]:
    """Return the epochs to print: all of a few, else SHOWN_EPOCHS and the last one."""
    return [e for e in epochs if len(epochs) <= MANY_EPOCHS or e in SHOWN_EPOCHS or e == epochs[-1]]


def epoch_row(epoch: int, claimed: Point, measured: Point) -> tuple[str, ...]:
    """Return one epoch of a log beside its rerun."""
    losses = (f"{point.train_loss:.3f} / {point.validation_loss:.3f}" for point in (claimed, measured))
    gaps = " / ".join(f"{gap:+.3f}" for gap in loss_gaps(claimed, measured))
    scores = (point.legacy_score for point in (claimed, measured))
    return (str(epoch), *losses, gaps, " / ".join(ABSENT if score is None else f"{score:.2f}" for score in scores))


def reached(curve: Curve) -> str:
    """Return "2 / 3 / —": the first epochs at which a curve is down at TARGETS."""
    return " / ".join(count(epoch) for epoch in epochs_to_reach(curve).values())


# --- evidence ---------------------------------------------------------------------------------------------------------


def render_evidence(evidence: Evidence, judgements: Sequence[Judgement | CurveJudgement]) -> str:
    """Return the chain of evidence as a list, and what follows for claims; nothing where there is none of both.

    What is said of measured curves comes from the verdicts on them.
    """
    found = {one.file: one for one in identifications([j for j in judgements if isinstance(j, CurveJudgement)])}
    items = [render_item(number, item, found) for number, item in enumerate(evidence.evidence, 1)]
    values = {one.claim.id: one for one in judgements if isinstance(one, Judgement)}
    follows = [render_consequence(one, values[one.claim], found[one.log]) for one in evidence.consequences]
    return "\n\n".join((*(["\n".join(items)] if items else []), *follows))


def render_item(number: int, item: Item, found: Mapping[str, Identification]) -> str:
    """Return an item of a numbered list: what a piece of evidence says, what follows, and where to look."""
    follows = escape(item.follows) if item.follows else outcomes([found[log] for log in item.logs])
    where = "; ".join(map(link, item.where))
    return (
        f"{number}. **{escape(item.title)}.** {escape(item.says)} *What follows:* {follows} *Where to look:* {where}."
    )


def link(place: Place) -> str:
    """Return a place as a link."""
    return f"[{escape(place.text)}]({place.url})"


def outcomes(found: Sequence[Identification]) -> str:
    """Return how many logs have which outcome."""
    numbers = Counter(one.outcome for one in found)
    counted = ", ".join(f"{outcome} {number}" for outcome, number in sorted(numbers.items()))
    return f"logs by outcome: {counted}; [logs, candidates and distances](#curves)."


def render_consequence(consequence: Consequence, judgement: Judgement, found: Identification) -> str:
    """Return what follows for a claim: what holds in any case, what its rerun gives, who drew the log beside it."""
    rerun = f"Beside {code(str(judgement.experiment))}: {rerun_of(judgement)}, {verdict_of(judgement)}."
    drawn = f"Who drew {code(found.file)}: {follow(found)} {escape(reading_of(consequence, found))}"
    return "\n\n".join(
        (f"### What follows for {claimed_value(judgement.claim)}", escape(consequence.always), rerun, drawn)
    )


def rerun_of(judgement: Judgement) -> str:
    """Return what a claim's rerun measures, after how many of its updates."""
    steps = count(min((run.steps for run in judgement.runs), default=None))
    return f"{measured_value(judgement)} after {steps} of {count(claimed_steps(judgement))} updates"


def reading_of(consequence: Consequence, found: Identification) -> str:
    """Return what it means for a claim that these candidates, and no others, are accepted for the log beside it."""
    accepted = {one.experiment for one in found.accepted}
    for reading in consequence.readings:
        if accepted and accepted <= set(reading.experiments):
            return f"So far: {reading.text}" if found.not_run else reading.text
    return consequence.otherwise
