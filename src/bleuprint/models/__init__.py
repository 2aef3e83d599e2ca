"""The models that are compared: one file each, read from top to bottom, named like the `kind` in params.yaml."""

import importlib
from typing import Any

from torch import nn

from bleuprint.params import ModelSpec


def build_model(spec: ModelSpec, source_vocabulary: int, target_vocabulary: int) -> Any:
    """Return the untrained model of models/{spec.kind}.py, its weights drawn from torch's current random state.

    Found by name, so that a new model changes no file on which the runs of the others depend; hence Any. Each is an
    nn.Module with `spec`, `forward`, `project`, `output_weight`, `output_bias`, `start` and `step`.
    """
    module = importlib.import_module(f"bleuprint.models.{spec.kind}")
    return module.build(spec, source_vocabulary, target_vocabulary)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trained values; a tied matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
