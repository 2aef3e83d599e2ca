"""The published code's nine differences, each with a test that a repaired model fails, and its two repairs."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models import count_parameters, hyunwoongko
from bleuprint.models.hyunwoongko import (
    EncoderLayer,
    Hyunwoongko,
    LayerNorm,
    attend,
    attention_scores,
    hidden_target,
    join_heads,
    sinusoidal_positions,
    split_heads,
)
from bleuprint.params import HyunwoongkoModel
from bleuprint.tokenizers import BOS, EOS, PAD, UNK

SPEC = HyunwoongkoModel(
    kind="hyunwoongko",
    d_model=8,
    d_ff=12,
    n_heads=2,
    n_layers=2,
    max_positions=20,
    dropout=0.0,
    output_projection=False,
    score_scale="d_model",
    norm_eps=1e-12,
    init="xavier_uniform",
)
BASE = {"d_model": 512, "d_ff": 2048, "n_heads": 8, "n_layers": 6}
SOURCE_TYPES, TARGET_TYPES = 11, 13
SOURCE = torch.tensor([[BOS, 4, 5, 6, EOS], [BOS, 8, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 4, 5, 6, 7, 8], [BOS, 9, 10, EOS, PAD, PAD]])  # inputs of shorter sentences have their EOS
REPAIRS = ["split", "join", "key", "divisor", "softmax", "mask"]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def variant(changes: Mapping[str, object]) -> HyunwoongkoModel:
    return HyunwoongkoModel.model_validate(SPEC.model_dump() | dict(changes))


def random_model(spec: HyunwoongkoModel) -> Hyunwoongko:
    """Return a model in which no norm is neutral and attention is far from even."""
    torch.manual_seed(1)
    model = Hyunwoongko(spec, SOURCE_TYPES, TARGET_TYPES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


# --- attention, number by number --------------------------------------------------------------------------------------


def at(flat: Tensor, index: int, width: int) -> Tensor:
    """Return the index-th number of a matrix that is read along its rows."""
    return flat[index // width, index % width]


def naive_attention(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, n_heads: int, repair: str) -> Tensor:
    """Return attention of one sentence, (T, D), as the published code computes it, but for one repair.

    The matrices are lists of numbers here: element (h, t, j) of a split is number (h T + t) d_k + j of its matrix.
    """
    (length, d_model), sources = query.shape, len(key)
    d_k = d_model // n_heads
    divisor = math.sqrt(d_k if repair == "divisor" else d_model)

    def part(x: Tensor, h: int, t: int, j: int) -> Tensor:
        return x[t, h * d_k + j] if repair == "split" else at(x, (h * len(x) + t) * d_k + j, d_model)

    def turned(h: int, j: int, s: int) -> Tensor:
        place = j * sources + s  # where the published code finds it in its head's (S, d_k) numbers
        return part(key, h, s, j) if repair == "key" else part(key, h, place // d_k, place % d_k)

    scores = torch.zeros(n_heads, length, sources, dtype=query.dtype)
    for h in range(n_heads):
        for t in range(length):
            for s in range(sources):
                score = sum(part(query, h, t, j) * turned(h, j, s) for j in range(d_k)) / divisor
                scores[h, t, s] = -1e-12 if hidden[t, s] and repair != "mask" else score
    weights = scores.softmax(2 if repair == "softmax" else 0)
    heads = torch.zeros(n_heads, length, d_k, dtype=query.dtype)
    for h in range(n_heads):
        for t in range(length):
            for j in range(d_k):
                heads[h, t, j] = sum(weights[h, t, s] * part(value, h, s, j) for s in range(sources))
    if repair == "join":
        return torch.cat(list(heads), dim=1)
    return torch.stack([at(heads.flatten(0, 1), i, d_k) for i in range(length * d_model)]).view(length, d_model)


def compare_attention(repair: str) -> tuple[Tensor, Tensor]:
    """Return what `attend` gives and what the naive formula with one repair gives, (2, 3, 4) for 5 source positions."""
    random = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, n, 4, generator=random, dtype=torch.float64) * 2 for n in (3, 5, 5))
    hidden = torch.rand(2, 3, 5, generator=random) < 0.4
    expected = [naive_attention(q, k, v, m, 2, repair) for q, k, v, m in zip(query, key, value, hidden, strict=True)]
    return attend(query, key, value, hidden[:, None], n_heads=2, divisor=2.0), torch.stack(expected)


def test_attention_is_the_published_codes_number_by_number() -> None:
    assert_close(*compare_attention("none"), 1e-12)


@pytest.mark.parametrize("repair", REPAIRS)
def test_no_repair_of_attention_would_go_unnoticed(repair: str) -> None:
    found, repaired = compare_attention(repair)
    assert (found - repaired).abs().max() > 0.1


def test_heads_are_runs_of_positions() -> None:
    """Difference 1: positions 0 and 1 make head 0 of four positions; a true head has a slice of all four."""
    x = torch.arange(32.0).view(1, 4, 8)
    heads = split_heads(x, 2)
    assert heads.shape == (1, 2, 4, 4)
    assert torch.equal(heads[0, 0].flatten(), x[0, :2].flatten())
    assert torch.equal(join_heads(heads), x)


def test_keys_are_reread_not_transposed() -> None:
    """Difference 2: with the query as unit vectors the scores are the second factor, row by row."""
    key = torch.arange(1.0, 7).view(1, 1, 3, 2)
    seen = torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    assert attention_scores(torch.eye(2)[None, None], key, seen, 1.0).tolist() == [[[[1, 2, 3], [4, 5, 6]]]]


@pytest.mark.parametrize(("scale", "divisor"), [("d_model", math.sqrt(8)), ("d_k", 2.0)])
def test_scores_are_divided_by_the_root_of_d_model_until_the_second_repair(scale: str, divisor: float) -> None:
    """Difference 3, and the repair that the logs from 7de0518 on have."""
    model = random_model(variant({"score_scale": scale}))
    found = {module.divisor for module in model.modules() if hasattr(module, "divisor")}
    assert found == {divisor}


def test_weights_sum_to_one_over_the_heads() -> None:
    """Difference 4, from outside: values of 1 in every head are weighted to H times the mean over H, S keys in all."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 6, 8, generator=random), torch.randn(1, 5, 8, generator=random)
    hidden = torch.zeros(1, 1, 1, 5, dtype=torch.bool)
    heads = split_heads(attend(query, key, torch.ones(1, 5, 8), hidden, 2, 1.0), 2)  # (1, 2, 6, 4)
    assert_close(heads.sum(1), torch.full((1, 6, 4), 5.0))
    assert heads.std() > 0.1, "over the keys each would sum to 1"


