"""results/{run}/: the texts that a result was counted from, without the references, and the history of its training.

Multi30K's own text may not be committed; what a system wrote may. With the data set at hand the references are made
again, and everything of results/{run}.json that is a score can be counted again: `bleuprint verify` does so.

    {test}.hyp.txt, {test}.hyp.lc-tok.txt         as decoding wrote them
    {validation}.forced.txt, .forced.{step}.txt   as decoding wrote them
    {validation}.forced-rows.txt                  which pair of the corpus each line of these is of, from 0 on: they
                                                  stand in the order of batches, and legacy_score goes by it
    history.csv                                   losses by epoch: what claims of losses and of curves are judged by
"""

import shutil
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bleuprint.files import atomic_directory
from bleuprint.lines import read_lines, read_pairs
from bleuprint.params import Corpus, Splits
from bleuprint.tokenizers import load_tokenizer, official_chain

HISTORY = "history.csv"


# --- to results/ ------------------------------------------------------------------------------------------------------


def keep_texts(decode_dir: Path, history: Path, corpus_dir: Path, splits: Splits, out: Path) -> None:
    """Write results/{run} (`out`), whole or not at all, from what decoding and training left.

    ValueError where a text is missing or was not decoded from the corpus.
    """
    tests = [decode_dir / f"{test}.hyp{suffix}" for test in splits.tests for suffix in (".txt", ".lc-tok.txt")]
    validation = splits.validation
    forced = [decode_dir / f"{validation}.forced.txt", *sorted(decode_dir.glob(f"{validation}.forced.*.txt"))]
    references = decode_dir / f"{validation}.forced-ref.txt"
    for path in (*tests, *forced, references):
        if not path.is_file():
            raise ValueError(f"{path} is missing: decode the run first")
    if not history.is_file():
        raise ValueError(f"{history} is missing: train the run first")
    rows = rows_of(read_lines(references), forced_references(corpus_dir, validation))
    if rows is None:
        raise ValueError(f"{references} does not have the pairs of {corpus_dir}: decode the run again")
    with atomic_directory(out) as directory:
        for path in (*tests, *forced):
            shutil.copyfile(path, directory / path.name)
        shutil.copyfile(history, directory / HISTORY)
        write_lines(directory / f"{validation}.forced-rows.txt", list(map(str, rows)))


def rows_of(lines: Sequence[str], pairs: Sequence[str]) -> list[int] | None:
    """Return which of `pairs` each line is, every pair once; None where lines and pairs are not the same.

    Pairs with the same words stand in their order: which of them a line is makes no difference to its score.
    """
    waiting = defaultdict[str, list[int]](list)
    for row in reversed(range(len(pairs))):
        waiting[pairs[row]].append(row)
    rows = [waiting[line].pop() for line in lines if waiting[line]]
    return rows if len(rows) == len(lines) == len(pairs) else None


# --- and back ---------------------------------------------------------------------------------------------------------


def rebuild_decoded(kept: Path, raw: Path, corpus_dir: Path, corpus: Corpus, splits: Splits, out: Path) -> None:
    """Write runs/{run}/decode (`out`) again, byte by byte, from results/{run} (`kept`) and the data.

    ValueError where a text is missing, or has other lines than the data.
    """
    validation = splits.validation
    row_file = kept / f"{validation}.forced-rows.txt"
    words = forced_references(corpus_dir, validation)
    with atomic_directory(out) as directory:
        for path in hypothesis_files(kept, splits):
            shutil.copyfile(path, directory / path.name)
        for test in splits.tests:
            for suffix, lines in references_of(raw, test, corpus).items():
                write_lines(directory / f"{test}.ref.{suffix}", lines)
        rows = read_lines(row_file)
        if sorted(rows) != sorted(map(str, range(len(words)))):
            raise ValueError(f"{row_file} does not have the {len(words)} pairs of {corpus_dir}, each once")
        write_lines(directory / f"{validation}.forced-ref.txt", [words[int(row)] for row in rows])


def hypothesis_files(kept: Path, splits: Splits) -> list[Path]:
    """Return all that a system wrote; ValueError names the file of results/{run} that is missing."""
    tests = [f"{test}.hyp{suffix}" for test in splits.tests for suffix in (".txt", ".lc-tok.txt")]
    validation = splits.validation
    for name in (*tests, f"{validation}.forced.txt", f"{validation}.forced-rows.txt", HISTORY):
        if not (kept / name).is_file():
            raise ValueError(f"{kept / name} is missing; it is committed: restore it with: git restore {kept}")
    forced = [path for path in sorted(kept.glob(f"{validation}.forced*.txt")) if "forced-rows" not in path.name]
    return [*(kept / name for name in tests), *forced]


def references_of(raw: Path, test: str, corpus: Corpus) -> dict[str, list[str]]:
    """Return the references of a test set by the end of their file's name, as decoding writes them."""
    lines = read_pairs(raw, test, corpus.source, corpus.target)[1]
    official = raw / f"{test}.lc.norm.tok.{corpus.target}"
    tokens = read_lines(official) if official.exists() else official_chain(lines, corpus.target)
    return {"txt": lines, "lc-tok.txt": tokens}


def forced_references(corpus_dir: Path, split: str) -> list[str]:
    """Return the words of the references of a split, in the corpus's order, as decoding writes those of validation."""
    import numpy as np

    tokenizer = load_tokenizer(corpus_dir)
    ids, offsets = (np.load(corpus_dir / f"{split}.target.{part}.npy").tolist() for part in ("ids", "offsets"))
    words = (tokenizer.decode_tokens(ids[start:end]) for start, end in pairwise(offsets))
    return [line.replace("\r", " ").replace("\n", " ") for line in words]


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines as UTF-8, each ended by "\\n"."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
