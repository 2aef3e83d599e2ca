"""The README's score by hand, and its answers to broken hypotheses on real captions (CLAIMS 1c)."""

import gzip
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
import spacy

from bleuprint.legacy_score import BATCH, legacy_score, sentence_score, statistics, words


def test_two_words_by_hand() -> None:
    """hunde/hunden: 5 of 5, 4 of 4, 3 of 3, 2 of 2; im/am: 1 of 2, 0 of 1. Lengths 7 and 8: exp(1 - 8/7)."""
    found = statistics(["hunde", "im"], ["hunden", "am"])
    assert found == (7, 8, (6, 4, 3, 2), (7, 5, 3, 2))
    assert sentence_score("hunde im", "hunden am") == pytest.approx(100 * 0.866878 * (6 / 7 * 4 / 5) ** 0.25, rel=1e-5)


def test_repeated_grams_are_clipped() -> None:
    assert statistics(["aaaa"], ["aa"]).matches == (2, 1, 0, 0)


def test_a_sentence_without_long_words_scores_nothing() -> None:
    """Even an identical one: it has no 4-gram of characters."""
    assert sentence_score("ein ast", "ein ast") == 0.0


def test_words_are_paired_by_position_and_the_rest_is_not_looked_at() -> None:
    assert sentence_score("hunde", "hunde laufen schnell") == 100.0
    assert sentence_score("laufen hunde", "hunde laufen") == 0.0


def test_words_with_an_angle_bracket_are_dropped() -> None:
    assert words("<unk> a<b hunde") == ["hunde"]
    assert sentence_score("<unk> hunde", "hunde") == 100.0


def test_the_last_batch_weighs_as_much_as_the_others() -> None:
    assert legacy_score(["hunde"] * (BATCH + 1), ["hunde"] * BATCH + ["katze"]) == pytest.approx(50.0)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_unequal_or_no_sentences_are_refused(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(ValueError, match=f"compares {len(hypotheses)} hypotheses with {len(references)} references"):
        legacy_score(hypotheses, references)


def words_of(mirror: str, split: str) -> list[list[str]]:
    """Return the lower-cased words of the German captions of a split."""
    tokenizer = spacy.blank("de").tokenizer
    path = Path(url2pathname(urlsplit(mirror).path), f"data/task1/raw/{split}.de.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [[token.text.lower() for token in tokenizer(line.rstrip("\n"))] for line in lines]


@pytest.fixture(scope="module")
def captions(multi30k_mirror: str) -> list[list[str]]:
    """The validation captions."""
    return words_of(multi30k_mirror, "val")


@pytest.fixture(scope="module")
def vocabulary(multi30k_mirror: str) -> list[str]:
    """The words that stand twice or more in the training captions."""
    counts = Counter(word for line in words_of(multi30k_mirror, "train") for word in line)
    return sorted(word for word, count in counts.items() if count > 1)


Break = Callable[[list[str]], list[str]]


@pytest.mark.parametrize(
    ("damage", "score"),
    [
        (lambda line: line, 100.0),
        (lambda line: line[1:], 0.4),
        (lambda line: line[: len(line) // 2] + line[len(line) // 2 + 1 :], 52.8),
        (lambda line: line[: len(line) // 2], 99.9),
    ],
    ids=["identical", "first word dropped", "middle word dropped", "first half kept"],
)
def test_what_it_makes_of_broken_captions(captions: list[list[str]], damage: Break, score: float) -> None:
    assert against_the_captions([damage(line) for line in captions], captions) == pytest.approx(score, abs=0.05)


@pytest.mark.parametrize(
    ("share", "running", "types"),
    [(0.3, 69.1, 56.0), (0.5, 50.5, 36.8), (0.6, 40.7, 28.7)],
    ids=["30 %", "50 %", "60 %"],
)
def test_what_it_makes_of_replaced_words(
    captions: list[list[str]], vocabulary: list[str], share: float, running: float, types: float
) -> None:
    """Words drawn from the running text, by frequency, and from the vocabulary, evenly; seeds differ by 0.6 (sd)."""
    text = [word for line in captions for word in line]
    for pool, score in ((text, running), (vocabulary, types)):
        draw = random.Random(0)
        broken = [[draw.choice(pool) if draw.random() < share else word for word in line] for line in captions]
        assert against_the_captions(broken, captions) == pytest.approx(score, abs=1.5)


def test_what_it_makes_of_other_captions(captions: list[list[str]]) -> None:
    others = random.Random(0).sample(captions, len(captions))
    assert against_the_captions(others, captions) == pytest.approx(3.5, abs=1.0)


def against_the_captions(broken: list[list[str]], captions: list[list[str]]) -> float:
    return legacy_score([" ".join(line) for line in broken], [" ".join(line) for line in captions])
