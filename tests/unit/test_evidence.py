"""Evidence as data: what contradicts itself or the claims is refused, and what the project's own says."""

import json
from pathlib import Path

import pytest
from claimed import claim, count_claim, curve_claim
from specs import ROOT

from bleuprint.graph import load_table
from bleuprint.verdicts.evidence import Evidence, check_evidence, load_evidence
from bleuprint.verdicts.published import CurveClaim, load_claims

PLACE = {"text": "a page", "url": "https://example.org"}
ITEM = {"id": "i", "tables": ["t"], "title": "T", "says": "S", "follows": "F", "logs": [], "where": [PLACE]}
READING = {"experiments": ["small"], "text": "R"}
CONSEQUENCE = {
    "id": "k",
    "tables": ["t"],
    "claim": "c",
    "log": "a.csv",
    "always": "A",
    "readings": [READING],
    "otherwise": "O",
}


def load(root: Path, item: dict[str, object], consequence: dict[str, object]) -> None:
    """Write a file of evidence with some of its keys changed; read and check it."""
    data = {"evidence": [{**ITEM, **item}], "consequences": [{**CONSEQUENCE, **consequence}]}
    (root / "evidence.yaml").write_text(json.dumps(data))  # JSON is YAML
    check_evidence(read(root), "t", [claim(), curve_claim(id="d")])


def read(root: Path) -> Evidence:
    """Read the file of evidence behind the table t, beside which there is no other table."""
    (root / "t.yaml").touch()
    (root / "evidence.yaml").rename(root / "evidence")
    return load_evidence("t", root / "evidence", root)


@pytest.mark.parametrize(
    ("item", "consequence", "message"),
    [
        ({"follows": None}, {}, "evidence i: what follows is either written or decided by the verdicts on `logs`"),
        ({"logs": ["a.csv"]}, {}, "evidence i: what follows is either written or decided by the verdicts on `logs`"),
        ({"where": []}, {}, r"evidence\.0\.where is \[\]"),
        ({"colour": "red"}, {}, "colour is not a known key"),
        ({"follows": None, "logs": ["b.csv"]}, {}, r"evidence i: unknown log 'b\.csv'.*; valid: a\.csv"),
        ({"tables": ["t", "tt"]}, {}, r"evidence: evidence i: unknown table 'tt' \(did you mean t\?\); valid: t$"),
        ({}, {"tables": ["x"]}, r"evidence: evidence k: unknown table 'x'; valid: t$"),
        ({"id": "k"}, {}, "the id of several pieces of evidence is k; each has its own"),
        ({}, {"claim": "d"}, r"evidence k: unknown claim 'd'; valid: c"),
        ({}, {"log": "b.csv"}, r"evidence k: unknown log 'b\.csv'"),
        (
            {},
            {"readings": [{**READING, "experiments": ["small", "big"]}]},
            r"unknown candidate for a\.csv 'big'; valid: sm",
        ),
    ],
)
def test_evidence_with_a_mistake_is_refused(
    tmp_path: Path, item: dict[str, object], consequence: dict[str, object], message: str
) -> None:
    load(tmp_path, {}, {})
    load(tmp_path, {"follows": None, "logs": ["a.csv"]}, {})
    with pytest.raises(ValueError, match=message):
        load(tmp_path, item, consequence)


def test_a_consequence_may_be_about_a_count(tmp_path: Path) -> None:
    (tmp_path / "evidence.yaml").write_text(json.dumps({"evidence": [ITEM], "consequences": [CONSEQUENCE]}))
    check_evidence(read(tmp_path), "t", [count_claim(), curve_claim(id="d")])


# --- the evidence itself ----------------------------------------------------------------------------------------------


def test_the_chain_behind_the_table_forensics() -> None:
    evidence, claims = load_evidence("forensics", tables_dir=ROOT / "workflow/tables"), load_claims("forensics")
    load_table("forensics", ROOT / "workflow/tables")
    check_evidence(evidence, "forensics", claims)
    assert [item.id for item in evidence.evidence] == [
        "history", "listing", "bytecode", "counts", "times", "batches", "curves",
    ]  # fmt: skip
    logs = {found.file for found in claims if isinstance(found, CurveClaim)}
    assert set(evidence.evidence[-1].logs) == logs, "every log that is rerun"
    [consequence] = evidence.consequences
    read = {experiment for reading in consequence.readings for experiment in reading.experiments}
    assert read == {
        found.tables["forensics"] for found in claims if isinstance(found, CurveClaim) and found.file == consequence.log
    }, "every candidate for the README's curve"
    assert load_evidence("default", tables_dir=ROOT / "workflow/tables").evidence == ()


def test_places_in_this_repository_exist() -> None:
    report = ROOT / "reports/forensics"
    places = [
        place.url
        for item in load_evidence("forensics", tables_dir=ROOT / "workflow/tables").evidence
        for place in item.where
    ]
    local = [url for url in places if not url.startswith(("https://", "#"))]
    assert local
    assert [url for url in local if not (report.parent / url.removeprefix("../")).exists()] == []