def test_hidden_scores_are_replaced_by_almost_nothing() -> None:
    """Difference 5: the value goes, the key stays."""
    query, key = torch.full((1, 2, 3, 4), 2.0), torch.full((1, 2, 5, 4), 3.0)
    hidden = (torch.arange(5) > 2)[None, None, None]
    scores = attention_scores(query, key, hidden, 2.0)
    assert scores[..., :3].eq(12.0).all()
    assert torch.equal(scores[..., 3:], torch.full((1, 2, 3, 2), -1e-12))


def test_a_hidden_key_has_an_even_weight_in_every_head() -> None:
    """What 4 and 5 come to: a hidden position is not excluded; its value arrives through each head with 1/H."""
    query, key = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    value = torch.randn(1, 3, 8)
    found = attend(query, key, value, torch.ones(1, 1, 3, 3, dtype=torch.bool), 2, 1.0)
    assert_close(split_heads(found, 2), split_heads(value, 2).sum(2, keepdim=True).expand(1, 2, 3, 4) / 2)


@pytest.mark.parametrize("projected", [False, True])
def test_only_the_first_repair_projects_the_joined_heads(projected: bool) -> None:
    """Difference 6."""
    layer = random_model(variant({"output_projection": projected})).encoder[0]
    assert isinstance(layer, EncoderLayer)
    x, hidden = torch.randn(2, 5, 8), torch.zeros(1, 1, 1, 5, dtype=torch.bool)
    query, key, value = layer.attention.qkv(x).chunk(3, -1)
    joined = attend(query, key, value, hidden, 2, math.sqrt(8))
    out = layer.attention.out
    expected = F.linear(joined, out.weight, out.bias) if isinstance(out, nn.Linear) else joined
    assert isinstance(out, nn.Linear) == projected
    assert_close(layer.attention(x, hidden), expected)


