"""The decode stage: translate every test split, force the validation split, and write it all as plain text.

Per test split: `hyp.txt` and `ref.txt` are running text; `hyp.lc-tok.txt` and `ref.lc-tok.txt` are the same through the
official chain (lower-case, normalise, tokenise, escape), so that sacreBLEU's own command can score either.

Of the validation split, `forced.txt` and `forced-ref.txt`: words predicted one by one with the reference before each,
which is no translation, and the words of that reference: all that legacy_score looks at.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from bleuprint.batching import Ids, Pairs, collate, open_ids, open_pairs, ordered_batches, pad
from bleuprint.checkpoint import load_into, load_weights
from bleuprint.device import find_device
from bleuprint.files import atomic_directory
from bleuprint.lines import read_lines, read_pairs
from bleuprint.models import build_model
from bleuprint.models.uncached import WholeModel, is_uncached
from bleuprint.params import Batches, Corpus, Decode, HyunwoongkoModel, Machine, ModelSpec, Splits
from bleuprint.search import NEVER, Model, search
from bleuprint.tokenizers import BOS, EOS, PAD, Learned, Side, load_tokenizer, official_chain

logger = logging.getLogger(__name__)
LOG_EVERY_SECONDS = 10.0


def decode_run(
    corpus_dir: Path,
    raw: Path,
    weights: Path,
    epoch_weights: Path,
    model_params: ModelSpec,
    batches: Batches,
    decode: Decode,
    corpus: Corpus,
    splits: Splits,
    machine: Machine,
    out: Path,
) -> None:
    """Translate the test splits and force validation with `weights`; write `out`, whole or not at all.

    `epoch_weights` is the directory of the weights at the ends of epochs; `batches` those of training. ValueError where
    weights do not fit the model or are missing, the corpus and the raw text differ in lines, or a sentence is longer
    than the model can read or write.
    """
    kept = kept_weights(epoch_weights) if decode.forced == "epochs" else []
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
        validation = open_pairs(corpus_dir, splits.validation)
        for name, lines in forced_files(model, kept, validation, batches, tokenizer):
            write_lines(directory / f"{splits.validation}.{name}.txt", lines)


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

    A sentence without words has an empty translation and is not shown to the model; so has one that a diverged model
    gives no finite probability to any translation of. ValueError names the split.
    """
    decoder, device, uncached = cast("Model[Any]", model), device_of(model), is_uncached(spec_of(model))
    hypotheses: list[tuple[int, ...]] = [()] * len(sources.lengths)
    lengths = {row: length for row, length in enumerate(sources.lengths.tolist()) if has_words(sources, row)}
    sizes = {row: tokens_held(length, decode.max_extra_tokens, uncached) for row, length in lengths.items()}
    lost = 0
    with show_progress(split, len(lengths)) as advance:
        for rows in plan_batches(sizes, decode.beam, decode.max_batch_tokens, mixed=not uncached):
            batch = pad(sources, np.array(rows)).to(device)
            try:
                results = search(decoder, batch, decode.beam, decode.length_penalty, decode.max_extra_tokens, n_best=1)
            except ValueError as error:
                raise ValueError(f"{split}, among line {rows[0] + 1} and others of its length: {error}") from error
            for row, [best] in zip(rows, results, strict=True):
                hypotheses[row] = best.tokens
                lost += best.score == NEVER
            advance(len(rows))
    if lost:
        logger.warning("%s: %d sentences have no translation of finite probability: training has diverged", split, lost)
    return hypotheses


def has_words(sources: Ids, row: int) -> bool:
    """Return whether a sentence is more than its marks."""
    ids = sources.flat[sources.offsets[row] : sources.offsets[row + 1]]
    return not np.isin(ids, (BOS, EOS)).all()


def tokens_held(length: int, max_extra_tokens: int, uncached: bool) -> int:
    """Return how many tokens of a sentence a step computes on: its source's, and uncached its longest prefix's."""
    longest_prefix = 1 + length + max_extra_tokens  # BOS and search.py's limit, to which it adds no marks of the source
    return length + longest_prefix if uncached else length


