"""The experiment `readme` computes what the README's own formulation computes (CLAIMS 1a), gradients included.

The formulation is written out below from its description, on copies of our weights: fixed numbers where the README's
code has them, so that a wrong value in params.yaml shows too. It is slow, and trains nothing but this test.

Shapes: B batch, S source, T target, D d_model, H heads, d_k = D/H, V vocabulary.
"""

import math

import pytest
import torch
from specs import ROOT, variant
from torch import Tensor
from torch.nn import functional as F

from bleuprint.batching import Batch
from bleuprint.graph import load_params
from bleuprint.models import transformer
from bleuprint.models.dropout import Dropout
from bleuprint.models.transformer import Transformer
from bleuprint.objective import build_optimizer
from bleuprint.params import TransformerModel
from bleuprint.resume import Learner
from bleuprint.tokenizers import BOS, EOS, PAD
from bleuprint.updates import batch_loss, prepare

PARAMS = load_params(ROOT / "params.yaml")
README = PARAMS.recipes["readme"]
HEADS = 8
HIDDEN_SCORE = -10_000.0
EPS = 1e-12
DROPOUT = 0.1
LAYERS = 2  # six of them show nothing more
SOURCE_TYPES, TARGET_TYPES = 29, 31
SENTENCES = [  # of source and target, without marks
    ([4, 9, 17, 28, 5, 11], [7, 30, 12, 4, 22]),
    ([13, 6], [19, 8, 25, 14, 5, 27, 10]),
    ([21, 4, 4, 16, 0, 25, 10, 7], [6]),
    ([15, 22, 8], [9, 0, 9, 26]),
]

Weights = dict[str, Tensor]


# --- the README's formulation -----------------------------------------------------------------------------------------


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].t() + w[f"{name}.bias"]


def part(w: Weights, name: str, index: int, parts: int) -> Weights:
    """Return one of the equal projections that ours keeps in one matrix, under the name "one"."""
    return {f"one.{kind}": w[f"{name}.{kind}"].chunk(parts)[index] for kind in ("weight", "bias")}


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)  # biased
    return w[f"{name}.weight"] * (x - mean) / torch.sqrt(variance + EPS) + w[f"{name}.bias"]


