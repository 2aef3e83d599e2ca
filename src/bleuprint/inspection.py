"""What is told of a text before it is tokenized, and of a corpus before it is trained on: counted, and named.

None of it changes a byte of a corpus. What cannot be trained on or scored is refused here, before hours go into it.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bleuprint.cleaning import CONTROL
from bleuprint.lines import iterate_pairs
from bleuprint.params import Batches, Corpus, Splits, TokenBatches
from bleuprint.tokenizers import BOS, EOS, UNK

log = logging.getLogger(__name__)

Pair = tuple[str, str]


# --- text -------------------------------------------------------------------------------------------------------------


def inspect_text(corpus: Corpus, splits: Splits, raw: Path) -> None:
    """Warn of what is odd in a data set: empty sides, control characters, test sentences that stand in train too.

    ValueError where validation has no pair with text on both sides, or a test split no line at all.
    """
    held_out = {
        split: list(iterate_pairs(raw, split, corpus.source, corpus.target)) for split in splits.all[1:]
    }  # they fit into memory; the train split need not
    if not any(has_text(pair) for pair in held_out[splits.validation]):
        raise ValueError(f"{raw}: no pair of split {splits.validation!r} has text on both sides")
    for split in splits.tests:
        if not held_out[split]:
            raise ValueError(f"{raw}: split {split!r} is empty")
        if count := sum(not has_text(pair) for pair in held_out[split]):
            log.warning("%s: %s pairs have an empty side; no line of a test split is dropped", split, f"{count:,}")
    sentences = {source for pairs in held_out.values() for source, _ in pairs if source.strip()}
    repeated: dict[str, set[str]] = {}  # translations in train of those sentences that stand there
    warn_of_control(
        splits.train,
        noting_repeated(iterate_pairs(raw, splits.train, corpus.source, corpus.target), sentences, repeated),
    )
    for split, pairs in held_out.items():
        warn_of_control(split, pairs)
        warn_of_repeated(split, pairs, splits.train, repeated)


def has_text(pair: Pair) -> bool:
    """Return whether both sides are more than white space."""
    return all(line.strip() for line in pair)


def noting_repeated(pairs: Iterable[Pair], sentences: set[str], repeated: dict[str, set[str]]) -> Iterable[Pair]:
    """Yield all pairs; put the translations of those whose source is one of `sentences` into `repeated`."""
    for source, target in pairs:
        if source in sentences:
            repeated.setdefault(source, set()).add(target)
        yield source, target


def warn_of_control(split: str, pairs: Iterable[Pair]) -> None:
    """Log how many pairs hold a control character, a line separator or U+FFFD, and the first of them."""
    found = [
        (number, character)
        for number, pair in enumerate(pairs, 1)
        if (character := next((match[0] for line in pair if (match := CONTROL.search(line))), None))
    ]
    if found:
        number, character = found[0]
        log.warning(
            "%s: %s pairs hold control characters, the first is U+%04X in line %d; `cleaning` drops such of train",
            split,
            f"{len(found):,}",
            ord(character),
            number,
        )


def warn_of_repeated(split: str, pairs: list[Pair], train: str, repeated: Mapping[str, set[str]]) -> None:
    """Log how many source sentences of a split stand in train, and how many with the same translation."""
    sources = [(source, target) for source, target in pairs if source in repeated]
    if sources:
        same = sum(target in repeated[source] for source, target in sources)
        log.warning(
            "%s: %s of %s source sentences stand in %s too, %s with the same translation",
            split,
            f"{len(sources):,}",
            f"{len(pairs):,}",
            train,
            f"{same:,}",
        )


# --- ids --------------------------------------------------------------------------------------------------------------


class Side(NamedTuple):
    """Ids of one side of a split, and where each sentence begins and the last ends."""

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Return the length of each sentence, its marks included."""
        return np.diff(self.offsets)


def read_side(corpus: Path, split: str, side: str) -> Side:
    """Map the ids of one side."""
    return Side(*(np.load(corpus / f"{split}.{side}.{part}.npy", mmap_mode="r") for part in ("ids", "offsets")))


def inspect_ids(corpus: Path, splits: Splits) -> None:
    """Warn of source sentences of validation and tests that hold no word of the vocabulary."""
    for split in splits.all[1:]:
        side = read_side(corpus, split, "source")
        words = count_within(side, ~np.isin(side.ids, (BOS, EOS)))
        known = count_within(side, ~np.isin(side.ids, (BOS, EOS, UNK)))
        if count := int(((words > 0) & (known == 0)).sum()):
            total = f"{len(words):,}"
            log.warning("%s: %s of %s source sentences are unknown words alone", split, f"{count:,}", total)


def count_within(side: Side, marked: np.ndarray) -> np.ndarray:
    """Return how many ids of each sentence are marked."""
    return np.diff(np.concatenate([[0], np.cumsum(marked)])[side.offsets])


def check_lengths(corpus: Path, splits: Splits, max_positions: int, batches: Batches) -> None:
    """Raise ValueError where a model has too few positions for a sentence, or a batch too few tokens for a pair.

    Training and decoding refuse the same, but when they come to it: in the middle of an epoch, or after the last.
    """
    for split in splits.all:
        source, target = (read_side(corpus, split, side).lengths for side in ("source", "target"))
        check_longest(corpus, split, "source", source, "model.max_positions", max_positions)
        if split not in (splits.train, splits.validation):
            continue  # the model never reads the target
        check_longest(corpus, split, "target", target - 1, "model.max_positions", max_positions)
        if isinstance(batches, TokenBatches):
            longer = np.maximum(source, target - 1)
            check_longest(corpus, split, "padded", longer, "train.batches.max_tokens", batches.max_tokens)


def check_longest(corpus: Path, split: str, what: str, lengths: np.ndarray, key: str, limit: int) -> None:
    """Raise ValueError naming the first of the sentences that are longer than a limit, and how many there are."""
    rows = np.flatnonzero(lengths > limit)
    if len(rows):
        raise ValueError(
            f"{corpus}: pair {rows[0] + 1:,} of split {split!r} has {lengths[rows[0]]:,} {what} tokens, more than "
            f"{key} {limit:,}; {len(rows):,} of {len(lengths):,} have; raise it, or let `cleaning` drop such of train"
        )
