"""The Transformer against torch's own, and what must hold of it whatever its weights are."""

import math

import pytest
import torch
from specs import SPEC, variant
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models import transformer
from bleuprint.models.dropout import Dropout
from bleuprint.models.transformer import Transformer, attend, sinusoidal_positions
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import BOS, EOS, PAD

SOURCE_TYPES, TARGET_TYPES = 11, 13
SOURCE = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 4, 5, 6, 7, 8], [BOS, 9, 10, 11, PAD, PAD]])
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def random_model(spec: TransformerModel) -> Transformer:
    """Return a model in which no bias is zero, no norm is neutral and attention is far from even."""
    torch.manual_seed(1)
    model = Transformer(spec, SOURCE_TYPES, TARGET_TYPES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.fixture(params=[0, 64], ids=["fused", "explicit"])
def either_attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "EXPLICIT_UP_TO", request.param)


# --- the same function as torch's modules -----------------------------------------------------------------------------

TORCH_NAMES = {
    ".attention.qkv.": ".self_attn.in_proj_",
    ".attention.out.": ".self_attn.out_proj.",
    ".attention_residual.norm.": ".norm1.",
    ".cross.out.": ".multihead_attn.out_proj.",
    ".cross_residual.norm.": ".norm2.",
    ".feed_forward.inner.": ".linear1.",
    ".feed_forward.outer.": ".linear2.",
    "encoder_norm.": "encoder.norm.",
    "decoder_norm.": "decoder.norm.",
}


def torch_name(name: str) -> str:
    """Return the name in torch.nn.Transformer of one of our parameters."""
    last_norm = "norm2" if name.startswith("encoder.") else "norm3"
    name = name.replace("feed_forward_residual.norm", last_norm).replace("encoder.", "encoder.layers.")
    name = name.replace("decoder.", "decoder.layers.")
    for ours, theirs in TORCH_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def as_torch(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the values of encoder and decoder, and join Q with K and V of the attention to the source."""
    found = {}
    for name, value in values.items():
        if ".cross.query." in name:
            joined = torch.cat([value, values[name.replace("query", "kv")]])
            found[name.replace("cross.query.", "multihead_attn.in_proj_").replace("decoder.", "decoder.layers.")] = (
                joined
            )
        elif name.startswith(("encoder", "decoder")) and ".cross.kv." not in name:
            found[torch_name(name)] = value
    return found


def torch_transformer(model: Transformer) -> nn.Transformer:
    """Return torch's Transformer with the weights of ours; as in the paper, post-norm has no norm after the stack."""
    spec = model.spec
    reference = nn.Transformer(
        spec.d_model,
        spec.n_heads,
        spec.n_layers,
        spec.n_layers,
        spec.d_ff,
        dropout=0.0,
        layer_norm_eps=spec.norm_eps,
        batch_first=True,
        norm_first=spec.norm == "pre",
    ).double()
    if spec.norm == "post":
        reference.encoder.norm = reference.decoder.norm = None
    reference.load_state_dict(as_torch({name: value.detach() for name, value in model.named_parameters()}))
    return reference


def torch_embed(table: nn.Embedding, ids: Tensor) -> Tensor:
    return table.weight[ids] * 4.0 + sinusoidal_positions(100, 16)[: ids.size(1)]  # 4 = sqrt(d_model)


@NORMS
@pytest.mark.usefixtures("either_attention")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_equals_torch_with_the_same_weights(norm: str) -> None:
    """In float64, where two equal formulas agree to far more digits than two similar ones."""
    model = random_model(variant({"norm": norm, "norm_eps": 1e-3})).double()
    reference = torch_transformer(model)
    source_pad = SOURCE == PAD
    expected = reference(
        torch_embed(model.source_embedding, SOURCE),
        torch_embed(model.target_embedding, TARGET),
        tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
        src_key_padding_mask=source_pad,
        memory_key_padding_mask=source_pad,
    )
    hidden = model(SOURCE, TARGET)
    assert_close(hidden, expected, 1e-9)

    weights = torch.randn_like(hidden)
    (hidden * weights).sum().backward()
    (expected * weights).sum().backward()
    gradients = as_torch({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients.keys() == dict(reference.named_parameters()).keys()
    for name, parameter in reference.named_parameters():
        assert parameter.grad is not None
        assert_close(gradients[name], parameter.grad, 1e-9)
        assert gradients[name].abs().max() > 1e-3, name


def test_logits_are_hidden_states_times_the_output_matrix() -> None:
    model = random_model(SPEC)
    hidden = torch.randn(2, 3, 16)
    assert model.output_bias is not None
    assert_close(model.project(hidden), hidden @ model.output_weight.t() + model.output_bias)


def test_explicit_attention_equals_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, length, 4) for length in (5, 7, 7))
    hidden = (torch.arange(7) >= torch.tensor([7, 4])[:, None])[:, None, None, :] | torch.ones(5, 7).triu(3).bool()
    found = []
    for limit in (0, 64):
        monkeypatch.setattr(transformer, "EXPLICIT_UP_TO", limit)
        for mask in (hidden, None):
            found.append(attend(query, key, value, mask, Dropout(0.5).eval()))
    for fused, explicit in zip(found[:2], found[2:], strict=True):
        assert_close(fused, explicit, 1e-6)
    scores = (query @ key.transpose(-2, -1) / 2.0).masked_fill(hidden, -math.inf)  # 2 = sqrt(d_k)
    assert_close(found[0], F.softmax(scores, -1) @ value)


# --- masks ------------------------------------------------------------------------------------------------------------


@NORMS
@pytest.mark.usefixtures("either_attention")
@pytest.mark.parametrize("t", range(6))
@torch.no_grad()
def test_a_token_changes_its_own_and_later_positions_alone(norm: str, t: int) -> None:
    model = random_model(variant({"norm": norm}))
    changed = TARGET.clone()
    changed[0, t] = 12
    before, after = model(SOURCE, TARGET)[0], model(SOURCE, changed)[0]
    assert_close(after[:t], before[:t], 1e-6)
    assert ((after[t:] - before[t:]).abs().amax(-1) > 1e-3).all()


@NORMS
@pytest.mark.usefixtures("either_attention")
@torch.no_grad()
def test_padding_and_batch_mates_change_nothing(norm: str) -> None:
    model = random_model(variant({"norm": norm}))
    alone = model(SOURCE[1:, :3], TARGET[1:, :4])
    more_source = F.pad(SOURCE[1:, :3], (0, 9), value=PAD)
    more_target = F.pad(TARGET[1:, :4], (0, 9), value=PAD)
    assert_close(model(more_source, TARGET[1:, :4]), alone)
    assert_close(model(SOURCE[1:, :3], more_target)[:, :4], alone)
    assert_close(model(SOURCE, TARGET)[1:, :4], alone)


@torch.no_grad()
def test_every_source_token_and_its_place_matter() -> None:
    model = random_model(SPEC)
    before = model(SOURCE[:1], TARGET[:1])
    for s in range(5):
        changed = SOURCE[:1].clone()
        changed[0, s] = 10
        assert (model(changed, TARGET[:1]) - before).abs().max() > 1e-3
    swapped = SOURCE[:1, [1, 0, 2, 3, 4]]
    assert (model(swapped, TARGET[:1]) - before).abs().max() > 1e-3


# --- decoding step by step --------------------------------------------------------------------------------------------


@NORMS
@pytest.mark.usefixtures("either_attention")
@torch.no_grad()
def test_cached_steps_equal_the_whole_decoder_under_a_search(norm: str) -> None:
    """Three hypotheses a sentence, reordered after every step; the first sentence is closed after the third."""
    model, beams = random_model(variant({"norm": norm})), 3
    random = torch.Generator().manual_seed(3)
    source, state = SOURCE, model.start(SOURCE, beams)
    prefixes = torch.empty(2, beams, 0, dtype=torch.long)  # (B, K, t)
    for position in range(6):
        tokens = torch.randint(4, TARGET_TYPES, (len(source), beams), generator=random)
        prefixes = torch.cat([prefixes, tokens[:, :, None]], dim=2)
        logits, state = model.step(tokens, state)
        whole = model.project(model(source.repeat_interleave(beams, 0), prefixes.flatten(0, 1)))[:, -1]
        assert_close(logits.flatten(0, 1), whole)
        keep = torch.tensor([1]) if position == 2 else torch.arange(len(source))
        origins = torch.randint(beams, (len(keep), beams), generator=random)
        state = state.select(keep, origins)
        source, prefixes = source[keep], prefixes[keep[:, None], origins]


# --- embeddings -------------------------------------------------------------------------------------------------------


def test_positions_are_sines_and_cosines() -> None:
    """With d_model 4 the frequencies are 1 and 10000^(-2/4) = 0.01."""
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.0099998, 0.99995],
        [0.909297, -0.416147, 0.0199987, 0.9998],
    ]
    assert_close(sinusoidal_positions(3, 4), torch.tensor(expected), 1e-6)


