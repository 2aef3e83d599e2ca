"""The decode stage: translate every test split and write hypotheses and references as plain text.

Per split: `hyp.txt` and `ref.txt` are running text; `hyp.lc-tok.txt` and `ref.lc-tok.txt` are the same through the
official chain (lower-case, normalise, tokenise, escape), so that sacreBLEU's own command can score either.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from bleuprint.batching import Ids, open_ids, pad
from bleuprint.checkpoint import load_into, load_weights
from bleuprint.corpus import read_lines, read_pairs
from bleuprint.device import find_device
from bleuprint.files import atomic_directory
from bleuprint.models import build_model
from bleuprint.params import Corpus, Decode, Machine, ModelSpec, Splits
from bleuprint.search import Model, search
from bleuprint.tokenizers import BOS, EOS, Learned, Side, load_tokenizer, official_chain

logger = logging.getLogger(__name__)
LOG_EVERY_SECONDS = 10.0


def decode_run(
    corpus_dir: Path,
    raw: Path,
    weights: Path,
    model_params: ModelSpec,
    decode: Decode,
    corpus: Corpus,
    splits: Splits,
    machine: Machine,
    out: Path,
) -> None:
    """Translate the test splits with `weights` and write `out`, whole or not at all.

    ValueError where the weights do not fit the model, the corpus and the raw text differ in lines, or a sentence is
    longer than the model can read or write.
    """
    torch.set_num_threads(machine.threads)
    tokenizer = load_tokenizer(corpus_dir)
    model = load_model(weights, model_params, tokenizer.vocabulary).to(find_device(machine))
    with atomic_directory(out) as directory:
        for split in splits.tests:
            references = read_pairs(raw, split, corpus.source, corpus.target)[1]
            sources = open_ids(corpus_dir, f"{split}.source")
            check_counts(split, {str(corpus_dir): len(sources.lengths), str(raw): len(references)})
            hypotheses = translate(model, sources, decode, split)
            texts = [one_line(tokenizer.decode(ids)) for ids in hypotheses]
            files = {
                "hyp": texts,
                "hyp.lc-tok": official_hypotheses(tokenizer, hypotheses, texts),
                "ref": references,
                "ref.lc-tok": official_references(raw, split, corpus.target, references),
            }
            for name, lines in files.items():
                write_lines(directory / f"{split}.{name}.txt", lines)


# --- model ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def load_model(weights: Path, model_params: ModelSpec, vocabulary: Mapping[Side, int]) -> nn.Module:
    """Return the model with its weights, for inference; ValueError where they do not fit."""
    model = build_model(model_params, vocabulary["source"], vocabulary["target"])
    load_into(model, load_weights(weights), weights)
    return model.eval()


# --- translation ------------------------------------------------------------------------------------------------------


def translate(model: nn.Module, sources: Ids, decode: Decode, split: str) -> list[tuple[int, ...]]:
    """Return the best target ids, without marks, of each source sentence, in the order of `sources`.

    A sentence without words has an empty translation and is not shown to the model. ValueError names the split.
    """
    decoder, device = cast("Model[Any]", model), next(model.parameters()).device
    hypotheses: list[tuple[int, ...]] = [()] * len(sources.lengths)
    lengths = {row: length for row, length in enumerate(sources.lengths.tolist()) if has_words(sources, row)}
    with show_progress(split, len(lengths)) as advance:
        for rows in plan_batches(lengths, decode.beam, decode.max_batch_tokens):
            batch = pad(sources, np.array(rows)).to(device)
            try:
                results = search(decoder, batch, decode.beam, decode.length_penalty, decode.max_extra_tokens, n_best=1)
            except ValueError as error:
                raise ValueError(f"{split}, among line {rows[0] + 1} and others of its length: {error}") from error
            for row, [best] in zip(rows, results, strict=True):
                hypotheses[row] = best.tokens
            advance(len(rows))
    return hypotheses


def has_words(sources: Ids, row: int) -> bool:
    """Return whether a sentence is more than its marks."""
    ids = sources.flat[sources.offsets[row] : sources.offsets[row + 1]]
    return not np.isin(ids, (BOS, EOS)).all()


def plan_batches(lengths: Mapping[int, int], beam: int, max_batch_tokens: int) -> list[list[int]]:
    """Return the rows in batches whose padded source tokens x beam stay within max_batch_tokens, one row at least.

    `lengths` gives the tokens of each row. Longest first: what does not fit into memory fails at once.
    """
    batches: list[list[int]] = []
    for row in sorted(lengths, key=lambda row: (-lengths[row], row)):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] * beam <= max_batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


@contextmanager
def show_progress(split: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the number of sentences just done: a bar on a terminal, else a log line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress

    console = Console(stderr=True)
    columns = ("decode {task.description}", BarColumn(), "{task.completed}/{task.total} {task.fields[rate]:.1f}/s")
    start = logged = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(split, total=total, rate=0.0)

        def advance(count: int) -> None:
            nonlocal logged
            now = time.monotonic()
            done = bar.tasks[task].completed + count
            bar.update(task, completed=done, rate=done / (now - start))
            if done == total or (not console.is_terminal and now - logged > LOG_EVERY_SECONDS):
                logged = now
                logger.info("decode %s: %d/%d sentences, %.1f sentences/s", split, done, total, done / (now - start))

        yield advance


# --- text -------------------------------------------------------------------------------------------------------------


def official_hypotheses(tokenizer: Learned, hypotheses: Sequence[Sequence[int]], texts: Sequence[str]) -> list[str]:
    """Return the official tokens: the model's own where it writes such, else `texts` through the chain."""
    if tokenizer.target_text == "lc-tok":
        return [one_line(tokenizer.decode_tokens(ids)) for ids in hypotheses]
    return official_chain(texts, tokenizer.target)


def official_references(raw: Path, split: str, language: str, references: Sequence[str]) -> list[str]:
    """Return the official tokens of the references where the data set has them, else the official chain's."""
    path = raw / f"{split}.lc.norm.tok.{language}"
    if not path.exists():
        return official_chain(references, language)
    lines = read_lines(path)
    check_counts(split, {str(path): len(lines), f"{raw / split}.{language}": len(references)})
    return lines


def check_counts(split: str, counts: dict[str, int]) -> None:
    """Raise ValueError where two sources of one split differ in their number of lines."""
    if len(set(counts.values())) > 1:
        found = " and ".join(f"{count} lines in {name}" for name, count in counts.items())
        raise ValueError(f"split {split!r} has {found}; make the corpus again from the same raw text")


def one_line(text: str) -> str:
    """Return text without line breaks, which would shift every later line of the file."""
    return text.replace("\r", " ").replace("\n", " ")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines as UTF-8, each ended by "\\n"."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
