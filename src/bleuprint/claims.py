"""Claimed value -> measured value -> verdict. Claims are data (reference/claims.yaml); the rules are here.

Rules, fixed before the runs:
- `not comparable`: `comparable: false`, with the reason in `note`;
- `not run`: the table holds no run of the experiment that the claim is compared with;
- `diverged`: one of its runs has no finite validation loss;
- `reproduced`: measured >= claimed - tolerance: a claim says "at least this strong". Else `not reproduced`.
The measured value is the mean over the table's seeds. `prefix only`, for runs shorter than the
claimed one, is not given yet.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from bleuprint.params import Name, NonNegative, Strict, read_yaml, validate
from bleuprint.scoring import METRICS, Result, Score

CLAIMS_FILE = Path(__file__).parent / "reference" / "claims.yaml"

Verdict = Literal["reproduced", "not reproduced", "not comparable", "prefix only", "diverged", "not run"]

# Metrics that are only quoted, with their unit. What `legacy_score` counts is not BLEU and never bears that name.
QUOTED_UNITS = {"multi_bleu": "BLEU", "legacy_score": "legacy score"}
UNITS: dict[str, str] = {**{name: facts.unit for name, facts in METRICS.items()}, **QUOTED_UNITS}


class Claim(Strict):
    """A published number: who says what, the metric and split it is measured on, and what it is compared with."""

    id: Name
    tables: Annotated[tuple[Name, ...], Field(min_length=1)]
    who: str
    text: str
    value: float
    unit: str
    metric: str
    split: Name
    source: str
    experiment: Name | None
    comparable: bool
    tolerance: NonNegative | None
    note: str

    @model_validator(mode="after")
    def check_metric(self) -> "Claim":
        if self.metric not in UNITS:
            raise ValueError(f"claim {self.id}: unknown metric {self.metric!r}; valid: {', '.join(UNITS)}")
        if self.unit != UNITS[self.metric]:
            raise ValueError(f"claim {self.id}: {self.metric} is in {UNITS[self.metric]}, not in {self.unit!r}")
        return self

    @model_validator(mode="after")
    def check_comparison(self) -> "Claim":
        if self.experiment is None:
            return self
        if not self.comparable:
            raise ValueError(f"claim {self.id}: not comparable, yet compared with experiment {self.experiment}")
        if self.metric not in METRICS:
            raise ValueError(f"claim {self.id}: {self.metric} is not measured; measured: {', '.join(METRICS)}")
        if self.tolerance is None:
            raise ValueError(f"claim {self.id}: compared with experiment {self.experiment} but without a tolerance")
        return self


class Claims(Strict):
    """The whole of reference/claims.yaml."""

    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def check_ids(self) -> "Claims":
        ids = [claim.id for claim in self.claims]
        double = sorted({name for name in ids if ids.count(name) > 1})
        if double:
            raise ValueError(f"claims with the same id: {', '.join(double)}")
        return self


class Judgement(NamedTuple):
    """A claim beside what was measured: the scores of the table's runs of its experiment (none: not run here)."""

    claim: Claim
    scores: tuple[Score, ...]
    verdict: Verdict


def load_claims(table: str, path: Path = CLAIMS_FILE) -> tuple[Claim, ...]:
    """Return the claims that `table` prints, in the file's order; ValueError names claim, key and value at fault."""
    return tuple(claim for claim in validate(Claims, read_yaml(path), path).claims if table in claim.tables)


def judge(claim: Claim, results: Sequence[Result]) -> Judgement:
    """Return the verdict on a claim from a table's results; ValueError where they lack the claim's metric or split."""
    runs = [result for result in results if result.experiment == claim.experiment]
    scores = tuple(find_score(claim, result) for result in runs)
    if not claim.comparable:
        return Judgement(claim, scores, "not comparable")
    if not runs:
        return Judgement(claim, scores, "not run")
    if any(result.validation_loss is None for result in runs):
        return Judgement(claim, scores, "diverged")
    return Judgement(claim, scores, compare(claim, mean_score(scores)))


def find_score(claim: Claim, result: Result) -> Score:
    """Return the score of a run that a claim is compared with; ValueError lists what the run has."""
    if claim.split not in result.test_sets:
        valid = ", ".join(result.test_sets)
        raise ValueError(f"claim {claim.id} is about {claim.split}; run {result.run} was scored on: {valid}")
    scores = {str(name): score for name, score in result.test_sets[claim.split].items()}
    if claim.metric not in scores:
        raise ValueError(f"claim {claim.id} is in {claim.metric}; run {result.run} was scored in: {', '.join(scores)}")
    return scores[claim.metric]


def mean_score(scores: Sequence[Score]) -> float:
    """Return the mean over seeds of one or more scores."""
    return fmean(score.score for score in scores)


def compare(claim: Claim, measured: float) -> Verdict:
    """Return `reproduced` where the measured value is at least the claimed one less the tolerance."""
    assert claim.tolerance is not None, claim.id  # Claim.check_comparison
    return "reproduced" if measured >= claim.value - claim.tolerance else "not reproduced"
