"""The Transformer of hyunwoongko/transformer in December 2019, as it was when its published curve was drawn.

It is not the paper's model. Nine things differ from the repository's later code (`readme`, models/transformer.py), and
they are kept, marked (1) to (9) below; the repository's first two repairs are options of the model in params.yaml.
Two consequences: a position sees the tokens after it and the padding of its batch, in training as in validation.

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
from bleuprint.params import HyunwoongkoModel
from bleuprint.tokenizers import PAD

HIDDEN_SCORE = -1e-12  # (5) meant to be minus infinity
FROZEN_ROW = 0  # (9) of both embeddings: it was meant to be that of PAD, which is 1; row 0 is UNK's

INITS: dict[str, Callable[[Tensor], Tensor]] = {
    "xavier_uniform": nn.init.xavier_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
}


# --- attention --------------------------------------------------------------------------------------------------------


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d_k) as the numbers lie in memory (1).

    Without the transposition of T and H a "head" is a run of T/H neighbouring positions, not a slice of every position.
    """
    batch, length, d_model = x.shape
    return x.reshape(batch, n_heads, length, d_model // n_heads)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, d_k) -> (B, T, D), the way back (1)."""
    batch, n_heads, length, d_k = x.shape
    return x.reshape(batch, length, n_heads * d_k)


def attention_scores(query: Tensor, key: Tensor, hidden: Tensor, divisor: float) -> Tensor:
    """Return Q "K^T" / divisor, (B, H, T, S), where K (B, H, S, d_k) is re-read as (B, H, d_k, S), not transposed (2).

    Where `hidden` (broadcastable to B, H, T, S) is True the score is replaced by about nothing (5).
    """
    batch, n_heads, length, d_k = key.shape
    scores = query @ key.reshape(batch, n_heads, d_k, length) / divisor
    return scores.masked_fill(hidden, HIDDEN_SCORE)


def attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, n_heads: int, divisor: float) -> Tensor:
    """Return (B, T, D) for query (B, T, D), key and value (B, S, D).

    The softmax runs over the heads, which is the dimension that nn.Softmax() takes of four (4): the weights of one
    query do not sum to 1 over the keys, and a hidden key has weight 1/H in each head, whatever value hides it.
    """
    query, key, value = (split_heads(x, n_heads) for x in (query, key, value))
    weights = attention_scores(query, key, hidden, divisor).softmax(dim=1)
    return join_heads(weights @ value)


