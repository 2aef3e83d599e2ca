"""The chain of evidence behind a table, as data: reference/evidence.yaml as strict models."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from bleuprint.graph import TABLES_DIR
from bleuprint.strict import Name, RelativePath, Strict, choose, read_yaml, validate
from bleuprint.verdicts.published import AnyClaim, CurveClaim, check_tables

EVIDENCE_FILE = Path(__file__).parents[1] / "reference" / "evidence.yaml"
Tables = Annotated[tuple[Name, ...], Field(min_length=1)]


class Place(Strict):
    """Where anyone can look: its address, or a file's path from reports/{table}/."""

    text: str
    url: str


class Item(Strict):
    """A piece of evidence: what it says and what follows; of `logs`, their reruns' verdicts say what follows."""

    id: Name
    tables: Tables
    title: str
    says: str
    follows: str | None
    logs: tuple[RelativePath, ...]
    where: Annotated[tuple[Place, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def check_follows(self) -> "Item":
        if bool(self.follows) == bool(self.logs):
            raise ValueError(f"evidence {self.id}: what follows is either written or decided by the verdicts on `logs`")
        return self


class Reading(Strict):
    """What it means for a claim that one of these experiments, or several of them, drew the log beside it."""

    experiments: Annotated[tuple[Name, ...], Field(min_length=1)]
    text: str


class Consequence(Strict):
    """What follows for a claim: `always`, and by who drew `log`; `otherwise` where no reading covers all accepted."""

    id: Name
    tables: Tables
    claim: Name
    log: RelativePath
    always: str
    readings: tuple[Reading, ...]
    otherwise: str


class Evidence(Strict):
    """The whole of reference/evidence.yaml, or what of it is about one table."""

    evidence: tuple[Item, ...]
    consequences: tuple[Consequence, ...]

    @model_validator(mode="after")
    def check_ids(self) -> "Evidence":
        numbers = Counter(one.id for one in self.all())
        if doubles := [name for name, number in numbers.items() if number > 1]:
            raise ValueError(f"the id of several pieces of evidence is {', '.join(doubles)}; each has its own")
        return self

    def all(self) -> tuple[Item | Consequence, ...]:
        """Return the evidence and its consequences."""
        return (*self.evidence, *self.consequences)


def load_evidence(table: str, path: Path = EVIDENCE_FILE, tables_dir: Path = TABLES_DIR) -> Evidence:
    """Return the evidence behind a table, in the file's order; ValueError names key and value at fault.

    `tables_dir` holds a file {table}.yaml for every table that evidence may name.
    """
    whole = validate(Evidence, read_yaml(path), path)
    for one in whole.all():
        check_tables(one.tables, tables_dir, f"{path}: evidence {one.id}: ")
    return Evidence(
        evidence=tuple(item for item in whole.evidence if table in item.tables),
        consequences=tuple(one for one in whole.consequences if table in one.tables),
    )


def check_evidence(evidence: Evidence, table: str, claims: Sequence[AnyClaim]) -> None:
    """Raise ValueError where evidence is about a log, a candidate or a claim that the table's `claims` do not have."""
    logs: dict[str, set[str]] = {}
    for claim in claims:
        if isinstance(claim, CurveClaim):
            logs.setdefault(claim.file, set()).add(claim.tables[table])
    values = {claim.id: claim for claim in claims if not isinstance(claim, CurveClaim)}
    for item in evidence.evidence:
        for log in item.logs:
            choose("log", log, logs, f"evidence {item.id}: ")
    for one in evidence.consequences:
        where = f"evidence {one.id}: "
        choose("claim", one.claim, values, where)
        choose("log", one.log, logs, where)
        for experiment in (name for reading in one.readings for name in reading.experiments):
            choose(f"candidate for {one.log}", experiment, dict.fromkeys(sorted(logs[one.log])), where)