def split(x: Tensor) -> Tensor:
    """(B, T, D) -> (B, H, T, d_k)."""
    batch, length, d_model = x.shape
    return x.view(batch, length, HEADS, d_model // HEADS).transpose(1, 2)


def attention(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    """(B, T, D), (B, S, D), (B, S, D) -> (B, T, D); to a query that sees nothing every key weighs the same."""
    query, key, value = split(query), split(key), split(value)
    scores = query @ key.transpose(2, 3) / math.sqrt(query.size(-1))
    scores = scores.masked_fill(~seen, HIDDEN_SCORE)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    joined = (powers / powers.sum(-1, keepdim=True)) @ value
    return joined.transpose(1, 2).reshape(query.size(0), query.size(2), -1)


def self_attention(w: Weights, name: str, x: Tensor, seen: Tensor) -> Tensor:
    query, key, value = (linear(part(w, f"{name}.qkv", i, 3), "one", x) for i in range(3))
    return linear(w, f"{name}.out", attention(query, key, value, seen))


def cross_attention(w: Weights, name: str, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
    key, value = (linear(part(w, f"{name}.kv", i, 2), "one", memory) for i in range(2))
    return linear(w, f"{name}.out", attention(linear(w, f"{name}.query", x), key, value, seen))


def feed_forward(w: Weights, name: str, x: Tensor, dropout: Dropout) -> Tensor:
    return linear(w, f"{name}.outer", dropout(torch.relu(linear(w, f"{name}.inner", x))))


def embed(w: Weights, name: str, ids: Tensor, dropout: Dropout) -> Tensor:
    """Return unscaled embeddings plus sines in the even columns and cosines in the odd ones."""
    table = w[f"{name}.weight"]
    position, column = torch.arange(ids.size(1))[:, None], torch.arange(0, table.size(1), 2)
    angle = position / 10_000 ** (column / table.size(1))
    positions = torch.zeros(ids.size(1), table.size(1))
    positions[:, 0::2], positions[:, 1::2] = angle.sin(), angle.cos()
    return dropout(F.embedding(ids, table, padding_idx=PAD) + positions)


def source_mask(source: Tensor) -> Tensor:
    """Return which keys are seen, (B, 1, 1, S): those that are no padding."""
    return (source != PAD)[:, None, None, :]


def target_mask(target: Tensor) -> Tensor:
    """Return which keys a query sees, (B, 1, T, T): none after itself, and none at all from padding."""
    length = target.size(1)
    return torch.ones(length, length).tril().bool() & (target != PAD)[:, None, :, None]


def residual(w: Weights, name: str, x: Tensor, y: Tensor, dropout: Dropout) -> Tensor:
    return layer_norm(w, f"{name}_residual.norm", x + dropout(y))


def encoder_layer(w: Weights, name: str, x: Tensor, source_seen: Tensor, dropout: Dropout) -> Tensor:
    y = self_attention(w, f"{name}.attention", x, source_seen)
    x = residual(w, f"{name}.attention", x, y, dropout)
    return residual(w, f"{name}.feed_forward", x, feed_forward(w, f"{name}.feed_forward", x, dropout), dropout)


def decoder_layer(
    w: Weights, name: str, x: Tensor, memory: Tensor, target_seen: Tensor, source_seen: Tensor, dropout: Dropout
) -> Tensor:
    y = self_attention(w, f"{name}.attention", x, target_seen)
    x = residual(w, f"{name}.attention", x, y, dropout)
    y = cross_attention(w, f"{name}.cross", x, memory, source_seen)
    x = residual(w, f"{name}.cross", x, y, dropout)
    return residual(w, f"{name}.feed_forward", x, feed_forward(w, f"{name}.feed_forward", x, dropout), dropout)


def readme_loss(w: Weights, batch: Batch, source_seen: Tensor, target_seen: Tensor, dropout: Dropout) -> Tensor:
    """Return the mean cross-entropy over the labels that are no padding."""
    memory = embed(w, "source_embedding", batch.source, dropout)
    for layer in range(LAYERS):
        memory = encoder_layer(w, f"encoder.{layer}", memory, source_seen, dropout)
    x = embed(w, "target_embedding", batch.inputs, dropout)
    for layer in range(LAYERS):
        x = decoder_layer(w, f"decoder.{layer}", x, memory, target_seen, source_seen, dropout)
    logits = x @ w["output"].t() + w["output_bias"]
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)


# --- ours beside it ---------------------------------------------------------------------------------------------------


def small(changes: dict[str, object]) -> TransformerModel:
    """Return the experiment's model in small, with some of its values changed."""
    assert isinstance(README.model, TransformerModel)
    return variant({"d_model": 32, "d_ff": 48, "n_layers": LAYERS} | changes, README.model)


def padded(sentences: list[list[int]]) -> Tensor:
    """Return sentences between their marks as one batch."""
    width = max(map(len, sentences)) + 2
    return torch.tensor([[BOS, *ids, EOS] + [PAD] * (width - len(ids) - 2) for ids in sentences])


def readme_batch() -> Batch:
    """Return a batch in which both sides are padded."""
    return Batch(padded([source for source, _ in SENTENCES]), padded([target for _, target in SENTENCES]))


def our_model(spec: TransformerModel) -> Transformer:
    """Return our model with first weights as the README's, but no norm that is neutral."""
    torch.manual_seed(0)
    model = Transformer(spec, SOURCE_TYPES, TARGET_TYPES)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".norm." in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def our_loss(model: Transformer, batch: Batch) -> Tensor:
    """Return the loss per token as training has it, with the recipe's smoothing; in fp32."""
    train = README.train.model_copy(update={"precision": "fp32"})
    learner = Learner(model, build_optimizer(model, train.optimizer), torch.device("cpu"), train)
    ready = prepare(batch, learner.device)
    return batch_loss(learner, ready, train.label_smoothing).smoothed / ready.tokens


def copied(model: Transformer) -> Weights:
    return {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("training", "pack_above"),
    [(False, transformer.PACK_ABOVE), (True, transformer.PACK_ABOVE), (False, 0)],
    ids=["evaluation", "training", "packed"],
)
@pytest.mark.parametrize("explicit_up_to", [64, 0], ids=["explicit", "fused"])
def test_loss_and_every_gradient_are_those_of_the_readmes_formulation(
    monkeypatch: pytest.MonkeyPatch, explicit_up_to: int, training: bool, pack_above: int
) -> None:
    """In training both draw dropout from one seed: equal only where it has the same places and the same chance.

    Packed, as the experiment's own batches are, a draw stands for another position: there without dropout alone.
    """
    monkeypatch.setattr(transformer, "EXPLICIT_UP_TO", explicit_up_to)
    monkeypatch.setattr(transformer, "PACK_ABOVE", pack_above)
    model, batch = our_model(small({})).train(training), readme_batch()
    weights = copied(model)
    torch.manual_seed(4)
    loss = our_loss(model, batch)
    loss.backward()
    torch.manual_seed(4)
    dropout = Dropout(DROPOUT).train(training)
    expected = readme_loss(weights, batch, source_mask(batch.source), target_mask(batch.inputs), dropout)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        wanted = weights[name].grad
        assert wanted is not None
        assert wanted.abs().max() > 1e-4, name
        torch.testing.assert_close(parameter.grad, wanted, rtol=1e-5, atol=1e-6, msg=name)


def other_losses() -> dict[str, float]:
    """Return the README's loss, and what it would be with other masks or another model."""
    batch = readme_batch()
    seen, past = source_mask(batch.source), target_mask(batch.inputs)
    everything = torch.tensor(True)
    masks = {
        "as it is": (seen, past),
        "the future is seen": (seen, (batch.inputs != PAD)[:, None, :, None]),
        "padding is seen": (everything, past),
        "padded queries see": (seen, past | past.any(0)),
    }
    weights = copied(our_model(small({})))
    with torch.no_grad():
        return {name: float(readme_loss(weights, batch, *pair, Dropout(0.0))) for name, pair in masks.items()}


def test_the_equality_needs_every_mask_but_that_of_padded_queries() -> None:
    with torch.no_grad():
        ours = float(our_loss(our_model(small({})).eval(), readme_batch()))
    found = other_losses()
    equal = {name for name, loss in found.items() if loss == pytest.approx(ours, rel=1e-5)}
    assert equal == {"as it is", "padded queries see"}
    assert abs(found["the future is seen"] / ours - 1) > 1e-3
    assert abs(found["padding is seen"] / ours - 1) > 1e-3


@pytest.mark.parametrize(
    "changes",
    [{"scale_embeddings": True}, {"norm_eps": 1e-2}, {"n_heads": 4}],
    ids=lambda changes: next(iter(changes)),
)
def test_the_equality_needs_the_recipes_values(changes: dict[str, object]) -> None:
    with torch.no_grad():
        loss = float(our_loss(our_model(small(changes)).eval(), readme_batch()))
    assert abs(loss / other_losses()["as it is"] - 1) > 1e-4


def test_both_sides_of_its_corpus_are_marked() -> None:
    """So are those of the batch above."""
    assert PARAMS.corpora[README.corpus].source_marks == "both"
