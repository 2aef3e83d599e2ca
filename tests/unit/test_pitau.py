"""pi-tau's Transformer in both forms: number by number, each fact with a change that would be noticed."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models import count_parameters, pitau
from bleuprint.models.dropout import Dropout
from bleuprint.models.pitau import CrossAttention, Pitau, SelfAttention, attend
from bleuprint.params import PitauModel
from bleuprint.tokenizers import BOS, EOS, PAD

SPEC = PitauModel(
    kind="pitau",
    form="coded",
    d_model=8,
    d_ff=12,
    n_heads=2,
    n_layers=2,
    max_positions=20,
    dropout=0.0,
    norm_eps=1e-5,
)
RECIPE = {"d_model": 256, "d_ff": 512, "n_heads": 8, "n_layers": 4, "max_positions": 256, "dropout": 0.1}  # CLAIMS 2
SOURCE_TYPES, TARGET_TYPES = 11, 13
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [8, 9, 10, PAD, PAD]])  # no marks on the source
TARGET = torch.tensor([[BOS, 4, 5, 6, 7, 8], [BOS, 9, 10, EOS, PAD, PAD]])  # inputs of shorter sentences have their EOS
FORMS = pytest.mark.parametrize("form", ["coded", "written"])


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def variant(changes: Mapping[str, object]) -> PitauModel:
    return PitauModel.model_validate(SPEC.model_dump() | dict(changes))


def random_model(form: str, changes: Mapping[str, object] | None = None) -> Pitau:
    """Return a model in which no norm is neutral, no bias zero and attention far from even."""
    torch.manual_seed(1)
    model = Pitau(variant({"form": form} | dict(changes or {})), SOURCE_TYPES, TARGET_TYPES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model.eval()


# --- number by number -------------------------------------------------------------------------------------------------


def naive_attention(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, divisor: float) -> Tensor:
    """Return attention of one sentence with two heads, (T, D): a key's weight is exp(score) over the sum."""
    heads = []
    for columns in (slice(0, 4), slice(4, 8)):
        rows = []
        for t, q in enumerate(query[:, columns]):
            scores = [-1e9 if hidden[t, s] else float(q @ k) / divisor for s, k in enumerate(key[:, columns])]
            weights = [math.exp(score - max(scores)) for score in scores]
            mixed = [w * v for w, v in zip(weights, value[:, columns], strict=True)]
            rows.append(torch.stack(mixed).sum(0) / sum(weights))
        heads.append(torch.stack(rows))
    return torch.cat(heads, dim=1)


def naive_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return layer.weight * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() + layer.bias


def naive_model(model: Pitau, source: Tensor, target: Tensor, form: str, change: str = "") -> Tensor:
    """Return the hidden states of one sentence, (T, D), by the formulas, but for one change."""
    divisor = math.sqrt(8 if change == "d_model" else 4)

    def block(part: pitau.Residual, x: Tensor, y: Tensor) -> Tensor:
        """Return what the form adds to the sub-layer's output y."""
        return (naive_norm(part.norm, x) if form == "coded" else x) + y

    def feed(layer: Any, x: Tensor) -> Tensor:
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        y = naive_norm(layer.feed_forward_residual.norm, x)
        y = (y @ inner.weight.t() + inner.bias).clamp(min=0) @ outer.weight.t() + outer.bias
        return block(layer.feed_forward_residual, x, y)

    def attention(module: Any, part: Any, x: Tensor, memory: Tensor | None, hidden: Tensor) -> Tensor:
        normed = naive_norm(part.norm, x)
        weight = module.qkv.weight if memory is None else torch.cat([module.query.weight, module.kv.weight])
        read = (normed, *(2 * (normed if memory is None else memory,)))
        query, key, value = (x @ weight[8 * i : 8 * i + 8].t() for i, x in enumerate(read))
        y = naive_attention(query, key, value, hidden, divisor) @ module.out.weight.t() + module.out.bias
        return block(part, x, y)

    def embed(table: nn.Embedding, ids: Tensor) -> Tensor:
        scale = math.sqrt(8) if change == "scale" else math.sqrt(math.sqrt(8))
        return table.weight[ids] * scale + model.positions[: len(ids)]

    def last(layer: nn.LayerNorm, x: Tensor) -> Tensor:
        return x if change == "last norms" else naive_norm(layer, x)

    source_pad = source == PAD
    keys = source_pad.expand(len(source), -1)
    hide_queries = (form == "coded") != (change == "mask")
    memory = embed(model.source_embedding, source)
    for layer in model.encoder:
        hidden = keys.t() if hide_queries else keys
        memory = feed(layer, attention(layer.attention, layer.attention_residual, memory, None, hidden))
    memory = last(model.encoder_norm, memory)
    x = embed(model.target_embedding, target)
    future = torch.arange(len(target))[None] > torch.arange(len(target))[:, None]
    across = source_pad.expand(len(target), -1)
    if change == "cross mask":
        across = torch.zeros_like(across)
    for layer in model.decoder:
        x = attention(layer.attention, layer.attention_residual, x, None, future)
        x = feed(layer, attention(layer.cross, layer.cross_residual, x, memory, across))
    return last(model.decoder_norm, x)


