"""The Transformer of pi-tau/transformer (3d4bbc0) in its two forms: as `coded`, and as `written` in its README.

Two things tell them apart, marked (1) and (2) below:
(1) README: z = x + Dropout(f(Norm(x))), pre-norm. The code gives Norm(x) the name x first, so the residual is the
    normalised x too, in every sub-layer of both stacks: it is post-norm with a norm more at the entry of each stack.
(2) Padding in the encoder: the code hides padded *queries*, which then look at all positions evenly, and no key, so
    every word sees its batch's padding, in training as in validation. `written` hides padded keys, as attention to the
    encoded source does in both forms.
Not the paper's in both: learned positions, embeddings times the fourth root of D, no biases of Q, K and V, a norm after
each stack, first weights, and no dropout inside the feed-forward.

Shapes: B batch, S source length, T target length, D d_model, H heads, d_k = D/H, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models import uncached
from bleuprint.models.dropout import Dropout
from bleuprint.models.uncached import UncachedState
from bleuprint.params import PitauModel
from bleuprint.tokenizers import PAD

HIDDEN_SCORE = -1e9  # not minus infinity: a row of nothing else becomes even weights (2), not nan


# --- attention --------------------------------------------------------------------------------------------------------


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d_k), a view."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, n_heads: int, dropout: Dropout) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)) V, its heads joined, (B, T, D); query is (B, T, D), key and value (B, S, D).

    `hidden` is True where a score is replaced by HIDDEN_SCORE; it broadcasts to (B, H, T, S).
    """
    query, key, value = (split_heads(x, n_heads) for x in (query, key, value))
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)
    weights = dropout(scores.masked_fill(hidden, HIDDEN_SCORE).softmax(-1))
    return (weights @ value).transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Q, K and V of one sequence from one product without bias; the output projection has one."""

    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.n_heads = spec.n_heads
        self.qkv = nn.Linear(spec.d_model, 3 * spec.d_model, bias=False)
        self.out = nn.Linear(spec.d_model, spec.d_model)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        return self.out(attend(query, key, value, hidden, self.n_heads, self.dropout))


class CrossAttention(nn.Module):
    """Q of the target, K and V of the encoded source, the latter two from one product; biases as above."""

    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.n_heads = spec.n_heads
        self.query = nn.Linear(spec.d_model, spec.d_model, bias=False)
        self.kv = nn.Linear(spec.d_model, 2 * spec.d_model, bias=False)
        self.out = nn.Linear(spec.d_model, spec.d_model)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        key, value = self.kv(memory).chunk(2, dim=-1)
        return self.out(attend(self.query(x), key, value, hidden, self.n_heads, self.dropout))


# --- layers -----------------------------------------------------------------------------------------------------------


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, without dropout on the inner values."""

    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.inner = nn.Linear(spec.d_model, spec.d_ff)
        self.outer = nn.Linear(spec.d_ff, spec.d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(F.relu(self.inner(x)))


class Residual(nn.Module):
    """x + Dropout(f(Norm(x))) as written, Norm(x) + Dropout(f(Norm(x))) as coded (1)."""

    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.normed = spec.form == "coded"
        self.norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, sub_layer: Callable[[Tensor], Tensor]) -> Tensor:
        y = self.norm(x)
        return (y if self.normed else x) + self.dropout(sub_layer(y))


class EncoderLayer(nn.Module):
    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.attention_residual(x, lambda y: self.attention(y, hidden))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self, spec: PitauModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.cross, self.cross_residual = CrossAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(self, x: Tensor, memory: Tensor, future: Tensor, source_pad: Tensor) -> Tensor:
        x = self.attention_residual(x, lambda y: self.attention(y, future))
        x = self.cross_residual(x, lambda y: self.cross(y, memory, source_pad))
        return self.feed_forward_residual(x, self.feed_forward)


# --- the model --------------------------------------------------------------------------------------------------------


class Pitau(nn.Module):
    """Encoder and decoder with their embeddings; `forward` gives the decoder's last hidden states.

    The target embedding is the output projection too; positions are one table for both sides.
    """

    def __init__(self, spec: PitauModel, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.spec = spec
        self.source_embedding = nn.Embedding(source_vocabulary, spec.d_model)  # PAD's row is trained like any other
        self.target_embedding = nn.Embedding(target_vocabulary, spec.d_model)
        self.positions = nn.Parameter(torch.empty(spec.max_positions, spec.d_model))
        self.embedding_dropout = Dropout(spec.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.n_layers))
        self.encoder_norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps)
        self.decoder = nn.ModuleList(DecoderLayer(spec) for _ in range(spec.n_layers))
        self.decoder_norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps)
        initialise(self)

    @property
    def output_weight(self) -> Tensor:
        """The output projection, (V, D)."""
        return self.target_embedding.weight

    @property
    def output_bias(self) -> None:
        """The output projection has no bias."""
        return None

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Return embeddings times D^(1/4), plus positions: (B, T) -> (B, T, D). ValueError beyond max_positions."""
        length = ids.size(1)
        if length > self.spec.max_positions:
            raise ValueError(f"a sequence of {length} tokens is longer than max_positions {self.spec.max_positions}")
        return self.embedding_dropout(table(ids) * self.spec.d_model**0.25 + self.positions[:length])

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded source (B, S, D) and where it is padding (B, 1, 1, S)."""
        source_pad = (source == PAD)[:, None, None, :]
        hidden = source_pad.transpose(2, 3) if self.spec.form == "coded" else source_pad  # (2)
        x = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            x = layer(x, hidden)
        return self.encoder_norm(x), source_pad

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the decoder's hidden states for source (B, S) and target inputs (B, T): (B, T, D)."""
        memory, source_pad = self.encode(source)
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).triu(1)
        x = self.embed(self.target_embedding, target)
        for layer in self.decoder:
            x = layer(x, memory, future, source_pad)
        return self.decoder_norm(x)

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of hidden states (..., D)."""
        return F.linear(hidden, self.output_weight)

    def start(self, source: Tensor, beams: int) -> UncachedState:
        """Return the state before the first target token of source (B, S), whose rows must be equally long."""
        return uncached.start(source, beams)

    def step(self, tokens: Tensor, state: UncachedState) -> tuple[Tensor, UncachedState]:
        """Read one token a hypothesis, (B, K), and return the logits of the next, (B, K, V), with the new state."""
        return uncached.step(self, tokens, state)


build = Pitau  # models/__init__.py finds a model by its file's name and calls `build`


def initialise(model: Pitau) -> None:
    """Draw the first weights: words N(0, 1/D), positions N(0, 1), Q and K N(0, 2 / (D + d_k)), biases of W^O zero.

    V, W^O and the feed-forward stay as nn.Linear draws them: even within 1 / sqrt(fan_in), biases too.
    """
    d_model = model.spec.d_model
    for embedding in (model.source_embedding, model.target_embedding):
        nn.init.normal_(embedding.weight, std=d_model**-0.5)
    nn.init.normal_(model.positions)
    deviation = math.sqrt(2 / (d_model + d_model // model.spec.n_heads))
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention):
            for matrix in query_and_key(module):
                nn.init.normal_(matrix, std=deviation)
            nn.init.zeros_(module.out.bias)


def query_and_key(module: SelfAttention | CrossAttention) -> tuple[Tensor, Tensor]:
    """Return views of the matrices of Q and K, (D, D) each."""
    if isinstance(module, SelfAttention):
        query, key, _ = module.qkv.weight.detach().chunk(3)
        return query, key
    return module.query.weight.detach(), module.kv.weight.detach().chunk(2)[0]
