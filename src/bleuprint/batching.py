"""Sentence pairs as memory-mapped ids, and the batches of an epoch as a function of (seed, epoch) alone.

Shapes: B sentences in a batch, S the longest source, T the longest target, both with their marks.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bleuprint.params import Batches, SentenceBatches, SortBy, TokenBatches
from bleuprint.tokenizers import BOS, EOS, PAD

LENGTH_BITS = 16  # of a length in torchtext's key


class Ids(NamedTuple):
    """Sentences laid end to end in a file; sentence i is flat[offsets[i]:offsets[i + 1]]."""

    flat: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def unmarked_lengths(self) -> np.ndarray:
        """Lengths without BOS and EOS, which no word is."""
        words_before = np.concatenate([[0], np.cumsum(~np.isin(self.flat, (BOS, EOS)))])
        return np.diff(words_before[self.offsets])


class Pairs(NamedTuple):
    source: Ids
    target: Ids
    source_characters: np.ndarray | None = None  # of each raw source line, where the corpus stores them

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


class Batch(NamedTuple):
    source: Tensor  # (B, S) int64, padded with PAD
    target: Tensor  # (B, T) int64: BOS … EOS, padded with PAD

    @property
    def inputs(self) -> Tensor:
        """What the decoder reads, (B, T-1)."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """What it must predict at each of these positions, (B, T-1); PAD where there is nothing to predict."""
        return self.target[:, 1:]


def open_ids(corpus: Path, name: str) -> Ids:
    """Map `{name}.ids.npy` and `{name}.offsets.npy`; nothing is read until it is used."""
    return Ids(*(np.load(corpus / f"{name}.{part}.npy", mmap_mode="r") for part in ("ids", "offsets")))


def open_pairs(corpus: Path, split: str) -> Pairs:
    """Map both sides of a split; ValueError if they do not pair up or are empty."""
    source, target = open_ids(corpus, f"{split}.source"), open_ids(corpus, f"{split}.target")
    counts = [len(side.offsets) - 1 for side in (source, target)]
    if counts[0] != counts[1] or not counts[0]:
        raise ValueError(f"{corpus}: split {split} has {counts[0]} source and {counts[1]} target sentences")
    path = corpus / f"{split}.source.characters.npy"
    return Pairs(source, target, np.load(path, mmap_mode="r") if path.exists() else None)


def pad(ids: Ids, rows: np.ndarray) -> Tensor:
    """Return sentences `rows` (B,) as (B, longest) int64, padded with PAD."""
    starts, lengths = ids.offsets[rows], ids.offsets[rows + 1] - ids.offsets[rows]
    columns = np.arange(lengths.max())
    inside = columns < lengths[:, None]
    padded = np.full(inside.shape, PAD, dtype=np.int64)
    padded[inside] = ids.flat[(starts[:, None] + columns)[inside]]
    return torch.from_numpy(padded)


def collate(pairs: Pairs, rows: np.ndarray) -> Batch:
    """Return the pairs `rows` (B,) as one padded batch."""
    return Batch(pad(pairs.source, rows), pad(pairs.target, rows))


def epoch_batches(pairs: Pairs, batches: Batches, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the row numbers of every batch of an epoch (from 1), in order.

    Each pair stands in exactly one, but for those that drop_last leaves out. ValueError where a pair or all of them fit
    into no batch, or what sentences are to be sorted by is not in the corpus.
    """
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(pairs))
    match batches:
        case TokenBatches():
            found = cut_by_tokens(pairs, by_length(pairs, shuffled), batches.max_tokens)
            return [found[i] for i in random.permutation(len(found))]
        case SentenceBatches():
            return pooled(pairs, shuffled, batches, random)


def ordered_batches(pairs: Pairs, batches: Batches) -> list[np.ndarray]:
    """Return batches for evaluation: every pair once, always the same: shortest first. ValueError as above."""
    rows = np.arange(len(pairs))
    match batches:
        case TokenBatches():
            return cut_by_tokens(pairs, by_length(pairs, rows), batches.max_tokens)
        case SentenceBatches():
            return cut_by_sentences(ascending(pairs, rows, batches.validation_sort_by), batches.sentences)


def ascending(pairs: Pairs, rows: np.ndarray, sort_by: SortBy) -> np.ndarray:
    """Sort rows by one of the lengths of SentenceBatches; rows of equal length keep their order."""
    match sort_by:
        case "none":
            return rows
        case "tokens":
            return by_length(pairs, rows)
        case "interleaved":
            return rows[np.argsort(interleaved_lengths(pairs, rows), kind="stable")]
        case "source_characters":
            if pairs.source_characters is None:
                raise ValueError(
                    "batches cannot be sorted by source_characters: that needs a corpus with the basic tokenizer"
                )
            return rows[np.argsort(pairs.source_characters[rows], kind="stable")]


def interleaved_lengths(pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """Return torchtext's sort key: the bits of the source's length and of the target's in turn, highest first.

    Pairs of like length on both sides stand near each other. Lengths are without marks, which torchtext adds later.
    """
    source, target = pairs.source.unmarked_lengths[rows], pairs.target.unmarked_lengths[rows]
    key = np.zeros(len(rows), dtype=np.int64)
    for bit in range(LENGTH_BITS):
        key |= (source >> bit & 1) << (2 * bit + 1) | (target >> bit & 1) << (2 * bit)
    return key


def by_length(pairs: Pairs, rows: np.ndarray) -> np.ndarray:
    """Sort rows by target length, then source length; rows of equal lengths keep their order."""
    return rows[np.lexsort((pairs.source.lengths[rows], pairs.target.lengths[rows]))]


def padded_length(pairs: Pairs) -> np.ndarray:
    """Return the positions a pair takes on its longer side: source marks count, and one of the target's two."""
    return np.maximum(pairs.source.lengths, pairs.target.lengths - 1)


def cut_by_tokens(pairs: Pairs, rows: np.ndarray, max_tokens: int) -> list[np.ndarray]:
    """Cut rows into runs of at most max_tokens padded tokens on the longer side; ValueError if one pair has more."""
    sizes = padded_length(pairs)[rows]
    if sizes.max() > max_tokens:
        raise ValueError(f"a pair of {sizes.max()} tokens does not fit into batches.max_tokens {max_tokens}")
    found: list[np.ndarray] = []
    start, widest = 0, 0
    for i, size in enumerate(sizes.tolist()):
        widest = max(widest, size)
        if widest * (i + 1 - start) > max_tokens:
            found.append(rows[start:i])
            start, widest = i, size
    return [*found, rows[start:]]


def cut_by_sentences(rows: np.ndarray, sentences: int) -> list[np.ndarray]:
    """Cut rows into runs of `sentences`; the last may be shorter."""
    return [rows[i : i + sentences] for i in range(0, len(rows), sentences)]


def pooled(pairs: Pairs, rows: np.ndarray, batches: SentenceBatches, random: np.random.Generator) -> list[np.ndarray]:
    """Return sentence batches sorted inside pools of `pool_batches`, the batches of a pool shuffled where asked for."""
    found: list[np.ndarray] = []
    for pool in cut_by_sentences(rows, batches.sentences * batches.pool_batches):
        cut = cut_by_sentences(ascending(pairs, pool, batches.sort_by), batches.sentences)
        if batches.drop_last and len(cut[-1]) < batches.sentences:
            cut.pop()
        found.extend(cut[i] for i in (random.permutation(len(cut)) if batches.shuffle_batches else range(len(cut))))
    if not found:
        raise ValueError(f"{len(rows)} pairs do not fill a batch of batches.sentences {batches.sentences}: drop_last")
    return found
