"""The tokenize stage: split a data set into words, learn a tokenizer from its train split, store all splits as ids.

The text is never in memory as a whole. It is read in chunks of pairs; their words lie on the disk, beside what is being
built, until the tokenizer is learnt from how often each occurs; then they are read again and encoded.
"""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bleuprint import idstore
from bleuprint.files import atomic_directory, sha256_of
from bleuprint.learning import learn
from bleuprint.lines import iterate_pairs, pair_files
from bleuprint.params import Corpus, Splits
from bleuprint.segmentation import CHUNK_PAIRS, Words, map_chunks, segment_lines
from bleuprint.tokenizers import BOS, EOS, PAD, UNK, Learned, Marks

log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Some pairs of a split, as lines."""

    split: str
    sources: list[str]
    targets: list[str]


class Segmented(NamedTuple):
    """Those of a chunk that stay, as words; `characters` of each source line; and how many are dropped as empty."""

    split: str
    sources: list[Words]
    targets: list[Words]
    characters: list[int]
    dropped: int


class Counted(NamedTuple):
    """What was found in a text while its words went to the disk: pairs by split, and the words of the train split."""

    pairs: dict[str, int]
    dropped: dict[str, int]
    sources: Counter[str]
    targets: Counter[str]


def build_corpus(corpus: Corpus, splits: Splits, raw: Path, out: Path) -> None:
    """Learn the tokenizer and write data/corpora/{corpus}: tokenizer.json, marked ids of each split, manifest.json.

    Pairs with an empty side are dropped from train and validation, and counted; test splits keep every line. ValueError
    names the files or key at fault: unequal line counts, an empty train split, too many merges, an unknown language.
    """
    for split in splits.all:
        pair_files(raw, split, corpus.source, corpus.target)  # that the last one is missing is not found out at the end
    with atomic_directory(out) as directory:
        (words := directory / "words").mkdir()
        counted = segment(corpus, splits, raw, words)
        if not counted.pairs[splits.train]:
            raise ValueError(f"{raw}: no pair of split {splits.train!r} has text on both sides")
        tokenizer = learn(corpus, counted.sources, counted.targets)
        write_json(directory / "tokenizer.json", tokenizer.model_dump(mode="json"))
        for split in splits.all:
            encode(corpus, tokenizer, words / split, directory, split)
        shutil.rmtree(words)
        manifest = {
            "pairs": counted.pairs,
            "dropped": {split: {"empty": count} for split, count in counted.dropped.items()},
            "vocabulary": tokenizer.vocabulary,
            "special_ids": {"unk": UNK, "pad": PAD, "bos": BOS, "eos": EOS},
            "files": {path.name: sha256_of(path) for path in sorted(directory.iterdir())},
        }
        write_json(directory / "manifest.json", manifest)


# --- words ------------------------------------------------------------------------------------------------------------


def segment(corpus: Corpus, splits: Splits, raw: Path, out: Path) -> Counted:
    """Write the words of every split into files below `out`, one chunk a line, and count them."""
    zeros = dict.fromkeys(splits.all, 0)
    found = Counted(dict(zeros), dict(zeros), Counter(), Counter())
    chunks = chain.from_iterable(read_chunks(corpus, raw, split) for split in splits.all)
    for split in splits.all:
        (out / split).touch()
    for chunk in map_chunks(corpus.tokenizer, partial(segment_chunk, corpus, splits), chunks):
        with (out / chunk.split).open("a", encoding="utf-8") as file:
            file.write(json.dumps([chunk.sources, chunk.targets, chunk.characters], ensure_ascii=False) + "\n")
        found.pairs[chunk.split] += len(chunk.sources)
        found.dropped[chunk.split] += chunk.dropped
        if chunk.split == splits.train:
            found.sources.update(chain.from_iterable(chunk.sources))
            found.targets.update(chain.from_iterable(chunk.targets))
    for split, count in found.pairs.items():
        log.info("%s: %s pairs, %d dropped as empty", split, f"{count:,}", found.dropped[split])
    return found


def read_chunks(corpus: Corpus, raw: Path, split: str) -> Iterator[Chunk]:
    """Yield the pairs of a split, some at a time."""
    pairs = iterate_pairs(raw, split, corpus.source, corpus.target)
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        yield Chunk(split, [source for source, _ in chunk], [target for _, target in chunk])


def segment_chunk(corpus: Corpus, splits: Splits, chunk: Chunk) -> Segmented:
    """Split a chunk into words; a pair without any on one side stays in a test split alone."""
    sources = segment_lines(corpus.tokenizer, chunk.sources, corpus.source)
    targets = segment_lines(corpus.tokenizer, chunk.targets, corpus.target)
    rows = [
        row for row, pair in enumerate(zip(sources, targets, strict=True)) if all(pair) or chunk.split in splits.tests
    ]
    return Segmented(
        chunk.split,
        [sources[row] for row in rows],
        [targets[row] for row in rows],
        [len(chunk.sources[row]) for row in rows],
        len(sources) - len(rows),
    )


# --- ids --------------------------------------------------------------------------------------------------------------


def encode(corpus: Corpus, tokenizer: Learned, words: Path, directory: Path, split: str) -> None:
    """Write the marked ids of both sides of a split and, where the corpus has them, the lengths of its source lines."""
    types = tokenizer.vocabulary
    with ExitStack() as stack:
        write_source = stack.enter_context(idstore.writer(directory, f"{split}.source", types["source"]))
        write_target = stack.enter_context(idstore.writer(directory, f"{split}.target", types["target"]))
        store = idstore.characters_writer(directory, f"{split}.source") if corpus.stores_characters else None
        write_characters = stack.enter_context(store) if store else None
        for line in stack.enter_context(words.open(encoding="utf-8")):
            sources, targets, characters = json.loads(line)
            write_source(mark(tokenizer.encode_words("source", sources), corpus.source_marks))
            write_target(mark(tokenizer.encode_words("target", targets), "both"))
            if write_characters:
                write_characters(np.array(characters))


def mark(sequences: Iterable[list[int]], marks: Marks) -> list[list[int]]:
    """Return each sequence between BOS and EOS, before EOS, or as it is."""
    begin, end = {"both": ([BOS], [EOS]), "end": ([], [EOS]), "none": ([], [])}[marks]
    return [begin + ids + end for ids in sequences]


def write_json(path: Path, data: dict) -> None:
    """Write readable JSON whose bytes depend on nothing but `data`."""
    path.write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