@FORMS
@torch.no_grad()
def test_the_model_is_its_formulas(form: str) -> None:
    """In float64; projections, scales, positions, masks, residuals and order all count."""
    model = random_model(form).double()
    found = model(SOURCE, TARGET)
    for b in range(2):
        assert_close(found[b], naive_model(model, SOURCE[b], TARGET[b], form), 1e-9)


@FORMS
@pytest.mark.parametrize("change", ["d_model", "scale", "last norms", "mask", "cross mask", "residual"])
@torch.no_grad()
def test_no_change_would_go_unnoticed(form: str, change: str) -> None:
    """`residual` with the form's own mask, `mask` with its own residual."""
    model = random_model(form).double()
    named = form
    if change == "residual":
        named, change = ({"coded": "written", "written": "coded"}[form]), "mask"
    expected = naive_model(model, SOURCE[1], TARGET[1], named, change)
    assert (model(SOURCE, TARGET)[1] - expected).abs().max() > 1e-2


def test_the_residual_is_the_normalised_input_as_coded_only() -> None:
    """With a sub-layer of zeros the block is the norm as coded, and nothing at all as written."""
    x = torch.randn(2, 3, 8) * 5 + 1
    for form, expected in (("coded", F.layer_norm(x, (8,))), ("written", x)):
        block = pitau.Residual(variant({"form": form}))
        assert_close(block(x, torch.zeros_like), expected)


def test_a_row_with_every_key_hidden_looks_at_all_evenly() -> None:
    query, key, value = torch.randn(1, 3, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    hidden = torch.zeros(1, 1, 3, 5, dtype=torch.bool)
    hidden[..., 1, :] = True
    found = attend(query, key, value, hidden, 2, Dropout(0.0))
    assert_close(found[0, 1], value[0].mean(0))
    assert (found[0, 0] - value[0].mean(0)).abs().max() > 0.1


# --- what the model sees ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_padding_of_the_source_changes_a_sentence_as_coded_only() -> None:
    """So its loss depends on the batch a sentence is in, and decoding must not pad."""
    for form in ("coded", "written"):
        model = random_model(form)
        alone = model(SOURCE[1:, :3], TARGET[1:])
        difference = (model(SOURCE, TARGET)[1:] - alone).abs().max()
        assert difference > 1e-2 if form == "coded" else difference < 1e-5, form


@FORMS
@torch.no_grad()
def test_padding_of_the_target_changes_nothing(form: str) -> None:
    model = random_model(form)
    assert_close(model(SOURCE[1:], TARGET[1:])[:, :4], model(SOURCE[1:], TARGET[1:, :4]))


@FORMS
@pytest.mark.parametrize("t", range(6))
@torch.no_grad()
def test_a_token_changes_later_positions_only(form: str, t: int) -> None:
    model, changed = random_model(form), TARGET.clone()
    changed[0, t] = 12
    moved = (model(SOURCE, changed)[0] - model(SOURCE, TARGET)[0]).abs().amax(-1)
    assert (moved[:t] == 0).all()
    assert (moved[t:] > 1e-4).all()


@FORMS
@torch.no_grad()
def test_positions_are_one_table(form: str) -> None:
    """A change of position 4 moves a sentence of five source words, and one of five target words."""
    model, before = random_model(form), random_model(form)
    model.positions[4] += torch.randn(8)  # not one number: a norm takes that away again
    for source, target in ((SOURCE[:1], TARGET[:1, :3]), (SOURCE[:1, :3], TARGET[:1, :5])):
        assert (model(source, target) - before(source, target)).abs().max() > 1e-3
    assert torch.equal(model(SOURCE[:1, :3], TARGET[:1, :3]), before(SOURCE[:1, :3], TARGET[:1, :3]))


@FORMS
@torch.no_grad()
def test_dropout_acts_on_embeddings_attention_weights_and_every_sub_layer(form: str) -> None:
    """Encoder layers have one attention and two sub-layers, decoder layers two and three; none inside feed-forwards."""
    model, expected = random_model(form, {"dropout": 0.5}), random_model(form)(SOURCE, TARGET)
    places = [module for module in model.modules() if isinstance(module, Dropout)]
    assert torch.equal(model(SOURCE, TARGET), expected)
    assert len(places) == 1 + 2 * (1 + 2) + 2 * (2 + 3)
    for place in places:
        place.train()
        assert (model(SOURCE, TARGET) - expected).abs().max() > 1e-3
        place.eval()


@torch.no_grad()
def test_dropout_spares_the_residual() -> None:
    """Half of what a sub-layer adds is zero, the rest doubled."""
    torch.manual_seed(0)
    block = pitau.Residual(variant({"form": "written", "dropout": 0.5})).train()
    x = torch.randn(50, 4, 8)
    added = block(x, torch.ones_like) - x
    assert 0.4 < (added.abs() < 1e-5).float().mean() < 0.6
    assert_close(added, added.round() * (added.round() == 2))


# --- the whole model --------------------------------------------------------------------------------------------------


def test_the_output_matrix_is_the_target_embedding_without_bias() -> None:
    model, hidden = random_model("coded"), torch.randn(2, 3, 8)
    assert model.output_weight is model.target_embedding.weight
    assert model.output_bias is None
    assert_close(model.project(hidden), hidden @ model.target_embedding.weight.t())


@torch.no_grad()
def test_too_long_sequences_are_refused() -> None:
    model = random_model("coded", {"max_positions": 5})
    for source, target in ((SOURCE, TARGET), (TARGET, SOURCE)):
        with pytest.raises(ValueError, match="a sequence of 6 tokens is longer than max_positions 5"):
            model(source, target)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="d_model 8 is not divisible by n_heads 3"):
        variant({"n_heads": 3})
    assert variant({"d_model": 9, "n_heads": 3}).d_model == 9, "no sines and cosines, no pairs"


