"""What a stage reads is what an earlier one wrote: looked at once, before the work.

A flipped bit, a file that was cut off, a DVC cache that gives back something else: the sha256 in the manifests see it.
Multi30K takes some 10 ms.
"""

import json
from pathlib import Path

import numpy as np

from bleuprint.manifests import MANIFEST, check_directory
from bleuprint.tokenizers import load_tokenizer


def check_raw(directory: Path) -> None:
    """Raise ValueError where a file of data/raw/{dataset} is not what was downloaded."""
    if directory.exists():  # the stage says how to make it where it is not
        check_directory(directory, f"download {directory.name}")


def check_corpus(directory: Path) -> None:
    """Raise ValueError where a file of data/corpora/{corpus} is not what was tokenized.

    The sizes that the manifest has beside the sha256 decide the shape of a model, so those are compared with the files.
    """
    if not directory.exists():
        return
    again = f"tokenize {directory.name}"
    check_directory(directory, again)
    manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    try:
        sizes = {"vocabulary": manifest["vocabulary"], "pairs": manifest["pairs"]}
        pairs = {split: count_sentences(directory / f"{split}.source.offsets.npy") for split in sizes["pairs"]}
    except (KeyError, TypeError, FileNotFoundError):
        sizes, pairs = {}, {}
    if sizes != {"vocabulary": load_tokenizer(directory).vocabulary, "pairs": pairs}:
        raise ValueError(
            f"{directory / MANIFEST} is damaged: it has other sizes than the files beside it; make it again with: "
            f"python -m bleuprint {again}"
        )


def count_sentences(offsets: Path) -> int:
    """Return how many sentences a file of offsets (N + 1,) is of."""
    return len(np.load(offsets, mmap_mode="r")) - 1
