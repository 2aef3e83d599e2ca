"""Uncached decoding: each step runs the whole model on the prefix, and a search finds what the model says of it."""

import pytest
import torch
from torch import Tensor

from bleuprint.models import uncached
from bleuprint.models.uncached import UncachedState
from bleuprint.params import LengthPenalty
from bleuprint.search import search
from bleuprint.tokenizers import BOS, EOS, PAD

TYPES = 9


class Bidirectional:
    """A model without causality: each hidden state depends on all tokens of both sides, and on their number."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(5)
        self.source, self.target = (torch.randn(TYPES, 6, generator=random) for _ in range(2))
        self.output = torch.randn(TYPES, 6, generator=random) * 2

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        place = torch.arange(1, target.size(1) + 1).sqrt()[:, None]
        whole = self.source[source].mean(1, keepdim=True) + (self.target[target] * place.flip(0)).sum(1, keepdim=True)
        return torch.sin(self.target[target] * place + whole * 3)

    def project(self, hidden: Tensor) -> Tensor:
        return hidden @ self.output.t()

    def start(self, source: Tensor, beams: int) -> UncachedState:
        return uncached.start(source, beams)

    def step(self, tokens: Tensor, state: UncachedState) -> tuple[Tensor, UncachedState]:
        return uncached.step(self, tokens, state)


SOURCE = torch.tensor([[4, 5, EOS], [6, 7, EOS], [8, 4, EOS]])


def test_steps_equal_the_whole_model_on_each_prefix_under_a_search() -> None:
    """Two hypotheses a sentence, reordered after every step; the second sentence is closed after the first."""
    model, random = Bidirectional(), torch.Generator().manual_seed(1)
    source, state = SOURCE, model.start(SOURCE, 2)
    prefixes: list[list[list[int]]] = [[[], []] for _ in SOURCE]
    for position in range(4):
        tokens = torch.randint(4, TYPES, (len(source), 2), generator=random)
        for b, sentence in enumerate(prefixes):
            for k, prefix in enumerate(sentence):
                prefix.append(int(tokens[b, k]))
        logits, state = model.step(tokens, state)
        for b, sentence in enumerate(prefixes):
            for k, prefix in enumerate(sentence):
                alone = model.project(model(source[b : b + 1], torch.tensor([prefix])))[0, -1]
                torch.testing.assert_close(logits[b, k], alone)
        keep = torch.tensor([0, 2]) if position == 0 else torch.arange(len(source))
        origins = torch.randint(2, (len(keep), 2), generator=random)
        state = state.select(keep, origins)
        source = source[keep]
        prefixes = [[[*prefixes[b][int(k)]] for k in beams] for b, beams in zip(keep.tolist(), origins, strict=True)]


def test_greedy_search_is_the_argmax_of_each_prefix() -> None:
    model = Bidirectional()
    found = search(model, SOURCE, 1, LengthPenalty(kind="length", alpha=0.0), max_extra_tokens=5, n_best=1)
    for row, [best] in zip(SOURCE, found, strict=True):
        prefix: list[int] = [BOS]
        while len(prefix) <= 2 + 5:  # two words in the source, five more at most
            logits = model.project(model(row[None], torch.tensor([prefix])))[0, -1]
            logits[[PAD, BOS]] = float("-inf")
            token = int(logits.argmax())
            if token == EOS:
                break
            prefix.append(token)
        assert best.tokens == tuple(prefix[1:])
    assert len({best.tokens for [best] in found}) == 3, "the sources tell them apart"


def test_padded_sources_are_refused() -> None:
    with pytest.raises(AssertionError, match="equal source length"):
        uncached.start(torch.tensor([[4, 5, EOS], [4, EOS, PAD]]), 1)
