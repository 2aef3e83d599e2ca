"""The translations that MLflow shows of a run."""

from pathlib import Path

import pytest

from bleuprint.first_translations import SENTENCES, sample_translations


def test_three_lines_a_sentence_of_the_first_ones(tmp_path: Path) -> None:
    for name, text in (("test.en", "a dog\u2028runs {}"), ("test.ref.txt", "ein Hund {}"), ("test.hyp.txt", "Hund {}")):
        (tmp_path / name).write_text("".join(text.format(row) + "\n" for row in range(SENTENCES + 5)), encoding="utf-8")
    parts = sample_translations(tmp_path, tmp_path, "test", "en", "de").split("\n\n")
    assert parts[0] == f"test, the first {SENTENCES} sentences of {tmp_path.name}"
    assert parts[1].split("\n") == [
        "source (en)      a dog\u2028runs 0",
        "reference (de)   ein Hund 0",
        "hypothesis (de)  Hund 0",
    ]
    assert len(parts) == SENTENCES + 1


def test_a_short_test_set_is_shown_whole(tmp_path: Path) -> None:
    for name in ("test.en", "test.ref.txt", "test.hyp.txt"):
        (tmp_path / name).write_text("x\n")
    assert sample_translations(tmp_path, tmp_path, "test", "en", "de").count("source (en)") == 1


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"test\.en"):
        sample_translations(tmp_path, tmp_path, "test", "en", "de")