def score_divisor(spec: HyunwoongkoModel) -> float:
    """Return what scores are divided by: sqrt(d_model) (3), or the paper's sqrt(d_k)."""
    return math.sqrt(spec.d_model if spec.score_scale == "d_model" else spec.d_model // spec.n_heads)


def output_projection(spec: HyunwoongkoModel) -> nn.Module:
    """Return what follows the joined heads: nothing (6), or the paper's W^O."""
    return nn.Linear(spec.d_model, spec.d_model) if spec.output_projection else nn.Identity()


class SelfAttention(nn.Module):
    """Q, K and V of one sequence, from one product."""

    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.n_heads, self.divisor = spec.n_heads, score_divisor(spec)
        self.qkv = nn.Linear(spec.d_model, 3 * spec.d_model)
        self.out = output_projection(spec)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        return self.out(attend(query, key, value, hidden, self.n_heads, self.divisor))


class CrossAttention(nn.Module):
    """Q of the target, K and V of the encoded source, the latter two from one product."""

    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.n_heads, self.divisor = spec.n_heads, score_divisor(spec)
        self.query = nn.Linear(spec.d_model, spec.d_model)
        self.kv = nn.Linear(spec.d_model, 2 * spec.d_model)
        self.out = output_projection(spec)

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        key, value = self.kv(memory).chunk(2, dim=-1)
        return self.out(attend(self.query(x), key, value, hidden, self.n_heads, self.divisor))


# --- layers -----------------------------------------------------------------------------------------------------------


class LayerNorm(nn.Module):
    """gamma (x - mean) / (std + eps) + beta, with the unbiased standard deviation and eps outside the root (7)."""

    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(spec.d_model))
        self.beta = nn.Parameter(torch.zeros(spec.d_model))
        self.eps = spec.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """Use torch's kernel, which has the biased deviation, wherever eps is lost in rounding (it is 1e-12).

        Not on a GPU, which would be waited for to compare.
        """
        if x.device.type != "cpu":
            return self.by_definition(x)
        size = x.size(-1)
        bias = math.sqrt((size - 1) / size)  # biased / unbiased deviation
        fused, _, inverse = torch.native_layer_norm(x, (size,), self.gamma * bias, self.beta, 0.0)
        std = 1 / (inverse.detach() * bias)
        if bool((std + self.eps == std).all()):
            return fused
        return self.by_definition(x)

    def by_definition(self, x: Tensor) -> Tensor:
        """Return the norm as it is written."""
        return self.gamma * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.beta


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, with dropout on the inner values."""

    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.inner = nn.Linear(spec.d_model, spec.d_ff)
        self.outer = nn.Linear(spec.d_ff, spec.d_model)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


class Residual(nn.Module):
    """Dropout(LayerNorm(x + y)): dropout comes last, so it zeroes the residual stream itself (8)."""

    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.norm = LayerNorm(spec)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.dropout(self.norm(x + y))


class EncoderLayer(nn.Module):
    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(self, x: Tensor, source_hidden: Tensor) -> Tensor:
        x = self.attention_residual(x, self.attention(x, source_hidden))
        return self.feed_forward_residual(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self, spec: HyunwoongkoModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.cross, self.cross_residual = CrossAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(self, x: Tensor, memory: Tensor, target_hidden: Tensor, source_hidden: Tensor) -> Tensor:
        x = self.attention_residual(x, self.attention(x, target_hidden))
        x = self.cross_residual(x, self.cross(x, memory, source_hidden))
        return self.feed_forward_residual(x, self.feed_forward(x))


# --- embeddings and masks ---------------------------------------------------------------------------------------------


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Return (length, D): sines of position / 10000^(2i/D) in column 2i, cosines in column 2i + 1."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def hidden_source(source: Tensor) -> Tensor:
    """Return where scores with source (B, S) as keys are replaced, (B, 1, 1, S): at its padding."""
    return (source == PAD)[:, None, None, :]


def hidden_target(target: Tensor) -> Tensor:
    """Return where scores of target (B, T) with itself are replaced, (B, 1, T, T): future keys, padded *queries*."""
    length = target.size(1)
    future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
    return future | (target == PAD)[:, None, :, None]


# --- the model --------------------------------------------------------------------------------------------------------


class Hyunwoongko(nn.Module):
    """Encoder and decoder with their untied embeddings; `forward` gives the decoder's last hidden states.

    As in models/transformer.py the output projection is left to the caller, who may need it at few positions only.
    """

    positions: Tensor

    def __init__(self, spec: HyunwoongkoModel, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.spec = spec
        self.source_embedding = nn.Embedding(source_vocabulary, spec.d_model, padding_idx=FROZEN_ROW)
        self.target_embedding = nn.Embedding(target_vocabulary, spec.d_model, padding_idx=FROZEN_ROW)
        self.embedding_dropout = Dropout(spec.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(spec) for _ in range(spec.n_layers))
        self.output = nn.Linear(spec.d_model, target_vocabulary)
        positions = sinusoidal_positions(spec.max_positions, spec.d_model)
        self.register_buffer("positions", positions, persistent=False)
        initialise(self)

    @property
    def output_weight(self) -> Tensor:
        """The output projection, (V, D)."""
        return self.output.weight

    @property
    def output_bias(self) -> Tensor:
        """The bias of the output projection, (V,)."""
        return self.output.bias

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Return unscaled embeddings plus positions: (B, T) -> (B, T, D). ValueError beyond max_positions."""
        length = ids.size(1)
        if length > self.spec.max_positions:
            raise ValueError(f"a sequence of {length} tokens is longer than max_positions {self.spec.max_positions}")
        return self.embedding_dropout(table(ids) + self.positions[:length])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the decoder's hidden states for source (B, S) and target inputs (B, T): (B, T, D)."""
        source_hidden, target_hidden = hidden_source(source), hidden_target(target)
        memory = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            memory = layer(memory, source_hidden)
        x = self.embed(self.target_embedding, target)
        for layer in self.decoder:
            x = layer(x, memory, target_hidden, source_hidden)
        return x

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of hidden states (..., D)."""
        return self.output(hidden)

    def start(self, source: Tensor, beams: int) -> UncachedState:
        """Return the state before the first target token of source (B, S), whose rows must be equally long."""
        return uncached.start(source, beams)

    def step(self, tokens: Tensor, state: UncachedState) -> tuple[Tensor, UncachedState]:
        """Read one token a hypothesis, (B, K), and return the logits of the next, (B, K, V), with the new state."""
        return uncached.step(self, tokens, state)


build = Hyunwoongko  # models/__init__.py finds a model by its file's name and calls `build`


def initialise(model: Hyunwoongko) -> None:
    """Draw every matrix by one rule, the embeddings and their frozen rows too (9); biases stay as PyTorch draws them.

    The rule changed with the commits, and that of the published curve is unknown: it is a choice in params.yaml.
    """
    draw = INITS[model.spec.init]
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            for matrix in square_parts(name, parameter):
                draw(matrix)


def square_parts(name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """Return views of the matrices that share one parameter: Q, K, V of a joint projection are drawn one by one."""
    if name.endswith(("qkv.weight", "kv.weight")):
        return parameter.detach().split(parameter.size(1))
    return (parameter.detach(),)
