"""The attend stage: the attention of every layer and head on a few short sentences, for the report's page.

The models keep no weights, and are not changed for this: queries, keys and values are taken at the projections that
they come from, softmax(Q K^T / sqrt(d_k)) (Eq. 1) is computed anew, and what it makes of the values is compared with
what the layer made of them.

Shapes: S source tokens, T target tokens, D d_model, H heads, L layers; one sentence at a time.
"""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from bleuprint.attended import Attention, Sentence
from bleuprint.batching import Ids, open_ids, pad
from bleuprint.decoding import device_of, has_words, load_model
from bleuprint.device import find_device
from bleuprint.files import write_text
from bleuprint.models.uncached import WholeModel
from bleuprint.params import Decode, HyunwoongkoModel, Machine, ModelSpec
from bleuprint.search import Model, search
from bleuprint.tokenizers import BOS, EOS, Learned, LearnedBpe, Side, load_tokenizer

SENTENCES = 3
MOST_SOURCE, MOST_TARGET = 12, 14  # tokens, marks included: maps that can be read on a phone, files that stay small
TOLERANCE = 1e-4  # of a layer's output, beside its largest value: another order of the same sums
ONE = 255  # what a weight of 1 is stored as
NO_WEIGHTS = (
    "models/hyunwoongko.py as published re-reads keys instead of transposing them, so that a head is no slice of every "
    "token, and its softmax runs over the heads: no row of weights says where a token looks, and none sums to 1"
)


class Weights(NamedTuple):
    """Attention weights: `encoder` (L, H, S, S), `decoder` (L, H, T, T) and `cross` (L, H, T, S)."""

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


# --- the stage --------------------------------------------------------------------------------------------------------


