"""Token ids on disk, in a form that training memory-maps."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

UINT16_TYPES = 2**16  # a vocabulary below this fits the smaller ids


def write_ids(directory: Path, name: str, sequences: Sequence[Sequence[int]], vocabulary_size: int) -> None:
    """Write N sequences as `{name}.ids.npy` (flat) and `{name}.offsets.npy` (int64, N + 1).

    Sequence i is ids[offsets[i]:offsets[i + 1]]. Ids are uint16 where the vocabulary has fewer than 65,536 types, else
    int32. To read: np.load(path, mmap_mode="r").
    """
    offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
    np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
    dtype = np.uint16 if vocabulary_size < UINT16_TYPES else np.int32
    ids = np.fromiter(chain.from_iterable(sequences), dtype=dtype, count=int(offsets[-1]))
    np.save(directory / f"{name}.ids.npy", ids)
    np.save(directory / f"{name}.offsets.npy", offsets)


def write_characters(directory: Path, name: str, lines: Sequence[str]) -> None:
    """Write the lengths of N lines as `{name}.characters.npy` (int32, N): code points, without the line's end."""
    np.save(directory / f"{name}.characters.npy", np.array([len(line) for line in lines], dtype=np.int32))
