"""Our model equals the plain form that the benchmarks time it against: benchmarks/naive.py with the same weights."""

import pytest
import torch
from naive import NaiveTransformer, copy_weights, mean_loss
from specs import variant

from bleuprint.models.transformer import Transformer
from bleuprint.objective import cross_entropy
from bleuprint.tokenizers import BOS, EOS, PAD

SOURCE = torch.tensor([[7, 5, 6, EOS], [9, EOS, PAD, PAD]])
TARGET = torch.tensor([[BOS, 8, EOS, PAD], [BOS, 4, 10, EOS]])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre"},
        {"tie_embeddings": "all", "output_bias": False},
        {"init": "fairseq", "scale_embeddings": False},
    ],
)
def test_loss_and_gradients_are_those_of_the_naive_form(changes: dict[str, object]) -> None:
    spec = variant({"init": "kaiming_uniform"} | changes)
    torch.manual_seed(0)
    ours, naive = Transformer(spec, 11, 11), NaiveTransformer(spec, 11, 11)
    copy_weights(ours, naive)
    expected = mean_loss(naive, SOURCE, TARGET, 0.1)
    expected.backward()
    real = TARGET[:, 1:] != PAD
    hidden = ours(SOURCE, TARGET[:, :-1])[real]
    loss = cross_entropy(hidden, ours.output_weight, ours.output_bias, TARGET[:, 1:][real], 0.1).smoothed / real.sum()
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    gradients = Transformer(spec, 11, 11)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            assert parameter.grad is not None
            dict(gradients.named_parameters())[name].copy_(parameter.grad)
    wanted = NaiveTransformer(spec, 11, 11)
    copy_weights(gradients, wanted)
    for (name, parameter), (_, gradient) in zip(naive.named_parameters(), wanted.named_parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, gradient.detach(), rtol=1e-4, atol=1e-6, msg=name)
