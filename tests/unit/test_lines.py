"""The readers of a data set's files."""

from pathlib import Path

import pytest

from bleuprint.lines import read_lines, read_pairs


def test_read_lines_names_the_line_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\nthr\xc3\n")
    with pytest.raises(ValueError, match=r"/a, line 3 is not UTF-8: byte 0xc3"):
        read_lines(tmp_path / "a")


@pytest.mark.parametrize(
    ("data", "lines"), [(b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\n\nb\n", ["a", "", "b"]), (b"a\n\n", ["a", ""])]
)
def test_read_lines_keeps_empty_lines(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read_lines(tmp_path / "a") == lines


def test_read_pairs_refuses_unequal_or_missing_files(tmp_path: Path) -> None:
    (tmp_path / "val.en").write_text("a\nb\n")
    (tmp_path / "val.de").write_text("a\n")
    with pytest.raises(ValueError, match=r"val\.en has 2 lines and .*val\.de has 1$"):
        read_pairs(tmp_path, "val", "en", "de")
    with pytest.raises(ValueError, match=r"test\.en does not exist; .* holds val\.de, val\.en"):
        read_pairs(tmp_path, "test", "en", "de")
    with pytest.raises(ValueError, match=r"mine does not exist; make it with: python -m bleuprint download mine$"):
        read_pairs(tmp_path / "mine", "val", "en", "de")
