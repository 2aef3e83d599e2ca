"""What the report's page tells of each run: parameters, recipe, hardware, time, commands, hashes, signatures."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ConfigDict
from ruamel.yaml import YAML

from bleuprint.estimates.cost import Machine
from bleuprint.graph import Run
from bleuprint.params import Corpus, Experiment
from bleuprint.reporting.markdown import ABSENT
from bleuprint.reporting.run_tables import SECONDS_PER_HOUR
from bleuprint.reporting.sections import with_interval
from bleuprint.scoring import Result
from bleuprint.strict import NonNegative, Strict

GIGA = 1e9


class Git(Strict):
    """The commit that was scored, and whether the checkout had changes besides; None outside of a checkout."""

    commit: str | None
    dirty: bool | None


class WholeMachine(Machine):
    """A machine with all that a provenance says of it."""

    system: str
    memory_bytes: int


class Speed(Strict):
    """The clock's seconds of a training and its median of source and target tokens a second; None where not logged."""

    model_config = ConfigDict(extra="ignore")

    seconds: NonNegative | None
    tokens_per_second: NonNegative | None


class RunProvenance(Strict):
    """What the page takes from results/{run}.provenance.json."""

    model_config = ConfigDict(extra="ignore")

    git: Git
    machine: WholeMachine
    threads: int
    python: str
    versions: dict[str, str | None]
    training: Speed | None


class Facts(NamedTuple):
    """A run's section of the page: labelled values in groups, its commands, hashes, scores and recipe."""

    run: str
    headline: str
    groups: Mapping[str, Mapping[str, str]]
    commands: tuple[str, ...]
    hashes: Mapping[str, str]
    scores: tuple[tuple[str, ...], ...]  # test set, metric, score with interval, signature
    recipe: str


def facts_of(
    table: str, run: Run, result: Result, recipe: Experiment, corpus: Corpus, provenance: RunProvenance
) -> Facts:
    """Return what the page tells of a run."""
    return Facts(
        run=result.run,
        headline=headline_of(result),
        groups={
            "The run": run_values(run, result, corpus),
            "Its training": training_values(result, provenance.training),
            "Machine (scoring; usually training too)": machine_values(provenance),
        },
        commands=commands_of(table, result),
        hashes=hashes_of(result, provenance.git),
        scores=tuple(
            (test, metric, with_interval(score), score.signature)
            for test, scores in result.test_sets.items()
            for metric, score in scores.items()
        ),
        recipe=as_yaml(recipe.model_dump(mode="json")),
    )


def headline_of(result: Result) -> str:
    """Return "BLEU 40.77 on test_2016_flickr after 7,076 updates", or that it diverged."""
    test, scores = next(iter(result.test_sets.items()))
    diverged = ", where it diverged" if result.stopped == "diverged" else ""
    return f"BLEU {scores['bleu_lc_tok'].score:.2f} on {test} after {result.steps:,} updates{diverged}"


def run_values(run: Run, result: Result, corpus: Corpus) -> dict[str, str]:
    """Return what a run is."""
    others = {"Weights": f"those of {result.trained}"} if result.trained != result.run else {}
    return {
        "Experiment": result.experiment,
        "Seed": str(result.seed),
        **others,
        "Data": f"{run.dataset}, {corpus.source} → {corpus.target}",
        "Corpus": f"{run.corpus} (tokenizer: {corpus.tokenizer.kind})",
        "Model": f"models/{run.model}.py",
        "Parameters": f"{result.parameters:,}",
    }


def training_values(result: Result, speed: Speed | None) -> dict[str, str]:
    """Return how long a training was, in every measure of that."""
    seconds, rate = (speed.seconds, speed.tokens_per_second) if speed else (None, None)
    return {
        "Updates": f"{result.steps:,} in {result.epochs:,} epochs",
        "Ended by": result.stopped,
        "Lowest validation loss": ABSENT
        if result.validation_loss is None
        else f"{result.validation_loss:.3f} nats per target token",
        "Tokens read": f"{result.tokens.source:,} source, {result.tokens.target:,} target",
        "FLOPs": f"{result.flops:.2e}",
        "Time": ABSENT if seconds is None else f"{seconds / SECONDS_PER_HOUR:.2f} hours",
        "Speed": ABSENT if rate is None else f"{rate:,.0f} source and target tokens a second, without padding (median)",
    }


def machine_values(provenance: RunProvenance) -> dict[str, str]:
    """Return hardware and software."""
    machine = provenance.machine
    versions = [f"{name} {version}" for name, version in provenance.versions.items() if version is not None]
    return {
        "CPU": f"{machine.cpu or ABSENT}, {machine.cores or ABSENT} cores",
        "GPUs": ", ".join(machine.gpus or ()) or "none",
        "Memory": f"{machine.memory_bytes / GIGA:.1f} GB in the machine, not what the run took",
        "Threads": str(provenance.threads),
        "System": machine.system,
        "Software": ", ".join((f"Python {provenance.python}", *versions)),
    }


def commands_of(table: str, result: Result) -> tuple[str, ...]:
    """Return the commands that make a run's result: by DVC, by Snakemake, and its own stages one by one."""
    stages = (("train", result.trained), *((stage, result.run) for stage in ("average", "decode", "score")))
    return (
        f"python -m bleuprint use {table}",
        f"dvc repro score@{result.run}",
        f"snakemake --cores 2 results/{result.run}.json",
        "; ".join(f"python -m bleuprint {stage} {run}" for stage, run in stages),
    )


def hashes_of(result: Result, git: Git) -> dict[str, str]:
    """Return the commit and the sha256 of the data's manifests and of every file of code that decided the result."""
    changed = {True: " (with changes)", False: "", None: ""}[git.dirty]
    return {
        "git commit": f"{git.commit or ABSENT}{changed}",
        **{f"data: {name}": digest for name, digest in sorted(result.data.items())},
        **{name: digest for name, digest in sorted(result.code.items())},
    }


def as_yaml(section: Mapping[str, Any]) -> str:
    """Return a section of params.yaml as it would stand there, without comments."""
    yaml, text = YAML(typ="rt"), io.StringIO()
    yaml.dump(section, text)
    return text.getvalue()