# --- norm and dropout -------------------------------------------------------------------------------------------------


def norm(eps: float) -> LayerNorm:
    layer = LayerNorm(variant({"norm_eps": eps}))
    torch.manual_seed(3)
    with torch.no_grad():
        layer.gamma.normal_()
        layer.beta.normal_()
    return layer


def written_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Difference 7, in the words of CLAIMS: the unbiased deviation, and eps outside its root."""
    centred = x - x.sum(-1, keepdim=True) / 8
    return gamma * centred / ((centred.square().sum(-1, keepdim=True) / 7).sqrt() + eps) + beta


@pytest.mark.parametrize(("eps", "dtype"), [(1e-12, torch.float32), (0.5, torch.float32), (1e-12, torch.float64)])
def test_norm_and_its_gradients(eps: float, dtype: torch.dtype) -> None:
    """By torch's kernel, where eps is lost in rounding, and by the formula."""
    layer = norm(eps).to(dtype)
    found_x, weights = torch.randn(3, 5, 8, dtype=dtype) * 3 + 1, torch.randn(3, 5, 8, dtype=dtype)
    x = found_x.double().requires_grad_()
    gamma, beta = (value.detach().double().requires_grad_() for value in (layer.gamma, layer.beta))
    found, expected = layer(found_x.requires_grad_()), written_norm(x, gamma, beta, eps)
    assert_close(found.double(), expected)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for ours, theirs in ((found_x, x), (layer.gamma, gamma), (layer.beta, beta)):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert_close(ours.grad.double(), theirs.grad, 1e-4)


def test_norm_is_not_torchs() -> None:
    x = torch.randn(3, 8)
    layer = norm(1e-12)
    biased = F.layer_norm(x, (8,), layer.gamma, layer.beta, 1e-12)
    assert_close((layer(x) - layer.beta) / (biased - layer.beta), torch.full((3, 8), math.sqrt(7 / 8)))


def test_eps_stands_beside_the_deviation() -> None:
    """With a deviation equal to eps the result is halved: inside the root it would be divided by 1e6."""
    layer = norm(1e-12)
    x = torch.tensor([[1.0, -1, 1, -1, 1, -1, 1, -1]]) * 1e-12 * math.sqrt(7 / 8)  # unbiased deviation 1e-12
    expected = layer.gamma * x.sign() * math.sqrt(7 / 8) / 2 + layer.beta
    assert_close(layer(x), expected[0].expand(1, 8))
    assert torch.equal(layer(torch.full((2, 8), 3.0)), layer.beta.expand(2, 8)), "no deviation at all"


@torch.no_grad()
def test_dropout_comes_after_the_norm() -> None:
    """Difference 8: half of what leaves a block is zero, the rest twice the norm; before the norm nothing would be."""
    torch.manual_seed(0)
    block = hyunwoongko.Residual(variant({"dropout": 0.5}))
    x, y = torch.randn(50, 4, 8), torch.randn(50, 4, 8)
    found, normed = block.train()(x, y), block.norm(x + y)
    assert 0.4 < (found == 0).float().mean() < 0.6
    assert_close(found, torch.where(found == 0, 0.0, 2 * normed))
    assert_close(block.eval()(x, y), normed)


@torch.no_grad()
def test_dropout_acts_on_embeddings_inner_values_and_every_block() -> None:
    model = random_model(variant({"dropout": 0.5}))
    places = [module for module in model.modules() if isinstance(module, hyunwoongko.Dropout)]
    expected = random_model(SPEC)(SOURCE, TARGET)
    assert torch.equal(model(SOURCE, TARGET), expected)
    assert len(places) == 1 + 2 * (2 + 1) + 2 * (3 + 1)
    for place in places:
        place.train()
        assert (model(SOURCE, TARGET) - expected).abs().max() > 1e-2
        place.eval()


# --- what the model sees ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", range(6))
@torch.no_grad()
def test_a_token_changes_earlier_positions_too(t: int) -> None:
    """Differences 1 to 5 together: no causality."""
    model, changed = random_model(SPEC), TARGET.clone()
    changed[0, t] = 12
    before, after = model(SOURCE, TARGET)[0], model(SOURCE, changed)[0]
    assert ((after - before).abs().amax(-1) > 1e-3).all()


