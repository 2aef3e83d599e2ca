"""R-Drop's loss and gradients against torch's own cross-entropy and divergence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from copy_task import corpus, recipe_for
from torch import Tensor
from torch.nn import functional as F

from bleuprint import objective
from bleuprint.batching import collate, open_pairs
from bleuprint.consistency import consistent_cross_entropy
from bleuprint.training import new_learner
from bleuprint.updates import batch_loss, prepare, training_loss

__all__ = ["corpus"]  # a fixture

ALPHA, SMOOTHING = 5.0, 0.1


def by_definition(first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Half of Liang et al.'s equations 1 to 3, summed over tokens, with smoothed cross-entropies."""
    z, z2 = F.linear(first, weight, bias), F.linear(second, weight, bias)
    entropies = [F.cross_entropy(x, target, reduction="sum", label_smoothing=SMOOTHING) for x in (z, z2)]
    p, q = z.log_softmax(-1), z2.log_softmax(-1)
    divergences = [F.kl_div(x, y, log_target=True, reduction="sum") for x, y in ((p, q), (q, p))]
    return (entropies[0] + entropies[1]) / 2 + ALPHA / 4 * (divergences[0] + divergences[1])


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [5, 1000])
def test_loss_and_gradients_are_those_of_the_definition(
    with_bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(objective.ROWS, "cpu", rows)
    random = torch.Generator().manual_seed(1)
    first, second, weight = (torch.randn(*shape, generator=random) for shape in ((37, 8), (37, 8), (11, 8)))
    bias = torch.randn(11, generator=random) if with_bias else None
    target = torch.randint(0, 11, (37,), generator=random)
    inputs = [x.double().requires_grad_() for x in (first, second, weight, bias) if x is not None]
    first, second, weight = inputs[:3]
    bias = inputs[3] if with_bias else None
    found = consistent_cross_entropy(first, second, weight, bias, target, SMOOTHING, ALPHA)
    expected = by_definition(first, second, weight, bias, target)
    torch.testing.assert_close(found.smoothed.double(), expected, rtol=1e-5, atol=0)
    gradients = [torch.autograd.grad(3 * loss, inputs) for loss in (found.smoothed, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    plain = [F.cross_entropy(F.linear(x, weight, bias), target, reduction="sum") for x in (first, second)]
    assert float(found.plain) == pytest.approx(sum(float(x.detach()) for x in plain) / 2, rel=1e-5)
    assert not found.plain.requires_grad


def test_two_passes_differ_by_their_dropout_alone(corpus: Path) -> None:
    """Without dropout there is no divergence, and the loss is that of one pass; with it, it is more."""
    pairs = open_pairs(corpus, "train")
    found = {}
    for chance in (0.0, 0.3):
        dropout = {"embedding_dropout": chance, "residual_dropout": chance}
        recipe = recipe_for(corpus, {"regularizers": {"r_drop": 100.0, "bpe_dropout": 0.0}}, dropout)
        learner = new_learner(recipe)
        batch = prepare(collate(pairs, np.arange(20)), learner.device)
        found[chance] = [training_loss(learner, batch), batch_loss(learner, batch, recipe.train.label_smoothing)]
    consistent, usual = found[0.0]
    assert consistent.smoothed.item() == pytest.approx(usual.smoothed.item(), rel=1e-5)
    assert float(consistent.plain) == pytest.approx(float(usual.plain), rel=1e-5)
    consistent, usual = found[0.3]
    assert consistent.smoothed.item() > 1.2 * usual.smoothed.item()
