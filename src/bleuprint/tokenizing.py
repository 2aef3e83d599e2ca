"""The tokenize stage: split a data set into words, learn a tokenizer from its train split, store all splits as ids.

The text is never in memory as a whole. It is read in chunks of pairs; their words lie on the disk, beside what is being
built, until the tokenizer is learnt from how often each occurs; then they are read again and encoded.
"""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bleuprint import idstore
from bleuprint.cleaning import Fault, fault_in_lines, fault_in_words, faults_looked_for, has_many_tokens
from bleuprint.files import atomic_directory, sha256_of
from bleuprint.learning import learn
from bleuprint.lines import iterate_pairs, pair_files
from bleuprint.params import Cleaning, Corpus, Splits
from bleuprint.segmentation import CHUNK_PAIRS, Words, map_chunks, segment_lines
from bleuprint.tokenizers import BOS, EOS, PAD, UNK, Learned, Marks

log = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Some pairs of a split, as lines."""

    split: str
    sources: list[str]
    targets: list[str]


class Segmented(NamedTuple):
    """Those of a chunk that stay, as words; `characters` of each source line; and the faults of the others."""

    split: str
    sources: list[Words]
    targets: list[Words]
    characters: list[int]
    faults: list[Fault]


class Counted(NamedTuple):
    """What was found in a text while its words went to the disk: dropped pairs by split, words of the train split."""

    dropped: dict[str, Counter[Fault]]
    sources: Counter[str]
    targets: Counter[str]


def build_corpus(corpus: Corpus, splits: Splits, raw: Path, out: Path) -> None:
    """Learn the tokenizer and write data/corpora/{corpus}: tokenizer.json, marked ids of each split, manifest.json.

    Pairs with an empty side are dropped from train and validation, those that cleaning finds fault with from train, and
    all are counted; test splits keep every line. ValueError names the files or key at fault: unequal line counts, an
    empty train split, too many merges, an unknown language.
    """
    for split in splits.all:
        pair_files(raw, split, corpus.source, corpus.target)  # that the last one is missing is not found out at the end
    with atomic_directory(out) as directory:
        (words := directory / "words").mkdir()
        counted = segment(corpus, splits, raw, words)
        if not counted.sources:
            raise ValueError(f"{raw}: no pair of split {splits.train!r} has text on both sides and is clean")
        tokenizer = learn(corpus, counted.sources, counted.targets)
        write_json(directory / "tokenizer.json", tokenizer.model_dump(mode="json"))
        pairs, dropped = {}, {}
        for split in splits.all:
            cleaning = cleaning_of(corpus, splits, split)
            pairs[split], many_tokens = encode(corpus, cleaning, tokenizer, words / split, directory, split)
            found = counted.dropped[split] + Counter[Fault](many_tokens=many_tokens)
            dropped[split] = {fault: found[fault] for fault in faults_looked_for(cleaning)}
            log.info("%s: %s pairs, %s", split, f"{pairs[split]:,}", summary(dropped[split]))
        shutil.rmtree(words)
        manifest = {
            "pairs": pairs,
            "dropped": dropped,
            "vocabulary": tokenizer.vocabulary,
            "special_ids": {"unk": UNK, "pad": PAD, "bos": BOS, "eos": EOS},
            "files": {path.name: sha256_of(path) for path in sorted(directory.iterdir())},
        }
        write_json(directory / "manifest.json", manifest)


def cleaning_of(corpus: Corpus, splits: Splits, split: str) -> Cleaning | None:
    """Return what is dropped from a split: pairs for learning are cleaned, those for judging stay."""
    return corpus.cleaning if split == splits.train else None


def summary(dropped: Mapping[Fault, int]) -> str:
    """Return how many pairs are dropped, and for what."""
    faults = ", ".join(f"{count:,} {fault.replace('_', ' ')}" for fault, count in dropped.items() if count)
    return f"{sum(dropped.values()):,} dropped{f': {faults}' if faults else ''}"


# --- words ------------------------------------------------------------------------------------------------------------


def segment(corpus: Corpus, splits: Splits, raw: Path, out: Path) -> Counted:
    """Write the words of every split into files below `out`, one chunk a line, and count them."""
    found = Counted({split: Counter() for split in splits.all}, Counter(), Counter())
    chunks = chain.from_iterable(read_chunks(corpus, raw, split) for split in splits.all)
    for split in splits.all:
        (out / split).touch()
    for chunk in map_chunks(corpus.tokenizer, partial(segment_chunk, corpus, splits), chunks):
        with (out / chunk.split).open("a", encoding="utf-8") as file:
            file.write(json.dumps([chunk.sources, chunk.targets, chunk.characters], ensure_ascii=False) + "\n")
        found.dropped[chunk.split].update(chunk.faults)
        if chunk.split == splits.train:
            found.sources.update(chain.from_iterable(chunk.sources))
            found.targets.update(chain.from_iterable(chunk.targets))
    return found


def read_chunks(corpus: Corpus, raw: Path, split: str) -> Iterator[Chunk]:
    """Yield the pairs of a split, some at a time."""
    pairs = iterate_pairs(raw, split, corpus.source, corpus.target)
    while chunk := list(islice(pairs, CHUNK_PAIRS)):
        yield Chunk(split, [source for source, _ in chunk], [target for _, target in chunk])


def segment_chunk(corpus: Corpus, splits: Splits, chunk: Chunk) -> Segmented:
    """Split a chunk into words and leave out what is not to stay; of a test split everything stays."""
    cleaning, faults = cleaning_of(corpus, splits, chunk.split), list[Fault]()
    lines = []
    for pair in zip(chunk.sources, chunk.targets, strict=True):
        if cleaning and (fault := fault_in_lines(cleaning, pair)):
            faults.append(fault)
        else:
            lines.append(pair)
    sources = segment_lines(corpus.tokenizer, [source for source, _ in lines], corpus.source)
    targets = segment_lines(corpus.tokenizer, [target for _, target in lines], corpus.target)
    kept = Segmented(chunk.split, [], [], [], faults)
    for (line, _), source, target in zip(lines, sources, targets, strict=True):
        if not (source and target) and chunk.split not in splits.tests:
            faults.append("empty")
        elif cleaning and (fault := fault_in_words(cleaning, (source, target))):
            faults.append(fault)
        else:
            kept.sources.append(source)
            kept.targets.append(target)
            kept.characters.append(len(line))
    return kept


# --- ids --------------------------------------------------------------------------------------------------------------


def encode(
    corpus: Corpus, cleaning: Cleaning | None, tokenizer: Learned, words: Path, directory: Path, split: str
) -> tuple[int, int]:
    """Write the marked ids of both sides of a split and, where the corpus has them, the lengths of its source lines.

    Return how many pairs there are, and how many were dropped because they have too many tokens.
    """
    types, pairs, dropped = tokenizer.vocabulary, 0, 0
    with ExitStack() as stack:
        write_source = stack.enter_context(idstore.writer(directory, f"{split}.source", types["source"]))
        write_target = stack.enter_context(idstore.writer(directory, f"{split}.target", types["target"]))
        store = idstore.characters_writer(directory, f"{split}.source") if corpus.stores_characters else None
        write_characters = stack.enter_context(store) if store else None
        for line in stack.enter_context(words.open(encoding="utf-8")):
            sources, targets, characters = json.loads(line)
            ids = tokenizer.encode_words("source", sources), tokenizer.encode_words("target", targets)
            encoded = zip(*ids, characters, strict=True)
            kept = [row for row in encoded if not (cleaning and has_many_tokens(cleaning, row[:2]))]
            write_source(mark((source for source, *_ in kept), corpus.source_marks))
            write_target(mark((target for _, target, _ in kept), "both"))
            if write_characters:
                write_characters(np.array([length for *_, length in kept]))
            pairs, dropped = pairs + len(kept), dropped + len(sources) - len(kept)
    return pairs, dropped


def mark(sequences: Iterable[list[int]], marks: Marks) -> list[list[int]]:
    """Return each sequence between BOS and EOS, before EOS, or as it is."""
    begin, end = {"both": ([BOS], [EOS]), "end": ([], [EOS]), "none": ([], [])}[marks]
    return [begin + ids + end for ids in sequences]


def write_json(path: Path, data: dict) -> None:
    """Write readable JSON whose bytes depend on nothing but `data`."""
    path.write_text(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
