"""How many weights the Transformer has, and how they are drawn."""

import math

import pytest
import torch
from specs import ROOT, variant

from bleuprint.graph import load_params
from bleuprint.models import build_model, count_parameters
from bleuprint.models.transformer import Transformer
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import PAD

SOURCE_TYPES, TARGET_TYPES = 11, 13


def expected_parameters(spec: TransformerModel, source_types: int, target_types: int) -> int:
    d, attention, norm = spec.d_model, 4 * (spec.d_model**2 + spec.d_model), 2 * spec.d_model
    feed_forward = 2 * d * spec.d_ff + spec.d_ff + d
    layers = spec.n_layers * (3 * attention + 2 * feed_forward + 5 * norm)
    matrices = target_types if spec.tie_embeddings == "all" else source_types + 2 * target_types
    bias = target_types if spec.output_bias else 0
    return layers + matrices * d + bias + (2 * norm if spec.norm == "pre" else 0)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "output_bias": False}, {"tie_embeddings": "all"}])
def test_the_number_of_parameters_is_the_formulas(changes: dict[str, object]) -> None:
    spec = variant(changes)
    target_types = SOURCE_TYPES if spec.tie_embeddings == "all" else TARGET_TYPES
    model = Transformer(spec, SOURCE_TYPES, target_types)
    assert count_parameters(model) == expected_parameters(spec, SOURCE_TYPES, target_types)


def test_tiny_has_as_many_parameters_as_its_formula() -> None:
    tiny = load_params(ROOT / "params.yaml").recipes["tiny"].model
    assert isinstance(tiny, TransformerModel)
    assert count_parameters(build_model(tiny, 10_000, 10_000)) == expected_parameters(tiny, 10_000, 10_000) == 2_605_056


def uniform_bounds(model: Transformer) -> dict[str, float]:
    """Return the largest absolute value in each matrix of the layers; Q, K and V apart."""
    found: dict[str, float] = {}
    for name, value in model.named_parameters():
        if value.dim() == 2 and name.startswith(("encoder.", "decoder.")):
            parts = value.split(value.size(1)) if "kv." in name else [value]
            found |= {f"{name}/{i}": float(part.detach().abs().max()) for i, part in enumerate(parts)}
    return found


def test_fairseqs_first_weights() -> None:
    """Xavier uniform is U(-a, a), a = gain sqrt(6 / (fan_in + fan_out)); Q, K and V are D x D each, gain 1/sqrt(2)."""
    torch.manual_seed(0)
    model = Transformer(variant({"d_model": 64, "d_ff": 128, "n_layers": 1}), 500, 600)
    square, inner = math.sqrt(6 / 128), math.sqrt(6 / 192)
    for name, found in uniform_bounds(model).items():
        bound = inner if "feed_forward" in name else square if "out." in name else square / math.sqrt(2)
        assert 0.98 * bound < found <= bound, name
    for table in (model.source_embedding.weight, model.target_embedding.weight):
        assert table[PAD].eq(0).all()
    for table in (model.source_embedding.weight, model.target_embedding.weight, model.output_weight):
        assert table.std().item() == pytest.approx(1 / 8, rel=0.02)  # N(0, 1/D)
        assert table.abs().max().item() > 3 / 8, "normal, not uniform"
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert parameter.eq(0.0 if "bias" in name else 1.0).all(), name


@pytest.mark.parametrize("init", ["xavier_uniform", "kaiming_uniform"])
def test_one_rule_for_every_matrix(init: str) -> None:
    """The rules of hyunwoongko's train.py: kaiming_uniform has a = sqrt(6 / fan_in); the pad row is drawn too."""
    torch.manual_seed(0)
    model = Transformer(variant({"d_model": 64, "d_ff": 128, "n_layers": 1, "init": init}), 500, 600)
    for name, found in uniform_bounds(model).items():
        fan_in = 128 if "outer" in name else 64
        fan_out = 128 if "inner" in name else 64
        bound = math.sqrt(6 / (fan_in + fan_out) if init == "xavier_uniform" else 6 / fan_in)
        assert 0.98 * bound < found <= bound, name
    for table in (model.source_embedding.weight, model.target_embedding.weight, model.output_weight):
        bound = math.sqrt(6 / (len(table) + 64) if init == "xavier_uniform" else 6 / 64)
        assert 0.98 * bound < table.abs().max().item() <= bound
        assert table[PAD].abs().max() > 0
    for name, parameter in model.named_parameters():
        if "bias" in name and "norm" not in name:
            assert 0 < parameter.abs().max().item() <= 1 / 8, f"{name} as nn.Linear draws it"


def test_the_output_bias_is_drawn_as_the_others() -> None:
    model = Transformer(variant({"init": "kaiming_uniform"}), 500, 600)
    assert model.output_bias is not None
    assert 0 < float(model.output_bias.detach().abs().max()) <= 1 / 4
