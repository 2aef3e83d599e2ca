"""How many parameters a run's model has, part by part: what a README's count and file size are checked against."""

from collections import Counter
from pathlib import Path

import torch

from bleuprint.models import build_model
from bleuprint.params import ModelSpec
from bleuprint.training import vocabulary_sizes

FLOAT32_BYTES = 4
MAX_TYPES = 10_000_000  # commands/arguments.py has it too: it does not import torch for its options


def describe_model(spec: ModelSpec, source_vocabulary: int, target_vocabulary: int) -> str:
    """Return a table of the parts and their parameters, their sum, and its size as float32 values."""
    counts = count_parts(spec, source_vocabulary, target_vocabulary)
    total = sum(counts.values())
    size = total * FLOAT32_BYTES
    return "\n".join(
        [
            f"{spec.kind}, {source_vocabulary:,} source and {target_vocabulary:,} target types",
            *(f"{part:18}{count:12,}" for part, count in counts.items()),
            f"{'all':18}{total:12,}",
            f"float32 values: {size:,} bytes = {size / 1024:,.0f} KiB",
        ]
    )


def count_parts(spec: ModelSpec, source_vocabulary: int, target_vocabulary: int) -> dict[str, int]:
    """Return the trained values of each part of a model; a tied matrix counts once, in the part that has it first.

    ValueError where the model cannot have these vocabularies.
    """
    with torch.device("meta"):  # shapes without values: no memory is filled
        model = build_model(spec, source_vocabulary, target_vocabulary)
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[name.partition(".")[0]] += parameter.numel()
    return counts


def vocabularies(corpus: Path, source: int | None, target: int | None) -> tuple[int, int]:
    """Return the numbers of source and target types: as given, else the corpus's.

    ValueError where the corpus is not made, or its manifest has no such numbers.
    """
    if source is not None and target is not None:
        return source, target
    if not (corpus / "manifest.json").exists():
        raise ValueError(
            f"{corpus}/manifest.json is missing; make it with: python -m bleuprint tokenize {corpus.name}; "
            "or give both --src-vocab and --tgt-vocab"
        )
    found = vocabulary_sizes(corpus)
    if not all(type(types) is int and 1 <= types <= MAX_TYPES for types in found):  # type: True is no number of types
        raise ValueError(
            f"{corpus}/manifest.json says {found[0]!r} source and {found[1]!r} target types, which should be numbers "
            f"from 1 to {MAX_TYPES:,}; make it again with: python -m bleuprint tokenize {corpus.name}"
        )
    return source or found[0], target or found[1]
