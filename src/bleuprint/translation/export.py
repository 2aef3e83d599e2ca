"""Write a run's averaged weights as a model for CTranslate2 (OpenNMT), a C++ engine that also computes in int8.

CTranslate2 can express all that models/transformer.py can; here stands what each of our weights is called there. Its
model reads and writes tokens: the tokenizer's types. It adds the source marks itself, as ours were when the corpus was
made, and starts from BOS.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.model_spec import index_spec

from bleuprint.checkpoint import weights_of
from bleuprint.decoding import load_model
from bleuprint.files import atomic_directory, sha256_of
from bleuprint.models.transformer import Transformer
from bleuprint.params import TransformerModel
from bleuprint.tokenizers import BOS, EOS, SPECIALS, UNK, Learned, LearnedBpe, Marks, Side, load_tokenizer

Quantization = Literal["none", "int8"]
MADE_FROM = "made_from.json"  # beside the model: what it is of, for translate

# Our names and CTranslate2's. What is tied stands once here and is copied in `build_spec`.
PLACES = {
    "source_embedding.weight": "encoder/embeddings_0/weight",
    "target_embedding.weight": "decoder/embeddings/weight",
    "output": "decoder/projection/weight",
    "output_bias": "decoder/projection/bias",
    "encoder_norm.weight": "encoder/layer_norm/gamma",
    "encoder_norm.bias": "encoder/layer_norm/beta",
    "decoder_norm.weight": "decoder/layer_norm/gamma",
    "decoder_norm.bias": "decoder/layer_norm/beta",
}
# The same within a layer, without the last part: weight or bias, in a norm gamma or beta.
PLACES_IN_A_LAYER = {
    "attention.qkv": "self_attention/linear_0",
    "attention.out": "self_attention/linear_1",
    "attention_residual.norm": "self_attention/layer_norm",
    "cross.query": "attention/linear_0",
    "cross.kv": "attention/linear_1",
    "cross.out": "attention/linear_2",
    "cross_residual.norm": "attention/layer_norm",
    "feed_forward.inner": "ffn/linear_0",
    "feed_forward.outer": "ffn/linear_1",
    "feed_forward_residual.norm": "ffn/layer_norm",
}
IN_A_LAYER = re.compile(r"(?P<side>encoder|decoder)\.(?P<number>\d+)\.(?P<part>.+)\.(?P<kind>weight|bias)")
OF_A_NORM = {"weight": "gamma", "bias": "beta"}


def export_run(
    corpus_dir: Path,
    weights: Path,
    model_params: TransformerModel,
    source_marks: Marks,
    quantization: Quantization,
    out: Path,
) -> None:
    """Write `weights` as a CTranslate2 model into the directory `out`, whole or not at all: float32, or int8 matrices.

    ValueError where the weights do not fit the model, or two types of the vocabulary have one spelling.
    """
    tokenizer = load_tokenizer(corpus_dir)
    types = {side: distinct(found, corpus_dir) for side, found in types_of(tokenizer).items()}
    model = load_model(weights, model_params, tokenizer.vocabulary)
    assert isinstance(model, Transformer)
    spec = build_spec(model, types, source_marks)
    spec.validate()
    spec.optimize(quantization=None if quantization == "none" else quantization)
    with atomic_directory(out) as directory:
        spec.save(str(directory))
        made_from = {
            "weights": sha256_of(weights),
            "tokenizer": sha256_of(corpus_dir / "tokenizer.json"),
            "quantization": quantization,
        }
        (directory / MADE_FROM).write_text(json.dumps(made_from, indent=2) + "\n", encoding="utf-8")


def types_of(tokenizer: Learned) -> dict[Side, list[str]]:
    """Return the types of each side in the order of their ids."""
    if isinstance(tokenizer, LearnedBpe):
        return {"source": list(tokenizer.types), "target": list(tokenizer.types)}
    return {"source": list(tokenizer.source_types), "target": list(tokenizer.target_types)}


def distinct(types: list[str], corpus_dir: Path) -> list[str]:
    """Return types; ValueError where one stands twice, for CTranslate2 finds an id by its type's spelling."""
    repeated = sorted({name for name in types if types.count(name) > 1}) if len(set(types)) < len(types) else []
    if repeated:
        path, names = corpus_dir / "tokenizer.json", ", ".join(map(repr, repeated))
        raise ValueError(f"{path}: CTranslate2 cannot tell apart two types spelt alike: {names}")
    return types


def build_spec(model: Transformer, types: Mapping[Side, Sequence[str]], source_marks: Marks) -> TransformerSpec:
    """Return CTranslate2's description of a model, with its weights and vocabulary."""
    params = model.spec
    spec = TransformerSpec.from_config(params.n_layers, params.n_heads, pre_norm=params.norm == "pre")
    for name, value in weights_of(model).items():
        set_value(spec, place_of(name), value.numpy())
    if params.tie_embeddings == "all":
        spec.decoder.embeddings.weight = spec.decoder.projection.weight = spec.encoder.embeddings[0].weight
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = params.scale_embeddings
        side.position_encodings.encodings = model.positions.numpy()
    spec.register_source_vocabulary(list(types["source"]))
    spec.register_target_vocabulary(list(types["target"]))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (SPECIALS[i] for i in (UNK, BOS, EOS))
    spec.config.decoder_start_token = SPECIALS[BOS]
    spec.config.add_source_bos = source_marks == "both"
    spec.config.add_source_eos = source_marks != "none"
    spec.config.layer_norm_epsilon = params.norm_eps
    return spec


def place_of(name: str) -> str:
    """Return where CTranslate2 keeps one of our weights: "encoder.0.cross.out.bias" -> "…/attention/linear_2/bias"."""
    found = IN_A_LAYER.fullmatch(name)
    if not found:
        return PLACES[name]
    place = PLACES_IN_A_LAYER[found["part"]]
    kind = OF_A_NORM[found["kind"]] if place.endswith("layer_norm") else found["kind"]
    return f"{found['side']}/layer_{found['number']}/{place}/{kind}"


def set_value(spec: TransformerSpec, place: str, value: np.ndarray) -> None:
    """Put a weight into its place."""
    owner, _, attribute = place.rpartition("/")
    setattr(index_spec(spec, owner), attribute, value)
