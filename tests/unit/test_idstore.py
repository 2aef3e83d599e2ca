"""Ids on disk."""

from pathlib import Path

import numpy as np
import pytest

from bleuprint.idstore import characters_writer, growing, write_ids, writer


@pytest.mark.parametrize(("vocabulary_size", "dtype"), [(65_535, np.uint16), (65_536, np.int32)])
def test_ids_take_the_smallest_type_that_holds_them(vocabulary_size: int, dtype: type, tmp_path: Path) -> None:
    write_ids(tmp_path, "train.source", [[2, vocabulary_size - 1, 3], [], [3]], vocabulary_size)
    ids = np.load(tmp_path / "train.source.ids.npy", mmap_mode="r")
    offsets = np.load(tmp_path / "train.source.offsets.npy", mmap_mode="r")
    assert (ids.dtype, offsets.dtype) == (dtype, np.int64)
    assert ids.tolist() == [2, vocabulary_size - 1, 3, 3]
    assert offsets.tolist() == [0, 3, 3, 4]


def test_no_sequences_are_stored_too(tmp_path: Path) -> None:
    write_ids(tmp_path, "val.target", [], 10)
    assert np.load(tmp_path / "val.target.ids.npy", mmap_mode="r").tolist() == []
    assert np.load(tmp_path / "val.target.offsets.npy", mmap_mode="r").tolist() == [0]


def test_pieces_are_stored_as_the_whole(tmp_path: Path) -> None:
    sequences = [[4, 5], [], [6], [7, 8, 9], []]
    write_ids(tmp_path, "whole", sequences, 10)
    with writer(tmp_path, "pieces", 10) as write:
        for piece in (sequences[:1], [], sequences[1:4], sequences[4:]):
            write(piece)
    for part in ("ids", "offsets"):
        whole, pieces = (tmp_path / f"{name}.{part}.npy" for name in ("whole", "pieces"))
        assert pieces.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("count", [0, 1, 9, 10, 99_999, 1_234_567])
@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_a_file_that_grew_is_the_same_to_the_byte_as_numpys(count: int, dtype: type, tmp_path: Path) -> None:
    values: np.ndarray = np.arange(count).astype(dtype)
    np.save(tmp_path / "whole.npy", values)
    with growing(tmp_path / "grown.npy", np.dtype(dtype)) as append:
        for piece in np.array_split(values, 3):
            append(piece)
    assert (tmp_path / "grown.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_lengths_of_lines_are_stored_as_int32(tmp_path: Path) -> None:
    with characters_writer(tmp_path, "train.source") as append:
        append(np.array([6, 0, 4]))
    found = np.load(tmp_path / "train.source.characters.npy", mmap_mode="r")
    assert found.dtype == np.int32
    assert found.tolist() == [6, 0, 4]