@torch.no_grad()
def test_padding_changes_a_sentence() -> None:
    """So a loss depends on the batch a sentence is in, and decoding must not pad."""
    model = random_model(SPEC)
    alone = model(SOURCE[1:, :3], TARGET[1:, :4])
    assert (model(SOURCE[1:], TARGET[1:, :4]) - alone).abs().max() > 1e-2, "source"
    assert (model(SOURCE[1:, :3], TARGET[1:])[:, :4] - alone).abs().max() > 1e-2, "target"
    assert_close(model(SOURCE, TARGET)[1:], model(SOURCE[1:], TARGET[1:]))  # batch mates matter by their length alone


def test_padding_hides_target_queries_and_source_keys() -> None:
    assert hidden_target(torch.tensor([[BOS, 4, PAD]]))[0, 0].tolist() == [
        [False, True, True],
        [False, False, True],
        [True, True, True],
    ]
    assert hyunwoongko.hidden_source(torch.tensor([[4, PAD]]))[0, 0].tolist() == [[False, True]]


# --- the whole model --------------------------------------------------------------------------------------------------


def naive_model(model: Hyunwoongko, source: Tensor, target: Tensor) -> Tensor:
    """Return the hidden states of one sentence, (T, D), by the naive attention and norm."""

    def residual(block: hyunwoongko.Residual, x: Tensor, y: Tensor) -> Tensor:
        return written_norm(x + y, block.norm.gamma, block.norm.beta, 1e-12)

    def feed(layer: Any, x: Tensor) -> Tensor:
        y = layer.feed_forward.outer(layer.feed_forward.inner(x).clamp(min=0))
        return residual(layer.feed_forward_residual, x, y)

    def project(layer: nn.Linear, part: int, x: Tensor) -> Tensor:
        rows = slice(8 * part, 8 * part + 8)
        return x @ layer.weight[rows].t() + layer.bias[rows]

    def self_attention(layer: Any, x: Tensor, hidden: Tensor) -> Tensor:
        query, key, value = (project(layer.attention.qkv, part, x) for part in range(3))
        y = naive_attention(query, key, value, hidden, 2, "none")
        return residual(layer.attention_residual, x, y)

    def cross_attention(layer: Any, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        key, value = (project(layer.cross.kv, part, memory) for part in range(2))
        y = naive_attention(project(layer.cross.query, 0, x), key, value, hidden, 2, "none")
        return residual(layer.cross_residual, x, y)

    places = sinusoidal_positions(20, 8)
    memory = model.source_embedding.weight[source] + places[: len(source)]
    x = model.target_embedding.weight[target] + places[: len(target)]
    source_pad, target_pad = source == PAD, target == PAD
    for layer in model.encoder:
        memory = feed(layer, self_attention(layer, memory, source_pad.expand(len(source), -1)))
    future = torch.arange(len(target))[None] > torch.arange(len(target))[:, None]
    for layer in model.decoder:
        x = self_attention(layer, x, future | target_pad[:, None])
        x = feed(layer, cross_attention(layer, x, memory, source_pad.expand(len(target), -1)))
    return x


@torch.no_grad()
def test_the_model_is_its_parts_in_this_order() -> None:
    """In float64; projection and scale of Q, K, V, positions, masks and order all count."""
    model = random_model(SPEC).double()
    found = model(SOURCE, TARGET)
    for b in range(2):
        assert_close(found[b], naive_model(model, SOURCE[b], TARGET[b]), 1e-9)


def test_logits_are_hidden_states_times_the_output_matrix() -> None:
    model, hidden = random_model(SPEC), torch.randn(2, 3, 8)
    assert_close(model.project(hidden), hidden @ model.output_weight.t() + model.output_bias)


def test_positions_are_sines_and_cosines() -> None:
    """With d_model 4 the frequencies are 1 and 10000^(-2/4) = 0.01."""
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.0099998, 0.99995],
        [0.909297, -0.416147, 0.0199987, 0.9998],
    ]
    assert_close(sinusoidal_positions(3, 4), torch.tensor(expected), 1e-6)


