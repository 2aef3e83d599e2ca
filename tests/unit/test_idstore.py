"""Ids on disk."""

from pathlib import Path

import numpy as np
import pytest

from bleuprint.idstore import write_characters, write_ids


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


def test_characters_are_code_points(tmp_path: Path) -> None:
    write_characters(tmp_path, "train.source", ["Straße", "", "犬 \t\r"])
    found = np.load(tmp_path / "train.source.characters.npy", mmap_mode="r")
    assert found.dtype == np.int32
    assert found.tolist() == [6, 0, 4]
