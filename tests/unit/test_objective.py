"""The loss against torch's own and by hand, the schedules by hand, Adam and AdamW by hand."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.objective import ROWS, Plateau, build_optimizer, cross_entropy, learning_rate, watch_plateau
from bleuprint.params import InverseSqrtSchedule, NoamSchedule, Optimizer, PlateauSchedule

N, D, V = 2 * ROWS["cpu"] + 7, 12, 40  # three chunks, the last of 7 rows


def problem(with_bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Return hidden (N, D), weight (V, D), bias (V,) and targets (N,), logits of standard deviation 2."""
    torch.manual_seed(0)
    hidden = torch.randn(N, D).requires_grad_()
    weight = (torch.randn(V, D) * 2 / math.sqrt(D)).requires_grad_()
    bias = torch.randn(V).requires_grad_() if with_bias else None
    return hidden, weight, bias, torch.randint(V, (N,))


def gradients(loss: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, [tensor for tensor in inputs if tensor is not None])


# --- the loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_torchs(with_bias: bool, smoothing: float) -> None:
    hidden, weight, bias, target = problem(with_bias)
    logits = F.linear(hidden, weight, bias)
    expected = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    loss = cross_entropy(hidden, weight, bias, target, smoothing)
    torch.testing.assert_close(loss.smoothed, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(loss.plain, F.cross_entropy(logits, target, reduction="sum"), rtol=1e-5, atol=0)
    # Both are divided by N, as training divides, and scaled: what comes from above must reach all three.
    for found, wanted in zip(
        gradients(loss.smoothed * (3.0 / N), hidden, weight, bias),
        gradients(expected * (3.0 / N), hidden, weight, bias),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_smoothing_by_hand() -> None:
    """Probabilities 1/8, 2/8 and 5/8, the reference is the last, e = 0.3: its share is 0.7 + 0.1, the others' 0.1."""
    hidden = torch.tensor([[1.0, 2.0, 5.0]]).log().requires_grad_()
    loss = cross_entropy(hidden, torch.eye(3), None, torch.tensor([2]), 0.3)
    assert loss.plain.item() == pytest.approx(math.log(8 / 5))
    assert loss.smoothed.item() == pytest.approx(0.8 * math.log(8 / 5) + 0.1 * math.log(8 / 2) + 0.1 * math.log(8))
    [gradient] = gradients(loss.smoothed, hidden)
    torch.testing.assert_close(gradient, torch.tensor([[1 / 8 - 0.1, 2 / 8 - 0.1, 5 / 8 - 0.8]]))


def test_the_plain_loss_carries_no_gradient() -> None:
    loss = cross_entropy(*problem(True), 0.1)
    assert loss.smoothed.requires_grad
    assert not loss.plain.requires_grad


@pytest.mark.parametrize("with_bias", [True, False])
def test_bf16_is_close_to_fp32(with_bias: bool) -> None:
    hidden, weight, bias, target = problem(with_bias)
    exact = cross_entropy(hidden, weight, bias, target, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        rough = cross_entropy(hidden, weight, bias, target, 0.1)
    assert 0 < abs(rough.smoothed.item() / exact.smoothed.item() - 1) < 2e-3, "in bf16, and close"
    assert float(rough.plain) == pytest.approx(float(exact.plain), rel=2e-3)
    for found, wanted in zip(
        gradients(rough.smoothed, hidden, weight, bias), gradients(exact.smoothed, hidden, weight, bias), strict=True
    ):
        assert found.dtype == torch.float32
        assert float((found - wanted).norm() / wanted.norm()) < 1e-2


def test_without_gradients_the_softmax_is_in_fp32() -> None:
    """Validation makes bf16 logits but sums their exponentials in fp32, and prepares no gradient."""
    hidden, weight, _, target = problem(False)
    with torch.no_grad():
        logits = (hidden.bfloat16() @ weight.bfloat16().t()).float()
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(hidden, weight, None, target, 0.0)
        expected = F.cross_entropy(logits, target, reduction="sum")
    assert loss.plain.item() == pytest.approx(expected.item(), rel=1e-6)


# --- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "lr"), [(1, 2.5e-6), (1000, 0.0025), (2000, 0.005), (8000, 0.0025)])
def test_inverse_square_root_schedule(step: int, lr: float) -> None:
    schedule = InverseSqrtSchedule(kind="inverse_sqrt", lr=0.005, warmup_steps=2000)
    assert learning_rate(schedule, step, 512, 1.0) == pytest.approx(lr, abs=0)


@pytest.mark.parametrize(("step", "lr"), [(1, 3.49386e-7), (4000, 1.397542e-3), (16000, 6.98771e-4)])
def test_noam_schedule(step: int, lr: float) -> None:
    """Factor 2, d_model 512, 4,000 steps: 2 / sqrt(512) is 0.0883883, sqrt(4000) is 63.2456, 4000^1.5 is 252,982."""
    schedule = NoamSchedule(kind="noam", factor=2.0, warmup_steps=4000)
    assert learning_rate(schedule, step, 512, 1.0) == pytest.approx(lr, rel=1e-5, abs=0)


# Better; better by less than 1e-4 of itself; equal; worse; a late best; then never again.
LOSSES = [5.0, 4.0, 3.9999, 3.9998, 3.99961, 3.99959, 4.2, 4.1, 4.0, 3.0, 3.1, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.9998]


@pytest.mark.parametrize("patience", [0, 1, 3])
@pytest.mark.parametrize("warmup_epochs", [0, 2])
def test_plateau_is_torchs(patience: int, warmup_epochs: int) -> None:
    schedule = PlateauSchedule(
        kind="plateau", lr=0.1, factor=0.5, patience_epochs=patience, warmup_epochs=warmup_epochs
    )
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=patience)
    state, rates = Plateau(), []
    for epoch, loss in enumerate(LOSSES, start=1):
        state = watch_plateau(schedule, state, epoch, loss)
        if epoch > warmup_epochs:
            reference.step(loss)
        rates.append(learning_rate(schedule, epoch, 512, state.factor))
        assert rates[-1] == pytest.approx(optimizer.param_groups[0]["lr"]), f"epoch {epoch}"
    assert len(set(rates)) > 2, "the script reduces the rate more than once"


def test_plateau_stops_where_torchs_does() -> None:
    """From lr 1e-5 with factor 0.9 (CLAIMS 1a) 44 are made; the next would be due at epoch 597 of 1,000 or later."""
    schedule = PlateauSchedule(kind="plateau", lr=1e-5, factor=0.9, patience_epochs=0, warmup_epochs=0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-5)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.9, patience=0)
    state = Plateau()
    for epoch in range(1, 101):
        state = watch_plateau(schedule, state, epoch, 1.0)
        reference.step(1.0)
    assert learning_rate(schedule, 1, 512, state.factor) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)


