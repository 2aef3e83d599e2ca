"""params.yaml as strict, frozen models.

Nothing of it has a default: every number stands once, in params.yaml. The file is read as YAML 1.2 by ruamel, because
`dvc exp run -S` writes 1e-05, which a YAML 1.1 reader takes for a string.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bleuprint.mistakes import describe_mistakes, suggest

PARAMS_FILE = Path("params.yaml")
TABLES_DIR = Path("workflow/tables")

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]  # no dot: DVC takes it for a step into the key
RelativePath = Annotated[str, AfterValidator(lambda path: check_relative(path))]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
MirrorUrl = Annotated[str, Field(pattern=r"^(https?|file)://.+")]
# Strict: "200" is no number, yes is no boolean in YAML 1.2, and true is not 1.
Flag = Annotated[bool, Field(strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]  # what torch takes
Count = Annotated[int, Field(ge=1, strict=True)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Section = TypeVar("Section", bound="Strict")
Probability = Annotated[float, Field(ge=0, lt=1, strict=True)]


class Strict(BaseModel):
    """A section of params.yaml: no unknown keys, no coercion across kinds, no later changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_relative(path: str) -> str:
    """Return a path that stays below where it is joined to; ValueError on any other."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or not path:
        raise ValueError(f"{path!r} is not a relative path without ..")
    return path


# --- data -------------------------------------------------------------------------------------------------------------


class Splits(Strict):
    train: Name
    validation: Name
    tests: Annotated[tuple[Name, ...], Field(min_length=1)]

    @property
    def all(self) -> tuple[str, ...]:
        return (self.train, self.validation, *self.tests)


class MirroredFile(Strict):
    path: RelativePath
    sha256: Sha256


class MirroredDataset(Strict):
    """Files that are downloaded from the first mirror that has them, and verified."""

    kind: Literal["mirrored"]
    mirrors: tuple[MirrorUrl, ...]
    splits: Splits
    files: dict[Name, MirroredFile]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "corpus"


class GeneratedDataset(Strict):
    """Sentence pairs drawn from the project's own grammar."""

    kind: Literal["generated"]
    seed: Seed
    splits: Splits
    pairs: dict[Name, Count]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "toy"

    @model_validator(mode="after")
    def check_pairs(self) -> "GeneratedDataset":
        if set(self.pairs) != set(self.splits.all):
            raise ValueError(f"pairs must name exactly the splits {', '.join(self.splits.all)}")
        return self


Dataset = Annotated[MirroredDataset | GeneratedDataset, Field(discriminator="kind")]


class WordsTokenizer(Strict):
    """spaCy words, one vocabulary per language."""

    kind: Literal["words"]
    lowercase: Flag
    min_frequency: Count


class BpeTokenizer(Strict):
    """Joint BPE of `text`: `lc-tok` (lower-cased, normalised, tokenised, escaped) or the `raw` cased text."""

    kind: Literal["bpe"]
    text: Literal["lc-tok", "raw"]
    merges: Count


class BasicTokenizer(Strict):
    """torchtext's "basic English" words: lower-cased, few marks split off, every word of the train split kept."""

    kind: Literal["basic"]


Tokenizer = Annotated[WordsTokenizer | BpeTokenizer | BasicTokenizer, Field(discriminator="kind")]


class Corpus(Strict):
    dataset: Key
    source: Name
    target: Name
    source_marks: Literal["both", "end", "none"]
    tokenizer: Tokenizer

    @property
    def cased(self) -> bool:
        """Whether hypotheses carry case, so that a cased BLEU means something."""
        match self.tokenizer:
            case WordsTokenizer():
                return not self.tokenizer.lowercase
            case BpeTokenizer():
                return self.tokenizer.text == "raw"
            case BasicTokenizer():
                return False

    @property
    def stores_characters(self) -> bool:
        """Whether the corpus has the length of each source line in characters, by which CLAIMS 2 sorts its batches.

        The others do without, so that their bytes stay what they were before there was a third kind of tokenizer.
        """
        return isinstance(self.tokenizer, BasicTokenizer)


# --- experiments ------------------------------------------------------------------------------------------------------


class TransformerModel(Strict):
    """Vaswani et al. 2017; built by models/transformer.py."""

    kind: Literal["transformer"]
    norm: Literal["post", "pre"]
    d_model: Count
    d_ff: Count
    n_heads: Count
    n_layers: Count
    max_positions: Count
    tie_embeddings: Literal["none", "all"]
    scale_embeddings: Flag
    embedding_dropout: Probability
    residual_dropout: Probability
    attention_dropout: Probability
    ffn_dropout: Probability
    output_bias: Flag
    norm_eps: Positive
    init: Literal["fairseq", "xavier_uniform", "kaiming_uniform"]

    @model_validator(mode="after")
    def check_sizes(self) -> "TransformerModel":
        check_widths(self.d_model, self.n_heads)
        return self


