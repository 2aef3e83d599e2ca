"""What others published, as data: reference/claims.yaml as strict models, and what a claim may be a number of."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from bleuprint.graph import TABLES_DIR
from bleuprint.metrics import METRICS
from bleuprint.params import Splits
from bleuprint.strict import Count, Name, NonNegative, Positive, RelativePath, Strict, choose, read_yaml, validate

CLAIMS_FILE = Path(__file__).parents[1] / "reference" / "claims.yaml"
OWN_CLAIMS_FILE = Path("workflow/claims.yaml")  # of a project's own tables, in the same form
CURVES_DIR = Path(__file__).parents[1] / "reference" / "curves"


class Measure(NamedTuple):
    """Unit, digits shown behind the point, which way is better, on which split it is measured, and what it is."""

    unit: str
    digits: int
    lower_is_better: bool
    split: Literal["tests", "validation", "train"]
    definition: str


# What `legacy_score` counts is not BLEU and never bears that name.
MEASURES: dict[str, Measure] = {
    **{name: Measure(facts.unit, 2, False, "tests", facts.definition) for name, facts in METRICS.items()},
    "legacy_score": Measure(
        "legacy score",
        2,
        False,
        "validation",
        "What hyunwoongko's README calls BLEU, and is not: the decoder is fed the reference (teacher forcing), words "
        "are paired by their position, and character n-grams of each pair are counted. The mean over batches.",
    ),
    "train_loss": Measure(
        "nats", 3, True, "train", "Lowest training loss of any whole epoch, with dropout, per target token."
    ),
    "validation_loss": Measure("nats", 3, True, "validation", "Lowest validation loss of any epoch, per target token."),
}


class Quantity(NamedTuple):
    """Unit and digits, as of a Measure, of what can be counted on a model, and what it is."""

    unit: str
    digits: int
    definition: str


COUNTS = {
    "parameters": Quantity("parameters", 0, "Trained values of a model; a matrix that serves twice counts once."),
    "model_size": Quantity(
        "MB",
        2,
        "The trained values as float32, in thousands of KiB, which hyunwoongko's README calls MB. Its file holds names "
        "and shapes besides, some 50 KiB.",
    ),
}


def digits_of(metric: str) -> int:
    """Return how many digits of a measure or of a count are shown behind the point."""
    return COUNTS[metric].digits if metric in COUNTS else MEASURES[metric].digits


# --- claims as data ---------------------------------------------------------------------------------------------------


class Published(Strict):
    """What every claim says: who, where, how large its model was."""

    id: Name
    who: str
    text: str
    parameters: Count | None
    source: str
    note: str


class ValueClaim(Published):
    """A published number, the metric and split it is measured on, and after how many updates.

    `tables`: those that print it, each with the experiment of its own that is a rerun of it, None where there is none.
    """

    kind: Literal["value"]
    tables: Annotated[dict[Name, Name | None], Field(min_length=1)]
    value: float
    unit: str
    metric: str
    split: Name
    comparable: bool
    tolerance: NonNegative | None
    steps: Count | None

    @model_validator(mode="after")
    def check_metric(self) -> "ValueClaim":
        if self.metric not in MEASURES:
            raise ValueError(f"claim {self.id}: unknown metric {self.metric!r}; valid: {', '.join(MEASURES)}")
        if self.unit != MEASURES[self.metric].unit:
            raise ValueError(f"claim {self.id}: {self.metric} is in {MEASURES[self.metric].unit}, not in {self.unit!r}")
        return self

    @model_validator(mode="after")
    def check_comparison(self) -> "ValueClaim":
        reruns = ", ".join(experiments_of(self))
        if not reruns:
            return self
        if not self.comparable:
            raise ValueError(f"claim {self.id}: not comparable, yet compared with experiment {reruns}")
        if self.tolerance is None:
            raise ValueError(f"claim {self.id}: compared with experiment {reruns} but without a tolerance")
        return self


class CountClaim(Published):
    """A published count, true of a model whatever it was trained for: tolerance in its unit."""

    kind: Literal["count"]
    tables: Annotated[dict[Name, Name], Field(min_length=1)]
    value: Positive
    unit: str
    metric: str
    tolerance: NonNegative

    @model_validator(mode="after")
    def check_metric(self) -> "CountClaim":
        choose("count", self.metric, COUNTS, f"claim {self.id}: ")
        if self.unit != COUNTS[self.metric].unit:
            raise ValueError(f"claim {self.id}: {self.metric} is in {COUNTS[self.metric].unit}, not in {self.unit!r}")
        return self


class CurveClaim(Published):
    """A published curve: a file of reference/curves; the tolerances are in nats."""

    kind: Literal["curve"]
    tables: Annotated[dict[Name, Name], Field(min_length=1)]
    file: RelativePath
    median_tolerance: NonNegative
    max_tolerance: NonNegative
    steps_per_epoch: Count


AnyClaim = ValueClaim | CountClaim | CurveClaim
Claim = Annotated[AnyClaim, Field(discriminator="kind")]


class Claims(Strict):
    """The whole of a file of claims; null, a key with nothing behind it, is none."""

    claims: Annotated[tuple[Claim, ...], BeforeValidator(lambda claims: () if claims is None else claims)]

    @model_validator(mode="after")
    def check_ids(self) -> "Claims":
        ids = [claim.id for claim in self.claims]
        double = sorted({name for name in ids if ids.count(name) > 1})
        if double:
            raise ValueError(f"claims with the same id: {', '.join(double)}")
        return self


def read_claims(path: Path = CLAIMS_FILE, own: Path = OWN_CLAIMS_FILE) -> dict[Path, tuple[AnyClaim, ...]]:
    """Return what others published, and what they claim of the project's own tables, each by its file.

    ValueError names file, claim, key and value at fault; a project may have no file of its own.
    """
    published = validate(Claims, read_yaml(path), path).claims
    added = validate(Claims, read_yaml(own), own).claims if own.exists() else ()
    if double := {claim.id for claim in published} & {claim.id for claim in added}:
        raise ValueError(f"{own}: claims with an id of {path.name}: {', '.join(sorted(double))}")
    return {path: published, own: added}


def load_claims(
    table: str, path: Path = CLAIMS_FILE, own: Path = OWN_CLAIMS_FILE, tables_dir: Path = TABLES_DIR
) -> tuple[AnyClaim, ...]:
    """Return the claims that `table` prints, in the order of the file, then those of the project's own file.

    `tables_dir` holds a file {table}.yaml for every table that claims may name. ValueError as read_claims, and where a
    claim names another table.
    """
    found = read_claims(path, own)
    for file, claims in found.items():
        for claim in claims:
            check_tables(claim.tables, tables_dir, f"{file}: claim {claim.id}: ")
    return tuple(claim for claims in found.values() for claim in claims if table in claim.tables)


def check_tables(names: Iterable[str], tables_dir: Path, prefix: str) -> None:
    """Raise ValueError, which begins with `prefix`, where a table has no file {table}.yaml in `tables_dir`."""
    tables = {file.stem: file for file in sorted(tables_dir.glob("*.yaml"))}
    for name in names:
        choose("table", name, tables, prefix)


def experiments_of(claim: AnyClaim) -> list[str]:
    """Return the experiments that a claim is compared with, in one table or another, each once."""
    return list(dict.fromkeys(name for name in claim.tables.values() if name is not None))


def check_claims(claims: Sequence[AnyClaim], splits: Mapping[str, Splits]) -> None:
    """Raise ValueError where a claim names no experiment, or a split that its metric is not measured on.

    `splits` has those of every experiment's data set.
    """
    for claim in claims:
        for experiment in experiments_of(claim):
            choose("experiment", experiment, dict(splits), f"claim {claim.id}: ")
            if isinstance(claim, ValueClaim):
                valid = splits_of(claim.metric, splits[experiment])
                choose(f"split of {claim.metric}", claim.split, dict.fromkeys(valid), f"claim {claim.id}: ")


def splits_of(metric: str, splits: Splits) -> tuple[str, ...]:
    """Return the splits of a data set that a metric is measured on."""
    kind = MEASURES[metric].split
    return splits.tests if kind == "tests" else (splits.validation,) if kind == "validation" else (splits.train,)