@pytest.mark.parametrize(("scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_embeddings_are_scaled_by_the_root_of_d_model_or_not(scaled: bool, factor: float) -> None:
    model = random_model(variant({"scale_embeddings": scaled}))
    words = model.embed(model.source_embedding, SOURCE) - sinusoidal_positions(5, 16)
    assert_close(words, model.source_embedding.weight[SOURCE] * factor)


def test_tied_embeddings_are_one_matrix() -> None:
    tied = Transformer(variant({"tie_embeddings": "all"}), 11, 11)
    assert tied.output_weight is tied.source_embedding.weight is tied.target_embedding.weight
    model = Transformer(SPEC, 11, 11)
    matrices = (model.output_weight, model.source_embedding.weight, model.target_embedding.weight)
    assert len({matrix.data_ptr() for matrix in matrices}) == 3


def test_tied_embeddings_need_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="one vocabulary for both sides, not 11 source and 13 target types"):
        Transformer(variant({"tie_embeddings": "all"}), 11, 13)


@torch.no_grad()
def test_too_long_sequences_are_refused() -> None:
    model = random_model(variant({"max_positions": 5}))
    message = "a sequence of 6 tokens is longer than max_positions 5"
    with pytest.raises(ValueError, match=message):
        model(SOURCE, TARGET)
    with pytest.raises(ValueError, match=message):
        model(TARGET, SOURCE)
    state = model.start(SOURCE, 1)
    for _ in range(5):
        _, state = model.step(torch.full((2, 1), 4), state)
    with pytest.raises(ValueError, match=message):
        model.step(torch.full((2, 1), 4), state)


# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["embedding", "residual", "attention", "ffn"])
@torch.no_grad()
def test_each_dropout_acts_in_training_alone(place: str) -> None:
    model = random_model(variant({f"{place}_dropout": 0.5}))
    expected = random_model(SPEC)(SOURCE, TARGET)
    assert torch.equal(model(SOURCE, TARGET), expected)
    assert (model.train()(SOURCE, TARGET) - expected).abs().max() > 1e-2