# --- Adam and AdamW ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_two_steps_by_hand(kind: Literal["adam", "adamw"], weight_decay: float) -> None:
    """Kingma & Ba 2015, algorithm 1; Adam adds the decay to the gradient (coupled), AdamW (Loshchilov & Hutter 2019)
    takes lr x decay of the weight away, outside the moments."""
    spec = Optimizer(kind=kind, betas=(0.8, 0.9), eps=0.01, weight_decay=weight_decay, clip_norm=None)
    model = nn.Linear(1, 1, bias=False)
    optimizer = build_optimizer(model, spec)
    with torch.no_grad():
        model.weight.fill_(2.0)
    weight, mean, square = 2.0, 0.0, 0.0
    for step, (lr, gradient) in enumerate([(0.1, 0.5), (0.2, -0.3)], start=1):
        model.weight.grad = torch.full((1, 1), gradient)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        if kind == "adam":
            gradient += weight_decay * weight
        else:
            weight -= lr * weight_decay * weight
        mean, square = 0.8 * mean + 0.2 * gradient, 0.9 * square + 0.1 * gradient**2
        weight -= lr * (mean / (1 - 0.8**step)) / (math.sqrt(square / (1 - 0.9**step)) + 0.01)
        assert float(model.weight.detach()) == pytest.approx(weight, rel=1e-6)


def test_adam_is_still_the_one_that_trained_what_is_published() -> None:
    """The same kernel with the same arguments as before there was a choice: bit for bit."""
    spec = Optimizer(kind="adam", betas=(0.9, 0.98), eps=1e-8, weight_decay=5e-4, clip_norm=None)
    found = []
    for ours in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(40, 30)
        adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8, weight_decay=5e-4, fused=True)
        optimizer = build_optimizer(model, spec) if ours else adam
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(7, 40)).square().sum().backward()
            optimizer.param_groups[0]["lr"] = 1e-3
            optimizer.step()
        found.append(model.weight.detach().clone())
    assert torch.equal(*found)
