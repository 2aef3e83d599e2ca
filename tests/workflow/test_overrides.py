"""`dvc exp run -S` changes what it names and nothing else."""

import shutil
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides

from bleuprint.graph import load_params

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("experiments.tiny.train.max_steps", 200),
        ("experiments.tiny-cased.train.schedule.lr", 1e-05),  # written as 1e-05, a string to a YAML 1.1 reader
        ("experiments.toy.decode.length_penalty.alpha", 0.5),
    ],
)
def test_one_value_is_set(tmp_path: Path, key: str, value: float) -> None:
    """An alias in params.yaml would break this: DVC changes a shared section, then puts the old value back."""
    copy = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", copy)
    expected = load_params(copy).model_dump()
    *sections, last = key.split(".")
    section = expected
    for name in sections:
        section = section[name]
    section[last] = value
    apply_overrides(copy, [f"{key}={value}"])
    assert load_params(copy).model_dump() == expected
