"""How many parameters a run's model has, part by part: what a README's count is checked against."""

from collections.abc import Mapping
from pathlib import Path

import torch

from bleuprint.models import build_model
from bleuprint.params import TransformerModel
from bleuprint.training import vocabulary_sizes

FLOAT32_BYTES = 4


def describe_model(spec: TransformerModel, source_vocabulary: int, target_vocabulary: int) -> str:
    """Return a table of the parts and their parameters, the sum, and its size in float32."""
    counts = count_parts(spec, source_vocabulary, target_vocabulary)
    total = sum(counts.values())
    size = total * FLOAT32_BYTES
    lines = [(name, f"{count:,}") for name, count in counts.items()]
    lines += [("all", f"{total:,}"), ("in float32", f"{size:,} bytes = {size / 1024:,.0f} KiB")]
    return "\n".join(f"{name:20} {text:>12}" for name, text in lines)


def count_parts(spec: TransformerModel, source_vocabulary: int, target_vocabulary: int) -> dict[str, int]:
    """Return the trained values of each part of a model, in its order; a tied matrix counts once, where it stands first."""
    with torch.device("meta"):
        model = build_model(spec, source_vocabulary, target_vocabulary)
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        counts[part] = parameter.numel() + (counts[part] if part in counts else 0)
    return counts


def sizes_of(corpus: Path, given: Mapping[str, int | None]) -> tuple[int, int]:
    """Return source and target vocabulary: what is given, else the corpus' own; ValueError where neither is known."""
    source, target = given["--src-vocab"], given["--tgt-vocab"]
    if source is not None and target is not None:
        return source, target
    if not (corpus / "manifest.json").exists():
        missing = " and ".join(name for name, size in given.items() if size is None)
        raise ValueError(f"{corpus} does not exist; make it with `python -m bleuprint tokenize {corpus.name}`, or give {missing}")
    sizes = vocabulary_sizes(corpus)
    return source or sizes[0], target or sizes[1]
