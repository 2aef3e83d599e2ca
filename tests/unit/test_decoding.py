"""The decode stage with a small untrained Transformer on small corpora."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bleuprint.batching import Ids, open_ids, open_pairs, ordered_batches, pad
from bleuprint.checkpoint import load_into, load_weights, save_weights, weights_of
from bleuprint.decoding import decode_run, forced_line, one_line, plan_batches, tokens_held, translate
from bleuprint.device import find_device
from bleuprint.models import build_model
from bleuprint.models.transformer import Transformer
from bleuprint.params import (
    BpeTokenizer,
    Corpus,
    Decode,
    HyunwoongkoModel,
    LengthPenalty,
    Machine,
    ModelSpec,
    PitauModel,
    SentenceBatches,
    Splits,
    TransformerModel,
    WordsTokenizer,
)
from bleuprint.search import search
from bleuprint.tokenizers import BOS, EOS, PAD, UNK, LearnedWords, load_tokenizer, official_chain
from bleuprint.tokenizing import build_corpus

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
DECODE = Decode(
    search="beam", beam=3, length_penalty=PENALTY, max_extra_tokens=4, max_batch_tokens=60, forced="averaged"
)
PUBLISHED = HyunwoongkoModel(
    kind="hyunwoongko",
    d_model=16,
    d_ff=16,
    n_heads=2,
    n_layers=1,
    max_positions=64,
    dropout=0.5,
    output_projection=False,
    score_scale="d_model",
    norm_eps=1e-12,
    init="xavier_uniform",
)
CODED = PitauModel(
    kind="pitau", form="coded", d_model=16, d_ff=16, n_heads=2, n_layers=1, max_positions=64, dropout=0.5, norm_eps=1e-5
)
BATCHES = SentenceBatches(  # of validation: two batches, sorted by length, each with padding on both sides
    kind="sentences",
    sentences=2,
    pool_batches=10,
    sort_by="none",
    shuffle_batches=True,
    drop_last=False,
    validation_sort_by="tokens",
    batches_per_step=1,
)
STEPS = ("00000007", "00000014")  # ends of epochs
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

    @property
    def epoch_weights(self) -> Path:
        return self.root / "weights"

    def run(self, decode: Decode = DECODE, model: ModelSpec = MODEL) -> Path:
        out, weights = self.root / "run" / "decode", (self.weights, self.epoch_weights)
        decode_run(self.corpus_dir, self.raw, *weights, model, BATCHES, decode, self.corpus, SPLITS, MACHINE, out)
        return out

    def draw(self, path: Path, model: ModelSpec, seed: int) -> None:
        vocabulary = load_tokenizer(self.corpus_dir).vocabulary
        save_weights(weights_of(drawn(model, vocabulary["source"], vocabulary["target"], seed)), path)


def drawn(model: ModelSpec, source: int, target: int, seed: int) -> Any:
    """Return a model that nobody trained, its matrices large enough that what it reads decides what it says."""
    torch.manual_seed(seed)
    built = build_model(model, source, target)
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.dim() > 1:
                parameter.add_(torch.randn_like(parameter))
    return built


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_project(root: Path, tokenizer: WordsTokenizer | BpeTokenizer) -> Project:
    corpus = Corpus(dataset="tiny", source="en", target="de", source_marks="end", cleaning=None, tokenizer=tokenizer)
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
    return make_project(tmp_path, BpeTokenizer(kind="bpe", text="lc-tok", merges=20, min_frequency=1))


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
    assert sorted(path.name for path in out.iterdir() if path.name[:4] != "val.") == sorted(
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
    batches = plan_batches(lengths, 2, 100, mixed=True)
    assert sorted(row for rows in batches for row in rows) == list(lengths)
    assert all(len(rows) * max(lengths[row] for row in rows) * 2 <= 100 for rows in batches)
    flat = [lengths[row] for rows in batches for row in rows]
    assert flat == sorted(flat, reverse=True)
    assert len(batches) < sum(lengths.values()) / 35  # well filled
    assert plan_batches({0: 80, 1: 70}, 1, 50, mixed=True) == [[0], [1]]


def test_batches_without_padding_hold_one_length_alone() -> None:
    lengths = {row: 1 + row * 7 % 23 for row in range(200)}
    batches = plan_batches(lengths, 2, 100, mixed=False)
    assert sorted(row for rows in batches for row in rows) == list(lengths)
    assert all(len({lengths[row] for row in rows}) == 1 for rows in batches)
    assert all(len(rows) * lengths[rows[0]] * 2 <= 100 for rows in batches)
    assert len(batches) < 200 / 2  # well filled


def test_an_uncached_step_holds_the_longest_prefix_too() -> None:
    assert tokens_held(7, max_extra_tokens=50, uncached=False) == 7
    assert tokens_held(7, max_extra_tokens=50, uncached=True) == 7 + 1 + 7 + 50


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


# --- models that see their padding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [PUBLISHED, CODED], ids=["published", "pitau"])
def test_a_translation_does_not_depend_on_the_rest_of_the_test_set(model: ModelSpec) -> None:
    """The budget has room for several sentences, and holds what a step computes on: source and prefix, times beam."""
    decode = DECODE.model_copy(update={"max_batch_tokens": 200})
    random = np.random.default_rng(0)
    sentences = [[*random.integers(4, 20, 1 + row % 3).tolist(), EOS] for row in range(30)]
    flat, offsets = np.concatenate(sentences), np.cumsum([0, *map(len, sentences)])
    built, held = drawn(model, 20, 20, seed=3).eval(), []
    hook = built.register_forward_pre_hook(lambda _, inputs: held.append(sum(ids.numel() for ids in inputs)))
    found = translate(built, Ids(flat, offsets), decode, "test")
    hook.remove()
    alone = [search(built, torch.tensor([ids]), 3, PENALTY, decode.max_extra_tokens, 1)[0][0] for ids in sentences]
    assert found == [hypothesis.tokens for hypothesis in alone]
    assert len(set(found)) > 10
    assert 100 < max(held) <= 200


# --- teacher forcing --------------------------------------------------------------------------------------------------


def forced_by_hand(project: Project, path: Path, model: ModelSpec) -> list[str]:
    """The words of a plain loop over the sentences of each batch of validation: the argmax at each position.

    hyunwoongko's evaluate() looks at what is predicted in the padding too.
    """
    tokenizer, pairs = load_tokenizer(project.corpus_dir), open_pairs(project.corpus_dir, "val")
    assert isinstance(tokenizer, LearnedWords)
    built = build_model(model, tokenizer.vocabulary["source"], tokenizer.vocabulary["target"]).eval()
    with torch.no_grad():
        load_into(built, load_weights(path), path)
    lines = []
    for rows in ordered_batches(pairs, BATCHES):
        source, target = pad(pairs.source, rows), pad(pairs.target, rows)
        logits = built.project(built(source, target[:, :-1]))
        for b in range(len(rows)):
            length = target.size(1) if model is PUBLISHED else int(pairs.target.lengths[rows[b]])
            ids = [int(logits[b, t].argmax()) for t in range(length - 1)]
            lines.append(" ".join(tokenizer.target_types[i] for i in ids if i not in (PAD, BOS, EOS)))
    return lines


@pytest.mark.parametrize("model", [MODEL, PUBLISHED, CODED], ids=["transformer", "published", "pitau"])
def test_forced_text_is_the_argmax_at_each_position_of_validation(words: Project, model: ModelSpec) -> None:
    words.draw(words.weights, model, seed=4)
    out = words.run(model=model)
    found = read(out / "val.forced.txt")
    assert found == forced_by_hand(words, words.weights, model)
    assert len(set(found)) == len(GERMAN)
    in_order = [GERMAN[row] for row in (3, 0, 2, 1)]  # of the batches: shortest first
    assert read(out / "val.forced-ref.txt") == in_order
    longer = [len(line.split()) > 1 + len(right.split()) for line, right in zip(found, in_order, strict=True)]
    assert any(longer) == (model is PUBLISHED)  # than the reference and its end
    assert not list(out.glob("val.forced.0*"))


def test_forced_text_of_each_epoch_comes_from_its_weights(words: Project) -> None:
    words.epoch_weights.mkdir()
    for seed, name in enumerate((*(f"step-{step}" for step in STEPS), "best")):
        words.draw(words.epoch_weights / f"{name}.safetensors", PUBLISHED, seed)
    words.draw(words.weights, PUBLISHED, seed=9)
    out = words.run(DECODE.model_copy(update={"forced": "epochs"}), PUBLISHED)
    files = {"": words.weights, **{f".{step}": words.epoch_weights / f"step-{step}.safetensors" for step in STEPS}}
    for name, path in files.items():
        assert read(out / f"val.forced{name}.txt") == forced_by_hand(words, path, PUBLISHED)
    assert len(list(out.glob("val.forced*.txt"))) == 4  # best.safetensors is the end of no epoch, or of one of these
    translated = read(out / "test.hyp.txt")
    assert read(words.run(DECODE, PUBLISHED) / "test.hyp.txt") == translated  # with the averaged weights
    assert len(list(out.glob("val.forced*.txt"))) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, r"weights holds no step-\*\.safetensors to predict validation with; train the run first"),
        (["best"], r"weights holds no step-\*\.safetensors to predict validation with; train the run first"),
        (["step-00000007", "step-7"], r"step-7\.safetensors is not named step-, eight digits, \.safetensors"),
        (["step-last"], r"step-last\.safetensors is not named step-, eight digits, \.safetensors"),
    ],
)
def test_weights_of_epochs_that_are_none_are_refused_before_anything_is_translated(
    words: Project, names: list[str] | None, message: str
) -> None:
    if names is not None:
        words.epoch_weights.mkdir()
    for name in names or ():
        words.draw(words.epoch_weights / f"{name}.safetensors", MODEL, seed=1)
    with pytest.raises(ValueError, match=message):
        words.run(DECODE.model_copy(update={"forced": "epochs"}))
    assert not (words.root / "run").exists()
    words.run(DECODE)  # averaged weights need none of these


def test_an_end_in_the_middle_cuts_nothing_off(words: Project) -> None:
    tokenizer = load_tokenizer(words.corpus_dir)
    ein, hund = tokenizer.encode_target("Ein Hund")
    assert forced_line(tokenizer, [ein, EOS, hund, UNK, PAD, hund, BOS]) == "Ein Hund <unk> Hund"


def test_pieces_on_two_sides_of_a_mark_are_no_word(bpe: Project) -> None:
    tokenizer = load_tokenizer(bpe.corpus_dir)
    pieces = tokenizer.encode_target("Frau")
    assert len(pieces) > 2
    assert forced_line(tokenizer, pieces) == "frau"
    assert forced_line(tokenizer, [*pieces[:-1], EOS, pieces[-1]]) == "fra u"