@torch.no_grad()
def test_too_long_sequences_are_refused() -> None:
    model = random_model(variant({"max_positions": 5}))
    for source, target in ((SOURCE, TARGET), (TARGET, SOURCE)):
        with pytest.raises(ValueError, match="a sequence of 6 tokens is longer than max_positions 5"):
            model(source, target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"n_heads": 3}, "d_model 8 is not divisible by n_heads 3"), ({"d_model": 9, "n_heads": 3}, "d_model 9 is odd")],
)
def test_impossible_sizes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        variant(changes)


@torch.no_grad()
def test_decoding_steps_equal_the_whole_model_on_the_prefix() -> None:
    model = random_model(SPEC)
    state = model.start(SOURCE[:1], 1)
    for t in range(6):
        logits, state = model.step(TARGET[:1, t : t + 1], state)
        assert_close(logits[0, 0], model.project(model(SOURCE[:1], TARGET[:1, : t + 1]))[0, -1])


# --- sizes, first weights, gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("projection", "target_types", "count"),
    [(False, 7_855, 50_479_279), (True, 7_855, 55_207_087), (False, 7_853, 50_477_229)],
)
def test_the_published_number_of_parameters(projection: bool, target_types: int, count: int) -> None:
    """50,479,279 stood in the README beside the published curve; W^O makes it the later count (CLAIMS 1a, 1b)."""
    with torch.device("meta"):
        model = hyunwoongko.build(variant(BASE | {"output_projection": projection}), 5_893, target_types)
    assert count_parameters(model) == count


def test_german_to_english_would_count_otherwise() -> None:
    with torch.device("meta"):
        assert count_parameters(hyunwoongko.build(variant(BASE), 7_855, 5_893)) == 49_472_773


RULES: dict[str, Callable[[int, int], float]] = {  # standard deviations of a matrix (fan_out, fan_in)
    "xavier_uniform": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "kaiming_normal": lambda fan_in, fan_out: math.sqrt(2 / fan_in),
    "kaiming_uniform": lambda fan_in, fan_out: math.sqrt(2 / fan_in),
}


@pytest.mark.parametrize("init", RULES)
def test_one_rule_for_every_matrix_and_the_frozen_row(init: str) -> None:
    """Q, K and V are D x D each; an embedding has fan_in D; uniform is within sqrt(3) deviations, normal is not."""
    torch.manual_seed(0)
    changes = {"d_model": 64, "d_ff": 128, "n_layers": 1, "init": init, "output_projection": True}
    model = Hyunwoongko(variant(changes), 500, 600)
    for name, value in model.named_parameters():
        parts = value.detach().split(64) if "kv." in name else [value.detach()]
        for part in parts if value.dim() == 2 else []:
            fan_out, fan_in = part.shape
            deviation = RULES[init](fan_in, fan_out)
            assert part.std().item() == pytest.approx(deviation, rel=0.03), name
            assert (part.abs().max().item() > 2 * deviation) == (init == "kaiming_normal"), name
        if value.dim() == 1 and name.endswith("bias"):
            assert 0 < value.detach().abs().max().item() <= 1 / 8, f"{name} as nn.Linear draws it"
    for table in (model.source_embedding, model.target_embedding):
        assert table.weight[UNK].abs().max() > 0


def test_the_frozen_row_is_unks_and_padding_is_trained() -> None:
    """Difference 9: padding_idx 0, where pad is 1."""
    model = random_model(SPEC)
    source, target = SOURCE.clone(), TARGET.clone()
    source[0, 1] = target[0, 1] = UNK
    model(source, target).square().sum().backward()
    for table in (model.source_embedding, model.target_embedding):
        assert table.weight.grad is not None
        assert table.weight.grad[UNK].eq(0).all()
        assert table.weight.grad[PAD].ne(0).any()


@pytest.mark.parametrize("changes", [{}, {"output_projection": True, "score_scale": "d_k"}])
def test_gradients_reach_every_parameter_in_bf16_too(changes: dict[str, object]) -> None:
    found = []
    for enabled in (False, True):
        model = random_model(variant(changes))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model.project(model(SOURCE, TARGET))
        loss = F.cross_entropy(logits.float().flatten(0, 1), TARGET.roll(-1, 1).flatten(), ignore_index=PAD)
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name
        found.append(loss.item())
    assert found[1] == pytest.approx(found[0], rel=0.05)
    assert found[1] != found[0]
