"""Scores of a decoded run, and results/{run}.json: the contract between what computes and what reads.

The metrics of the test splits are metrics.py's. The legacy score stands apart: it is not BLEU, and it is measured on
the validation split.
"""

import csv
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, model_validator

from bleuprint.files import write_text
from bleuprint.graph import Run
from bleuprint.legacy_score import legacy_score
from bleuprint.lines import read_lines
from bleuprint.metrics import (
    DECIMALS,
    METRICS,
    MetricName,
    Score,
    build_metric,
    metrics_of,
    score_corpus,
    text_of,
)
from bleuprint.params import Corpus, Scoring, Splits
from bleuprint.provenance import collect, hash_files
from bleuprint.strict import NonNegative, Strict, read_json, validate

Stopped = Literal["max_steps", "patience", "diverged"]  # why a training is over


# --- the contract -----------------------------------------------------------------------------------------------------


class LegacyScore(Strict):
    """What hyunwoongko's README calls BLEU, of words predicted with the reference before each (legacy_score.py).

    `score` is that of the averaged weights; `epochs` of those at the end of each epoch named, where the run has them.
    """

    split: str
    score: float
    epochs: dict[int, float]


class Tokens(Strict):
    """How many tokens a training read in all its updates, without padding."""

    source: int
    target: int


class Ended(Strict):
    """What is true of a training that is over: it has a lowest validation loss, in nats, unless it diverged."""

    steps: int
    epochs: int
    stopped: Stopped
    validation_loss: NonNegative | None
    flops: NonNegative

    @model_validator(mode="after")
    def check_loss(self) -> Self:
        if (self.stopped == "diverged") != (self.validation_loss is None):
            raise ValueError(
                f"stopped is {self.stopped!r} and validation_loss is {self.validation_loss}: "
                "a run that diverged has none, every other run has one"
            )
        return self


class Result(Ended):
    """results/{run}.json. `tokens` were read and `flops` computed, forward and backward, in all updates together.

    `trained` is the run whose weights were averaged: itself, unless its experiment has the `weights` of another. Steps,
    epochs, tokens and FLOPs are those of that training.
    """

    run: str
    experiment: str
    seed: int
    trained: str
    corpus: str
    parameters: int
    tokens: Tokens
    test_sets: dict[str, dict[MetricName, Score]]
    legacy_score: LegacyScore
    data: dict[str, str]
    code: dict[str, str]


class TrainSummary(Ended):
    """What scoring takes from runs/{run}/train/summary.json."""

    model_config = ConfigDict(extra="ignore")  # training may tell more

    source_tokens: int
    target_tokens: int


def read_result(path: Path) -> Result:
    """Return results/{run}.json; ValueError names the file and what is wrong in it."""
    return validate(Result, read_json(path), path)


# --- the stage --------------------------------------------------------------------------------------------------------


def score_run(
    run: str,
    settings: Run,
    corpus: Corpus,
    splits: Splits,
    scoring: Scoring,
    *,
    weights: Path,
    train_summary: Path,
    train_metrics: Path,
    train_history: Path,
    decode_dir: Path,
    data_files: Mapping[str, Path],
    code_files: Mapping[str, Path],
    threads: int,
    out: Path,
    provenance_out: Path,
) -> Result:
    """Score every test set of `run` and write results/{run}.json (`out`) and what differs by machine beside it.

    `data_files` and `code_files` name the files that decided the run's bytes; their sha256 go into the result.
    Raises ValueError on missing, empty or unpaired files of the earlier stages.
    """
    started = datetime.now(UTC)
    summary = validate(TrainSummary, read_json(train_summary), train_summary)
    result = Result(
        run=run,
        experiment=settings.experiment,
        seed=settings.seed,
        trained=settings.trained,
        corpus=settings.corpus,
        parameters=count_parameters(weights),
        steps=summary.steps,
        epochs=summary.epochs,
        stopped=summary.stopped,
        validation_loss=summary.validation_loss,
        tokens=Tokens(source=summary.source_tokens, target=summary.target_tokens),
        flops=summary.flops,
        test_sets={test: score_test_set(decode_dir, test, corpus, scoring) for test in splits.tests},
        legacy_score=score_forced(decode_dir, splits.validation, train_history),
        data=hash_files(data_files),
        code=hash_files(code_files),
    )
    write_json(out, result.model_dump())
    write_json(provenance_out, {"run": run, **collect(started, threads, train_metrics)})
    return result


