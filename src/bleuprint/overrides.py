"""Values that stand in the place of those of params.yaml for one call: `snakemake --config experiments={…}`.

DVC needs none of it: `dvc exp run -S` writes params.yaml. Snakemake's stages are commands of their own; what was set is
handed to them in the environment, and every one reads params.yaml through it.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

VARIABLE = "BLEUPRINT_OVERRIDES"  # JSON
SECTIONS = ("machine", "scoring", "datasets", "corpora", "experiments")  # the others follow from the table


def set_overrides(values: Mapping[str, Any]) -> None:
    """Hand values to this process and to all that it starts."""
    if values:
        os.environ[VARIABLE] = json.dumps(values)


def get_overrides() -> dict[str, Any]:
    """Return what has been set; ValueError where it is no JSON object, names what cannot be set, or DVC runs."""
    try:
        values = json.loads(os.environ.get(VARIABLE) or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"{VARIABLE} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{VARIABLE} holds no JSON object")
    if values and "DVC_STAGE" in os.environ:
        raise ValueError(f"{VARIABLE} is set, and DVC would record the values of params.yaml in its stead: unset it")
    for key in values:
        if key not in SECTIONS:
            raise ValueError(f"--config {key}=… sets nothing; valid: {', '.join(SECTIONS)}")
    return values


def overridden(data: Any, values: Any) -> Any:
    """Return `data` with `values` in their places, section by section.

    Snakemake hands on every word as a string, within mappings: it is read as YAML where no string stood before.
    """
    if isinstance(values, dict):
        before = data if isinstance(data, dict) else {}
        return before | {key: overridden(before.get(key), value) for key, value in values.items()}
    if isinstance(values, list):
        return [overridden(None, value) for value in values]
    return values if isinstance(data, str) or not isinstance(values, str) else read_scalar(values)


def read_scalar(text: str) -> Any:
    """Return a word as YAML 1.2 reads it: a number, a boolean, null, else itself."""
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return text
    return text if isinstance(value, dict | list) else value
