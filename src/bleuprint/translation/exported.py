"""A run's exported CTranslate2 model as an engine of translating.py, and whether it is of the run as it is now.

CTranslate2 has the length penalty of `length` alone, gives the probability of PAD and BOS to the others (export's
tests), and cuts a hypothesis at the limit where search.py ends it: in fp32 texts are the same but for such sentences.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2

from bleuprint.decoding import plan_batches
from bleuprint.files import sha256_of
from bleuprint.params import Decode, Machine
from bleuprint.search import NEVER, Hypothesis
from bleuprint.tokenizers import BOS, EOS, PAD, SPECIALS, Learned
from bleuprint.translation.export import MADE_FROM, types_of
from bleuprint.translation.translating import Engine


def reason_against(model: Path, corpus_dir: Path, weights: Path, decode: Decode) -> str | None:
    """Return why the exported model in a folder cannot stand for a run's weights, None where it can."""
    if not ctranslate2.contains_model(str(model)):
        return f"there is no model in {model}"
    if decode.length_penalty.kind != "length" and decode.length_penalty.alpha:
        return f"CTranslate2 has no length penalty of kind {decode.length_penalty.kind}"
    try:
        made_from = json.loads((model / MADE_FROM).read_text(encoding="utf-8"))
        same = made_from["weights"] == sha256_of(weights) and (
            made_from["tokenizer"] == sha256_of(corpus_dir / "tokenizer.json")
        )
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        same = False
    return None if same else f"{model} was not made from {weights} as it is now"


def quantization_of(model: Path) -> str:
    """Return in what an exported model keeps its weights: none is fp32."""
    return str(json.loads((model / MADE_FROM).read_text(encoding="utf-8"))["quantization"])


def ctranslate2_engine(model: Path, tokenizer: Learned, decode: Decode, machine: Machine, n_best: int) -> Engine:
    """Return CTranslate2 as an engine; it adds the marks of the source itself."""
    translator = ctranslate2.Translator(
        str(model), device=machine.device, inter_threads=1, intra_threads=machine.threads
    )
    types = types_of(tokenizer)
    target_ids = {name: i for i, name in enumerate(types["target"])}

    def translate(sentences: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        sizes = {row: len(ids) for row, ids in enumerate(sentences)}
        for rows in plan_batches(sizes, decode.beam, decode.max_batch_tokens, mixed=False):  # of one length: one limit
            results = translator.translate_batch(
                [[types["source"][i] for i in sentences[row]] for row in rows],
                beam_size=decode.beam,
                num_hypotheses=n_best,
                length_penalty=decode.length_penalty.alpha,
                min_decoding_length=0,
                max_decoding_length=sizes[rows[0]] + decode.max_extra_tokens,
                return_end_token=True,
                return_scores=True,
                suppress_sequences=[[SPECIALS[PAD]], [SPECIALS[BOS]]],
            )
            for row, result in zip(rows, results, strict=True):
                found[row] = hypotheses_of(result, target_ids)
        return found

    return translate


def hypotheses_of(result: Any, ids: dict[str, int]) -> list[Hypothesis]:
    """Return what CTranslate2 found of a sentence, as ids without marks; one at least."""
    tokens = [tuple(i for i in map(ids.__getitem__, words) if i != EOS) for words in result.hypotheses]
    return [Hypothesis(*pair) for pair in zip(tokens, result.scores, strict=True)] or [Hypothesis((), NEVER)]