@FORMS
@torch.no_grad()
def test_decoding_steps_equal_the_whole_model(form: str) -> None:
    """Causal, so that the prefix alone and the whole target agree."""
    model = random_model(form)
    state, whole = model.start(SOURCE[:1], 1), model.project(model(SOURCE[:1], TARGET[:1]))
    for t in range(6):
        logits, state = model.step(TARGET[:1, t : t + 1], state)
        assert_close(logits[0, 0], whole[0, t])


@pytest.mark.parametrize(("source_types", "target_types"), [(11, 13), (18_757, 10_210)])
@FORMS
def test_the_number_of_parameters_is_the_formulas(form: str, source_types: int, target_types: int) -> None:
    """Words and positions; 4 D^2 + D an attention; 2 D d_ff + d_ff + D a feed-forward; 2 D a norm."""
    with torch.device("meta"):
        model = pitau.build(variant(RECIPE | {"form": form}), source_types, target_types)
    attention, feed, norm = 4 * 256**2 + 256, 2 * 256 * 512 + 512 + 256, 2 * 256
    layers = 4 * (attention + feed + 2 * norm) + 4 * (2 * attention + feed + 3 * norm)
    assert count_parameters(model) == (source_types + target_types + 256) * 256 + layers + 2 * norm


def test_first_weights() -> None:
    """Words N(0, 1/D), positions N(0, 1), Q and K N(0, 2/(D + d_k)), W^O's bias zero; the rest as nn.Linear does."""
    torch.manual_seed(0)
    model = Pitau(variant({"d_model": 64, "d_ff": 128, "n_heads": 4, "max_positions": 100}), 500, 600)
    for values, deviation in (
        (model.source_embedding.weight, 1 / 8),
        (model.target_embedding.weight, 1 / 8),
        (model.positions, 1.0),
    ):
        assert values.std().item() == pytest.approx(deviation, rel=0.03)
        assert values[PAD].abs().max() > 0
        assert values.abs().max() > 2 * deviation, "normal, not even"
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            if isinstance(module, SelfAttention):
                query, key, value = module.qkv.weight.detach().chunk(3)
            else:
                query, (key, value) = module.query.weight.detach(), module.kv.weight.detach().chunk(2)
            for matrix in (query, key):
                assert matrix.std().item() == pytest.approx(math.sqrt(2 / (64 + 16)), rel=0.03)
            for matrix in (value, module.out.weight.detach()):
                assert matrix.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.03)
                assert matrix.abs().max() <= 1 / 8
            assert module.out.bias.eq(0).all()
            assert [name for name, _ in module.named_parameters() if name.endswith("bias")] == ["out.bias"]
        if isinstance(module, pitau.FeedForward):
            assert module.inner.bias.abs().max() > 0
            assert module.inner.weight.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.03)


@FORMS
def test_gradients_reach_every_parameter_in_bf16_too(form: str) -> None:
    found = []
    for enabled in (False, True):
        model = random_model(form)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model.project(model(SOURCE, TARGET))
        loss = F.cross_entropy(logits.float().flatten(0, 1), TARGET.roll(-1, 1).flatten(), ignore_index=PAD)
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name
        pad = model.source_embedding.weight.grad
        assert pad is not None
        assert bool(pad[PAD].ne(0).any()) == (form == "coded"), "only what is coded reads its padding"
        found.append(loss.item())
    assert found[1] == pytest.approx(found[0], rel=0.05)
    assert found[1] != found[0]
