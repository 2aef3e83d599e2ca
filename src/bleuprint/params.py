"""The sections of params.yaml that a stage is given: corpora and experiments, as strict, frozen models.

Nothing of it has a default: every number stands once, in params.yaml. Data sets are datasets.py's, the file as a whole
is graph.py's.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from bleuprint.datasets import Splits as Splits  # for all that are given a data set's splits beside a section
from bleuprint.strict import Count, Flag, Key, Name, NonNegative, Positive, Probability, Seed, Strict

# --- corpora ----------------------------------------------------------------------------------------------------------


class WordsTokenizer(Strict):
    """spaCy words, one vocabulary per language."""

    kind: Literal["words"]
    lowercase: Flag
    min_frequency: Count


class BpeText(Strict):
    """Joint BPE of `text`: `lc-tok` (Moses: lower-cased, normalised, tokenised, escaped), `tok` (cased, tokenised and
    escaped) or the `raw` cased text.
    """

    kind: Literal["bpe"]
    text: Literal["lc-tok", "tok", "raw"]
    merges: Count


class BpeTokenizer(BpeText):
    """How it is learnt: from words that are seen `min_frequency` times or more."""

    min_frequency: Count


class BasicTokenizer(Strict):
    """torchtext's "basic English" words: lower-cased, few marks split off, every word of the train split kept."""

    kind: Literal["basic"]


Tokenizer = Annotated[WordsTokenizer | BpeTokenizer | BasicTokenizer, Field(discriminator="kind")]


class Cleaning(Strict):
    """Which pairs of the train split are dropped besides those with an empty side (cleaning.py).

    Either side: more words or, when encoded, more tokens than this; so many times as many words as the other; a word of
    more characters; a smaller share of letters among its characters; or any control character.
    """

    max_words: Count
    max_ratio: Annotated[float, Field(ge=1, strict=True)]
    max_word_characters: Count
    min_letters: Probability
    max_tokens: Count


# Of languages that are written without spaces neither Moses' rules nor sacreBLEU's 13a find the words.
WITHOUT_SPACES = ("zh", "ja", "th", "lo", "km", "my", "bo")


class Corpus(Strict):
    dataset: Key
    source: Name
    target: Name
    source_marks: Literal["both", "end", "none"]
    cleaning: Cleaning | None
    tokenizer: Tokenizer

    @field_validator("target")
    @classmethod
    def check_target(cls, target: str) -> str:
        if re.split("[-_.]", target.lower())[0] in WITHOUT_SPACES:
            raise ValueError(
                f"{target!r} is written without spaces between words: no score here would mean anything, for neither "
                "Moses' rules nor sacreBLEU's 13a split it"
            )
        return target

    @property
    def cased(self) -> bool:
        """Whether hypotheses carry case, so that a cased BLEU means something."""
        match self.tokenizer:
            case WordsTokenizer():
                return not self.tokenizer.lowercase
            case BpeTokenizer():
                return self.tokenizer.text != "lc-tok"
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


# --- beside the experiments -------------------------------------------------------------------------------------------


class Machine(Strict):
    device: Literal["auto", "cpu", "cuda"]
    threads: Count


class Scoring(Strict):
    bootstrap_resamples: Annotated[int, Field(ge=2, strict=True)]
    bootstrap_seed: Seed
