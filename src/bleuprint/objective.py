"""What training minimises, and by which steps: smoothed cross-entropy, learning-rate schedules, Adam and AdamW.

Shapes: N predicted tokens, D d_model, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.params import InverseSqrtSchedule, NoamSchedule, Optimizer, PlateauSchedule, Schedule

# Rows of the (N, V) logits that exist at a time: 2,048 rows of 10,000 bf16 logits are 40 MB, and their products and
# softmax take 8 % less time than those of 512 rows on a CPU; a GPU wants few large kernels.
ROWS = {"cpu": 2048, "cuda": 16_384}


class Loss(NamedTuple):
    """Sums over N tokens, so that batches of any size can be added up and divided once."""

    smoothed: Tensor  # label-smoothed cross-entropy: what is minimised
    plain: Tensor  # cross-entropy of the reference token: what curves and perplexities show; carries no gradient


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float) -> Loss:
    """Return the loss of predicting target (N,) from hidden (N, D) through weight (V, D) and bias (V,).

    With label smoothing e the wanted distribution is e/V at each of the V types plus 1 - e at the reference (Szegedy et
    al. 2016, section 7; over V, not V - 1). Under autocast the products are taken in its precision.
    """
    wanted = torch.is_grad_enabled()  # asked here: inside, `needs_input_grad` is true under no_grad too
    return Loss(*FusedCrossEntropy.apply(hidden, weight, bias, target, smoothing, wanted))


class FusedCrossEntropy(torch.autograd.Function):
    """The gradient is made together with the loss, some rows at a time: the whole (N, V) matrix never exists.

    For logits z with reference y, loss = logsumexp(z) - (1-e) z_y - e mean(z), so that
    gradient = softmax(z) - (1-e) onehot(y) - e/V. Its last term is the same everywhere, so it reaches `hidden` and
    `weight` through their sums, and no pass over the logits is spent on it.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.autocast(device, enabled=False):
            h, w, b = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
            gradients = None
            if wanted:
                gradients = (
                    torch.empty_like(hidden),
                    torch.zeros_like(weight),
                    None if bias is None else torch.zeros_like(bias),
                )
            log_sum, reference = [], []
            for start in range(0, len(target), ROWS[device]):
                rows = slice(start, start + ROWS[device])
                logits = F.linear(h[rows], w, b)
                probabilities = logits.softmax(-1, dtype=None if gradients else torch.float32)
                log_sum.append(log_sum_exp(logits, probabilities))
                reference.append(logits.gather(1, target[rows, None]).float())
                if gradients:
                    add_gradients(gradients, rows, probabilities, target, smoothing, h, w)
            z_y, mean = torch.cat(reference).squeeze(1), mean_logit(hidden, weight, bias)
            plain = torch.cat(log_sum) - z_y
            if gradients and smoothing:
                add_uniform_gradients(gradients, hidden, weight, smoothing)
        ctx.gradients = gradients
        smoothed, plain_sum = (plain + smoothing * (z_y - mean)).sum(), plain.sum()
        ctx.mark_non_differentiable(plain_sum)
        return smoothed, plain_sum

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.gradients
        return d_hidden * scale, d_weight * scale, None if d_bias is None else d_bias * scale, None, None, None


Gradients = tuple[Tensor, Tensor, Tensor | None]  # of hidden (N, D), weight (V, D), bias (V,)


def log_sum_exp(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return logsumexp of each row (N,) from its softmax: z_max - log p_max, and p_max >= 1/V cannot underflow."""
    return logits.amax(dim=1).float() - probabilities.amax(dim=1).float().log()


def mean_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the mean over V of each row's logits, (N,), without making them."""
    mean = hidden.float() @ weight.float().mean(0)
    return mean if bias is None else mean + bias.mean()


def add_gradients(
    gradients: Gradients, rows: slice, probabilities: Tensor, target: Tensor, smoothing: float, h: Tensor, w: Tensor
) -> None:
    """Set the rows of d_hidden and add their share to d_weight and d_bias; `probabilities` is used up."""
    d_hidden, d_weight, d_bias = gradients
    y = target[rows]
    probabilities[torch.arange(len(y), device=y.device), y] += smoothing - 1.0
    d_hidden[rows] = probabilities @ w
    d_weight += probabilities.t() @ h[rows]
    if d_bias is not None:
        d_bias += probabilities.sum(0)


def add_uniform_gradients(gradients: Gradients, hidden: Tensor, weight: Tensor, smoothing: float) -> None:
    """Add the gradient's constant term, -e/V at every one of the (N, V) logits."""
    d_hidden, d_weight, d_bias = gradients
    each = smoothing / len(weight)
    d_hidden -= each * weight.float().sum(0)
    d_weight -= each * hidden.float().sum(0)
    if d_bias is not None:
        d_bias -= each * len(hidden)


def learning_rate(schedule: Schedule, step: int, d_model: int, plateau: float) -> float:
    """Return the rate of update `step` (from 1); `plateau` is the current factor of a PlateauSchedule, 1.0 at first."""
    match schedule:
        case InverseSqrtSchedule():
            warm = schedule.warmup_steps
            return schedule.lr * min(step / warm, (warm / step) ** 0.5)
        case NoamSchedule():
            return schedule.factor * d_model**-0.5 * min(step**-0.5, step * schedule.warmup_steps**-1.5)
        case PlateauSchedule():
            return schedule.lr * plateau


class Plateau(NamedTuple):
    """Where a PlateauSchedule stands, as torch's ReduceLROnPlateau with its relative threshold of 1e-4."""

    factor: float = 1.0
    best: float = float("inf")
    bad_epochs: int = 0


SMALLEST_REDUCTION = 1e-8  # of the rate: torch's `eps`


def watch_plateau(schedule: PlateauSchedule, state: Plateau, epoch: int, validation_loss: float) -> Plateau:
    """Return the state after an epoch (from 1): the factor shrinks after patience_epochs + 1 without a new best.

    A rate that would fall by SMALLEST_REDUCTION or less stays, as in torch.
    """
    if epoch <= schedule.warmup_epochs:
        return state
    if validation_loss < state.best * (1 - 1e-4):
        return Plateau(state.factor, validation_loss, 0)
    if state.bad_epochs < schedule.patience_epochs:
        return Plateau(state.factor, state.best, state.bad_epochs + 1)
    smaller = state.factor * schedule.factor
    falls = schedule.lr * (state.factor - smaller) > SMALLEST_REDUCTION
    return Plateau(smaller if falls else state.factor, state.best, 0)


def build_optimizer(model: nn.Module, spec: Optimizer) -> torch.optim.Adam:
    """Return Adam or AdamW over all parameters in one fused kernel; the caller sets `lr` before each step."""
    optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[spec.kind]
    return optimizer(
        model.parameters(), lr=0.0, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay, fused=True
    )
