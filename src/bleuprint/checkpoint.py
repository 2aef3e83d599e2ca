"""Weights as safetensors and resumable state, written whole or not at all; the average of several weights.

Who reads them sees a flipped bit: the weights of a training by the manifest beside them, averaged ones by a sha256 in
their own header, a state by the checksums that torch writes into it and does not look at.
"""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bleuprint.files import write_atomically
from bleuprint.manifests import check_file

SHA256 = "sha256"  # in the header of averaged weights


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained values by name; a tied matrix stands once, under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def save_weights(weights: Mapping[str, Tensor], path: Path, header: Mapping[str, str] | None = None) -> None:
    """Write weights as safetensors, on the CPU, with what `header` says of them."""
    values = {name: value.cpu().contiguous() for name, value in weights.items()}
    write_atomically(path, lambda partial: save_file(values, partial, None if header is None else dict(header)))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read safetensors; ValueError names a file that is missing or damaged."""
    check_file(path)
    try:
        weights = load_file(path)
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"{path} cannot be read as weights: {error}") from None
    if SHA256 in header and header[SHA256] != digest_of(weights):
        raise ValueError(f"{path} is damaged: the sha256 in it is of other weights")
    return weights


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """Return the sha256 of names, shapes and values, whichever the order."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
    """Read what save_state wrote, onto the CPU; nothing in the file is executed.

    ValueError names a file that is damaged, or holds more than tensors and plain values.
    """
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        if damaged is None:
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a dozen classes of zipfile, zlib, struct, pickle and torch
        damaged = " ".join(str(error).split())[:200]
    raise ValueError(f"{path} is damaged ({damaged}); remove {path.parent} to train the run afresh")


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

    ValueError if there are none, or one is damaged.
    """
    files = sorted(weights.glob("step-*.safetensors"))[-last:]
    if not files:
        raise ValueError(f"{weights} holds no step-*.safetensors to average; train the run first")
    mean = average(files)
    save_weights(mean, out, {SHA256: digest_of(mean)})
