"""Leaving out the padding of a batch changes where a Transformer computes, and nothing that it finds."""

import math

import pytest
import torch
from specs import SPEC, variant
from torch import Tensor
from torch.nn import functional as F

from bleuprint.models import transformer
from bleuprint.models.transformer import ALL, PACK_ABOVE, Layout, Transformer, choose_layout
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import BOS, EOS, PAD

SOURCE_TYPES, TARGET_TYPES = 11, 13
RAGGED_SOURCE = torch.tensor([[4, 5, EOS, PAD, PAD], [6, 7, 8, 9, EOS], [10, EOS, PAD, PAD, PAD]])
RAGGED_TARGET = torch.tensor([[BOS, 4, EOS, PAD, PAD, PAD], [BOS, 5, EOS, PAD, PAD, PAD], [BOS, 7, 8, 9, 11, EOS]])
FULL_SOURCE = torch.tensor([[4, 5, EOS], [6, 7, EOS], [10, 9, EOS]])
FULL_TARGET = torch.tensor([[BOS, 4, 12, EOS], [BOS, 5, 7, EOS], [BOS, 7, 8, EOS]])

NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
EITHER_ATTENTION = pytest.mark.parametrize("explicit_up_to", [64, 0], ids=["explicit", "fused"])
SIDES = pytest.mark.parametrize(
    ("source", "target"),
    [
        (RAGGED_SOURCE, RAGGED_TARGET),
        (RAGGED_SOURCE, FULL_TARGET),
        (FULL_SOURCE, RAGGED_TARGET),
        (FULL_SOURCE, FULL_TARGET),
    ],
    ids=["both", "source", "target", "none"],
)

Found = tuple[Tensor, dict[str, Tensor]]


@pytest.fixture(autouse=True)
def packed_whenever_there_is_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "PACK_ABOVE", 0)


def random_model(spec: TransformerModel) -> Transformer:
    """Return a model in which no bias is zero, no norm is neutral and attention is far from even."""
    torch.manual_seed(1)
    model = Transformer(spec, SOURCE_TYPES, TARGET_TYPES)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def loss_and_gradients(model: Transformer, source: Tensor, target: Tensor) -> Found:
    """Return the mean cross-entropy of the real labels and its gradient to every parameter."""
    model.zero_grad()
    logits = model.project(model(source, target[:, :-1])).float()
    loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def with_and_without_packing(
    monkeypatch: pytest.MonkeyPatch, model: Transformer, source: Tensor, target: Tensor
) -> tuple[Found, Found]:
    packed = loss_and_gradients(model, source, target)
    monkeypatch.setattr(transformer, "PACK_ABOVE", math.inf)
    return packed, loss_and_gradients(model, source, target)


# --- the same results -------------------------------------------------------------------------------------------------


@NORMS
@SIDES
@EITHER_ATTENTION
def test_loss_and_every_gradient_are_those_of_the_padded_batch(
    monkeypatch: pytest.MonkeyPatch, norm: str, source: Tensor, target: Tensor, explicit_up_to: int
) -> None:
    monkeypatch.setattr(transformer, "EXPLICIT_UP_TO", explicit_up_to)
    model = random_model(variant({"norm": norm}))
    (loss, gradients), (wanted_loss, wanted) = with_and_without_packing(monkeypatch, model, source, target)
    torch.testing.assert_close(loss, wanted_loss, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == wanted.keys() == dict(model.named_parameters()).keys()
    for name, gradient in wanted.items():
        assert gradient.abs().max() > 1e-4, name
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=1e-5, msg=name)


@NORMS
def test_so_they_are_in_bf16_as_far_as_it_can_tell(monkeypatch: pytest.MonkeyPatch, norm: str) -> None:
    model = random_model(variant({"norm": norm}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (loss, gradients), (wanted_loss, wanted) = with_and_without_packing(
            monkeypatch, model, RAGGED_SOURCE, RAGGED_TARGET
        )
    torch.testing.assert_close(loss, wanted_loss, rtol=1e-2, atol=0.0)
    for name, gradient in wanted.items():
        assert (gradients[name] - gradient).norm() < 0.05 * gradient.norm(), name


@NORMS
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch_mates(norm: str) -> None:
    model = random_model(variant({"norm": norm}))
    together = model(RAGGED_SOURCE, RAGGED_TARGET)
    for row in range(3):
        source, target = RAGGED_SOURCE[row : row + 1], RAGGED_TARGET[row : row + 1]
        source, target = source[:, source[0] != PAD], target[:, target[0] != PAD]
        alone = model(source, target)[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=1e-5, atol=1e-5)


@NORMS
@torch.no_grad()
def test_hidden_states_are_zero_at_padding_alone(norm: str) -> None:
    hidden = random_model(variant({"norm": norm}))(RAGGED_SOURCE, RAGGED_TARGET)
    assert hidden.shape == (3, 6, 16)
    assert torch.equal((hidden == 0.0).all(-1), RAGGED_TARGET == PAD)


# --- where it is done -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [RAGGED_SOURCE, FULL_SOURCE], ids=["padding", "none"])
@torch.no_grad()
def test_nothing_is_computed_at_padding(source: Tensor) -> None:
    """The feed-forward, half of all products, reads real positions only; without padding the batch keeps its shape."""
    model, shapes = random_model(SPEC), []
    inner = [part for name, part in model.encoder.named_modules() if name.endswith("feed_forward")]
    for part in inner:
        part.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    model(source, FULL_TARGET)
    real = int((source != PAD).sum())
    assert shapes == [(real, 16) if (source == PAD).any() else (*source.shape, 16)] * 2


@pytest.mark.parametrize(("d_model", "most"), [(64, 16), (128, 16), (256, 8), (512, 4), (1024, 2)])
def test_a_batch_is_packed_above_a_share_of_padding(monkeypatch: pytest.MonkeyPatch, d_model: int, most: int) -> None:
    """Of 16 positions, `most` may be padding before d_model times its share is more than 128."""
    monkeypatch.setattr(transformer, "PACK_ABOVE", PACK_ABOVE)
    for padding in range(17):
        ids = torch.full((2, 8), 5)
        ids.view(-1)[:padding] = PAD
        assert (choose_layout(ids, d_model) is not ALL) == (padding > most), padding


def test_a_layout_packs_and_pads() -> None:
    ids = torch.tensor([[8, PAD, PAD], [9, 7, PAD]])
    layout = choose_layout(ids, 16)
    packed = layout.pack(ids)
    assert packed.tolist() == [8, 9, 7]
    assert layout.pad(packed[:, None] * 10).tolist() == [[[80], [0], [0]], [[90], [70], [0]]]


def test_all_positions_are_left_as_they_are() -> None:
    x = torch.randn(2, 3, 4)
    assert Layout((), None) == ALL
    assert ALL.pack(x) is x
    assert ALL.pad(x) is x
