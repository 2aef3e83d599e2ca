"""Attention weights of models that keep none: computed anew, and compared with what the layers did."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from specs import SPEC, variant
from torch import Tensor

from bleuprint.attended import Attention
from bleuprint.attention import (
    MOST_SOURCE,
    MOST_TARGET,
    SENTENCES,
    attend_run,
    choose_rows,
    layers_of,
    packed,
    weights_of,
)
from bleuprint.batching import Ids
from bleuprint.checkpoint import save_weights
from bleuprint.graph import load_params
from bleuprint.models import build_model, pitau, transformer
from bleuprint.params import Machine, ModelSpec, PitauModel
from bleuprint.tokenizers import BOS, EOS, load_tokenizer
from bleuprint.tokenizing import build_corpus
from bleuprint.toy import generate

PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")
MACHINE = Machine(device="cpu", threads=1)
PITAU = PitauModel(
    kind="pitau", form="coded", d_model=16, d_ff=16, n_heads=4, n_layers=2, max_positions=64, dropout=0.5, norm_eps=1e-5
)
MODELS: dict[str, ModelSpec] = {
    "post": SPEC,
    "pre": variant({"norm": "pre"}),
    "pitau as coded": PITAU,
    "pitau as written": PITAU.model_copy(update={"form": "written"}),
}
SOURCE, INPUTS = torch.tensor([[5, 6, 7, 8, EOS]]), torch.tensor([[BOS, 9, 10, 11]])


def built(spec: ModelSpec) -> Any:
    """Return a model that nobody trained, its matrices large enough that its attention is not even."""
    torch.manual_seed(1)
    model = build_model(spec, 20, 20)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.add_(torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)
def test_rows_sum_to_one_and_the_decoder_sees_no_future(spec: ModelSpec) -> None:
    found = weights_of(built(spec), SOURCE, INPUTS)
    assert [tuple(kind.shape) for kind in found] == [(2, 4, 5, 5), (2, 4, 4, 4), (2, 4, 4, 5)]
    for kind in found:
        torch.testing.assert_close(kind.sum(-1), torch.ones(kind.shape[:-1]))
        assert kind.std() > 0.05, "even weights would sum to 1 as well"
    assert not found.decoder.triu(1).any()
    assert found.decoder.tril().gt(0).sum() > 40  # of 80


@pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)
def test_a_head_that_is_told_where_to_look_looks_there(spec: ModelSpec) -> None:
    """With queries and keys of zero every visible token has the same weight."""
    model = built(spec)
    with torch.no_grad():
        for layer in (*layers_of(model.encoder), *layers_of(model.decoder)):
            for parameter in layer.attention.qkv.parameters():
                parameter[: 2 * 16] = 0
    found = weights_of(model, SOURCE, INPUTS)
    torch.testing.assert_close(found.encoder, torch.full_like(found.encoder, 1 / 5))
    torch.testing.assert_close(found.decoder[0, 0, 2], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]))


@pytest.mark.parametrize(("module", "spec"), [(transformer, SPEC), (pitau, PITAU)], ids=["transformer", "pitau"])
def test_a_layer_that_attends_in_another_way_is_found_out(
    module: Any, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend = module.attend

    def sharper(query: Tensor, *others: Any) -> Tensor:
        return attend(2 * query, *others)

    model = built(spec)
    weights_of(model, SOURCE, INPUTS)
    monkeypatch.setattr(module, "attend", sharper)
    with pytest.raises(AssertionError, match="the layer attends in another way"):
        weights_of(model, SOURCE, INPUTS)


def test_nothing_is_left_on_the_model() -> None:
    model = built(SPEC)
    before = model(SOURCE, INPUTS)
    weights_of(model, SOURCE, INPUTS)
    assert not [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert torch.equal(model(SOURCE, INPUTS), before)


def test_the_first_short_sentences_with_words_are_chosen() -> None:
    lengths = [MOST_SOURCE + 1, 1, MOST_SOURCE, 3, 2, 5]  # the second is EOS alone
    flat = np.concatenate([[7] * (length - 1) + [EOS] for length in lengths])
    sources = Ids(flat, np.concatenate([[0], np.cumsum(lengths)]))
    assert choose_rows(sources) == [2, 3, 4]
    assert len(choose_rows(sources)) == SENTENCES


def test_a_weight_is_a_byte() -> None:
    assert list(base64.b64decode(packed(torch.tensor([[0.0, 0.5, 1.0]])))) == [0, 128, 255]


# --- the stage --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the toy corpus."""
    place = tmp_path_factory.mktemp("toy")
    dataset = PARAMS.datasets["toy"].model_copy(update={"pairs": {"train": 60, "val": 20, "test": 20}})
    generate(dataset, place / "raw")  # type: ignore[arg-type]
    build_corpus(PARAMS.corpora["toy-words"], dataset.splits, place / "raw", place / "corpus")
    return place / "corpus"


def attended(corpus: Path, spec: ModelSpec, out: Path) -> Attention:
    vocabulary = load_tokenizer(corpus).vocabulary
    torch.manual_seed(1)
    model = build_model(spec, vocabulary["source"], vocabulary["target"])
    save_weights(model.state_dict(), out.parent / "weights.safetensors")
    decode = PARAMS.recipes["toy"].decode
    attend_run("toy-1", "test", corpus, out.parent / "weights.safetensors", spec, decode, MACHINE, out)
    return Attention.model_validate(json.loads(out.read_text()))


def test_the_file_holds_whole_maps_and_is_the_same_again(corpus: Path, tmp_path: Path) -> None:
    found = attended(corpus, SPEC, tmp_path / "toy-1.attention.json")
    assert (found.run, found.test, found.layers, found.heads, found.why_not) == ("toy-1", "test", 2, 4, None)
    assert len(found.sentences) == SENTENCES
    for sentence in found.sentences:
        assert len(sentence.read) <= MOST_SOURCE
        assert len(sentence.written) == len(sentence.before) <= MOST_TARGET
        assert sentence.before[0] == "<bos>" or sentence.before[0] == "<sos>"
        assert sentence.before[1:] == sentence.written[:-1]
        assert sentence.cut == (sentence.written[-1] != "<eos>")
        rows = np.frombuffer(base64.b64decode(sentence.cross), np.uint8).reshape(
            2, 4, len(sentence.written), len(sentence.read)
        )
        assert np.abs(rows.sum(-1).astype(int) - 255).max() <= len(sentence.read)
    first = (tmp_path / "toy-1.attention.json").read_bytes()
    attended(corpus, SPEC, tmp_path / "toy-1.attention.json")
    assert (tmp_path / "toy-1.attention.json").read_bytes() == first


def test_a_model_whose_weights_are_none_says_why(corpus: Path, tmp_path: Path) -> None:
    found = attended(corpus, PARAMS.recipes["published"].model, tmp_path / "toy-1.attention.json")
    assert found.sentences == ()
    assert found.why_not is not None
    assert "its softmax runs over the heads" in found.why_not
