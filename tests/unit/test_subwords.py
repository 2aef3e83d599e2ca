"""BPE-dropout on a small corpus made by the project's own tokenizer."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bleuprint.batching import Pairs, open_pairs
from bleuprint.params import BpeTokenizer, Corpus, Splits
from bleuprint.subwords import VARIANTS, Subwords, merge, open_subwords, redraw
from bleuprint.tokenizers import load_tokenizer
from bleuprint.tokenizing import build_corpus

SPLITS = Splits(train="train", validation="val", tests=("test",))
SENTENCES = ["a lowly newt lowers the newer lowest tower", "the lowest newt knew a newer tower", "lower the tower"] * 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a corpus whose validation has a letter that training lacks."""
    raw = tmp_path_factory.mktemp("raw")
    for split in SPLITS.all:
        for language in ("en", "de"):
            (raw / f"{split}.{language}").write_text("\n".join(SENTENCES) + "\n")
    out = tmp_path_factory.mktemp("corpora") / "small"
    tokenizer = BpeTokenizer(kind="bpe", text="raw", merges=24, min_frequency=1)
    settings = Corpus(dataset="d", source="en", target="de", source_marks="end", cleaning=None, tokenizer=tokenizer)
    build_corpus(settings, SPLITS, raw, out)
    return out


def opened(corpus: Path) -> tuple[Pairs, Subwords]:
    pairs = open_pairs(corpus, "train")
    return pairs, open_subwords(corpus, pairs)


def texts(corpus: Path, pairs: Pairs) -> list[str]:
    """Return what the target's pieces spell."""
    tokenizer = load_tokenizer(corpus)
    flat, offsets = pairs.target
    return [tokenizer.decode(flat[a:b].tolist()) for a, b in pairwise(offsets.tolist())]


def test_without_dropout_the_pieces_are_the_tokenizers(corpus: Path) -> None:
    """The same merges in the same order: this code cuts as the library does."""
    pairs, subwords = opened(corpus)
    again = redraw(subwords, pairs, 0.0, 1, 1)
    for mine, theirs in ((again.source, pairs.source), (again.target, pairs.target)):
        assert np.array_equal(mine.flat, theirs.flat)
        assert np.array_equal(mine.offsets, theirs.offsets)


def test_other_pieces_spell_the_same_text(corpus: Path) -> None:
    pairs, subwords = opened(corpus)
    again = redraw(subwords, pairs, 0.5, 1, 1)
    assert texts(corpus, again) == texts(corpus, pairs)
    assert len(again.target.flat) > 1.2 * len(pairs.target.flat)
    assert all(again.target.flat[again.target.offsets[1:] - 1] == pairs.target.flat[pairs.target.offsets[1:] - 1])


def test_everything_left_out_leaves_letters(corpus: Path) -> None:
    pairs, subwords = opened(corpus)
    again = redraw(subwords, pairs, 1.0, 1, 1)
    letters = sum(len(sentence.replace(" ", "")) + sentence.count(" ") + 1 for sentence in SENTENCES)
    marks = 2 * len(SENTENCES)
    assert len(again.target.flat) == letters + marks


def test_an_epoch_is_a_function_of_seed_and_epoch(corpus: Path) -> None:
    pairs, subwords = opened(corpus)
    drawn = {key: redraw(subwords, pairs, 0.3, *key).target.flat.tolist() for key in ((1, 1), (1, 2), (2, 1))}
    assert redraw(subwords, pairs, 0.3, 1, 1).target.flat.tolist() == drawn[1, 1]
    assert len({tuple(flat) for flat in drawn.values()}) == 3
    again = redraw(subwords, pairs, 0.3, 1, 1)
    assert again.source.flat.tolist() != again.target.flat.tolist(), "two sides of the same text are drawn apart"


def test_occurrences_of_a_word_are_cut_in_many_ways(corpus: Path) -> None:
    """ "tower" stands 60 times in the text, more often than variants are drawn."""
    pairs, subwords = opened(corpus)
    again = redraw(subwords, pairs, 0.3, 1, 1)
    flat, offsets = again.target
    ways = {tuple(flat[end - 4 : end].tolist()) for end in offsets[1:]}
    assert len(ways) > 3
    assert len(SENTENCES) > VARIANTS


def test_merges_are_left_out_with_their_chance() -> None:
    ranks = {("a", "b"): 0, ("ab", "c"): 1}
    draws = random.Random(0)
    found = [tuple(merge(list("abc"), ranks, 0.25, draws)) for _ in range(4000)]
    shares = {way: found.count(way) / len(found) for way in set(found)}
    assert shares[("a", "b", "c")] == pytest.approx(0.25, abs=0.03)
    assert shares[("ab", "c")] == pytest.approx(0.75 * 0.25, abs=0.03)
    assert shares[("abc",)] == pytest.approx(0.75 * 0.75, abs=0.03)


def test_words_with_an_unknown_letter_and_marks_stay(corpus: Path) -> None:
    pairs, _ = opened(corpus)
    flat = np.array(pairs.target.flat)
    unknown = flat.copy()
    unknown[1] = 0  # the first piece of the first word
    changed = Pairs(pairs.source, pairs.target._replace(flat=unknown))
    again = redraw(open_subwords(corpus, changed), changed, 1.0, 1, 1)
    assert again.target.flat[:2].tolist() == unknown[:2].tolist()
