"""CTranslate2 as the oracle: an exported model has the hypotheses and the scores of ours."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import ctranslate2
import pytest
import torch
from specs import ROOT, SPEC, bleuprint, variant
from torch import Tensor

from bleuprint.checkpoint import save_weights, weights_of
from bleuprint.graph import load_params
from bleuprint.models.transformer import DecoderState, Transformer
from bleuprint.params import LengthPenalty, TransformerModel
from bleuprint.search import Hypothesis, search
from bleuprint.tokenizers import BOS, EOS, PAD, SPECIALS, LearnedBpe, LearnedWords, Marks
from bleuprint.translation.export import Quantization, export_run

DROPOUT = 0.3  # translating must switch it off
SOURCE_TYPES, TARGET_TYPES = 17, 23
BEAM, LIMIT = 4, 40
END_LOGIT = 3.0  # is added to the end symbol's


class Run(NamedTuple):
    """What an export reads, and the model that it should equal."""

    root: Path
    model: Transformer
    marks: Marks

    @property
    def weights(self) -> Path:
        return self.root / "average/weights.safetensors"

    @property
    def out(self) -> Path:
        return self.root / "ctranslate2"

    def export(self, quantization: Quantization = "none") -> None:
        export_run(self.root / "corpus", self.weights, self.model.spec, self.marks, quantization, self.out)

    def translator(self) -> ctranslate2.Translator:
        return ctranslate2.Translator(str(self.out), inter_threads=1, intra_threads=1)


def make_run(root: Path, spec: TransformerModel, marks: Marks = "end", seed: int = 5) -> Run:
    tied = spec.tie_embeddings == "all"
    (root / "corpus").mkdir()
    tokenizer: LearnedBpe | LearnedWords
    if tied:
        types = names("piece", TARGET_TYPES)
        tokenizer = LearnedBpe(
            kind="bpe", text="raw", merges=1, source="en", target="de", types=types, learned_merges=()
        )
    else:
        source, target = names("word", SOURCE_TYPES), names("Wort", TARGET_TYPES)
        tokenizer = LearnedWords(
            kind="words", lowercase=True, min_frequency=1, source="en", target="de",
            source_types=source, target_types=target,
        )  # fmt: skip
    (root / "corpus/tokenizer.json").write_text(tokenizer.model_dump_json())
    model = random_model(spec, tokenizer.vocabulary["source"], tokenizer.vocabulary["target"], seed)
    save_weights(weights_of(model), root / "average/weights.safetensors")
    return Run(root, model, marks)


def names(stem: str, count: int) -> tuple[str, ...]:
    """Return a vocabulary: "word4" is id 4."""
    return (*SPECIALS, *(f"{stem}{i}" for i in range(len(SPECIALS), count)))


@torch.no_grad()
def random_model(spec: TransformerModel, source_types: int, target_types: int, seed: int) -> Transformer:
    """Return a model in which no bias is zero and no norm is neutral, and which ends its sentences, mostly."""
    torch.manual_seed(seed)
    model = Transformer(spec, source_types, target_types).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    last = "decoder_norm" if spec.norm == "pre" else f"decoder.{spec.n_layers - 1}.feed_forward_residual.norm"
    towards_the_end = model.output_weight[EOS]
    model.get_parameter(f"{last}.bias").add_(END_LOGIT * towards_the_end / towards_the_end.square().sum())
    return model


class Renormalised(NamedTuple):
    """The model as CTranslate2 sees it when it suppresses PAD and BOS: their probability goes to the others."""

    model: Transformer

    def start(self, source: Tensor, beams: int) -> DecoderState:
        return self.model.start(source, beams)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        logits, state = self.model.step(tokens, state)
        logits[:, :, [PAD, BOS]] = -torch.inf
        return logits, state


def random_sources(run: Run) -> list[list[int]]:
    """Return ids without marks."""
    random = torch.Generator().manual_seed(7)
    types = run.model.source_embedding.num_embeddings
    return [torch.randint(len(SPECIALS), types, (1 + i % 9,), generator=random).tolist() for i in range(40)]


def penalty_of(alpha: float) -> LengthPenalty:
    return LengthPenalty(kind="length", alpha=alpha)


def ours(run: Run, sources: list[list[int]], penalty: LengthPenalty) -> list[list[Hypothesis]]:
    begin, end = {"both": ([BOS], [EOS]), "end": ([], [EOS]), "none": ([], [])}[run.marks]
    marked = [begin + ids + end for ids in sources]
    width = max(map(len, marked))
    batch = torch.tensor([ids + [PAD] * (width - len(ids)) for ids in marked])
    return search(Renormalised(run.model), batch, BEAM, penalty, LIMIT, BEAM)


def theirs(run: Run, sources: list[list[int]], alpha: float) -> list[list[Hypothesis]]:
    stem = "piece" if run.model.spec.tie_embeddings == "all" else "word"
    results = run.translator().translate_batch(
        [[f"{stem}{i}" for i in ids] for ids in sources],
        beam_size=BEAM,
        num_hypotheses=BEAM,
        length_penalty=alpha,
        min_decoding_length=0,
        max_decoding_length=LIMIT,
        return_end_token=True,
        return_scores=True,
        suppress_sequences=[[SPECIALS[PAD]], [SPECIALS[BOS]]],
    )
    return [
        [Hypothesis(ids_of(tokens), score) for tokens, score in zip(result.hypotheses, result.scores, strict=True)]
        for result in results
    ]


def ids_of(tokens: list[str]) -> tuple[int, ...]:
    """Return the ids of a hypothesis without its end symbol."""
    ids = [SPECIALS.index(token) if token in SPECIALS else int(re.sub(r"\D", "", token)) for token in tokens]
    return tuple(ids[:-1] if ids[-1] == EOS else ids)


# The seeds are of models that do not say the same whatever they read.
@pytest.mark.parametrize(
    ("changes", "marks", "alpha", "seed"),
    [
        ({"norm": "post", "tie_embeddings": "all", "output_bias": False}, "end", 1.0, 5),
        ({"norm": "pre", "tie_embeddings": "none"}, "both", 0.0, 5),
        ({"norm": "pre", "tie_embeddings": "all", "scale_embeddings": False}, "none", 0.6, 1),
        ({"norm": "post", "tie_embeddings": "none", "scale_embeddings": False, "norm_eps": 0.1}, "end", 1.0, 2),
    ],
    ids=["post-tied", "pre-untied", "pre-tied-unscaled", "post-untied-unscaled-eps"],
)
def test_ctranslate2_finds_the_same_hypotheses_and_scores(
    tmp_path: Path, changes: dict[str, object], marks: Marks, alpha: float, seed: int
) -> None:
    run = make_run(tmp_path, variant({"embedding_dropout": DROPOUT} | changes), marks, seed)
    run.export()
    sources = random_sources(run)
    pairs = zip(theirs(run, sources, alpha), ours(run, sources, penalty_of(alpha)), strict=True)
    # At the limit CTranslate2 cuts where ours forces the end symbol.
    compared = [(found, expected) for found, expected in pairs if max(len(h.tokens) for h in expected) < LIMIT]
    for found, expected in compared:
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
    assert len(compared) > len(sources) / 2
    assert len({round(expected[0].score, 3) for _, expected in compared}) > len(compared) / 2
    assert max(len(h.tokens) for _, expected in compared for h in expected) > 1


def test_int8_is_smaller_and_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path, variant({"d_model": 64, "d_ff": 128}))
    run.export()
    size = (run.out / "model.bin").stat().st_size
    run.export("int8")
    assert (run.out / "model.bin").stat().st_size < size / 2
    translator = run.translator()
    assert translator.compute_type.startswith("int8")
    [result] = translator.translate_batch([["word4", "word5"]], beam_size=2, max_decoding_length=9)
    assert len(result.hypotheses) == 1


def test_writes_a_directory_that_ctranslate2_knows(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC, "both")
    run.export()
    assert ctranslate2.contains_model(str(run.out))
    config = json.loads((run.out / "config.json").read_text())
    assert config["add_source_bos"] is config["add_source_eos"] is True
    assert (config["unk_token"], config["decoder_start_token"], config["eos_token"]) == ("<unk>", "<sos>", "<eos>")
    assert json.loads((run.out / "target_vocabulary.json").read_text())[:5] == [*SPECIALS, "Wort4"]


def test_refuses_two_types_that_are_spelt_alike(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC)
    path = tmp_path / "corpus/tokenizer.json"
    path.write_text(path.read_text().replace('"Wort9"', '"Wort8"'))
    with pytest.raises(ValueError, match=r"tokenizer\.json: CTranslate2 cannot .* spelt alike: 'Wort8'$"):
        run.export()
    assert not run.out.exists()


def test_refuses_weights_of_another_model_and_leaves_the_old_output(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC)
    run.export()
    before = {path.name: path.read_bytes() for path in run.out.iterdir()}
    other = random_model(variant({"d_ff": 32}), SOURCE_TYPES, TARGET_TYPES, 5)
    save_weights(weights_of(other), run.weights)
    with pytest.raises(ValueError, match=r"weights\.safetensors: .*inner\.weight is \(32, 16\), the model's"):
        run.export()
    run.weights.unlink()
    with pytest.raises(ValueError, match=r"weights\.safetensors cannot be read as weights"):
        run.export()
    assert {path.name: path.read_bytes() for path in run.out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["average", "corpus", "ctranslate2"]


def test_the_command_exports_a_run(tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "runs/toy-1").mkdir(parents=True)
    toy = load_params(ROOT / "params.yaml").recipes["toy"].model
    assert isinstance(toy, TransformerModel)
    run = make_run(tmp_path / "runs/toy-1", toy)
    (tmp_path / "data/corpora").mkdir(parents=True)
    shutil.move(run.root / "corpus", tmp_path / "data/corpora/toy-words")
    done = bleuprint(tmp_path, "export", "toy-1", "--to", "ctranslate2", "--quantization", "int8")
    assert done.returncode == 0, done.stderr
    assert ctranslate2.contains_model(str(run.out))
    for wrong in (["--to", "onnx"], ["--to", "ctranslate2", "--quantization", "int4"]):
        assert bleuprint(tmp_path, "export", "toy-1", *wrong).returncode == 2


@pytest.mark.parametrize(("run", "kind"), [("published-1", "hyunwoongko"), ("preln-1", "pitau")])
def test_refuses_a_model_of_another_kind_before_it_writes(tmp_path: Path, run: str, kind: str) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    done = bleuprint(tmp_path, "export", run, "--to", "ctranslate2")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: the model of {run} is of kind {kind}: only transformer models can be exported\n"
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