def plan_batches(sizes: Mapping[int, int], beam: int, max_batch_tokens: int, mixed: bool) -> list[list[int]]:
    """Return the rows in batches whose padded tokens x beam stay within max_batch_tokens, one row at least.

    `sizes` gives the tokens of each row; unless `mixed`, those of a batch are all of one size, so that nothing is
    padded. Longest first: what does not fit into memory fails at once.
    """
    batches: list[list[int]] = []
    for row in sorted(sizes, key=lambda row: (-sizes[row], row)):
        size = sizes[batches[-1][0]] if batches else 0
        if batches and (mixed or sizes[row] == size) and (len(batches[-1]) + 1) * size * beam <= max_batch_tokens:
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


# --- teacher forcing --------------------------------------------------------------------------------------------------


def kept_weights(directory: Path) -> list[Path]:
    """Return the weights at the ends of epochs, one file at least, by their updates; best.safetensors is none of them.

    ValueError where there are none, or one that does not tell its updates in eight digits.
    """
    paths = sorted(directory.glob("step-*.safetensors"))
    if not paths:
        raise ValueError(f"{directory} holds no step-*.safetensors to predict validation with; train the run first")
    for path in paths:
        if not re.fullmatch(r"step-[0-9]{8}\.safetensors", path.name):
            raise ValueError(f"{path} is not named step-, eight digits, .safetensors; train the run again")
    return paths


def forced_files(
    model: nn.Module, epoch_weights: Sequence[Path], pairs: Pairs, batches: Batches, tokenizer: Learned
) -> Iterator[tuple[str, list[str]]]:
    """Yield names and lines: the references, what the model as it is predicts, and what it does with other weights.

    `step-00000227.safetensors` gives `forced.00000227`; the model keeps the last of the weights. ValueError as above.
    """
    plan = ordered_batches(pairs, batches)
    references = [ids for rows in plan for ids in collate(pairs, rows).labels.tolist()]
    yield "forced-ref", [forced_line(tokenizer, ids) for ids in references]
    yield "forced", [forced_line(tokenizer, ids) for ids in predict_forced(model, pairs, plan)]
    for path in epoch_weights:
        with torch.no_grad():
            load_into(model, load_weights(path), path)
        lines = [forced_line(tokenizer, ids) for ids in predict_forced(model, pairs, plan)]
        logger.info("validation predicted with %s", path.name)
        yield f"forced.{path.stem.removeprefix('step-')}", lines


@torch.inference_mode()
def predict_forced(model: nn.Module, pairs: Pairs, plan: Sequence[np.ndarray]) -> list[list[int]]:
    """Return for each pair, batch after batch, the likeliest id at each position, given the reference before it.

    The plan is that of validation in training, in its order: published models see the padding of their batch, and
    legacy_score averages over runs of 128 lines. hyunwoongko's evaluate() (CLAIMS 1c) looks at every position of the
    padded batch, so that padding fills up what a sentence lost to `<unk>` or a wrong `<eos>`: its models do so here.
    """
    whole, device, found = cast("WholeModel", model), device_of(model), []
    for rows in plan:
        batch = collate(pairs, rows)
        hidden = whole(batch.source.to(device), batch.inputs.to(device))  # (B, T-1, D)
        predicted = whole.project(hidden).argmax(-1).cpu()  # (B, T-1)
        if not isinstance(spec_of(model), HyunwoongkoModel):
            # DEVIATES: no other model predicts in the padding, nor does `readme`, whose models/transformer.py computes
            # nothing there that the README's code would.
            predicted = predicted.where(batch.labels != PAD, PAD)
        found += predicted.tolist()
    return found


def forced_line(tokenizer: Learned, ids: Sequence[int]) -> str:
    """Return ids as words, without marks. A mark ends a word: BPE does not join the pieces on its two sides.

    Nothing ends at a predicted EOS: evaluate() drops it like any token with "<", and what follows moves up.
    """
    runs = groupby(ids, key=(PAD, BOS, EOS).__contains__)
    return one_line(" ".join(tokenizer.decode_tokens(list(run)) for is_mark, run in runs if not is_mark))


def spec_of(model: nn.Module) -> ModelSpec:
    """Return what the model was built from."""
    return cast("ModelSpec", model.spec)


def device_of(model: nn.Module) -> torch.device:
    """Return where the model computes."""
    return next(model.parameters()).device


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
