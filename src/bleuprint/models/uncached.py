"""Search over a model whose past is not cached: each step runs the whole model on the prefix.

One that sees its future leaves no choice: with every token the states of all the tokens before it change.

Shapes: B sentences, K hypotheses per sentence, S source length, t tokens of the prefix, D d_model, V vocabulary.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bleuprint.params import HyunwoongkoModel, ModelSpec, PitauModel
from bleuprint.tokenizers import PAD


def is_uncached(spec: ModelSpec) -> bool:
    """Return whether a model translates as this module does, so that its batches hold sources of one length alone.

    models/hyunwoongko.py and models/pitau.py as coded see the padding of their batch, and the former its future too.
    pitau as written sees neither and could be cached: it is slower than it need be here, not different.
    """
    return isinstance(spec, HyunwoongkoModel | PitauModel)


class WholeModel(Protocol):
    """A model of whole sentences."""

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the last hidden states for source (B, S) and target inputs (B, T): (B, T, D)."""

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of hidden states (..., D)."""


@dataclass(frozen=True)
class UncachedState:
    """What was read so far: the sources and, for each hypothesis, its tokens."""

    source: Tensor  # (B, S)
    prefixes: Tensor  # (B, K, t)

    def select(self, sentences: Tensor, beams: Tensor) -> "UncachedState":
        """Keep `sentences` (B',) and let each of their hypotheses continue the old one named in `beams` (B', K)."""
        return UncachedState(self.source[sentences], self.prefixes[sentences[:, None], beams])


def start(source: Tensor, beams: int) -> UncachedState:
    """Return the state before the first target token of source (B, S), whose rows must be equally long.

    Most such models see their padding: a padded sentence would get another translation than the sentence alone.
    """
    assert not bool((source == PAD).any()), "decode in groups of equal source length: this model sees its padding"
    return UncachedState(source, source.new_empty(len(source), beams, 0))


def step(model: WholeModel, tokens: Tensor, state: UncachedState) -> tuple[Tensor, UncachedState]:
    """Read one token a hypothesis, (B, K), and return the logits of the next, (B, K, V), with the new state."""
    prefixes = torch.cat([state.prefixes, tokens[:, :, None]], dim=2)
    source = state.source.repeat_interleave(prefixes.size(1), dim=0)
    hidden = model(source, prefixes.flatten(0, 1))[:, -1]  # (B*K, D)
    return model.project(hidden).float().unflatten(0, tokens.shape), UncachedState(state.source, prefixes)
