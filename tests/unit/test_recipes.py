"""The README's systems and logs in params.yaml say what reference/curves/README.md and CLAIMS say, number by number.

A slip here would decide which code drew which curve.
"""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from bleuprint.graph import load_params, load_table
from bleuprint.models import build_model
from bleuprint.params import (
    BpeTokenizer,
    HyunwoongkoModel,
    InverseSqrtSchedule,
    NoamSchedule,
    PitauModel,
    PlateauSchedule,
    SentenceBatches,
    TokenBatches,
    TransformerModel,
)

ROOT = Path(__file__).parents[2]
PARAMS = load_params(ROOT / "params.yaml")
EN_DE, DE_EN = "multi30k-words", "multi30k-words-de-en"


class Facts(NamedTuple):
    """What a run of hyunwoongko's repository was made with; `repaired`: output projection and scores / sqrt(d_k)."""

    corpus: str
    repaired: bool
    sentences: int
    layers: int
    d_ff: int
    lr: float
    l2: float
    init: str
    adam_eps: float


LOGGED = {
    "published": Facts(EN_DE, False, 128, 6, 2048, 1e-5, 5e-4, "xavier_uniform", 1e-8),
    "published-kaiming-normal": Facts(EN_DE, False, 128, 6, 2048, 1e-5, 5e-4, "kaiming_normal", 1e-8),
    "published-kaiming-uniform": Facts(EN_DE, False, 128, 6, 2048, 1e-5, 5e-4, "kaiming_uniform", 1e-8),
    "log-c1c22a3": Facts(DE_EN, False, 128, 6, 256, 1e-4, 5e-3, "xavier_uniform", 1e-8),
    "log-b1e73da": Facts(EN_DE, True, 64, 8, 2048, 1e-5, 5e-4, "kaiming_normal", 1e-8),
    "log-ded5bcf": Facts(EN_DE, True, 128, 6, 2048, 1e-6, 1e-4, "kaiming_normal", 1e-8),
    "log-1a4aecf": Facts(EN_DE, True, 128, 6, 2048, 1e-5, 1e-3, "kaiming_normal", 1e-8),
    "log-1d076f1": Facts(EN_DE, True, 128, 6, 2048, 1e-5, 5e-4, "kaiming_uniform", 5e-9),
}
README = {"readme": 1e-5, "readme-lr1e-1": 0.1}


@pytest.mark.parametrize("name", LOGGED)
def test_a_logged_run_is_the_one_that_was_logged(name: str) -> None:
    experiment, facts = PARAMS.recipes[name], LOGGED[name]
    model, train = experiment.model, experiment.train
    assert isinstance(model, HyunwoongkoModel)
    assert isinstance(train.batches, SentenceBatches)
    assert isinstance(train.schedule, PlateauSchedule)
    found = Facts(
        experiment.corpus,
        model.output_projection,
        train.batches.sentences,
        model.n_layers,
        model.d_ff,
        train.schedule.lr,
        train.optimizer.weight_decay,
        model.init,
        train.optimizer.eps,
    )
    assert found == facts
    assert model.score_scale == ("d_k" if facts.repaired else "d_model")
    assert (model.d_model, model.n_heads, model.dropout, model.norm_eps) == (512, 8, 0.1, 1e-12)


@pytest.mark.parametrize("name", README)
def test_the_readmes_own_configuration(name: str) -> None:
    model, train = PARAMS.recipes[name].model, PARAMS.recipes[name].train
    assert isinstance(model, TransformerModel)
    assert isinstance(train.batches, SentenceBatches)
    assert isinstance(train.schedule, PlateauSchedule)
    assert PARAMS.recipes[name].corpus == EN_DE
    assert (model.norm, model.d_model, model.d_ff, model.n_heads, model.n_layers) == ("post", 512, 2048, 8, 6)
    assert (model.embedding_dropout, model.residual_dropout, model.ffn_dropout) == (0.1, 0.1, 0.1)
    assert model.attention_dropout == 0.0
    assert (model.tie_embeddings, model.scale_embeddings, model.output_bias) == ("none", False, True)
    assert (model.max_positions, model.norm_eps, model.init) == (256, 1e-12, "kaiming_uniform")
    assert (train.batches.sentences, train.schedule.lr) == (128, README[name])
    assert (train.optimizer.eps, train.optimizer.weight_decay) == (5e-9, 5e-4)


