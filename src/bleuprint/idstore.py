"""Token ids on disk, in a form that training memory-maps; written piece by piece, so that no corpus is too large."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

UINT16_TYPES = 2**16  # a vocabulary below this fits the smaller ids

Append = Callable[[np.ndarray], None]
Write = Callable[[Sequence[Sequence[int]]], None]


@contextmanager
def writer(directory: Path, name: str, vocabulary_size: int) -> Iterator[Write]:
    """Yield what appends sequences to `{name}.ids.npy` (flat) and `{name}.offsets.npy` (int64, N + 1).

    Sequence i is ids[offsets[i]:offsets[i + 1]]. Ids are uint16 where the vocabulary has fewer than 65,536 types, else
    int32. To read: np.load(path, mmap_mode="r").
    """
    dtype = np.dtype(np.uint16 if vocabulary_size < UINT16_TYPES else np.int32)
    with (
        growing(directory / f"{name}.ids.npy", dtype) as append_ids,
        growing(directory / f"{name}.offsets.npy", np.dtype(np.int64)) as append_offsets,
    ):
        end = np.zeros(1, dtype=np.int64)
        append_offsets(end)

        def write(sequences: Sequence[Sequence[int]]) -> None:
            nonlocal end
            if not sequences:
                return
            offsets = end + np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)
            count = int(offsets[-1] - end[0])
            append_ids(np.fromiter(chain.from_iterable(sequences), dtype=dtype, count=count))
            append_offsets(offsets)
            end = offsets[-1:]

        yield write


def write_ids(directory: Path, name: str, sequences: Sequence[Sequence[int]], vocabulary_size: int) -> None:
    """Write N sequences at once, as `writer`."""
    with writer(directory, name, vocabulary_size) as write:
        write(sequences)


def characters_writer(directory: Path, name: str) -> AbstractContextManager[Append]:
    """Yield what appends lengths of lines, in code points without their ends, to `{name}.characters.npy` (int32)."""
    return growing(directory / f"{name}.characters.npy", np.dtype(np.int32))


@contextmanager
def growing(path: Path, dtype: np.dtype) -> Iterator[Append]:
    """Yield what appends to an .npy file of one dimension; it will be the same to the byte as np.save's of the whole.

    np.save leaves room in its header for the length to grow, so that the header can be written again at the end.
    """
    with path.open("wb") as file:
        count = 0
        write_header(file, dtype, count)
        begin = file.tell()

        def append(values: np.ndarray) -> None:
            nonlocal count
            count += len(values)
            file.write(np.ascontiguousarray(values, dtype=dtype).tobytes())

        yield append
        file.seek(0)
        write_header(file, dtype, count)
        assert file.tell() == begin


def write_header(file: BinaryIO, dtype: np.dtype, count: int) -> None:
    """Write the header of an array of `count` values."""
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)})
