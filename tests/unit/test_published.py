"""Claims as data: what contradicts itself or does not exist is refused, and what the project's own say."""

import json
import math
from pathlib import Path

import pytest
from claimed import COUNT, CURVE, LOSS, VALUE, claim, count_claim, curve_claim
from specs import ROOT

from bleuprint.graph import load_params, load_table
from bleuprint.params import Splits
from bleuprint.strict import read_yaml, validate
from bleuprint.verdicts.claims import judge
from bleuprint.verdicts.published import (
    CLAIMS_FILE,
    CURVES_DIR,
    Claims,
    CountClaim,
    CurveClaim,
    ValueClaim,
    check_claims,
    load_claims,
)

SPLITS = {"small": Splits(train="train", validation="val", tests=("day", "night"))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tables": {"t": "small", "u": "smal"}},
            r"claim c: unknown experiment 'smal' \(did you mean small\?\); valid: small",
        ),
        ({"split": "val"}, "claim c: unknown split of bleu_lc_tok 'val'; valid: day, night"),
        ({**LOSS, "split": "day"}, "claim c: unknown split of train_loss 'day'; valid: train"),
        ({**LOSS, "metric": "validation_loss"}, "claim c: unknown split of validation_loss 'train'; valid: val"),
    ],
)
def test_a_claim_on_what_does_not_exist_is_an_error(changes: dict[str, object], message: str) -> None:
    check_claims([claim(), curve_claim(), count_claim(), claim(tables={"t": None}, split="elsewhere")], SPLITS)
    with pytest.raises(ValueError, match=message):
        check_claims([claim(**changes)], SPLITS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "chrF"}, r"claims\.yaml: claim c: bleu_lc_tok is in BLEU, not in 'chrF'"),
        ({"metric": "legacy_score"}, "legacy_score is in legacy score, not in 'BLEU'"),
        ({"metric": "train_loss"}, "train_loss is in nats, not in 'BLEU'"),
        ({"metric": "bleu"}, "claim c: unknown metric 'bleu'; valid: bleu_lc_tok, "),
        ({"tolerance": None}, "claim c: compared with experiment small but without a tolerance"),
        ({"comparable": False}, "claim c: not comparable, yet compared with experiment small"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"colour": "red"}, "colour is not a known key"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claim(**changes)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ([VALUE, CURVE], r"claims\.yaml: claims with the same id: c"),
        (
            [{**VALUE, "kind": "curv"}],
            r"claims\.0\.kind is 'curv' \(did you mean curve\?\); valid: value, count, curve",
        ),
        (
            [{**COUNT, "metric": "parameter"}],
            r"claim c: unknown count 'parameter' \(did you mean parameters\?\); valid",
        ),
        ([{**COUNT, "unit": "MB"}], r"claim c: parameters is in parameters, not in 'MB'"),
        ([{**COUNT, "tolerance": None}], r"claims\.0\.tolerance is None"),
        ([{**COUNT, "steps": 5}], r"claims\.0\.steps is not a known key"),
        ([{**CURVE, "tables": {"t": None}}], r"claims\.0\.tables\.t is None: it should be a valid string"),
        ([{**VALUE, "tables": {}}], r"claims\.0\.tables is \{\}: "),
        ([{**CURVE, "file": "../a.csv"}], r"'\.\./a\.csv' is not a relative path"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, claims: list[dict[str, object]], message: str) -> None:
    (tmp_path / "claims.yaml").write_text(json.dumps({"claims": claims}))  # JSON is YAML
    with pytest.raises(ValueError, match=message):
        load_claims("t", tmp_path / "claims.yaml")


