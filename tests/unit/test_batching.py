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
    interleaved_lengths,
    open_ids,
    open_pairs,
    ordered_batches,
    padded_length,
)
from bleuprint.idstore import characters_writer, write_ids
from bleuprint.params import Batches, SentenceBatches, TokenBatches
from bleuprint.tokenizers import BOS, EOS, PAD

TOKENS = TokenBatches(kind="tokens", max_tokens=60, batches_per_step=1)
SENTENCES = SentenceBatches(
    kind="sentences",
    sentences=7,
    pool_batches=3,
    sort_by="tokens",
    shuffle_batches=True,
    drop_last=False,
    validation_sort_by="tokens",
    batches_per_step=1,
)
EITHER = pytest.mark.parametrize("batches", [TOKENS, SENTENCES], ids=["tokens", "sentences"])


def ids_of(sentences: list[list[int]]) -> Ids:
    flat = np.array([token for sentence in sentences for token in sentence], dtype=np.uint16)
    return Ids(flat, np.cumsum([0, *map(len, sentences)]))


def random_pairs(count: int, seed: int = 0) -> Pairs:
    """Return pairs of 1 to 20 source and 2 to 21 target tokens, with source lines of 1 to 40 characters."""
    random = np.random.default_rng(seed)
    sides = [[list(random.integers(4, 99, n)) for n in random.integers(low, low + 20, count)] for low in (1, 2)]
    return Pairs(ids_of(sides[0]), ids_of(sides[1]), random.integers(1, 41, count))


def variant(**changes: object) -> SentenceBatches:
    return SentenceBatches.model_validate(SENTENCES.model_dump() | changes)


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


def pools_of(found: list[np.ndarray]) -> list[np.ndarray]:
    """Return the rows of each pool of three batches, in order."""
    return [np.concatenate(found[i : i + 3]) for i in range(0, len(found), 3)]


def test_batches_that_are_not_shuffled_ascend_within_their_pool() -> None:
    """CLAIMS 2: by the characters of the source line, short batches first; the pairs of a pool are still random."""
    pairs = random_pairs(100)
    assert pairs.source_characters is not None
    batches = variant(sort_by="source_characters", shuffle_batches=False)
    first, second = (pools_of(epoch_batches(pairs, batches, 1, epoch)) for epoch in (1, 2))
    assert [len(pool) for pool in first] == [21, 21, 21, 21, 16]
    for pool in first:
        assert (np.diff(pairs.source_characters[pool]) >= 0).all()
    assert set(first[0].tolist()) != set(second[0].tolist())


def test_shuffled_batches_hold_what_ascending_ones_do() -> None:
    pairs = random_pairs(100)
    ascending, shuffled = (
        as_lists(epoch_batches(pairs, variant(sort_by="source_characters", shuffle_batches=shuffle), 1, 1))
        for shuffle in (False, True)
    )
    assert ascending != shuffled
    for i in range(0, len(ascending), 3):
        assert sorted(ascending[i : i + 3]) == sorted(shuffled[i : i + 3])


def test_unsorted_batches_are_cut_as_the_pairs_are_drawn() -> None:
    """torchtext 0.3.1 to 0.5.0 with BucketIterator's defaults: a train batch is a random one, whatever its lengths."""
    pairs = random_pairs(700)
    lengths = [pairs.target.lengths[rows] for rows in epoch_batches(pairs, variant(sort_by="none"), 1, 1)]
    assert np.mean([batch.std() for batch in lengths]) > 0.8 * pairs.target.lengths.std()
    sorted_ones = [pairs.target.lengths[rows] for rows in epoch_batches(pairs, SENTENCES, 1, 1)]
    assert np.mean([batch.std() for batch in sorted_ones]) < 0.5 * pairs.target.lengths.std()


@pytest.mark.parametrize(("count", "batches"), [(100, 14), (98, 14), (104, 14), (7, 1)])
def test_drop_last_leaves_full_batches_only(count: int, batches: int) -> None:
    found = epoch_batches(random_pairs(count), variant(drop_last=True), 1, 1)
    assert [len(rows) for rows in found] == [7] * batches
    assert len(set(np.concatenate(found).tolist())) == 7 * batches


def test_what_is_dropped_is_the_longest_of_the_last_pool_and_another_in_each_epoch() -> None:
    pairs = random_pairs(100)
    assert pairs.source_characters is not None
    dropped = []
    for epoch in (1, 2):
        orders = [
            np.concatenate(epoch_batches(pairs, variant(sort_by="source_characters", drop_last=drop), 1, epoch))
            for drop in (False, True)
        ]
        dropped.append(set(orders[0].tolist()) - set(orders[1].tolist()))
        longest_kept = pairs.source_characters[orders[1][84:]].max()
        assert len(dropped[-1]) == 2
        assert min(pairs.source_characters[list(dropped[-1])]) >= longest_kept
    assert dropped[0] != dropped[1]


