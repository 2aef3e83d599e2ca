"""Dropout's chances, its independence, and its gradient."""

import math

import pytest
import torch
from torch import Tensor

from bleuprint.models.dropout import LEVELS, Dropout, keep_mask

CPU = torch.device("cpu")


def kept(count: int, probability: float, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return keep_mask(torch.Size([count]), probability, CPU)[0]


@pytest.mark.parametrize("probability", [1 / LEVELS, 0.001, 0.1, 0.3, 0.5, 0.9, 1 - 1 / LEVELS])
def test_as_many_are_dropped_as_asked(probability: float) -> None:
    """Within 5 standard deviations of the binomial; a threshold off by one fails at either end."""
    count = 8_000_000
    dropped = count - int(kept(count, probability).sum())
    deviation = math.sqrt(count * probability * (1 - probability))
    assert abs(dropped - count * probability) < 5 * deviation + count / (2 * LEVELS) * (probability != 1 / LEVELS)


@pytest.mark.parametrize("probability", [1 / LEVELS, 0.001, 0.1, 0.3, 0.5, 0.9, 1 - 1 / LEVELS])
def test_the_factor_belongs_to_the_rounded_chance(probability: float) -> None:
    """Chance of being kept x factor is exactly 1: the mean over all draws is the input."""
    _, factor = keep_mask(torch.Size([4]), probability, CPU)
    levels_kept = LEVELS - round(probability * LEVELS)
    assert factor * levels_kept / LEVELS == pytest.approx(1.0, rel=1e-15)


def test_mean_and_values() -> None:
    torch.manual_seed(0)
    x = torch.full((1000, 1000), 3.0)
    y = Dropout(0.3)(x)
    assert sorted(y.unique().tolist()) == pytest.approx([0.0, 3.0 / 0.7], rel=1e-4)
    assert float(y.double().mean()) == pytest.approx(3.0, abs=5 * 3.0 * math.sqrt(0.3 / 0.7) / 1000)


def test_the_four_draws_of_a_word_are_independent() -> None:
    """Chi-square over the 16 patterns of four neighbours: 15 degrees of freedom, 37.7 is exceeded once in 1,000."""
    groups, probability = 200_000, 0.3
    patterns = (kept(4 * groups, probability).view(groups, 4) * torch.tensor([1, 2, 4, 8])).sum(1)
    found = patterns.bincount(minlength=16).double()
    ones = torch.tensor([bin(pattern).count("1") for pattern in range(16)])
    expected = groups * (1 - probability) ** ones.double() * probability ** (4.0 - ones)
    assert float(((found - expected) ** 2 / expected).sum()) < 37.7


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8])
def test_neighbours_are_uncorrelated(lag: int) -> None:
    values = kept(1_000_000, 0.3).double() - 0.7
    correlation = float((values[lag:] * values[:-lag]).mean()) / (0.3 * 0.7)
    assert abs(correlation) < 5 / math.sqrt(1_000_000)


def test_every_place_of_an_odd_shape_is_drawn() -> None:
    torch.manual_seed(0)
    draws, shape = 2000, torch.Size([3, 5, 3])  # 45 values from 12 words
    total = torch.stack([keep_mask(shape, 0.5, CPU)[0] for _ in range(draws)]).sum(0)
    assert total.shape == shape
    assert ((total - draws / 2).abs() < 5 * math.sqrt(draws) / 2).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_passes_where_the_value_did(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 7, dtype=dtype).requires_grad_()
    y = Dropout(0.4)(x)
    above = torch.randn_like(y)
    [gradient] = torch.autograd.grad(y, x, above)
    mask = y != 0
    assert mask.any()
    assert not mask.all()
    assert y.dtype == gradient.dtype == dtype
    torch.testing.assert_close(y, x * mask / 0.6, rtol=1e-2 if dtype is torch.bfloat16 else 1e-4, atol=0)
    torch.testing.assert_close(gradient, above * mask / 0.6, rtol=1e-2 if dtype is torch.bfloat16 else 1e-4, atol=0)


def test_evaluation_and_probability_zero_are_the_identity() -> None:
    x = torch.randn(5)
    state = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn"


def test_the_seed_decides() -> None:
    assert torch.equal(kept(1000, 0.5, seed=1), kept(1000, 0.5, seed=1))
    assert not torch.equal(kept(1000, 0.5, seed=1), kept(1000, 0.5, seed=2))
    torch.manual_seed(1)
    first, second = (keep_mask(torch.Size([1000]), 0.5, CPU)[0] for _ in range(2))
    assert not torch.equal(first, second)
