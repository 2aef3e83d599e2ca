"""Sentence pairs as memory-mapped ids, and the batches of an epoch as a function of (seed, epoch) alone.

Shapes: B sentences in a batch, S the longest source, T the longest target, both with their marks.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bleuprint.params import Batches, SentenceBatches, TokenBatches
from bleuprint.tokenizers import PAD


class Ids(NamedTuple):
    """Sentences laid end to end in a file; sentence i is flat[offsets[i]:offsets[i + 1]]."""

    flat: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


class Pairs(NamedTuple):
    source: Ids
    target: Ids

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
    pairs = Pairs(open_ids(corpus, f"{split}.source"), open_ids(corpus, f"{split}.target"))
    counts = [len(side.offsets) - 1 for side in pairs]
    if counts[0] != counts[1] or not counts[0]:
        raise ValueError(f"{corpus}: split {split} has {counts[0]} source and {counts[1]} target sentences")
    return pairs


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
    """Return the row numbers of every batch of an epoch (from 1), in order; each pair stands in exactly one."""
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(pairs))
    match batches:
        case TokenBatches():
            found = cut_by_tokens(pairs, by_length(pairs, shuffled), batches.max_tokens)
            return [found[i] for i in random.permutation(len(found))]
        case SentenceBatches():
            return pooled(pairs, shuffled, batches, random)


def ordered_batches(pairs: Pairs, batches: Batches) -> list[np.ndarray]:
    """Return batches for evaluation: every pair once, shortest first, always the same."""
    order = by_length(pairs, np.arange(len(pairs)))
    match batches:
        case TokenBatches():
            return cut_by_tokens(pairs, order, batches.max_tokens)
        case SentenceBatches():
            return cut_by_sentences(order, batches.sentences)


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
    """Return sentence batches sorted by length inside pools of `pool_batches`, the batches of a pool shuffled."""
    found: list[np.ndarray] = []
    for pool in cut_by_sentences(rows, batches.sentences * batches.pool_batches):
        cut = cut_by_sentences(by_length(pairs, pool), batches.sentences)
        found.extend(cut[i] for i in random.permutation(len(cut)))
    return found
