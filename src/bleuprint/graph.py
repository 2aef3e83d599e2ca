"""params.yaml as a whole, and the tables: which runs there are, and what each is made from.

Both engines build the graph from the keys `inputs`, `trainings` and `runs`. They follow from the table and the
experiments: `python -m bleuprint use TABLE` writes them, and a file in which they do not follow is refused.
"""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from bleuprint.datasets import Dataset
from bleuprint.mistakes import suggest
from bleuprint.overrides import get_overrides, overridden
from bleuprint.params import AnyExperiment, Corpus, Experiment, Machine, Reuse, Scoring, check_kept
from bleuprint.strict import Key, Name, Seed, Strict, choose, read_yaml, validate

PARAMS_FILE = Path("params.yaml")
TABLES_DIR = Path("workflow/tables")


class Training(Strict):
    """One experiment with one seed; the last three repeat what the experiment says, where dvc.yaml can reach it."""

    experiment: Key
    seed: Seed
    dataset: Key
    corpus: Key
    model: Key


class Run(Training):
    """`recipe` is the experiment whose corpus, model and train hold, `trained` the run whose weights these are.

    They are its own experiment and itself, unless that has the `weights` of another one.
    """

    recipe: Key
    trained: Key


class InputDataset(Strict):
    module: Name


class InputCorpus(Strict):
    dataset: Key


class Inputs(Strict):
    datasets: dict[Key, InputDataset]
    corpora: dict[Key, InputCorpus]


class Comparison(Strict):
    """Experiments that are each compared with a baseline, seed by seed."""

    baseline: Key
    experiments: Annotated[tuple[Key, ...], Field(min_length=1)]


class Table(Strict):
    """workflow/tables/{name}.yaml: a set of runs that are reported together, and which of them are compared."""

    title: str
    runs: Annotated[tuple[Key, ...], Field(min_length=1)]
    comparisons: tuple[Comparison, ...] = ()  # a table without them says nothing about them

    @model_validator(mode="after")
    def check_comparisons(self) -> "Table":
        seeds: dict[str, list[str]] = {run.rpartition("-")[0]: [] for run in self.runs}
        for run in self.runs:
            if self.runs.count(run) > 1:
                raise ValueError(f"runs: {run} stands there twice")
            experiment, _, seed = run.rpartition("-")
            seeds[experiment].append(seed)
        pairs: set[tuple[str, str]] = set()
        for index, comparison in enumerate(self.comparisons):
            check_comparison(comparison, seeds, f"comparisons.{index}")
            for experiment in comparison.experiments:
                if (comparison.baseline, experiment) in pairs:
                    raise ValueError(f"comparisons.{index}: {experiment} is compared with {comparison.baseline} twice")
                pairs.add((comparison.baseline, experiment))
        return self


def check_comparison(comparison: Comparison, seeds: dict[str, list[str]], where: str) -> None:
    """Raise ValueError unless all experiments have runs, of the baseline's seeds in any order, and none is twice."""
    named = (comparison.baseline, *comparison.experiments)
    for name in named:
        if name not in seeds:
            raise ValueError(
                f"{where}: {name!r} has no run in this table{suggest(name, seeds, 'experiments with runs')}"
            )
        if named.count(name) > 1:
            raise ValueError(f"{where}: {name} stands there twice")
        if sorted(seeds[name]) != sorted(seeds[comparison.baseline]):
            raise ValueError(
                f"{where}: {name} has seed {', '.join(seeds[name])} and {comparison.baseline} seed "
                f"{', '.join(seeds[comparison.baseline])}; compared are the same seeds"
            )


