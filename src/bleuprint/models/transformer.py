"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), with a cached decoder for search.

Shapes: B batch, S source length, T target length, D d_model, H heads, K hypotheses per sentence, V vocabulary, N real
positions. A batch with much padding is packed: all but attention works on (N, D), where (B, S, D) or (B, T, D) is said.
Sub-layers are post-norm as in the paper, LayerNorm(x + Dropout(f(x))), or pre-norm, x + Dropout(f(LayerNorm(x))).
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models.dropout import Dropout
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import PAD

# On a CPU explicit attention beats the fused kernel for short sequences, mostly in the backward pass.
EXPLICIT_UP_TO = 64
# Packing pays where d_model times the share of padding is more than this: a quarter of the positions at 512, half of
# them at 256. Up to 128 it never happens: it would change the last bits of recorded runs.
PACK_ABOVE = 128


@dataclass(frozen=True)
class Layout:
    """Where the real positions of a batch stand, if its padding is left out."""

    batch: tuple[int, ...]  # (B, T)
    real: tuple[Tensor, Tensor] | None  # their rows (N,) and columns (N,), or None: every position is kept

    def pack(self, x: Tensor) -> Tensor:
        """Keep the real positions alone: (B, T, ...) -> (N, ...)."""
        return x if self.real is None else x[self.real]

    def pad(self, x: Tensor) -> Tensor:
        """Put each real position back in its place, among zeros: (N, F) -> (B, T, F)."""
        return x if self.real is None else x.new_zeros(*self.batch, x.size(-1)).index_put_(self.real, x)


ALL = Layout((), None)