@pytest.mark.parametrize("name", [*LOGGED, *README])
def test_what_all_of_that_repository_share(name: str) -> None:
    """The plateau is first stepped at epoch 102; the loss of an epoch is the mean of its batches' means."""
    train = PARAMS.recipes[name].train
    assert isinstance(train.batches, SentenceBatches)
    assert isinstance(train.schedule, PlateauSchedule)
    assert (train.schedule.factor, train.schedule.patience_epochs, train.schedule.warmup_epochs) == (0.9, 10, 101)
    assert (train.optimizer.kind, train.optimizer.betas, train.optimizer.clip_norm) == ("adam", (0.9, 0.999), 1.0)
    assert (train.label_smoothing, train.epoch_loss) == (0.0, "batches")
    assert (train.batches.sort_by, train.batches.validation_sort_by) == ("none", "interleaved")
    assert (train.batches.drop_last, train.batches.batches_per_step) == (False, 1)
    assert PARAMS.recipes[name].average.last == 1


@pytest.mark.parametrize("name", ["readme", "published"])
def test_the_full_run_is_the_same_recipe_for_a_thousand_epochs(name: str) -> None:
    """All that may differ: how long, how many ends of epochs are kept and decoded, how often the state is saved."""
    short, full = PARAMS.recipes[name].model_dump(), PARAMS.recipes[f"{name}-full"].model_dump()
    for key in ("max_steps", "keep_last", "checkpoint_every_steps"):
        del short["train"][key]
    found = [full["train"].pop(key) for key in ("max_steps", "keep_last", "checkpoint_every_steps")]
    forced = full["decode"].pop("forced"), short["decode"].pop("forced")
    assert short == full
    assert (found, forced) == ([1000 * 227, 1, 1000 * 227], ("averaged", "epochs"))


def test_the_table_full_has_three_seeds_of_each() -> None:
    runs = load_table("full", ROOT / "workflow/tables").runs
    assert set(runs) == {f"{name}-full-{seed}" for name in ("readme", "published") for seed in (1, 2, 3)}


@pytest.mark.parametrize(("name", "form"), [("pitau", "coded"), ("preln", "written")])
def test_pi_taus_recipe(name: str, form: str) -> None:
    experiment = PARAMS.recipes[name]
    model, train = experiment.model, experiment.train
    assert isinstance(model, PitauModel)
    assert isinstance(train.batches, SentenceBatches)
    assert isinstance(train.schedule, PlateauSchedule)
    assert (experiment.corpus, model.form) == ("multi30k-basic", form)
    assert (model.d_model, model.n_heads, model.n_layers, model.d_ff, model.dropout) == (256, 8, 4, 512, 0.1)
    assert (train.optimizer.kind, train.schedule.lr, train.optimizer.weight_decay) == ("adamw", 1e-4, 1e-4)
    assert (train.optimizer.clip_norm, train.label_smoothing, train.max_steps) == (1.0, 0.0, 10 * 226)  # of 30 epochs
    assert (train.batches.sentences, train.batches.pool_batches, train.batches.drop_last) == (128, 100, True)
    assert (train.batches.sort_by, train.batches.shuffle_batches) == ("source_characters", False)
    assert (experiment.decode.search, PARAMS.corpora["multi30k-basic"].source_marks) == ("greedy", "none")


def test_the_papers_recipe() -> None:
    """Vaswani et al. 2017, base, with the deviations that params.yaml names."""
    experiment = PARAMS.recipes["paper"]
    model, train, decode = experiment.model, experiment.train, experiment.decode
    assert isinstance(model, TransformerModel)
    assert (model.norm, model.d_model, model.d_ff, model.n_heads, model.n_layers) == ("post", 512, 2048, 8, 6)
    assert (model.embedding_dropout, model.residual_dropout) == (0.1, 0.1)
    assert (model.attention_dropout, model.ffn_dropout) == (0.0, 0.0)
    assert (model.tie_embeddings, model.scale_embeddings) == ("all", True)
    assert train.schedule == NoamSchedule(kind="noam", factor=1.0, warmup_steps=4000)
    assert train.batches == TokenBatches(kind="tokens", max_tokens=1024, batches_per_step=1)
    assert (train.optimizer.betas, train.optimizer.eps, train.label_smoothing) == ((0.9, 0.98), 1e-9, 0.1)
    assert (train.max_steps, experiment.average.last) == (8 * 462, 5)
    assert (decode.search, decode.beam, decode.max_extra_tokens) == ("beam", 4, 50)
    assert (decode.length_penalty.kind, decode.length_penalty.alpha) == ("gnmt", 0.6)