class Params(Strict):
    table: Key
    inputs: Inputs
    trainings: dict[Key, Training]
    runs: dict[Key, Run]
    machine: Machine
    scoring: Scoring
    datasets: dict[Key, Dataset]
    corpora: dict[Key, Corpus]
    experiments: dict[Key, AnyExperiment]

    @model_validator(mode="after")
    def check_names(self) -> "Params":
        for name, corpus in self.corpora.items():
            choose("dataset", corpus.dataset, self.datasets, f"corpora.{name}.dataset: ")
        for name, experiment in self.experiments.items():
            self.check_experiment(name, experiment)
        expected = self.derive(tuple(self.runs))
        for key in ("runs", "trainings", "inputs"):
            if getattr(self, key) != expected[key]:
                raise ValueError(
                    f"{key} does not follow from the table's runs and their experiments; "
                    f"rewrite it with: python -m bleuprint use {self.table}"
                )
        return self

    def check_experiment(self, name: str, experiment: Experiment | Reuse) -> None:
        """Raise ValueError unless an experiment's corpus or its `weights` exist; those are of a whole recipe."""
        if isinstance(experiment, Experiment):
            choose("corpus", experiment.corpus, self.corpora, f"experiments.{name}.corpus: ")
            kind = self.corpora[experiment.corpus].tokenizer.kind
            if experiment.train.regularizers.bpe_dropout and kind != "bpe":
                raise ValueError(
                    f"experiments.{name}.train.regularizers.bpe_dropout needs a corpus with a bpe tokenizer; "
                    f"{experiment.corpus} has {kind}"
                )
            return
        where, source = f"experiments.{name}.weights: ", experiment.weights
        recipes = {other: found for other, found in self.experiments.items() if isinstance(found, Experiment)}
        if source in self.experiments and source not in recipes:
            raise ValueError(f"{where}{source} is not trained, it has `weights` itself{suggest(source, recipes)}")
        choose("experiment", source, recipes, where)
        check_kept(experiment.average, recipes[source].train, f"experiments.{name}: ")

    @property
    def recipes(self) -> dict[str, Experiment]:
        """All experiments as whole recipes: their own, or that of their `weights` with their average and decode."""
        whole = {name: found for name, found in self.experiments.items() if isinstance(found, Experiment)}
        return whole | {
            name: whole[found.weights].model_copy(update={"average": found.average, "decode": found.decode})
            for name, found in self.experiments.items()
            if isinstance(found, Reuse)
        }

    def derive(self, runs: tuple[str, ...]) -> dict:
        """Return `inputs`, `trainings` and `runs` as they must stand in params.yaml for run names, e.g. ("tiny-1",)."""
        found = {name: self.run_named(name) for name in runs}
        trainings = {run.trained: self.training_named(run.trained) for run in found.values()}
        corpora = {run.corpus: InputCorpus(dataset=self.corpora[run.corpus].dataset) for run in found.values()}
        datasets = {c.dataset: InputDataset(module=self.datasets[c.dataset].module) for c in corpora.values()}
        return {"inputs": Inputs(datasets=datasets, corpora=corpora), "trainings": trainings, "runs": found}

    def run_named(self, name: str) -> Run:
        """Return the run `EXPERIMENT-SEED`; ValueError lists the experiments where the name is none."""
        experiment, _, seed = name.rpartition("-")
        if experiment not in self.experiments or not is_seed(seed):
            known = suggest(name, [run for run in self.runs if run != name], "in the active table")
            raise ValueError(
                f"unknown run {name!r}{known}; any EXPERIMENT-SEED, such as tiny-2, is one; "
                f"experiments: {', '.join(self.experiments)}"
            )
        found, recipe = self.experiments[experiment], self.recipes[experiment]
        trained = found.weights if isinstance(found, Reuse) else experiment
        return Run(
            experiment=experiment,
            seed=int(seed),
            dataset=self.corpora[recipe.corpus].dataset,
            corpus=recipe.corpus,
            model=recipe.model.kind,
            recipe=trained,
            trained=f"{trained}-{seed}",
        )

    def training_named(self, name: str) -> Training:
        """Return the training `EXPERIMENT-SEED`; ValueError where there is none, or that run has another's weights."""
        run = self.run_named(name)
        if run.trained != name:
            raise ValueError(
                f"{name} is not trained, it has the weights of {run.trained}; "
                f"train that with: python -m bleuprint train {run.trained}"
            )
        return Training(**run.model_dump(include=set(Training.model_fields)))


def is_seed(text: str) -> bool:
    """Return whether the end of a run's name is a seed, as a number is written."""
    return bool(re.fullmatch(r"0|[1-9][0-9]{0,18}", text)) and int(text) < 2**63


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read params.yaml and what is set in its place; ValueError names file, key, value and the valid choices."""
    return validate(Params, overridden(read_yaml(path), get_overrides()), path)


def load_table(name: str, directory: Path = TABLES_DIR) -> Table:
    """Read workflow/tables/{name}.yaml; ValueError lists the tables where there is none of that name."""
    choose("table", name, {path.stem: path for path in sorted(directory.glob("*.yaml"))})
    path = directory / f"{name}.yaml"
    return validate(Table, read_yaml(path), path)
