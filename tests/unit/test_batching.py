"""Batches: every pair once, in an order that seed and epoch alone decide, never larger than asked."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bleuprint.batching import (
    Ids,
    Pairs,
    collate,
    epoch_batches,
    open_ids,
    open_pairs,
    ordered_batches,
    padded_length,
)
from bleuprint.idstore import write_ids
from bleuprint.params import Batches, SentenceBatches, TokenBatches
from bleuprint.tokenizers import BOS, EOS, PAD

TOKENS = TokenBatches(kind="tokens", max_tokens=60, batches_per_step=1)
SENTENCES = SentenceBatches(kind="sentences", sentences=7, pool_batches=3, batches_per_step=1)
EITHER = pytest.mark.parametrize("batches", [TOKENS, SENTENCES], ids=["tokens", "sentences"])


def ids_of(sentences: list[list[int]]) -> Ids:
    flat = np.array([token for sentence in sentences for token in sentence], dtype=np.uint16)
    return Ids(flat, np.cumsum([0, *map(len, sentences)]))


def random_pairs(count: int, seed: int = 0) -> Pairs:
    """Return pairs of 1 to 20 source and 2 to 21 target tokens."""
    random = np.random.default_rng(seed)
    sides = [[list(random.integers(4, 99, n)) for n in random.integers(low, low + 20, count)] for low in (1, 2)]
    return Pairs(ids_of(sides[0]), ids_of(sides[1]))


def as_lists(batches: list[np.ndarray]) -> list[list[int]]:
    return [rows.tolist() for rows in batches]


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [100, 70_000], ids=["uint16", "int32"])
def test_collate_by_hand(tmp_path: Path, types: int) -> None:
    write_ids(tmp_path, "train.source", [[4, EOS], [5, 6, 7, EOS], [8, EOS]], types)
    write_ids(tmp_path, "train.target", [[BOS, 10, EOS], [BOS, 11, EOS], [BOS, 12, 13, types - 1, EOS]], types)
    batch = collate(open_pairs(tmp_path, "train"), np.array([2, 1]))
    assert batch.source.tolist() == [[8, EOS, PAD, PAD], [5, 6, 7, EOS]]
    assert batch.target.tolist() == [[BOS, 12, 13, types - 1, EOS], [BOS, 11, EOS, PAD, PAD]]
    assert batch.inputs.tolist() == [[BOS, 12, 13, types - 1], [BOS, 11, EOS, PAD]]
    assert batch.labels.tolist() == [[12, 13, types - 1, EOS], [11, EOS, PAD, PAD]]


def test_ids_stay_on_the_disk(tmp_path: Path) -> None:
    write_ids(tmp_path, "train.source", [[4, 5]], 100)
    ids = open_ids(tmp_path, "train.source")
    assert isinstance(ids.flat, np.memmap)
    assert isinstance(ids.offsets, np.memmap)


@pytest.mark.parametrize(("sources", "targets"), [(2, 1), (0, 0)])
def test_splits_that_do_not_pair_up_are_refused(tmp_path: Path, sources: int, targets: int) -> None:
    write_ids(tmp_path, "train.source", [[4, EOS]] * sources, 100)
    write_ids(tmp_path, "train.target", [[BOS, 4, EOS]] * targets, 100)
    with pytest.raises(ValueError, match=f"split train has {sources} source and {targets} target sentences"):
        open_pairs(tmp_path, "train")


# --- an epoch ---------------------------------------------------------------------------------------------------------


@EITHER
@given(count=st.integers(1, 120), seed=st.integers(0, 5), epoch=st.integers(1, 5))
def test_every_pair_stands_in_one_batch(batches: Batches, count: int, seed: int, epoch: int) -> None:
    pairs = random_pairs(count, seed)
    for found in (epoch_batches(pairs, batches, seed, epoch), ordered_batches(pairs, batches)):
        assert all(len(rows) for rows in found)
        assert sorted(np.concatenate(found).tolist()) == list(range(count))


@EITHER
def test_seed_and_epoch_decide_the_order(batches: Batches) -> None:
    pairs = random_pairs(100)
    first = as_lists(epoch_batches(pairs, batches, 1, 1))
    np.random.seed(5)  # whatever else is random has no say
    assert as_lists(epoch_batches(random_pairs(100), batches, 1, 1)) == first
    for seed, epoch in ((1, 2), (2, 1)):
        other = as_lists(epoch_batches(pairs, batches, seed, epoch))
        assert other != first
        assert sorted(map(sorted, other)) != sorted(map(sorted, first)), "other pairs meet in a batch"


@given(count=st.integers(1, 120), seed=st.integers(0, 5))
def test_token_batches_are_full_and_no_fuller(count: int, seed: int) -> None:
    """Padded tokens are counted on the longer side; a batch ends where the next pair would not fit."""
    pairs = random_pairs(count, seed)
    sizes = padded_length(pairs)
    in_order = sorted(epoch_batches(pairs, TOKENS, seed, 1), key=lambda rows: longest(pairs, rows))
    for found in (in_order, ordered_batches(pairs, TOKENS)):
        for rows in found:
            batch = collate(pairs, rows)
            assert max(batch.source.numel(), batch.inputs.numel()) <= 60
            assert max(batch.source.shape[1], batch.inputs.shape[1]) == sizes[rows].max()
    ordered = ordered_batches(pairs, TOKENS)
    for rows, following in pairwise(ordered):
        assert (len(rows) + 1) * max(sizes[rows].max(), sizes[following[0]]) > 60


def longest(pairs: Pairs, rows: np.ndarray) -> tuple[int, int]:
    """Return the lengths (target, source) of the last pair of a batch in the order of lengths."""
    return max(zip(pairs.target.lengths[rows].tolist(), pairs.source.lengths[rows].tolist(), strict=True))


def test_token_batches_hold_pairs_of_like_length_in_random_order() -> None:
    pairs = random_pairs(300)
    found = [pairs.target.lengths[rows] for rows in epoch_batches(pairs, TOKENS, 1, 1)]
    assert max(lengths.max() - lengths.min() for lengths in found) <= 3
    means = [lengths.mean() for lengths in found]
    assert means != sorted(means)


def test_sentence_batches_are_sorted_inside_shuffled_pools() -> None:
    """100 pairs: pools of 3 batches of 7, the last pool 16 pairs; inside a pool by (target, source) length."""
    pairs = random_pairs(100)
    keys = list(zip(pairs.target.lengths.tolist(), pairs.source.lengths.tolist(), strict=True))
    found = as_lists(epoch_batches(pairs, SENTENCES, 1, 1))
    assert sorted(map(len, found)) == [2] + [7] * 14
    pools = [found[i : i + 3] for i in range(0, len(found), 3)]
    assert [sum(map(len, pool)) for pool in pools] == [21, 21, 21, 21, 16]
    orders = []
    for pool in pools:
        ascending = sorted(pool, key=lambda rows: [keys[row] for row in rows])
        lengths = [keys[row] for rows in ascending for row in rows]
        assert lengths == sorted(lengths)
        orders.append([ascending.index(rows) for rows in pool])
    assert len(set(map(tuple, orders))) > 1, "the batches of a pool are shuffled"
    assert sorted(row for rows in pools[0] for row in rows) != list(range(21)), "so are the pairs before"


@EITHER
def test_evaluation_goes_by_length_and_never_changes(batches: Batches) -> None:
    pairs = random_pairs(100)
    rows = np.concatenate(ordered_batches(pairs, batches))
    keys = list(zip(pairs.target.lengths[rows], pairs.source.lengths[rows], rows, strict=True))
    assert keys == sorted(keys), "equal lengths keep the order of the file"


def test_a_pair_that_fits_into_no_batch_is_refused() -> None:
    pairs = Pairs(ids_of([[4] * 61, [4]]), ids_of([[BOS, EOS], [BOS, EOS]]))
    for function in (ordered_batches, lambda pairs, batches: epoch_batches(pairs, batches, 1, 1)):
        with pytest.raises(ValueError, match=r"a pair of 61 tokens does not fit into batches\.max_tokens 60"):
            function(pairs, TOKENS)
    fits = Pairs(ids_of([[4] * 60, [4]]), ids_of([[BOS] * 61, [BOS, EOS]]))
    assert len(epoch_batches(fits, TOKENS, 1, 1)) == 2
