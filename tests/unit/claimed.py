"""What tests of claims share: a claim of a value, of a count and of a curve, each with some of its keys changed."""

from pathlib import Path

from bleuprint.strict import validate
from bleuprint.verdicts.published import CountClaim, CurveClaim, ValueClaim

COMMON = {
    "id": "c",
    "tables": {"t": "small"},
    "who": "Somebody",
    "text": "a number",
    "source": "a page",
    "parameters": None,
    "note": "a note",
}
VALUE = {
    **COMMON,
    "kind": "value",
    "value": 40.0,
    "unit": "BLEU",
    "metric": "bleu_lc_tok",
    "split": "day",
    "comparable": True,
    "tolerance": 0.5,
    "steps": None,
}
COUNT = {**COMMON, "kind": "count", "value": 1000.0, "unit": "parameters", "metric": "parameters", "tolerance": 20.0}
CURVE = {
    **COMMON,
    "kind": "curve",
    "file": "a.csv",
    "median_tolerance": 0.06,
    "max_tolerance": 0.12,
    "steps_per_epoch": 10,
}
LOSS = {"metric": "train_loss", "unit": "nats", "split": "train", "value": 3.0, "tolerance": 0.1}


def claim(**changes: object) -> ValueClaim:
    return validate(ValueClaim, {**VALUE, **changes}, Path("claims.yaml"))


def count_claim(**changes: object) -> CountClaim:
    return validate(CountClaim, {**COUNT, **changes}, Path("claims.yaml"))


def curve_claim(**changes: object) -> CurveClaim:
    return validate(CurveClaim, {**CURVE, **changes}, Path("claims.yaml"))
