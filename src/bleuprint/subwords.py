"""BPE-dropout (Provilkov et al. 2020): in each epoch every word is cut into pieces anew, some merges left out.

The tokenizers library has it, but without a seed. Here an epoch's pieces are a function of (seed, epoch).
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bleuprint.batching import Ids, Pairs
from bleuprint.tokenizers import SPACE, SPECIALS, LearnedBpe, load_tokenizer

VARIANTS = 32  # ways of cutting a frequent word that an epoch draws; its occurrences choose among them


class Side(NamedTuple):
    """The words of one side of a split; marks, and words with an unknown letter, are words that are never cut anew."""

    words: list[tuple[int, ...]]  # each once, as the ids of its usual pieces
    counts: list[int]  # how often each occurs
    text: np.ndarray  # every word of every sentence, as its place in `words`
    offsets: np.ndarray  # sentence i is text[offsets[i]:offsets[i + 1]]


class Subwords(NamedTuple):
    """The train split in words, and how words are put together from letters."""

    source: Side
    target: Side
    types: Sequence[str]
    ids: Mapping[str, int]
    ranks: Mapping[tuple[str, str], int]


def open_subwords(corpus: Path, pairs: Pairs) -> Subwords:
    """Return the words that the pieces of `pairs` spell; the corpus has a BPE tokenizer (params.py sees to it)."""
    learned = load_tokenizer(corpus)
    assert isinstance(learned, LearnedBpe), f"{corpus} has no BPE tokenizer"
    begins = np.array([i < len(SPECIALS) or word.startswith(SPACE) for i, word in enumerate(learned.types)])
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in learned.learned_merges)]
    return Subwords(
        find_words(pairs.source, begins),
        find_words(pairs.target, begins),
        learned.types,
        {word: i for i, word in enumerate(learned.types)},
        {merge: rank for rank, merge in enumerate(merges)},
    )


def find_words(ids: Ids, begins: np.ndarray) -> Side:
    """Return the words of a split; `begins` (V,) says which pieces begin one."""
    first = begins[ids.flat]
    first[ids.offsets[:-1]] = True
    places = np.append(np.flatnonzero(first), len(ids.flat))
    flat = ids.flat.tolist()
    text = [tuple(flat[start:end]) for start, end in zip(places[:-1].tolist(), places[1:].tolist(), strict=True)]
    counts = Counter(text)
    numbers = {word: i for i, word in enumerate(counts)}
    offsets = np.searchsorted(places, ids.offsets)
    return Side(list(counts), list(counts.values()), np.array([numbers[word] for word in text]), offsets)


def redraw(subwords: Subwords, pairs: Pairs, dropout: float, seed: int, epoch: int) -> Pairs:
    """Return the same pairs in the pieces of an epoch: each possible merge is left out with chance `dropout`."""
    sides = [
        redraw_side(side, subwords, dropout, random.Random(f"{name} {seed} {epoch}"))
        for name, side in (("source", subwords.source), ("target", subwords.target))
    ]
    return Pairs(sides[0], sides[1], pairs.source_characters)


def redraw_side(side: Side, subwords: Subwords, dropout: float, draws: random.Random) -> Ids:
    """Return one side in new pieces."""
    drawn = [min(count, VARIANTS) for count in side.counts]
    variants = [
        cut_again(word, subwords, dropout, draws)
        for word, many in zip(side.words, drawn, strict=True)
        for _ in range(many)
    ]
    chosen = choose_variants(side, np.array(drawn), np.random.default_rng(draws.getrandbits(64)))
    lengths = np.array([len(variant) for variant in variants])
    pieces = np.concatenate([np.asarray(variant) for variant in variants])
    begins = np.cumsum(lengths) - lengths
    ends = np.cumsum(lengths[chosen])
    inside = np.arange(ends[-1]) - np.repeat(ends - lengths[chosen], lengths[chosen])
    flat = pieces[np.repeat(begins[chosen], lengths[chosen]) + inside]
    return Ids(flat, np.concatenate([[0], ends])[side.offsets])


def choose_variants(side: Side, drawn: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return for each word of the text which of the variants of all words it takes: its own where there are enough."""
    first = np.cumsum(drawn) - drawn
    order = np.argsort(side.text, kind="stable")
    counts = np.array(side.counts)
    within = np.empty_like(side.text)
    within[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    chance = generator.integers(0, VARIANTS, len(side.text))
    return first[side.text] + np.where(counts[side.text] <= VARIANTS, within, chance)


def cut_again(word: tuple[int, ...], subwords: Subwords, dropout: float, draws: random.Random) -> tuple[int, ...]:
    """Return a word in new pieces; a mark, or a word that is not spelt by its pieces, as it is."""
    if any(piece < len(SPECIALS) for piece in word):
        return word
    letters = list("".join(subwords.types[piece] for piece in word))
    return tuple(subwords.ids[piece] for piece in merge(letters, subwords.ranks, dropout, draws))


def merge(pieces: list[str], ranks: Mapping[tuple[str, str], int], dropout: float, draws: random.Random) -> list[str]:
    """Join letters by the merges learnt first; at each step each possible merge is left out with chance `dropout`."""
    while len(pieces) > 1:
        possible = [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
        kept = [candidate for candidate in possible if draws.random() >= dropout] if dropout else possible
        if not kept:
            return pieces
        i = min(kept)[1]
        pieces = [*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]]
    return pieces
