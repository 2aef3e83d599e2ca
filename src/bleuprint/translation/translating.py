"""Translate text with a trained run: raw lines in, running text out, through the same chain as its corpus.

An engine is a function of sentences as ids, without marks, that returns the hypotheses of each; there are two, torch
here and CTranslate2 in exported.py. The search is that of the stage decode, with the same batches for the same lines.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

import numpy as np
import torch
from torch import nn

from bleuprint.batching import Ids, pad
from bleuprint.corpus import lines_of
from bleuprint.decoding import device_of, one_line, plan_batches, spec_of, tokens_held
from bleuprint.files import write_atomically
from bleuprint.lines import decode as decode_line
from bleuprint.models.uncached import is_uncached
from bleuprint.params import Decode
from bleuprint.search import Hypothesis, Model, search
from bleuprint.segmentation import segment_lines
from bleuprint.tokenizers import Learned, Marks
from bleuprint.tokenizing import mark

# Read at once, and cut into batches together: every test set as a whole, as `decode` does, so that all rounding is its.
LINES_AT_ONCE = 10_000
MARKS = 2  # at most, around the source

Engine = Callable[[Sequence[Sequence[int]]], list[list[Hypothesis]]]


class Translation(NamedTuple):
    """Running text, and the sum of its log-probabilities over the length penalty."""

    text: str
    score: float


class Translator(NamedTuple):
    """A run that translates; `most_tokens` is the longest sentence that its table of positions has room for."""

    run: str
    tokenizer: Learned
    engine: Engine
    most_tokens: int


class Form(NamedTuple):
    """How translations are written: all of a sentence in the form of Moses, or the best one, with its score or not."""

    n_best: int
    scores: bool


# --- engines ----------------------------------------------------------------------------------------------------------


def most_tokens_of(max_positions: int, decode: Decode) -> int:
    """Return how many tokens a source sentence may have: search.py may write so many more, behind BOS."""
    return max_positions - max(decode.max_extra_tokens + 1, MARKS)


def torch_engine(model: nn.Module, decode: Decode, marks: Marks, n_best: int) -> Engine:
    """Return the project's own search as an engine. Batches and rounding are those of decoding.translate."""
    decoder, device, uncached = cast("Model[Any]", model), device_of(model), is_uncached(spec_of(model))

    def translate(sentences: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        sources = ids_of(mark(map(list, sentences), marks))
        lengths = sources.lengths.tolist()
        sizes = {row: tokens_held(length, decode.max_extra_tokens, uncached) for row, length in enumerate(lengths)}
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        for rows in plan_batches(sizes, decode.beam, decode.max_batch_tokens, mixed=not uncached):
            batch = pad(sources, np.array(rows)).to(device)
            results = search(decoder, batch, decode.beam, decode.length_penalty, decode.max_extra_tokens, n_best)
            for row, hypotheses in zip(rows, results, strict=True):
                found[row] = hypotheses
        return found

    return translate


def ids_of(sentences: Sequence[Sequence[int]]) -> Ids:
    """Return sentences laid end to end."""
    flat = np.array([i for ids in sentences for i in ids], dtype=np.int64)
    return Ids(flat, np.cumsum([0, *map(len, sentences)]))


def with_beam(decode: Decode, beam: int | None, n_best: int) -> Decode:
    """Return the settings of a search, with another beam where one is given; ValueError where it is too narrow."""
    if beam is not None:
        decode = decode.model_copy(update={"search": "beam" if beam > 1 else "greedy", "beam": beam})
    if n_best > decode.beam:
        raise ValueError(f"--nbest {n_best} needs a beam as wide, and it is {decode.beam}: add --beam {n_best}")
    return decode


# --- sentences --------------------------------------------------------------------------------------------------------


def translate_lines(
    translator: Translator, lines: Sequence[str], label: str, first: int = 1
) -> list[list[Translation]]:
    """Return the translations of each line, best first, one at least; a line without words has an empty one.

    ValueError names the line, counted from `first` on, that is longer than the model can read.
    """
    tokenizer = translator.tokenizer
    # BPE has no settings of its own for splitting: what was learnt names them.
    words = segment_lines(cast("Any", tokenizer), lines, tokenizer.source)
    sentences = tokenizer.encode_words("source", words)
    for number, ids in enumerate(sentences, first):
        if len(ids) > translator.most_tokens:
            raise ValueError(
                f"{label}, line {number} has {len(ids):,} tokens, and {translator.run} has positions for "
                f"{translator.most_tokens:,} at most: split it into sentences"
            )
    rows = [row for row, ids in enumerate(sentences) if ids]
    found = [[Translation("", 0.0)] for _ in sentences]
    for row, hypotheses in zip(rows, translator.engine([sentences[row] for row in rows]) if rows else [], strict=True):
        found[row] = [Translation(one_line(tokenizer.decode(it.tokens)), it.score) for it in hypotheses]
    return found


def written(translations: Iterable[Sequence[Translation]], form: Form, first: int = 1) -> Iterator[str]:
    """Yield lines of output: `text`, `score TAB text`, or Moses' `sentence ||| text ||| score` from sentence 0."""
    for number, found in enumerate(translations, first - 1):
        for text, score in found[: form.n_best]:
            if form.n_best > 1:
                yield f"{number} ||| {text} ||| {score:.4f}"
            else:
                yield f"{score:.4f}\t{text}" if form.scores else text


def translate_stream(translator: Translator, file: BinaryIO, label: str, form: Form) -> Iterator[str]:
    """Yield lines of output for a file of raw lines, thousands at a time.

    ValueError names the line that is not UTF-8 or too long; what stands before it may have been yielded.
    """
    lines, first = read_sentences(file, label), 1
    while chunk := list(islice(lines, LINES_AT_ONCE)):
        yield from written(translate_lines(translator, chunk, label, first), form, first)
        first += len(chunk)


def read_sentences(file: BinaryIO, label: str) -> Iterator[str]:
    """Yield the lines of a file as the corpus was read: split at "\\n" alone, one CR before it and a BOM dropped."""
    for number, line in enumerate(lines_of(file, label), 1):
        text = decode_line(line.removesuffix(b"\n"), label, number).removesuffix("\r")
        yield text.removeprefix("\ufeff") if number == 1 else text


# --- files and terminals ----------------------------------------------------------------------------------------------


def outputs_of(files: Sequence[Path], out: str | None, run: str, target: str) -> list[Path]:
    """Return where the translation of each file goes: beside it as FILE.RUN.LANGUAGE, so that no reference is lost.

    `out` is a file for one file, unless a folder is there or it ends with a slash; else a folder. ValueError where an
    input is a folder, or an output is an input or stands for two of them.
    """
    for path in files:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name the files in it")
    names = [f"{path.name}.{run}.{target}" for path in files]
    if out is None:
        outputs = [path.with_name(name) for path, name in zip(files, names, strict=True)]
    elif len(files) == 1 and not out.endswith("/") and not Path(out).is_dir():
        outputs = [Path(out)]
    else:
        outputs = [Path(out, name) for name in names]
    for path, output in zip(files, outputs, strict=True):
        if output.resolve() in {file.resolve() for file in files}:
            raise ValueError(f"{output} is what is to be translated: name another file by --out")
        if outputs.count(output) > 1:
            raise ValueError(f"{output} would be written for two files, {path} is one: translate them one by one")
    return outputs


def translate_file(translator: Translator, path: Path, out: Path, form: Form) -> None:
    """Translate a file into another one, which appears whole or not at all. ValueError as `translate_stream`."""

    def write(partial: Path) -> None:
        with path.open("rb") as source, partial.open("w", encoding="utf-8", newline="\n") as target:
            target.writelines(f"{line}\n" for line in translate_stream(translator, source, str(path), form))

    write_atomically(out.resolve(), write)  # a link stays one


def converse(translator: Translator, form: Form, ask: Callable[[str], str], out: TextIO) -> None:
    """Translate line after line until the end of input; what is wrong with one is said, and the next is asked for."""
    while True:
        try:
            line = ask(f"{translator.tokenizer.source}> ")
        except EOFError:
            return
        except UnicodeDecodeError:
            print("that is not UTF-8", file=sys.stderr)
            continue
        try:
            [found] = translate_lines(translator, [line], "that", 1)
        except ValueError as error:
            print(error, file=sys.stderr)
            continue
        for answer in written([found], form):
            print(answer, file=out, flush=True)


@torch.no_grad()
def warm_up(translator: Translator) -> None:
    """Translate a word: spaCy's rules or Moses' are loaded now, and not while the first answer is waited for."""
    translate_lines(translator, ["a"], "warm-up")