class Size(NamedTuple):
    """What base and big differ in (Vaswani et al. 2017, Table 3), with the parameters that the paper counts."""

    d_model: int
    d_ff: int
    n_heads: int
    dropout: float
    steps: int
    averaged: int
    parameters: float


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("wmt14-base", Size(512, 2048, 8, 0.1, 100_000, 5, 65e6)),
        ("wmt14-big", Size(1024, 4096, 16, 0.3, 300_000, 20, 213e6)),
    ],
)
def test_the_papers_own_runs(name: str, size: Size) -> None:
    """CLAIMS 3. All else is as in `paper`, which base is but for its data, its batches and its length."""
    experiment, paper = PARAMS.recipes[name], PARAMS.recipes["paper"]
    model, train = experiment.model, experiment.train
    assert isinstance(model, TransformerModel)
    assert (model.d_model, model.d_ff, model.n_heads, model.n_layers) == (size.d_model, size.d_ff, size.n_heads, 6)
    assert (model.embedding_dropout, model.residual_dropout) == (size.dropout, size.dropout)
    assert (train.max_steps, experiment.average.last) == (size.steps, size.averaged)
    assert isinstance(train.batches, TokenBatches)
    assert train.batches.max_tokens * train.batches.batches_per_step == 25_000
    differ = {"d_model", "d_ff", "n_heads", "embedding_dropout", "residual_dropout"}
    assert model.model_dump(exclude=differ) == paper.model.model_dump(exclude=differ)
    assert (train.schedule, train.optimizer, train.label_smoothing) == (
        paper.train.schedule,
        paper.train.optimizer,
        paper.train.label_smoothing,
    )
    assert experiment.decode == paper.decode
    corpus = PARAMS.corpora[experiment.corpus]
    assert isinstance(corpus.tokenizer, BpeTokenizer)
    assert (corpus.dataset, corpus.source, corpus.target, corpus.tokenizer.merges) == ("wmt14", "en", "de", 37_000)
    with torch.device("meta"):
        found = sum(value.numel() for value in build_model(model, 37_000, 37_000).parameters())
    assert found == pytest.approx(size.parameters, rel=0.04)


def test_the_papers_development_score_is_of_one_checkpoint() -> None:
    """CLAIMS 3: newstest2013, beam search as of the test score, no averaging."""
    spec = PARAMS.run_named("wmt14-base-last-1")
    last, base = PARAMS.recipes["wmt14-base-last"], PARAMS.recipes["wmt14-base"]
    assert (spec.trained, last.average.last, last.decode) == ("wmt14-base-1", 1, base.decode)
    assert "newstest2013" in PARAMS.datasets[spec.dataset].splits.tests


def test_the_anchors_recipe() -> None:
    """Wu et al. 2021, Transformer-Tiny (CLAIMS 4)."""
    experiment = PARAMS.recipes["tiny"]
    model, train = experiment.model, experiment.train
    assert isinstance(model, TransformerModel)
    assert (model.d_model, model.d_ff, model.n_heads, model.n_layers) == (128, 256, 4, 4)
    assert (model.residual_dropout, model.tie_embeddings, train.label_smoothing) == (0.3, "all", 0.1)
    assert train.schedule == InverseSqrtSchedule(kind="inverse_sqrt", lr=5e-3, warmup_steps=2000)
    assert train.batches == TokenBatches(kind="tokens", max_tokens=4096, batches_per_step=2)
    assert (train.optimizer.betas, train.max_steps) == ((0.9, 0.98), 8000)
    assert (experiment.average.last, experiment.decode.beam) == (10, 5)
    assert (experiment.decode.length_penalty.kind, experiment.decode.length_penalty.alpha) == ("length", 1.0)