def test_a_claim_of_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It would stand in no report."""
    claims = tmp_path / "claims.yaml"
    claims.write_text(json.dumps({"claims": [{**CURVE, "tables": {"forensic": "small"}}]}))
    with pytest.raises(
        ValueError, match=r"claims\.yaml: claim .: unknown table 'forensic' \(did you mean forensics\?\)"
    ):
        load_claims("forensics", claims)


# --- the claims themselves --------------------------------------------------------------------------------------------


def test_the_published_numbers() -> None:
    claims = [found for found in load_claims("default") if isinstance(found, ValueClaim)]
    assert {c.id: (c.value, c.metric, c.split, c.tables["default"], c.steps) for c in claims} == {
        "readme-original-paper": (25.8, "bleu_compound_split", "newstest2013", "wmt14-base-last", 100_000),
        "readme-my-implementation": (26.4, "legacy_score", "val", "published", 227_000),
        "readme-train-loss": (2.852672759656864, "train_loss", "train", "published", 202_257),
        "readme-validation-loss": (3.2048025131225586, "validation_loss", "val", "published", 205_208),
        "issue-25-train-loss": (3.48, "train_loss", "train", "readme", 227_000),
        "issue-25-validation-loss": (3.42, "validation_loss", "val", "readme", 227_000),
        "issue-25-score": (23.4, "legacy_score", "val", "readme", 227_000),
        "revisit-mmt-2016-flickr": (41.02, "bleu_lc_tok", "test_2016_flickr", "tiny", None),
        "revisit-mmt-2017-flickr": (33.36, "bleu_lc_tok", "test_2017_flickr", "tiny", None),
        "revisit-mmt-2017-mscoco": (29.88, "bleu_lc_tok", "test_2017_mscoco", "tiny", None),
    }
    assert {judge(found, "default", [], {}).verdict for found in claims} == {"not run"}


def test_the_published_counts() -> None:
    """What the README says today and said in 2019; spaCy gives two German types less today, 1,025 values each."""
    claims = {found.id: found for found in load_claims("forensics") if isinstance(found, CountClaim)}
    assert {name: (c.value, c.unit, c.tolerance, c.tables["forensics"]) for name, c in claims.items()} == {
        "readme-parameters": (55_207_087, "parameters", 2 * 1_025, "readme"),
        "readme-model-size": (215.7, "MB", 0.1, "readme"),
        "readme-2019-parameters": (50_479_279, "parameters", 2 * 1_025, "published"),
        "readme-2019-model-size": (197.2, "MB", 0.1, "published"),
    }
    assert all("describe" in found.note for found in claims.values()), "how to count exactly"
    default = [found.id for found in load_claims("default") if isinstance(found, CountClaim)]
    assert default == ["readme-parameters", "readme-model-size", "readme-2019-parameters"]


def test_the_full_table_prints_the_claims_of_the_readme_and_of_its_rerun() -> None:
    """Beside runs of its own, which have the same recipes and all the epochs."""
    short, full = ({c.id: c.tables[t] for c in load_claims(t)} for t in ("default", "full"))
    assert set(full) == {name for name in short if not name.startswith("revisit-mmt")}
    assert full.pop("readme-original-paper") == "wmt14-base-last", "the paper's number, on other data"
    assert full == {name: f"{experiment}-full" for name, experiment in short.items() if name in full}


def test_the_papers_task_has_the_papers_numbers() -> None:
    claims = [found for found in load_claims("wmt14") if isinstance(found, ValueClaim)]
    assert [(c.value, c.split, c.tables["wmt14"], c.steps) for c in claims] == [
        (25.8, "newstest2013", "wmt14-base-last", 100_000),
        (27.3, "newstest2014", "wmt14-base", 100_000),
        (28.4, "newstest2014", "wmt14-big", 300_000),
    ]
    assert {(c.metric, c.tolerance) for c in claims} == {("bleu_compound_split", 0.6)}


def test_the_published_curves() -> None:
    claims = {table: load_claims(table) for table in ("default", "forensics")}
    curves = {t: [(c.file[:7], c.tables[t]) for c in found if isinstance(c, CurveClaim)] for t, found in claims.items()}
    assert curves["default"] == [("817082d", "published"), ("817082d", "readme")]
    assert curves["forensics"] == [
        ("817082d", "published"),
        ("817082d", "readme"),
        ("817082d", "published-kaiming-normal"),
        ("817082d", "published-kaiming-uniform"),
        *((commit, f"log-{commit}") for commit in ("c1c22a3", "b1e73da", "ded5bcf", "1a4aecf", "1d076f1")),
    ]
    assert load_claims("demo") == ()


def test_claims_name_experiments_tables_splits_and_epochs_that_exist() -> None:
    params = load_params(ROOT / "params.yaml")
    claims = validate(Claims, read_yaml(CLAIMS_FILE), CLAIMS_FILE).claims
    recipes = params.recipes
    check_claims(
        claims, {name: params.datasets[params.corpora[r.corpus].dataset].splits for name, r in recipes.items()}
    )
    for table in {table for found in claims for table in found.tables}:
        load_table(table, ROOT / "workflow/tables")
    for found in (entry for entry in claims if isinstance(entry, CurveClaim)):
        for experiment in found.tables.values():
            batches = recipes[experiment].train.batches
            assert batches.kind == "sentences"
            assert found.steps_per_epoch == math.ceil(29_000 / batches.sentences), found.id


def test_the_report_depends_on_the_curves_that_are_claimed() -> None:
    claims = validate(Claims, read_yaml(CLAIMS_FILE), CLAIMS_FILE).claims
    files = {found.file for found in claims if isinstance(found, CurveClaim)}
    assert {file for file in files if not (CURVES_DIR / file).is_file()} == set()
    deps = read_yaml(ROOT / "dvc.yaml")["stages"]["report"]["do"]["deps"]
    folder = CURVES_DIR.relative_to(ROOT).as_posix()
    assert {dep for dep in deps if folder in dep} == {f"{folder}/{file}" for file in files}