class HyunwoongkoModel(Strict):
    """hyunwoongko/transformer of December 2019 with its defects; built by models/hyunwoongko.py.

    `score_scale` d_model and no `output_projection`: as published; d_k and the projection are its first two repairs.
    """

    kind: Literal["hyunwoongko"]
    d_model: Count
    d_ff: Count
    n_heads: Count
    n_layers: Count
    max_positions: Count
    dropout: Probability
    output_projection: Flag
    score_scale: Literal["d_model", "d_k"]
    norm_eps: Positive
    init: Literal["xavier_uniform", "kaiming_normal", "kaiming_uniform"]

    @model_validator(mode="after")
    def check_sizes(self) -> "HyunwoongkoModel":
        check_widths(self.d_model, self.n_heads)
        return self


class PitauModel(Strict):
    """pi-tau/transformer (CLAIMS 2); built by models/pitau.py.

    `form` coded: its code, with residuals of the normalised input and padded queries hidden; written: its README's
    formulas, pre-norm, with padded keys hidden. `dropout` acts on embeddings, attention weights and sub-layer outputs.
    """

    kind: Literal["pitau"]
    form: Literal["coded", "written"]
    d_model: Count
    d_ff: Count
    n_heads: Count
    n_layers: Count
    max_positions: Count
    dropout: Probability
    norm_eps: Positive

    @model_validator(mode="after")
    def check_sizes(self) -> "PitauModel":
        check_heads(self.d_model, self.n_heads)
        return self


def check_heads(d_model: int, n_heads: int) -> None:
    """Raise ValueError unless d_model has n_heads equal parts."""
    if d_model % n_heads:
        raise ValueError(f"d_model {d_model} is not divisible by n_heads {n_heads}")


def check_widths(d_model: int, n_heads: int) -> None:
    """Raise ValueError unless d_model has n_heads equal parts and pairs of sine and cosine."""
    check_heads(d_model, n_heads)
    if d_model % 2:
        raise ValueError(f"d_model {d_model} is odd: sinusoidal positions need sine and cosine pairs")


ModelSpec = Annotated[TransformerModel | HyunwoongkoModel | PitauModel, Field(discriminator="kind")]


class TokenBatches(Strict):
    """Sentences of similar length until the padded batch holds max_tokens on its longer side."""

    kind: Literal["tokens"]
    max_tokens: Count
    batches_per_step: Count


SortBy = Literal["none", "tokens", "interleaved", "source_characters"]


class SentenceBatches(Strict):
    """A fixed number of sentences; sorted within pools of `pool_batches` batches.

    Ascending by `tokens` (the target's, then the source's, with marks), `interleaved` (torchtext's key: the bits of
    source and target length in turn, without marks) or `source_characters` (of the raw line); or not at all (`none`).
    `shuffle_batches`: those of a pool; `drop_last`: what does not fill a batch waits for another epoch. Validation is
    one pool, is not shuffled, and drops nothing.
    """

    kind: Literal["sentences"]
    sentences: Count
    pool_batches: Count
    sort_by: SortBy
    shuffle_batches: Flag
    drop_last: Flag
    validation_sort_by: SortBy
    batches_per_step: Count


Batches = Annotated[TokenBatches | SentenceBatches, Field(discriminator="kind")]


class InverseSqrtSchedule(Strict):
    """Linear to lr over warmup_steps, then lr * sqrt(warmup_steps / step)."""

    kind: Literal["inverse_sqrt"]
    lr: Positive
    warmup_steps: Count


class NoamSchedule(Strict):
    """Vaswani et al. 2017, section 5.3: factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""

    kind: Literal["noam"]
    factor: Positive
    warmup_steps: Count


class PlateauSchedule(Strict):
    """lr, times `factor` when validation has not improved for `patience_epochs`; watched after warmup_epochs."""

    kind: Literal["plateau"]
    lr: Positive
    factor: Annotated[float, Field(gt=0, lt=1, strict=True)]
    patience_epochs: Annotated[int, Field(ge=0, strict=True)]
    warmup_epochs: Annotated[int, Field(ge=0, strict=True)]


Schedule = Annotated[InverseSqrtSchedule | NoamSchedule | PlateauSchedule, Field(discriminator="kind")]


class Optimizer(Strict):
    """`adam`: weight_decay is an L2 penalty, part of the gradient; `adamw`: each step shrinks weights by lr times it.

    clip_norm null leaves gradients as they are.
    """

    kind: Literal["adam", "adamw"]
    betas: tuple[Probability, Probability]
    eps: Positive
    weight_decay: NonNegative
    clip_norm: Positive | None


class Regularizers(Strict):
    """What else keeps a small data set from being learnt by heart; 0 is off.

    `r_drop`: alpha of R-Drop (Liang et al. 2021), which reads each batch twice. `bpe_dropout`: chance of leaving out a
    merge when each epoch cuts its words into pieces anew (Provilkov et al. 2020).
    """

    r_drop: NonNegative
    bpe_dropout: Probability


class Train(Strict):
    """`epoch_loss`: what the losses of an epoch are: the mean over tokens, or the mean of the batches' means."""

    precision: Literal["fp32", "bf16"]
    label_smoothing: Probability
    regularizers: Regularizers
    batches: Batches
    schedule: Schedule
    optimizer: Optimizer
    epoch_loss: Literal["tokens", "batches"]
    max_steps: Count
    patience_epochs: Count
    keep_last: Count
    checkpoint_every_steps: Count
    log_every_steps: Count