def test_multi30k_has_226_updates_an_epoch() -> None:
    """CLAIMS 2: 29,000 pairs, 128 a batch, what is left over dropped; with it torchtext's 227 (CLAIMS 1a)."""
    ids = Ids(np.full(29_000, 4), np.arange(29_001))
    pairs = Pairs(ids, ids, np.ones(29_000, dtype=np.int32))
    for drop, count in ((True, 226), (False, 227)):
        batches = variant(sentences=128, pool_batches=100, sort_by="source_characters", drop_last=drop)
        assert len(epoch_batches(pairs, batches, 0, 1)) == count


def test_drop_last_of_everything_is_refused() -> None:
    with pytest.raises(ValueError, match=r"6 pairs do not fill a batch of batches\.sentences 7: drop_last"):
        epoch_batches(random_pairs(6), variant(drop_last=True), 1, 1)


def test_character_counts_that_a_corpus_lacks_are_asked_for() -> None:
    pairs = Pairs(ids_of([[4]] * 20), ids_of([[BOS, EOS]] * 20))
    batches = variant(sort_by="source_characters", validation_sort_by="source_characters")
    for function in (ordered_batches, lambda pairs, batches: epoch_batches(pairs, batches, 1, 1)):
        with pytest.raises(ValueError, match="by source_characters: that needs a corpus with the basic tokenizer"):
            function(pairs, batches)
    assert len(epoch_batches(pairs, SENTENCES, 1, 1)) == 3


def test_character_counts_are_read_where_they_are(tmp_path: Path) -> None:
    write_ids(tmp_path, "train.source", [[4], [5]], 100)
    write_ids(tmp_path, "train.target", [[BOS, 4, EOS]] * 2, 100)
    assert open_pairs(tmp_path, "train").source_characters is None
    with characters_writer(tmp_path, "train.source") as append:
        append(np.array([8, 1]))
    found = open_pairs(tmp_path, "train").source_characters
    assert found is not None
    assert found.tolist() == [8, 1]


def marked_pairs(lengths: list[tuple[int, int]], source_marks: int) -> Pairs:
    """Return pairs of so many source and target words, the source with 0, 1 or 2 marks."""
    before, after = ([BOS] if source_marks == 2 else []), ([EOS] if source_marks else [])
    sources = [[*before, *[4] * source, *after] for source, _ in lengths]
    return Pairs(ids_of(sources), ids_of([[BOS, *[5] * target, EOS] for _, target in lengths]))


@pytest.mark.parametrize("source_marks", [0, 1, 2])
def test_torchtexts_key_by_hand(source_marks: int) -> None:
    """Lengths 5 = 101b and 3 = 011b give 10 01 11b = 39. Marks are not counted: they would change the bits."""
    lengths = [(5, 3), (3, 5), (1, 0), (0, 1), (2, 2), (65, 1)]
    key = [0b100111, 0b011011, 0b10, 0b01, 0b1100, 0b10000000000011]
    found = interleaved_lengths(marked_pairs(lengths, source_marks), np.arange(6))
    assert found.tolist() == key
    batches = variant(validation_sort_by="interleaved", sentences=1)
    rows = ordered_batches(marked_pairs(lengths, source_marks), batches)
    assert np.concatenate(rows).tolist() == [3, 2, 4, 1, 0, 5]


def test_torchtexts_key_is_text_as_torchtext_makes_it() -> None:
    """Its own way: sixteen binary digits of each, one from either in turn, read as one number."""
    random = np.random.default_rng(0)
    lengths = [(int(a), int(b)) for a, b in random.integers(0, 300, (200, 2))]

    def key(a: int, b: int) -> int:
        return int("".join(x + y for x, y in zip(f"{a:016b}", f"{b:016b}", strict=True)), 2)

    pairs = marked_pairs(lengths, 2)
    rows = np.array([7, 3, *range(10, 200)])
    assert interleaved_lengths(pairs, rows).tolist() == [key(*lengths[row]) for row in rows]


def test_training_and_validation_may_differ_in_their_order() -> None:
    pairs = random_pairs(100)
    batches = variant(sort_by="none", validation_sort_by="interleaved")
    keys = interleaved_lengths(pairs, np.concatenate(ordered_batches(pairs, batches)))
    assert (np.diff(keys) >= 0).all()
    drawn = interleaved_lengths(pairs, np.concatenate(epoch_batches(pairs, batches, 1, 1)))
    assert (np.diff(drawn) < 0).any()


def test_validation_keeps_what_training_drops() -> None:
    found = ordered_batches(random_pairs(100), variant(drop_last=True))
    assert sorted(np.concatenate(found).tolist()) == list(range(100))


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
