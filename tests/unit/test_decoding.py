"""The decode stage with a small untrained Transformer on small corpora."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bleuprint.batching import open_ids, pad
from bleuprint.checkpoint import load_into, load_weights, save_weights, weights_of
from bleuprint.decoding import decode_run, one_line, plan_batches
from bleuprint.device import find_device
from bleuprint.models.transformer import Transformer
from bleuprint.params import (
    BpeTokenizer,
    Corpus,
    Decode,
    LengthPenalty,
    Machine,
    Splits,
    TransformerModel,
    WordsTokenizer,
)
from bleuprint.search import search
from bleuprint.tokenizers import build_corpus, load_tokenizer, official_chain

SPLITS = Splits(train="train", validation="val", tests=("test", "other"))
ENGLISH = ["A man rides a bike .", "Two dogs run , and a cat sleeps .", "The woman doesn't smile .", "A dog ."]
GERMAN = [
    "Ein Mann fährt Rad .",
    "Zwei Hunde rennen , und eine Katze schläft .",
    "Die Frau lächelt nicht .",
    "Ein Hund .",
]
TEST_ENGLISH = ["A dog runs .", "", "Two men ride a bike , and a woman sleeps .", "The cat .", "A man rides a cat ."]
TEST_GERMAN = [
    "Ein Hund rennt .", "Nichts & niemand", "Zwei Männer fahren Rad , eine Frau schläft .", "Die Katze .", "Ein Mann ."
]  # fmt: skip
MODEL = TransformerModel(
    kind="transformer",
    norm="pre",
    d_model=16,
    d_ff=16,
    n_heads=2,
    n_layers=1,
    max_positions=64,
    tie_embeddings="none",
    scale_embeddings=True,
    embedding_dropout=0.5,  # decoding must switch it off
    residual_dropout=0.5,
    attention_dropout=0.0,
    ffn_dropout=0.0,
    output_bias=False,
    norm_eps=1e-5,
    init="fairseq",
)
PENALTY = LengthPenalty(kind="length", alpha=1.0)
DECODE = Decode(search="beam", beam=3, length_penalty=PENALTY, max_extra_tokens=4, max_batch_tokens=60)
MACHINE = Machine(device="cpu", threads=1)


class Project(NamedTuple):
    """Everything one run of the stage reads."""

    root: Path
    corpus: Corpus

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def corpus_dir(self) -> Path:
        return self.root / "corpus"

    @property
    def weights(self) -> Path:
        return self.root / "weights.safetensors"

    def run(self, decode: Decode = DECODE, model: TransformerModel = MODEL) -> Path:
        out = self.root / "run" / "decode"
        decode_run(self.corpus_dir, self.raw, self.weights, model, decode, self.corpus, SPLITS, MACHINE, out)
        return out


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_project(root: Path, tokenizer: WordsTokenizer | BpeTokenizer) -> Project:
    corpus = Corpus(dataset="tiny", source="en", target="de", source_marks="end", tokenizer=tokenizer)
    project = Project(root, corpus)
    project.raw.mkdir()
    for split, english, german in (
        ("train", ENGLISH, GERMAN),
        ("val", ENGLISH, GERMAN),
        ("test", TEST_ENGLISH, TEST_GERMAN),
        ("other", ENGLISH[:2], GERMAN[:2]),
    ):
        write(project.raw / f"{split}.en", english)
        write(project.raw / f"{split}.de", german)
    build_corpus(corpus, SPLITS, project.raw, project.corpus_dir)
    torch.manual_seed(5)
    save_weights(weights_of(new_model(project.corpus_dir)), project.weights)
    return project


def new_model(corpus_dir: Path) -> Transformer:
    vocabulary = load_tokenizer(corpus_dir).vocabulary
    return Transformer(MODEL, vocabulary["source"], vocabulary["target"])


@pytest.fixture
def words(tmp_path: Path) -> Project:
    return make_project(tmp_path, WordsTokenizer(kind="words", lowercase=False, min_frequency=1))


@pytest.fixture
def bpe(tmp_path: Path) -> Project:
    return make_project(tmp_path, BpeTokenizer(kind="bpe", text="lc-tok", merges=20))


def read(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def translate_one_by_one(project: Project) -> list[tuple[int, ...]]:
    """The hypotheses of split `test`, each sentence alone."""
    model = new_model(project.corpus_dir)
    with torch.no_grad():
        load_into(model, load_weights(project.weights), project.weights)
    sources = open_ids(project.corpus_dir, "test.source")
    rows = [pad(sources, np.array([row])) for row in range(len(TEST_ENGLISH))]
    return [search(model.eval(), ids, 3, PENALTY, 4, 1)[0][0].tokens if ids.numel() > 1 else () for ids in rows]


def test_each_line_gets_its_own_translation_in_the_order_of_the_source(words: Project) -> None:
    found = read(words.run() / "test.hyp.txt")
    tokenizer = load_tokenizer(words.corpus_dir)
    assert found == [tokenizer.decode(ids) for ids in translate_one_by_one(words)]
    assert found[1] == TEST_ENGLISH[1] == ""
    assert len(set(found)) > 2  # otherwise a wrong order would not show


def test_writes_four_files_for_each_test_split(words: Project) -> None:
    out = words.run()
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{split}.{name}.txt" for split in ("test", "other") for name in ("hyp", "hyp.lc-tok", "ref", "ref.lc-tok")
    )
    assert read(out / "test.ref.txt") == TEST_GERMAN
    assert read(out / "test.ref.lc-tok.txt") == official_chain(TEST_GERMAN, "de")
    assert read(out / "test.ref.lc-tok.txt")[1] == "nichts &amp; niemand"
    assert read(out / "test.hyp.lc-tok.txt") == official_chain(read(out / "test.hyp.txt"), "de")


def test_official_tokens_of_the_references_come_from_their_file(words: Project) -> None:
    official = [f"amtlich {i}" for i in range(5)]
    write(words.raw / "test.lc.norm.tok.de", official)
    out = words.run()
    assert read(out / "test.ref.lc-tok.txt") == official
    assert read(out / "other.ref.lc-tok.txt") == official_chain(GERMAN[:2], "de")


def test_a_model_of_official_tokens_is_not_tokenised_again(bpe: Project) -> None:
    out = bpe.run()
    tokenizer = load_tokenizer(bpe.corpus_dir)
    hypotheses = translate_one_by_one(bpe)
    assert read(out / "test.hyp.txt") == [tokenizer.decode(ids) for ids in hypotheses]
    tokens = read(out / "test.hyp.lc-tok.txt")
    assert tokens == [tokenizer.decode_tokens(ids) for ids in hypotheses]
    assert tokens != official_chain(read(out / "test.hyp.txt"), "de")  # otherwise this test would show nothing


def test_batch_size_changes_nothing(words: Project) -> None:
    files = {path.name: path.read_bytes() for path in words.run().iterdir()}
    for max_batch_tokens in (3, 4096):
        out = words.run(DECODE.model_copy(update={"max_batch_tokens": max_batch_tokens}))
        assert {path.name: path.read_bytes() for path in out.iterdir()} == files


def test_computes_with_the_threads_it_is_given(words: Project) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        words.run()
        assert torch.get_num_threads() == MACHINE.threads == 1
    finally:
        torch.set_num_threads(before)


def test_greedy_search_is_another_output(words: Project) -> None:
    beam = read(words.run() / "test.hyp.txt")
    greedy = read(words.run(DECODE.model_copy(update={"search": "greedy", "beam": 1})) / "test.hyp.txt")
    assert greedy != beam


def test_batches_hold_every_row_once_within_the_budget_longest_first() -> None:
    lengths = {row: 1 + row * 7 % 23 for row in range(0, 200, 2)}
    batches = plan_batches(lengths, 2, 100)
    assert sorted(row for rows in batches for row in rows) == list(lengths)
    assert all(len(rows) * max(lengths[row] for row in rows) * 2 <= 100 for rows in batches)
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(flat, reverse=True)
    assert len(batches) < sum(lengths.values()) / 35  # well filled
    assert plan_batches({0: 80, 1: 70}, 1, 50) == [[0], [1]]


def test_a_hypothesis_stays_on_one_line() -> None:
    assert one_line("ein\r\nHund\nbellt\u2028laut") == "ein  Hund bellt\u2028laut"


def test_refuses_weights_of_another_model_and_leaves_the_old_output(words: Project) -> None:
    out = words.run()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError, match=r"weights\.safetensors: .* is \(.*, 16\), the model's \(.*, 8\)"):
        words.run(model=MODEL.model_copy(update={"d_model": 8}))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert list(out.parent.iterdir()) == [out]


def test_a_sentence_too_long_for_the_model_names_split_and_line_and_leaves_nothing(words: Project) -> None:
    with pytest.raises(ValueError, match=r"test, among line 3 .*: .*max_positions 8"):
        words.run(model=MODEL.model_copy(update={"max_positions": 8}))
    assert list((words.root / "run").iterdir()) == []


def test_refuses_a_corpus_made_from_other_text(words: Project) -> None:
    for language in ("en", "de"):
        write(words.raw / f"test.{language}", TEST_GERMAN[:4])
    with pytest.raises(ValueError, match=r"split 'test' has 5 lines in .*corpus and 4 lines in .*raw;"):
        words.run()


def test_refuses_official_tokens_of_another_length(words: Project) -> None:
    write(words.raw / "test.lc.norm.tok.de", TEST_GERMAN[:4])
    with pytest.raises(ValueError, match=r"4 lines in .*test\.lc\.norm\.tok\.de and 5 lines in .*test\.de;"):
        words.run()


def test_refuses_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"machine\.device is cuda, .* valid here: auto, cpu"):
        find_device(Machine(device="cuda", threads=1))
    assert find_device(Machine(device="auto", threads=1)).type == "cpu"


def test_says_how_fast_it_is_where_there_is_no_terminal(words: Project, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="bleuprint.decoding")
    words.run()
    assert [message.split(" sentences,")[0] for message in caplog.messages] == ["decode test: 4/4", "decode other: 2/2"]