def score_test_set(decode_dir: Path, test: str, corpus: Corpus, scoring: Scoring) -> dict[MetricName, Score]:
    """Return every metric of one test set that `corpus` has."""
    scores: dict[MetricName, Score] = {}
    for name in metrics_of(corpus):
        decoded = read_decoded(decode_dir, test, METRICS[name].suffix)
        hypotheses, references = (text_of(name, lines) for lines in decoded)
        scores[name] = score_corpus(build_metric(name), hypotheses, references, scoring)
    return scores


def read_decoded(decode_dir: Path, test: str, suffix: str) -> tuple[list[str], list[str]]:
    """Return (hypotheses, references) of a test set, as many of each; ValueError names the file at fault."""
    return read_paired(decode_dir / f"{test}.hyp.{suffix}", decode_dir / f"{test}.ref.{suffix}")


def read_paired(hypothesis_file: Path, reference_file: Path) -> tuple[list[str], list[str]]:
    """Return the lines of both, as many of each and one at least; ValueError names the file at fault."""
    for path in (hypothesis_file, reference_file):
        if not path.is_file():
            raise ValueError(f"{path} is missing: decode the run first")
    hypotheses, references = read_lines(hypothesis_file), read_lines(reference_file)
    if len(hypotheses) != len(references):
        raise ValueError(f"{hypothesis_file} has {len(hypotheses)} lines and {reference_file} has {len(references)}")
    if not references:
        raise ValueError(f"{hypothesis_file} and {reference_file} are empty: there is nothing to score")
    if not any(line.strip() for line in references):
        raise ValueError(f"{reference_file} holds no text: there is nothing to score")
    return hypotheses, references


# --- the legacy score -------------------------------------------------------------------------------------------------


def score_forced(decode_dir: Path, split: str, history: Path) -> LegacyScore:
    """Return the legacy score of {split}.forced.txt and, by epoch, of each {split}.forced.{step}.txt beside it.

    `history` is that of the training; ValueError where it lacks a step or files are misnamed, missing or unpaired.
    """
    steps = {forced_step(path, split): path for path in sorted(decode_dir.glob(f"{split}.forced.*.txt"))}
    epoch_of = read_epochs(history)
    if unknown := [path for step, path in steps.items() if step not in epoch_of]:
        raise ValueError(f"{history} has no epoch that ends where {unknown[0]} was made: decode the run again")
    reference_file = decode_dir / f"{split}.forced-ref.txt"

    def score(path: Path) -> float:
        return round(legacy_score(*read_paired(path, reference_file)), DECIMALS)

    epochs = {epoch_of[step]: score(path) for step, path in steps.items()}
    return LegacyScore(split=split, score=score(decode_dir / f"{split}.forced.txt"), epochs=epochs)


def forced_step(path: Path, split: str) -> int:
    """Return the step of {split}.forced.{step}.txt; ValueError unless it has eight digits."""
    named = re.fullmatch(rf"{re.escape(split)}\.forced\.([0-9]{{8}})\.txt", path.name)
    if named is None:
        raise ValueError(f"{path} is not named {split}.forced., eight digits, .txt: decode the run again")
    return int(named[1])


def read_epochs(history: Path) -> dict[int, int]:
    """Return the epoch that ended with each step of a training's history.csv; ValueError where that is damaged."""
    try:
        with history.open(encoding="utf-8", newline="") as file:
            return {int(row["step"]): int(row["epoch"]) for row in csv.DictReader(file)}
    except FileNotFoundError:
        raise ValueError(f"{history} is missing: train the run first") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise ValueError(f"{history} is damaged: train the run again") from None


# --- files ------------------------------------------------------------------------------------------------------------


def count_parameters(weights: Path) -> int:
    """Return the number of values in a safetensors file from its header, without loading a tensor."""
    from safetensors import SafetensorError, safe_open

    if not weights.is_file():
        raise ValueError(f"{weights} is missing: average the run first")
    try:
        with safe_open(weights, framework="numpy") as tensors:
            names = tensors.keys()
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
    except SafetensorError as error:
        raise ValueError(f"{weights} is not a safetensors file: {error}") from None


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write sorted, indented JSON atomically; the same data give the same bytes."""
    write_text(path, json.dumps(data, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
