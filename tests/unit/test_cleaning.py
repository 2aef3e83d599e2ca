"""Which pairs are dropped, by a table, and that the tokenize stage drops and counts them."""

import json
from pathlib import Path

import pytest
from test_tokenizers import BASIC, ENGLISH, GERMAN, RAW, SPLITS, make_corpus, stored_ids, write_raw

from bleuprint.cleaning import (
    Fault,
    fault_in_lines,
    fault_in_words,
    faults_looked_for,
    has_many_tokens,
    share_of_letters,
)
from bleuprint.graph import load_params
from bleuprint.params import Cleaning
from bleuprint.tokenizing import build_corpus

ROOT = Path(__file__).parents[2]
RULES = {"max_words": 12, "max_ratio": 3.0, "max_word_characters": 20, "min_letters": 0.5, "max_tokens": 40}
CLEANING = Cleaning.model_validate(RULES)
FINE = "A dog barks."
LINES: list[tuple[str, Fault | None]] = [
    (FINE, None),
    ("Ein Hund\tbellt \u00a0 laut.\u200b", None),  # a tabulator, a fixed space, one without width
    ("Größe, Ærø, Žižek, Ω, 犬", None),
    ("A dog\u2028barks.", "control_characters"),
    ("A dog\u2029barks.", "control_characters"),
    ("A dog\x85barks.", "control_characters"),
    ("A dog\x0cbarks.", "control_characters"),
    ("A dog\rbarks.", "control_characters"),
    ("A dog\x00barks.", "control_characters"),
    ("A dog \ufffd barks.", "control_characters"),
    ("\u2028 1 2 3", "control_characters"),  # what comes first in the list counts
    ("(A6-0123/2005)", "few_letters"),
    ("1999 | 2000 | 2001 | a", "few_letters"),
    ("ab 12", None),  # half of them
    ("abc 1234", "few_letters"),
    ("", None),  # no words: for the next rule to say
    (" \t ", None),
]
WORDS: list[tuple[int, int, Fault | None]] = [  # numbers of words on each side
    (1, 1, None),
    (12, 12, None),
    (13, 12, "many_words"),
    (12, 13, "many_words"),
    (1, 13, "many_words"),
    (3, 9, None),
    (9, 3, None),
    (3, 10, "unlike_lengths"),
    (10, 3, "unlike_lengths"),
]


@pytest.mark.parametrize(("line", "fault"), LINES)
def test_lines(line: str, fault: Fault | None) -> None:
    assert fault_in_lines(CLEANING, (line, FINE)) == fault
    assert fault_in_lines(CLEANING, (FINE, line)) == fault


@pytest.mark.parametrize(("source", "target", "fault"), WORDS)
def test_numbers_of_words(source: int, target: int, fault: Fault | None) -> None:
    assert fault_in_words(CLEANING, (["a"] * source, ["b"] * target)) == fault


def test_long_words() -> None:
    assert fault_in_words(CLEANING, (["a" * 20], ["b" * 20])) is None
    assert fault_in_words(CLEANING, (["a" * 21], ["b"])) == "long_word"
    assert fault_in_words(CLEANING, (["a"], ["b", "b" * 21])) == "long_word"


def test_many_tokens() -> None:
    assert not has_many_tokens(CLEANING, ([4] * 40, [4] * 40))
    assert has_many_tokens(CLEANING, ([4] * 41, [4]))
    assert has_many_tokens(CLEANING, ([4], [4] * 41))


def test_letters_are_counted_among_what_is_not_white_space() -> None:
    assert share_of_letters(" a1\u00a0 ") == 0.5
    assert share_of_letters(" ") == 1.0


@pytest.mark.parametrize("settings", [RAW, BASIC])
def test_each_fault_is_dropped_from_train_alone_and_counted(settings: dict, tmp_path: Path) -> None:
    """Every pair with a fault has another on its other side: only the first that is looked for counts."""
    bad = [
        ("A dog\u2028barks.", "12"),
        ("A dog barks.", "12 (34)"),
        ("A dog barks.", ""),
        ("a " * 31, "b"),
        ("a " * 10, "b b b"),
        ("a" * 21, "b"),
        (" ".join(letter * 4 for letter in "abcdefghijklmnopqrstuvwxyzäö"), "ein Wort " * 5),  # 28 words
    ]
    english, german = ([*side, *(pair[i] for pair in bad), *side] for i, side in enumerate((ENGLISH, GERMAN)))
    splits = {name: (english, german) for name in ("train", "val", "test")}
    cleaning = RULES | {"max_words": 30, "max_tokens": 60 if settings == RAW else 27}
    corpora = {"clean": make_corpus(settings, cleaning=cleaning), "all": make_corpus(settings)}
    manifests, ids = {}, {}
    for name, corpus in corpora.items():
        raw = write_raw(tmp_path / f"{name}-raw", **splits)
        build_corpus(corpus, SPLITS, raw, tmp_path / name)
        manifests[name] = json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))
        ids[name] = stored_ids(tmp_path / name, "train.source")
    found = manifests["clean"]["dropped"]
    assert found["train"] == dict.fromkeys(faults_looked_for(CLEANING), 1)
    assert manifests["clean"]["pairs"]["train"] == len(english) - 7 == len(ids["clean"])
    assert found["val"] == {"empty": 1}
    assert found["test"] == {"empty": 0}
    assert manifests["clean"]["pairs"]["test"] == len(english)
    assert manifests["all"]["dropped"]["train"] == {"empty": 1}
    assert max(map(len, ids["clean"])) <= cleaning["max_tokens"] + 1  # and the mark
    if settings == BASIC:
        assert len((tmp_path / "clean/train.source.characters.npy").read_bytes()) == 128 + 4 * len(ids["clean"])


def test_pairs_that_all_have_faults_are_none(tmp_path: Path) -> None:
    raw = write_raw(tmp_path / "raw", train=(["1", "2"], ["3", "4"]))
    with pytest.raises(ValueError, match="no pair of split 'train' has text on both sides and is clean"):
        build_corpus(make_corpus(RAW, cleaning=RULES), SPLITS, raw, tmp_path / "out")


def test_only_wmt14_is_cleaned() -> None:
    """Multi30K's corpora are what they were, and with them the fingerprints of all trainings."""
    corpora = load_params(ROOT / "params.yaml").corpora
    assert [name for name, corpus in corpora.items() if corpus.cleaning] == ["wmt14-bpe"]
    cleaning = corpora["wmt14-bpe"].cleaning
    assert cleaning is not None
    assert (cleaning.max_words, cleaning.max_ratio, cleaning.max_tokens) == (100, 9.0, 250)
