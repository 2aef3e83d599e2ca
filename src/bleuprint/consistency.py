"""R-Drop (Liang et al. 2021): two passes with other dropout masks should predict alike.

Shapes: N predicted tokens, D d_model, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bleuprint.objective import ROWS, Gradients, Loss


def consistent_cross_entropy(
    first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, alpha: float
) -> Loss:
    """Return the loss of predicting target (N,) from the hidden states (N, D) of two passes.

    For each token it is the mean of the two smoothed cross-entropies plus alpha/4 times the sum of the two divergences
    KL(first || second) and KL(second || first): half of the paper's, which adds the cross-entropies up. `plain` is the
    mean of the two plain ones. Under autocast the products are taken in its precision, all else in float32.
    """
    return Loss(*Consistent.apply(first, second, weight, bias, target, smoothing, alpha))


class Part(NamedTuple):
    """Some rows' loss, plain cross-entropy, and the gradients of the loss by the logits of each pass."""

    loss: Tensor
    plain: Tensor
    gradients: tuple[Tensor, Tensor]


class Consistent(torch.autograd.Function):
    """The gradient is made together with the loss, some rows at a time, as in objective.FusedCrossEntropy."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        alpha: float,
    ) -> tuple[Tensor, Tensor]:
        device = first.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else first.dtype
        d_weight, d_bias = torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        d_hidden = torch.empty_like(first), torch.empty_like(second)
        loss, plain = (torch.zeros((), device=first.device) for _ in range(2))
        with torch.autocast(device, enabled=False):
            w, b = weight.to(dtype), None if bias is None else bias.to(dtype)
            passes = first.to(dtype), second.to(dtype)
            for start in range(0, len(target), ROWS[device]):
                rows = slice(start, start + ROWS[device])
                one, other = (F.linear(hidden[rows], w, b).float().log_softmax(-1) for hidden in passes)
                part = compare(one, other, target[rows], smoothing, alpha)
                loss, plain = loss + part.loss, plain + part.plain
                for hidden, into, gradient in zip(passes, d_hidden, part.gradients, strict=True):
                    add_products((into, d_weight, d_bias), rows, gradient.to(dtype), hidden, w)
        ctx.gradients = (*d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return (*(None if x is None else x * scale for x in ctx.gradients), None, None, None)


def compare(one: Tensor, other: Tensor, target: Tensor, smoothing: float, alpha: float) -> Part:
    """Return the summed loss of log-probabilities (N, V) of two passes, and its gradients by their logits."""
    differences = one - other
    losses, plains, gradients = [], [], []
    for log_p, log_q, difference in ((one, other, differences), (other, one, -differences)):
        p = log_p.exp()
        divergence = (p * difference).sum(1, keepdim=True)  # KL(p || q)
        plain = -log_p.gather(1, target[:, None]).sum()
        smoothed = (1 - smoothing) * plain - smoothing * log_p.mean(1).sum()
        losses.append(smoothed / 2 + alpha / 4 * divergence.sum())
        plains.append(plain / 2)
        gradient = (p - smoothing / p.size(1)) / 2 + alpha / 4 * (p * (difference - divergence) + p - log_q.exp())
        gradient[torch.arange(len(target), device=target.device), target] -= (1 - smoothing) / 2
        gradients.append(gradient)
    return Part(losses[0] + losses[1], plains[0] + plains[1], (gradients[0], gradients[1]))


def add_products(gradients: Gradients, rows: slice, d_logits: Tensor, hidden: Tensor, w: Tensor) -> None:
    """Set the rows of d_hidden and add their share to d_weight and d_bias."""
    d_hidden, d_weight, d_bias = gradients
    d_hidden[rows] = d_logits @ w
    d_weight += d_logits.t() @ hidden[rows]
    if d_bias is not None:
        d_bias += d_logits.sum(0)
