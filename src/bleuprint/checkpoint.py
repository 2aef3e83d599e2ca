"""Weights as safetensors and resumable state, written whole or not at all; the average of several weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bleuprint.files import write_atomically


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained values by name; a tied matrix stands once, under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights as safetensors, on the CPU."""
    values = {name: value.cpu().contiguous() for name, value in weights.items()}
    write_atomically(path, lambda partial: save_file(values, partial))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read safetensors; ValueError names a file that is missing or damaged."""
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"{path} cannot be read as weights: {error}") from None


def load_into(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Copy weights into the model; ValueError if names or shapes differ from the model's."""
    own = weights_of(model)
    if own.keys() != weights.keys():
        names = ", ".join(sorted(own.keys() ^ weights.keys()))
        raise ValueError(f"{source} holds the weights of another model; only one of the two has: {names}")
    for name, parameter in own.items():
        if parameter.shape != weights[name].shape:
            raise ValueError(f"{source}: {name} is {tuple(weights[name].shape)}, the model's {tuple(parameter.shape)}")
        parameter.copy_(weights[name])


def save_state(state: Mapping[str, Any], path: Path) -> None:
    """Write the nested tensors and plain values from which training resumes."""
    write_atomically(path, lambda partial: torch.save(dict(state), partial))


def load_state(path: Path) -> dict[str, Any]:
    """Read what save_state wrote, onto the CPU; nothing in the file is executed."""
    return torch.load(path, map_location="cpu", weights_only=True)


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of each weight over the files (Vaswani et al. 2017, section 6.1), summed in float64."""
    total = {name: value.double() for name, value in load_weights(files[0]).items()}
    for file in files[1:]:
        weights = load_weights(file)
        for name, value in total.items():
            value += weights[name]
    return {name: (value / len(files)).float() for name, value in total.items()}


def average_run(weights: Path, last: int, out: Path) -> None:
    """Average the `last` newest of the weights that training left at the ends of epochs; all of them if fewer.

    ValueError if there are none.
    """
    files = sorted(weights.glob("step-*.safetensors"))[-last:]
    if not files:
        raise ValueError(f"{weights} holds no step-*.safetensors to average; train the run first")
    save_weights(average(files), out)