class Average(Strict):
    last: Count


class LengthPenalty(Strict):
    """`gnmt` (the paper): score / ((5 + length) / 6)^alpha; `length`: score / length^alpha. Both count the end."""

    kind: Literal["gnmt", "length"]
    alpha: NonNegative


class Decode(Strict):
    """`forced`: with which weights validation is predicted word by word: the averaged, or each kept epoch's too."""

    search: Literal["greedy", "beam"]
    beam: Count
    length_penalty: LengthPenalty
    max_extra_tokens: Count
    max_batch_tokens: Count
    forced: Literal["averaged", "epochs"]

    @model_validator(mode="after")
    def check_beam(self) -> "Decode":
        if self.search == "greedy" and self.beam != 1:
            raise ValueError(f"greedy search has beam 1, not {self.beam}")
        return self


class Experiment(Strict):
    """A whole recipe."""

    corpus: Key
    model: ModelSpec
    train: Train
    average: Average
    decode: Decode

    @model_validator(mode="after")
    def check_average(self) -> "Experiment":
        check_kept(self.average, self.train)
        return self


class Reuse(Strict):
    """The weights of the experiment `weights`, averaged and decoded in another way; all else is that experiment's."""

    weights: Key
    average: Average
    decode: Decode


def check_kept(average: Average, train: Train, prefix: str = "") -> None:
    """Raise ValueError unless training keeps as many weights as are averaged."""
    if average.last > train.keep_last:
        raise ValueError(f"{prefix}average.last {average.last} is more than train.keep_last {train.keep_last}")


def recipe_or_reuse(data: Any) -> str:
    """Return which of the two an experiment is, read or to be written: the key `weights` tells."""
    return "reuse" if isinstance(data, Reuse) or (isinstance(data, dict) and "weights" in data) else "recipe"


AnyExperiment = Annotated[
    Annotated[Experiment, Tag("recipe")] | Annotated[Reuse, Tag("reuse")], Discriminator(recipe_or_reuse)
]


# --- the whole file ---------------------------------------------------------------------------------------------------


class Machine(Strict):
    device: Literal["auto", "cpu", "cuda"]
    threads: Count


class Scoring(Strict):
    bootstrap_resamples: Annotated[int, Field(ge=2, strict=True)]
    bootstrap_seed: Seed


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
        if experiment not in self.experiments or not seed.isdecimal() or str(int(seed)) != seed:
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


def choose(kind: str, name: str, choices: dict, prefix: str = "") -> None:
    """Raise ValueError naming the valid choices unless `name` is one of them."""
    if name not in choices:
        raise ValueError(f"{prefix}unknown {kind} {name!r}{suggest(name, choices)}")


def read_yaml(path: Path) -> dict:
    """Return the mapping in a YAML 1.2 file as plain Python objects; ValueError names the file and the place."""
    try:
        data = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist in {Path.cwd()}; run from the project's root") from None
    except (YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-45
        words = str(error).split("To suppress this check")[0].split()
        raise ValueError(f"{path} is not valid YAML: {' '.join(words)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds no mapping")
    return data


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read params.yaml; ValueError names file, key, value and the valid choices."""
    return validate(Params, read_yaml(path), path)


def load_table(name: str, directory: Path = TABLES_DIR) -> Table:
    """Read workflow/tables/{name}.yaml; ValueError lists the tables where there is none of that name."""
    choose("table", name, {path.stem: path for path in sorted(directory.glob("*.yaml"))})
    path = directory / f"{name}.yaml"
    return validate(Table, read_yaml(path), path)


def validate(model: type[Section], data: dict, path: Path) -> Section:
    """Return `data` as `model`; ValueError has one line per mistake."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ValueError("\n".join(f"{path}: {line}" for line in describe_mistakes(error, model))) from None
