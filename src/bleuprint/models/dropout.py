"""Dropout that is cheap on a CPU: four Bernoulli draws from one 64-bit random integer."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16  # a draw is one of 65,536 equally likely 16-bit integers


def keep_mask(shape: torch.Size, probability: float, device: torch.device) -> tuple[Tensor, float]:
    """Return a bool mask that keeps each element with chance 1 - probability, and 1 / (the chance of being kept).

    The chance is rounded to a multiple of 2^-16, and the factor is that of the rounded chance, so the mean is exact.
    """
    threshold = round(probability * LEVELS)
    words = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64, device=device).random_(-(2**63), None)
    draws = words.view(torch.int16)[: shape.numel()].view(shape)
    return draws >= threshold - LEVELS // 2, LEVELS / (LEVELS - threshold)


class MaskedScale(torch.autograd.Function):
    """x * mask * factor, remembering one byte an element instead of a float mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.factor = factor
        return (x * mask).mul_(factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (gradient * mask).mul_(ctx.factor), None, None


class Dropout(nn.Module):
    """Zero elements with `probability` while training and scale the rest (Srivastava et al. 2014)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.probability)
        mask, factor = keep_mask(x.shape, self.probability, x.device)
        return MaskedScale.apply(x, mask, factor)