def attend_run(
    run: str,
    test: str,
    corpus_dir: Path,
    weights: Path,
    model_params: ModelSpec,
    decode: Decode,
    machine: Machine,
    out: Path,
) -> None:
    """Write `out`: the attention of a run on the first SENTENCES of a test set of at most MOST_SOURCE tokens.

    ValueError where the weights are missing or do not fit the model.
    """
    torch.set_num_threads(machine.threads)
    why_not = NO_WEIGHTS if isinstance(model_params, HyunwoongkoModel) else None
    sentences: list[Sentence] = []
    if why_not is None:
        tokenizer, sources = load_tokenizer(corpus_dir), open_ids(corpus_dir, f"{test}.source")
        model = load_model(weights, model_params, tokenizer.vocabulary).to(find_device(machine))
        sentences = [attend_sentence(model, tokenizer, sources, row, decode) for row in choose_rows(sources)]
    attention = Attention(
        run=run,
        test=test,
        layers=model_params.n_layers,
        heads=model_params.n_heads,
        sentences=tuple(sentences),
        why_not=why_not,
    )
    write_text(out, json.dumps(attention.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n")


def choose_rows(sources: Ids) -> list[int]:
    """Return the first SENTENCES with words and at most MOST_SOURCE tokens; fewer where there are no more."""
    short = (row for row, length in enumerate(sources.lengths.tolist()) if length <= MOST_SOURCE)
    rows = [row for row in short if has_words(sources, row)]
    return rows[:SENTENCES]


def attend_sentence(model: nn.Module, tokenizer: Learned, sources: Ids, row: int, decode: Decode) -> Sentence:
    """Translate a sentence as the run's decoding does, and return the attention while that was written."""
    source = pad(sources, np.array([row])).to(device_of(model))  # (1, S)
    decoder = cast("Model[Any]", model)
    [[best]] = search(decoder, source, decode.beam, decode.length_penalty, decode.max_extra_tokens, n_best=1)
    written = [*best.tokens, EOS][:MOST_TARGET]
    before = [BOS, *written[:-1]]
    found = weights_of(model, source, torch.tensor([before], device=source.device))
    return Sentence(
        line=row + 1,
        read=spelled(tokenizer, "source", source[0].tolist()),
        before=spelled(tokenizer, "target", before),
        written=spelled(tokenizer, "target", written),
        cut=len(best.tokens) >= MOST_TARGET,
        encoder=packed(found.encoder),
        decoder=packed(found.decoder),
        cross=packed(found.cross),
    )


def spelled(tokenizer: Learned, side: Side, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the types of ids, marks and the sign of a word's beginning included."""
    if isinstance(tokenizer, LearnedBpe):
        types = tokenizer.types
    else:
        types = tokenizer.source_types if side == "source" else tokenizer.target_types
    return tuple(types[index] for index in ids)


def packed(weights: Tensor) -> str:
    """Return weights as base64 of bytes, ONE for 1."""
    return base64.b64encode((weights * ONE).round().to(torch.uint8).cpu().numpy().tobytes()).decode("ascii")


# --- weights ----------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What a layer computed with: Q (1, T, D), K and V (1, S, D), the heads joined (1, T, D), and what was hidden."""

    query: Tensor
    key: Tensor
    value: Tensor
    joined: Tensor
    hidden: Tensor


@torch.inference_mode()
def weights_of(model: nn.Module, source: Tensor, inputs: Tensor) -> Weights:
    """Return the attention of a model that reads source (1, S) and target inputs (1, T).

    AssertionError where a layer computes something else than is computed here.
    """
    parts = {
        "encoder": [layer.attention for layer in layers_of(model.encoder)],
        "decoder": [layer.attention for layer in layers_of(model.decoder)],
        "cross": [layer.cross for layer in layers_of(model.decoder)],
    }
    with ExitStack() as stack:
        notes = {kind: [note(module, stack) for module in modules] for kind, modules in parts.items()}
        cast("WholeModel", model)(source, inputs)
    heads = cast(int, cast(Any, model).spec.n_heads)
    found = {kind: torch.cat([checked(seen_in(layer), heads) for layer in layers]) for kind, layers in notes.items()}
    return Weights(**found)


def layers_of(stack: Any) -> Iterator[Any]:
    """Yield the layers of an encoder or a decoder."""
    yield from cast(nn.ModuleList, stack)


def note(module: nn.Module, stack: ExitStack) -> dict[str, Tensor]:
    """Return what will hold the outputs of an attention's projections, the input of its W^O, and its mask."""
    noted: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda _, __, output: noted.__setitem__(name, output)

    def keep_mask(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        noted["hidden"] = next(value for value in arguments if isinstance(value, Tensor) and value.dtype == torch.bool)

    for name, projection in module.named_children():
        if name in ("qkv", "query", "kv"):
            stack.enter_context(projection.register_forward_hook(keep(name)))
    out = cast(nn.Module, module.out)
    stack.enter_context(out.register_forward_pre_hook(lambda _, inputs: noted.__setitem__("joined", inputs[0])))
    stack.enter_context(module.register_forward_pre_hook(keep_mask))
    return noted


def seen_in(noted: dict[str, Tensor]) -> Seen:
    """Return what was noted of a layer as queries, keys and values."""
    if "qkv" in noted:
        query, key, value = noted["qkv"].chunk(3, dim=-1)
    else:
        query, (key, value) = noted["query"], noted["kv"].chunk(2, dim=-1)
    return Seen(query, key, value, noted["joined"], noted["hidden"])


def checked(seen: Seen, n_heads: int) -> Tensor:
    """Return a layer's weights (1, H, T, S), and check that they make of its values what the layer made of them."""
    query, key, value = (part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in seen[:3])
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = scores.masked_fill(seen.hidden, float("-inf")).softmax(-1)
    joined = (weights @ value).transpose(1, 2).flatten(2)
    error = (joined - seen.joined).abs().max() / seen.joined.abs().max().clamp(min=1e-30)
    assert error < TOLERANCE, f"the layer attends in another way: its output is off by {error:.1e}"
    return weights