def choose_layout(ids: Tensor, d_model: int) -> Layout:
    """Return how to compute on ids (B, T), whose padding follows each sentence: packed where there is much of it.

    Not on a GPU, which would be waited for to count it.
    """
    if ids.device.type != "cpu" or d_model * int((ids == PAD).sum()) <= PACK_ABOVE * ids.numel():
        return ALL
    rows, columns = (ids != PAD).nonzero(as_tuple=True)
    return Layout(tuple(ids.shape), (rows, columns))


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Return (length, D) positions: sines in the even columns, cosines in the odd ones (section 3.5)."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, D/H), a view."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, D/H) -> (B, T, D)."""
    return x.transpose(1, 2).flatten(2)


def attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, dropout: Dropout) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)) V (Eq. 1), (B, H, T, d_k).

    `hidden` is True where a query must not see a key; it broadcasts to (B, H, T, S).
    """
    if query.device.type != "cpu" or key.size(-2) > EXPLICIT_UP_TO:
        seen = None if hidden is None else ~hidden
        chance = dropout.probability if dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, seen, chance)
    scores = (query / math.sqrt(query.size(-1))) @ key.transpose(-2, -1)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return dropout(scores.softmax(-1)) @ value


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself (section 3.2.2); Q, K and V come from one product."""

    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.n_heads = spec.n_heads
        self.qkv = nn.Linear(spec.d_model, 3 * spec.d_model)
        self.out = nn.Linear(spec.d_model, spec.d_model)
        self.dropout = Dropout(spec.attention_dropout)

    def forward(self, x: Tensor, hidden: Tensor, layout: Layout) -> Tensor:
        query, key, value = (split_heads(part, self.n_heads) for part in layout.pad(self.qkv(x)).chunk(3, dim=-1))
        return self.out(layout.pack(join_heads(attend(query, key, value, hidden, self.dropout))))

    def step(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from the newest position: x (B*K, 1, D), past (2, B*K, H, t, d_k) -> (B*K, 1, D), longer past."""
        query, key, value = (split_heads(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        past = torch.cat([past, torch.stack([key, value])], dim=3)
        return self.out(join_heads(attend(query, past[0], past[1], None, self.dropout))), past


class CrossAttention(nn.Module):
    """Multi-head attention of the target to the encoded source (section 3.2.3); K and V come from one product."""

    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.n_heads = spec.n_heads
        self.query = nn.Linear(spec.d_model, spec.d_model)
        self.kv = nn.Linear(spec.d_model, 2 * spec.d_model)
        self.out = nn.Linear(spec.d_model, spec.d_model)
        self.dropout = Dropout(spec.attention_dropout)

    def project(self, memory: Tensor, layout: Layout) -> Tensor:
        """Return the keys and values of an encoded source: (B, S, D) -> (2, B, H, S, d_k)."""
        return torch.stack([split_heads(part, self.n_heads) for part in layout.pad(self.kv(memory)).chunk(2, dim=-1)])

    def forward(self, x: Tensor, key: Tensor, value: Tensor, hidden: Tensor, layout: Layout) -> Tensor:
        query = split_heads(layout.pad(self.query(x)), self.n_heads)
        return self.out(layout.pack(join_heads(attend(query, key, value, hidden, self.dropout))))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (Eq. 2)."""

    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.inner = nn.Linear(spec.d_model, spec.d_ff)
        self.outer = nn.Linear(spec.d_ff, spec.d_model)
        self.dropout = Dropout(spec.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.relu(self.inner(x))))


class Residual(nn.Module):
    """The norm and dropout around one sub-layer (section 3.1, 5.4)."""

    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.pre = spec.norm == "pre"
        self.norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps)
        self.dropout = Dropout(spec.residual_dropout)

    def enter(self, x: Tensor) -> Tensor:
        """Return what the sub-layer reads."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the block's output from its input x and the sub-layer's output y."""
        x = x + self.dropout(y)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(self, x: Tensor, source_pad: Tensor, layout: Layout) -> Tensor:
        x = self.attention_residual.leave(x, self.attention(self.attention_residual.enter(x), source_pad, layout))
        return self.feed_forward_residual.leave(x, self.feed_forward(self.feed_forward_residual.enter(x)))


class DecoderLayer(nn.Module):
    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.attention, self.attention_residual = SelfAttention(spec), Residual(spec)
        self.cross, self.cross_residual = CrossAttention(spec), Residual(spec)
        self.feed_forward, self.feed_forward_residual = FeedForward(spec), Residual(spec)

    def forward(
        self, x: Tensor, memory: Tensor, future: Tensor, source_pad: Tensor, layout: Layout = ALL, source: Layout = ALL
    ) -> Tensor:
        x = self.attention_residual.leave(x, self.attention(self.attention_residual.enter(x), future, layout))
        key, value = self.cross.project(memory, source)
        return self.rest(x, key, value, source_pad, layout)

    def step(self, x: Tensor, past: Tensor, memory: Tensor, source_pad: Tensor) -> tuple[Tensor, Tensor]:
        """Advance every hypothesis by one position: x (B, K, D), past (2, B*K, H, t, d_k), memory (2, B, H, S, d_k)."""
        y, past = self.attention.step(self.attention_residual.enter(x).flatten(0, 1)[:, None], past)
        x = self.attention_residual.leave(x, y.view_as(x))
        return self.rest(x, memory[0], memory[1], source_pad, ALL), past

    def rest(self, x: Tensor, key: Tensor, value: Tensor, source_pad: Tensor, layout: Layout) -> Tensor:
        """Return the block after its self-attention; hypotheses of one sentence stand where target positions do."""
        x = self.cross_residual.leave(x, self.cross(self.cross_residual.enter(x), key, value, source_pad, layout))
        return self.feed_forward_residual.leave(x, self.feed_forward(self.feed_forward_residual.enter(x)))


@dataclass(frozen=True)
class DecoderState:
    """What a search remembers between steps, for B sentences with K hypotheses each."""

    position: int  # of the next token, from 0
    past: list[Tensor]  # per layer: keys and values so far, (2, B*K, H, position, d_k)
    memory: list[Tensor]  # per layer: keys and values of the source, (2, B, H, S, d_k)
    source_pad: Tensor  # (B, 1, 1, S), True at padding

    def select(self, sentences: Tensor, beams: Tensor) -> "DecoderState":
        """Keep `sentences` (B',) and let each of their hypotheses continue the old one named in `beams` (B', K)."""
        rows = (sentences[:, None] * beams.size(1) + beams).flatten()
        past = [layer.index_select(1, rows) for layer in self.past]
        if len(sentences) == len(self.source_pad):
            return DecoderState(self.position, past, self.memory, self.source_pad)
        memory = [layer.index_select(1, sentences) for layer in self.memory]
        return DecoderState(self.position, past, memory, self.source_pad.index_select(0, sentences))


class Transformer(nn.Module):
    """Encoder and decoder with their embeddings; `forward` gives the decoder's last hidden states.

    The output projection is left to the caller (`output_weight`, `output_bias`), who may need it at few positions only.
    """

    positions: Tensor

    def __init__(self, spec: TransformerModel, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.spec = spec
        self.source_embedding = nn.Embedding(source_vocabulary, spec.d_model, padding_idx=PAD)
        if spec.tie_embeddings == "all":
            if source_vocabulary != target_vocabulary:
                raise ValueError(
                    "tie_embeddings: all needs one vocabulary for both sides, "
                    f"not {source_vocabulary} source and {target_vocabulary} target types"
                )
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = nn.Embedding(target_vocabulary, spec.d_model, padding_idx=PAD)
            self.output = nn.Parameter(torch.empty(target_vocabulary, spec.d_model))
        self.output_bias = nn.Parameter(torch.empty(target_vocabulary)) if spec.output_bias else None
        self.encoder = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(spec) for _ in range(spec.n_layers))
        pre = spec.norm == "pre"
        self.encoder_norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(spec.d_model, eps=spec.norm_eps) if pre else nn.Identity()
        self.embedding_dropout = Dropout(spec.embedding_dropout)
        positions = sinusoidal_positions(spec.max_positions, spec.d_model)
        self.register_buffer("positions", positions, persistent=False)
        initialise(self)

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The decoder's layers with their type, which nn.ModuleList forgets."""
        return cast(list[DecoderLayer], list(self.decoder))

    @property
    def output_weight(self) -> Tensor:
        """The output projection, (V, D)."""
        return self.source_embedding.weight if self.spec.tie_embeddings == "all" else self.output

    def embed(self, table: nn.Embedding, ids: Tensor, start: int = 0, layout: Layout = ALL) -> Tensor:
        """Return embeddings plus positions from `start` on: (B, T) -> (B, T, D). ValueError beyond max_positions."""
        end = start + ids.size(1)
        if end > self.spec.max_positions:
            raise ValueError(f"a sequence of {end} tokens is longer than max_positions {self.spec.max_positions}")
        x = table(layout.pack(ids))
        if self.spec.scale_embeddings:
            x = x * math.sqrt(self.spec.d_model)
        return self.embedding_dropout(x + layout.pack(self.positions[start:end].expand(*ids.shape, -1)))

    def encode(self, source: Tensor, layout: Layout = ALL) -> tuple[Tensor, Tensor]:
        """Return the encoded source (B, S, D) and where it is padding (B, 1, 1, S)."""
        source_pad = (source == PAD)[:, None, None, :]
        x = self.embed(self.source_embedding, source, layout=layout)
        for layer in self.encoder:
            x = layer(x, source_pad, layout)
        return self.encoder_norm(x), source_pad

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the last hidden states for source (B, S) and target inputs (B, T): (B, T, D), zero where left out."""
        source_layout, target_layout = (choose_layout(ids, self.spec.d_model) for ids in (source, target))
        memory, source_pad = self.encode(source, source_layout)
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).triu(1)
        x = self.embed(self.target_embedding, target, layout=target_layout)
        for layer in self.decoder_layers:
            x = layer(x, memory, future, source_pad, target_layout, source_layout)
        return target_layout.pad(self.decoder_norm(x))

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of hidden states (..., D)."""
        return F.linear(hidden, self.output_weight, self.output_bias)

    def start(self, source: Tensor, beams: int) -> DecoderState:
        """Encode source (B, S) and return the state before the first target token, with `beams` hypotheses each."""
        memory, source_pad = self.encode(source)
        shape = (2, len(source) * beams, self.spec.n_heads, 0, self.spec.d_model // self.spec.n_heads)
        past = [memory.new_empty(shape) for _ in self.decoder_layers]
        return DecoderState(0, past, [layer.cross.project(memory, ALL) for layer in self.decoder_layers], source_pad)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read one token a hypothesis, (B, K), and return the logits of the next, (B, K, V), with the new state."""
        x = self.embed(self.target_embedding, tokens.flatten()[:, None], state.position).view(*tokens.shape, -1)
        past = []
        for layer, old, memory in zip(self.decoder_layers, state.past, state.memory, strict=True):
            x, new = layer.step(x, old, memory, state.source_pad)
            past.append(new)
        state = DecoderState(state.position + 1, past, state.memory, state.source_pad)
        return self.project(self.decoder_norm(x)).float(), state


build = Transformer  # models/__init__.py finds a model by its file's name and calls `build`


def initialise(model: Transformer) -> None:
    """Draw the initial weights.

    `fairseq`: embeddings N(0, 1/D), matrices Xavier uniform, those of Q, K, V with gain 1/sqrt(2), biases zero (Ott et
    al. 2019). `xavier_uniform`, `kaiming_uniform`: that rule for every matrix, embeddings too; biases as PyTorch draws
    them (hyunwoongko's train.py).
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            if model.spec.init == "fairseq" and name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name == "output_bias":
                bound = model.spec.d_model**-0.5
                nn.init.uniform_(parameter, -bound, bound)
        elif model.spec.init == "kaiming_uniform":
            for matrix in square_parts(name, parameter):
                nn.init.kaiming_uniform_(matrix)
        elif model.spec.init == "xavier_uniform":
            for matrix in square_parts(name, parameter):
                nn.init.xavier_uniform_(matrix)
        elif "embedding" in name or name == "output":
            nn.init.normal_(parameter, std=model.spec.d_model**-0.5)
        else:
            gain = 2**-0.5 if name.endswith(("qkv.weight", "kv.weight", "query.weight")) else 1.0
            for matrix in square_parts(name, parameter):
                nn.init.xavier_uniform_(matrix, gain=gain)
    if model.spec.init == "fairseq":
        for embedding in (model.source_embedding, model.target_embedding):
            nn.init.zeros_(embedding.weight[PAD])


def square_parts(name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """Return views of the matrices that share one parameter: Q, K, V of a joint projection are drawn one by one."""
    if name.endswith(("qkv.weight", "kv.weight")):
        return parameter.detach().split(parameter.size(1))
    return (parameter.detach(),)
