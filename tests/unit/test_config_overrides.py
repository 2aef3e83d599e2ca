"""Values of `snakemake --config` in the place of those of params.yaml."""

import json
from pathlib import Path

import pytest
from small_params import write_small_params

from bleuprint.graph import load_params
from bleuprint.overrides import VARIABLE, overridden


@pytest.fixture(scope="module")
def params_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_params(tmp_path_factory.mktemp("params"))


def test_what_is_named_is_set_and_nothing_else(params_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words within a mapping come as strings from Snakemake's command line, as numbers from its --configfile."""
    expected = load_params(params_file).model_dump()
    toy = expected["experiments"]["toy"]
    toy["train"]["max_steps"], toy["train"]["schedule"]["lr"], toy["model"]["scale_embeddings"] = 7, 1e-05, False
    toy["train"]["optimizer"]["kind"], toy["train"]["optimizer"]["clip_norm"] = "adamw", None
    toy["train"]["optimizer"]["betas"], expected["machine"]["threads"] = (0.9, 0.99), 1
    train = {
        "max_steps": "7",
        "schedule": {"lr": "1e-05"},
        "optimizer": {"kind": "adamw", "clip_norm": "null", "betas": ["0.9", 0.99]},
    }
    values = {
        "experiments": {"toy": {"train": train, "model": {"scale_embeddings": "false"}}},
        "machine": {"threads": 1},
    }
    monkeypatch.setenv(VARIABLE, json.dumps(values))
    assert load_params(params_file).model_dump() == expected


def test_a_stage_of_dvc_refuses_what_dvc_does_not_know(params_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_STAGE", "train@toy-1")
    assert load_params(params_file).machine.threads == 2
    monkeypatch.setenv(VARIABLE, '{"machine": {"threads": 1}}')
    with pytest.raises(ValueError, match="BLEUPRINT_OVERRIDES is set, and DVC would record"):
        load_params(params_file)


def test_a_string_stays_one() -> None:
    assert overridden({"seed": "12"}, {"seed": "13"}) == {"seed": "13"}
    assert overridden({}, {"text": "a: b", "list": "[1"}) == {"text": "a: b", "list": "[1"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "BLEUPRINT_OVERRIDES is not JSON"),
        ("[]", "BLEUPRINT_OVERRIDES holds no JSON object"),
        ('{"runs": {}}', r"--config runs=… sets nothing; valid: machine, scoring, datasets, corpora, experiments"),
        ('{"machine": {"thread": 1}}', r"params\.yaml: machine\.thread is not a known key \(did you mean threads\?\)"),
        ('{"experiments": {"toy": {"corpus": "multi30k-bpe"}}}', "rewrite it with: python -m bleuprint use"),
    ],
)
def test_a_mistake_is_told(params_file: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=message):
        load_params(params_file)
