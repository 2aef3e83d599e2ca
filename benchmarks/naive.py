"""The Transformer as a README teaches it, to be compared with src/bleuprint/models/transformer.py: equal, and slower.

One product for each of Q, K and V, attention written out, `nn.Dropout`, fp32, logits and loss at every position. It
takes the weights of our model, so that losses and gradients can be compared; it is never used to train a system.

Shapes: B batch, S source, T target, D d_model, H heads, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bleuprint.models.transformer import Transformer, sinusoidal_positions
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import PAD


class Attention(nn.Module):
    def __init__(self, spec: TransformerModel) -> None:
        super().__init__()
        self.n_heads = spec.n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(spec.d_model, spec.d_model) for _ in range(4))
        self.dropout = nn.Dropout(spec.attention_dropout)

    def forward(self, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        query, key, value = (
            projection(y).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for projection, y in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.size(-1))
        weights = self.dropout(scores.masked_fill(~seen, float("-inf")).softmax(-1))
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, attention to the source where there is one, feed-forward; post- or pre-norm."""

    def __init__(self, spec: TransformerModel, decoder: bool) -> None:
        super().__init__()
        self.pre = spec.norm == "pre"
        self.attention = Attention(spec)
        self.cross = Attention(spec) if decoder else None
        self.inner, self.outer = nn.Linear(spec.d_model, spec.d_ff), nn.Linear(spec.d_ff, spec.d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(spec.d_model, eps=spec.norm_eps) for _ in range(3 if decoder else 2))
        self.ffn_dropout, self.dropout = nn.Dropout(spec.ffn_dropout), nn.Dropout(spec.residual_dropout)

    def forward(
        self, x: Tensor, seen: Tensor, memory: Tensor | None = None, memory_seen: Tensor | None = None
    ) -> Tensor:
        blocks: list[Callable[[Tensor], Tensor]] = [lambda y: self.attention(y, y, seen)]
        if (cross := self.cross) is not None:
            blocks.append(lambda y: cross(y, memory, memory_seen))
        blocks.append(lambda y: self.outer(self.ffn_dropout(F.relu(self.inner(y)))))
        for block, norm in zip(blocks, self.norms, strict=True):
            x = x + self.dropout(block(norm(x))) if self.pre else norm(x + self.dropout(block(x)))
        return x


class NaiveTransformer(nn.Module):
    """Logits (B, T, V) of source (B, S) and target inputs (B, T)."""

    positions: Tensor

    def __init__(self, spec: TransformerModel, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.spec = spec
        self.source_embedding = nn.Embedding(source_vocabulary, spec.d_model, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_vocabulary, spec.d_model, padding_idx=PAD)
        self.output = nn.Linear(spec.d_model, target_vocabulary, bias=spec.output_bias)
        if spec.tie_embeddings == "all":
            self.target_embedding.weight = self.output.weight = self.source_embedding.weight
        self.encoder = nn.ModuleList(Layer(spec, decoder=False) for _ in range(spec.n_layers))
        self.decoder = nn.ModuleList(Layer(spec, decoder=True) for _ in range(spec.n_layers))
        last = (
            nn.LayerNorm(spec.d_model, eps=spec.norm_eps) if spec.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.encoder_norm, self.decoder_norm = last
        self.dropout = nn.Dropout(spec.embedding_dropout)
        self.register_buffer("positions", sinusoidal_positions(spec.max_positions, spec.d_model), persistent=False)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Return embeddings plus positions, (B, T, D)."""
        scale = math.sqrt(self.spec.d_model) if self.spec.scale_embeddings else 1.0
        return self.dropout(table(ids) * scale + self.positions[: ids.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_seen = (source != PAD)[:, None, None, :]
        past = torch.ones(target.size(1), target.size(1), dtype=torch.bool).tril()
        memory = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            memory = layer(memory, source_seen)
        memory = self.encoder_norm(memory)
        x = self.embed(self.target_embedding, target)
        for layer in self.decoder:
            x = layer(x, past, memory, source_seen)
        return self.output(self.decoder_norm(x))


def mean_loss(model: NaiveTransformer, source: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return the smoothed cross-entropy per real token of the target (B, T+1), from logits at every position."""
    logits = model(source, target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=smoothing)


@torch.no_grad()
def copy_weights(ours: Transformer, naive: NaiveTransformer) -> None:
    """Give the naive model the weights of ours; the joint projections are taken apart."""
    weights = ours.state_dict()
    for name, parameter in naive.named_parameters():
        parameter.copy_(find(weights, name, ours))


def find(weights: dict[str, Tensor], name: str, ours: Transformer) -> Tensor:
    """Return the weights of ours that stand under `name` in the naive model."""
    if name.startswith("output."):
        value = ours.output_weight if name == "output.weight" else ours.output_bias
        assert value is not None
        return value
    if not name.startswith(("encoder.", "decoder.")):
        return weights[name]
    stack, layer, part, *rest = name.split(".")
    if part in ("inner", "outer"):
        return weights[".".join([stack, layer, "feed_forward", part, *rest])]
    if part == "norms":
        blocks = ("attention", "feed_forward") if stack == "encoder" else ("attention", "cross", "feed_forward")
        return weights[".".join([stack, layer, f"{blocks[int(rest[0])]}_residual", "norm", rest[1]])]
    which, kind = rest
    joint = {"query": ("qkv", 0, 3), "key": ("qkv", 1, 3), "value": ("qkv", 2, 3)}
    if part == "cross":
        joint = {"key": ("kv", 0, 2), "value": ("kv", 1, 2)}
    if which not in joint:
        return weights[name]
    source, index, parts = joint[which]
    return weights[".".join([stack, layer, part, source, kind])].chunk(parts)[index]
