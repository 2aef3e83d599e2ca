"""What tests of claims share: a claim of a value and one of a curve, each with some of its keys changed."""

from pathlib import Path

from bleuprint.params import validate
from bleuprint.published import CurveClaim, ValueClaim

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


def curve_claim(**changes: object) -> CurveClaim:
    return validate(CurveClaim, {**CURVE, **changes}, Path("claims.yaml"))
