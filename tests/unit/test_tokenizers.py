"""The tokenize stage on a few sentences: vocabularies, BPE, stored ids. On Multi30K: test_tokenizers_multi30k.py."""

import json
import os
import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bleuprint import segmentation, tokenizers, tokenizing
from bleuprint.params import Corpus, Splits
from bleuprint.tokenizers import BOS, EOS, PAD, SPECIALS, UNK, LearnedBpe, load_tokenizer, official_chain
from bleuprint.tokenizing import build_corpus

WORDS = {"kind": "words", "lowercase": True, "min_frequency": 2}
LC_TOK = {"kind": "bpe", "text": "lc-tok", "merges": 60, "min_frequency": 1}
TOK = {"kind": "bpe", "text": "tok", "merges": 60, "min_frequency": 1}
RAW = {"kind": "bpe", "text": "raw", "merges": 60, "min_frequency": 1}
BASIC = {"kind": "basic"}
SPLITS = Splits(train="train", validation="val", tests=("test",))

ENGLISH = [
    "A grey cat sleeps on the old wall.",
    "Two cats sleep on the wall, and a dog barks.",
    "The dog doesn't sleep: it barks at the cat!",
    'A sign says "No dogs & no cats."',
    "The old man reads a well-known book.",
    "She says: it's the dog's bone; 5,300 of them.",
    "An old woman reads to the grey cat...",
    "The man and the woman see <two> [old] dogs | cats.",
    "A dog sees the grey wall.",
    "Dr. Grey has no dog.",
]
GERMAN = [
    "Eine graue Katze schläft auf der alten Mauer.",
    "Zwei Katzen schlafen auf der Mauer, und ein Hund bellt.",
    "Der Hund schläft nicht: er bellt die Katze an!",
    "Auf einem Schild steht: „Keine Hunde & keine Katzen.“",
    "Der alte Mann liest ein wohl-bekanntes Buch.",
    "Sie sagt: das ist Opa's Knochen; 5.300 davon.",
    "Eine alte Frau liest der grauen Katze vor...",
    "Der Mann und die Frau sehen <zwei> [alte] Hunde | Katzen.",
    "Ein Hund sieht die graue Mauer.",
    "Dr. Grau hat keinen Hund.",
]


def make_corpus(tokenizer: dict, source_marks: str = "end", cleaning: dict | None = None) -> Corpus:
    """Return an English-German corpus section."""
    section = {"dataset": "d", "source": "en", "target": "de", "source_marks": source_marks}
    return Corpus.model_validate(section | {"cleaning": cleaning, "tokenizer": tokenizer})


def write_raw(directory: Path, **splits: tuple[list[str], list[str]]) -> Path:
    """Write `{split}.en` and `{split}.de` for each split; those not named are the first lines of the train text."""
    directory.mkdir()
    for split, (english, german) in ({"val": (ENGLISH[:3], GERMAN[:3]), "test": (ENGLISH, GERMAN)} | splits).items():
        for language, lines in (("en", english), ("de", german)):
            text = "".join(f"{line}\n" for line in lines)
            (directory / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return directory


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_raw(tmp_path / "raw", train=(ENGLISH, GERMAN))


def stored_ids(corpus_dir: Path, name: str) -> list[list[int]]:
    """Return the sequences of `{split}.{side}` as training reads them."""
    ids = np.load(corpus_dir / f"{name}.ids.npy", mmap_mode="r")
    offsets = np.load(corpus_dir / f"{name}.offsets.npy", mmap_mode="r")
    return [ids[start:end].tolist() for start, end in pairwise(offsets)]


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_know_what_was_seen_often_enough(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(WORDS), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.target_text == "words"
    ids = tokenizer.encode_target("Der HUND bellt mitternachts!")
    assert tokenizer.decode_tokens([BOS, *ids, EOS, PAD]) == "der hund bellt <unk> <unk>"  # "!" occurs once
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == "der hund bellt ⁇ ⁇"
    assert tokenizer.decode(tokenizer.encode_target("Der Hund schläft.")) == "der hund schläft."


def test_words_are_split_before_they_are_lower_cased(raw: Path, tmp_path: Path) -> None:
    assert segmentation.spacy_words(["Dr. Grau"], "de", lowercase=True) == [["dr.", "grau"]]  # dr. alone is dr + .
    build_corpus(make_corpus(WORDS | {"lowercase": False, "min_frequency": 1}), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    decoded = [tokenizer.decode_tokens(tokenizer.encode_target(line)) for line in GERMAN]
    assert decoded == [" ".join(words) for words in segmentation.spacy_words(GERMAN, "de", lowercase=False)]
    assert decoded[-1] == "Dr. Grau hat keinen Hund ."


# --- basic English ----------------------------------------------------------------------------------------------------


def test_basic_english_keeps_every_word_of_the_train_text(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(BASIC), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.target_text == "words"
    decoded = [tokenizer.decode_tokens(tokenizer.encode_target(line)) for line in GERMAN]
    assert decoded == [" ".join(segmentation.basic_words(line)) for line in GERMAN]
    assert tokenizer.decode_tokens(tokenizer.encode_target("Der Hund bellt mitternachts!")) == "der hund bellt <unk> !"
    assert set(tokenizer.encode_target("<pad> <sos> <eos>")) == {UNK}, "no text spells a special symbol"
    words = {word for line in ENGLISH for word in segmentation.basic_words(line)}
    assert tokenizer.vocabulary["source"] == len(SPECIALS) + len(words)


def test_basic_english_decodes_as_well_as_can_be(raw: Path, tmp_path: Path) -> None:
    """Case, quotation marks, colons and semicolons are gone for good; apostrophes and full stops find back."""
    build_corpus(make_corpus(BASIC).model_copy(update={"source": "de", "target": "en"}), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = [[BOS, *tokenizer.encode_target(line), EOS, PAD] for line in ENGLISH]
    assert tokenizer.decode(ids[0]) == "a grey cat sleeps on the old wall."
    assert tokenizer.decode(ids[2]) == "the dog doesn't sleep it barks at the cat!"
    assert tokenizer.decode(ids[3]) == "a sign says no dogs & no cats."
    assert tokenizer.decode(tokenizer.encode_target("A zebra's dog.")) == "a ⁇'s dog."


def test_only_basic_english_stores_the_characters_of_the_pairs_that_stay(tmp_path: Path) -> None:
    """Of the raw source line, white space and dropped marks included."""
    english, german = ["", "lost", 'A  "dog":', "Two cats."], ["verloren", ' " ', "Ein Hund.", "Zwei Katzen."]
    raw = write_raw(tmp_path / "raw", train=(english, german), test=(["", "A dog."], ["Ein Hund.", ""]))
    build_corpus(make_corpus(BASIC), SPLITS, raw, tmp_path / "basic")
    build_corpus(make_corpus(WORDS | {"min_frequency": 1}), SPLITS, raw, tmp_path / "words")
    assert np.load(tmp_path / "basic/train.source.characters.npy").tolist() == [9, 9]
    assert np.load(tmp_path / "basic/test.source.characters.npy").tolist() == [0, 6]
    assert len(stored_ids(tmp_path / "basic", "train.source")) == 2
    names = {path.name for path in (tmp_path / "basic").iterdir()} - {p.name for p in (tmp_path / "words").iterdir()}
    assert names == {f"{split}.source.characters.npy" for split in SPLITS.all}
    manifest = json.loads((tmp_path / "basic/manifest.json").read_text(encoding="utf-8"))
    assert names < set(manifest["files"])


# --- BPE --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [LC_TOK, RAW])
def test_bpe_has_exactly_the_merges_asked_for(settings: dict, raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(settings), SPLITS, raw, tmp_path / "out")
    data = json.loads((tmp_path / "out" / "tokenizer.json").read_text(encoding="utf-8"))
    pairs = [tuple(merge.split(" ")) for merge in data["learned_merges"]]
    assert len(set(pairs)) == len(pairs) == settings["merges"]
    made = {left + right for left, right in pairs}
    letters = [piece for piece in data["types"][4:] if piece not in made]
    assert data["types"][:4] == list(SPECIALS)
    assert all(len(letter) == 1 for letter in letters)
    assert len(data["types"]) == 4 + len(letters) + len(made)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["vocabulary"] == {"source": len(data["types"]), "target": len(data["types"])}


def test_too_many_merges_are_refused_and_nothing_is_left(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"tokenizer\.merges is 10000, but the train text gives no more than \d+ merges"
    ):
        build_corpus(make_corpus(LC_TOK | {"merges": 10000}), SPLITS, raw, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_lc_tok_decodes_to_the_official_tokens(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(LC_TOK), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = [tokenizer.encode_target(line) for line in GERMAN]
    assert [tokenizer.decode_tokens(line) for line in ids] == official_chain(GERMAN, "de")
    assert tokenizer.decode(ids[3]) == 'auf einem schild steht: "keine hunde & keine katzen".'
    assert official_chain([tokenizer.decode(line) for line in ids], "de") == official_chain(GERMAN, "de")


def test_tok_keeps_case_and_marks_and_escapes_as_moses(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(TOK), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.target_text == "tok"
    ids = [tokenizer.encode_target(line) for line in GERMAN]
    assert tokenizer.decode_tokens(ids[3]) == "Auf einem Schild steht : „ Keine Hunde &amp; keine Katzen . “"
    assert tokenizer.decode_tokens(ids[7]).endswith("sehen &lt; zwei &gt; &#91; alte &#93; Hunde &#124; Katzen .")
    assert tokenizer.decode(ids[2]) == GERMAN[2]
    assert make_corpus(TOK).cased


def test_rare_words_teach_no_merges_and_their_letters_are_unknown(tmp_path: Path) -> None:
    raw = write_raw(tmp_path / "raw", train=(["ab ab ab ab xyz xyz"] * 2, ["ab q", "ab ab"]))
    build_corpus(make_corpus(RAW | {"merges": 2, "min_frequency": 4}), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert isinstance(tokenizer, LearnedBpe)
    assert tokenizer.types == (*SPECIALS, "a", "b", "x", "y", "z", "▁", "ab", "▁ab")
    assert tokenizer.encode_target("q ab")[1:] == [UNK, tokenizer.types.index("▁ab")]
    stored = json.loads((tmp_path / "out/tokenizer.json").read_text(encoding="utf-8"))
    assert "min_frequency" not in stored  # which decides no text: the file has what it always had


def test_raw_decodes_to_the_text(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert [tokenizer.decode(tokenizer.encode_target(line)) for line in GERMAN] == GERMAN
    assert tokenizer.decode(tokenizer.encode_target("  Der\u00a0 Hund ")) == "Der Hund"  # runs of white space are one
    assert tokenizer.decode(tokenizer.encode_target("Der▁Hund")) == "Der Hund"


@pytest.mark.parametrize("settings", [WORDS, RAW])
def test_no_text_spells_a_special_symbol(settings: dict, tmp_path: Path) -> None:
    line = "Der <sos> <eos> x<pad>y<pad>z<pad> x<unk>y<unk>z<unk>"
    raw = write_raw(tmp_path / "raw", train=([*ENGLISH, *[line] * 20], [*GERMAN, *[line] * 20]))
    build_corpus(make_corpus(settings), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = tokenizer.encode_target(line)
    assert not {UNK, PAD, BOS, EOS} & set(ids)
    assert tokenizer.encode_target("犬")[-1] == UNK
    assert tokenizer.decode_tokens(ids).replace(" ", "") in ("".join(line.split()), "".join(line.lower().split()))


@pytest.mark.parametrize("settings", [LC_TOK, RAW])
def test_a_word_has_the_same_pieces_in_every_sentence(settings: dict, raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(settings), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert isinstance(tokenizer, LearnedBpe)
    sentences = [*(line.split() for line in (*ENGLISH, *GERMAN)), ["Der▁Hund", "Hund", "犬Hund"], []]
    whole = [tokenizer.engine.encode(" ".join(words)).ids for words in sentences]
    assert tokenizer.encode_words("target", sentences) == whole
    assert (
        tokenizer.encode_words("source", sentences[::-1]) == whole[::-1]
    )  # of words that are kept from the first time


def test_pieces_are_kept_of_so_many_words_and_no_more(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert isinstance(tokenizer, LearnedBpe)
    sentences = [line.split() for line in GERMAN]
    expected = tokenizer.encode_words("target", sentences)
    monkeypatch.setattr(tokenizers, "CACHED_WORDS", 12)
    for _ in range(2):
        assert [tokenizer.encode_words("target", [sentence])[0] for sentence in sentences] == expected
        assert len(tokenizer.pieces) <= 12


def test_letters_never_seen_become_one_unknown_each(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    ids = tokenizer.encode_target("Hund 犬犬")
    assert ids.count(UNK) == 2
    assert tokenizer.decode_tokens(ids) == "Hund <unk><unk>"
    assert tokenizer.decode(ids) == "Hund ⁇⁇"


# --- the corpus directory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [WORDS, LC_TOK, RAW, BASIC])
@pytest.mark.parametrize(("marks", "begin", "end"), [("both", [BOS], [EOS]), ("end", [], [EOS]), ("none", [], [])])
def test_stored_ids_are_those_of_each_line_alone_with_marks(
    settings: dict, marks: str, begin: list[int], end: list[int], raw: Path, tmp_path: Path
) -> None:
    build_corpus(make_corpus(settings, marks), SPLITS, raw, tmp_path / "out")
    tokenizer = load_tokenizer(tmp_path / "out")
    assert stored_ids(tmp_path / "out", "test.source") == [begin + tokenizer.encode_source(x) + end for x in ENGLISH]
    assert stored_ids(tmp_path / "out", "test.target") == [[BOS, *tokenizer.encode_target(x), EOS] for x in GERMAN]


def test_a_split_that_is_validation_and_test_is_stored_once(raw: Path, tmp_path: Path) -> None:
    splits = Splits(train="train", validation="val", tests=("val",))
    build_corpus(make_corpus(WORDS), splits, raw, tmp_path / "out")
    assert len(stored_ids(tmp_path / "out", "val.source")) == len(stored_ids(tmp_path / "out", "val.target")) == 3


def test_pairs_with_an_empty_side_are_dropped_but_for_tests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    english, german = ["", *ENGLISH, "lost", "lost"], ["verloren", *GERMAN, " \t ", ""]
    raw = write_raw(tmp_path / "raw", train=(english, german), test=(["", "A dog."], ["Ein Hund.", ""]))
    with caplog.at_level("INFO"):
        build_corpus(make_corpus(WORDS | {"min_frequency": 1}), SPLITS, raw, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["pairs"] == {"train": len(ENGLISH), "val": 3, "test": 2}
    assert manifest["dropped"] == {"train": {"empty": 3}, "val": {"empty": 0}, "test": {"empty": 0}}
    assert manifest["special_ids"] == {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
    assert "train: 10 pairs, 3 dropped" in caplog.text
    tokenizer = load_tokenizer(tmp_path / "out")
    assert UNK in tokenizer.encode_source("lost")  # a dropped pair teaches nothing
    assert [len(ids) for ids in stored_ids(tmp_path / "out", "test.source")] == [1, 4]
    assert stored_ids(tmp_path / "out", "test.target")[1] == [BOS, EOS]


@pytest.mark.parametrize("settings", [WORDS, LC_TOK, RAW, BASIC])
def test_the_size_of_the_chunks_changes_no_byte(
    settings: dict, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for pairs in (1, 3, 1000):
        monkeypatch.setattr(tokenizing, "CHUNK_PAIRS", pairs)
        build_corpus(make_corpus(settings), SPLITS, raw, tmp_path / str(pairs))
        written.append({path.name: path.read_bytes() for path in (tmp_path / str(pairs)).iterdir()})
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("settings", [RAW, BASIC])
def test_a_text_ten_times_as_long_takes_no_more_memory(
    settings: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few words, by Python's own allocations, in one process."""
    monkeypatch.setattr(tokenizing, "CHUNK_PAIRS", 100)
    peaks = []
    for size, times in (("small", 200), ("large", 2000)):
        raw = write_raw(tmp_path / size, train=(ENGLISH * times, GERMAN * times))
        tracemalloc.start()
        build_corpus(make_corpus(settings), SPLITS, raw, tmp_path / f"{size}-out")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(np.load(tmp_path / f"{size}-out/train.source.offsets.npy")) == 10 * times + 1
    assert peaks[1] < 1.2 * peaks[0]


def test_a_missing_split_is_told_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_raw(tmp_path / "raw", train=(ENGLISH, GERMAN))
    (raw / "test.de").unlink()
    monkeypatch.setattr(tokenizing, "iterate_pairs", None)
    with pytest.raises(ValueError, match=r"test\.de does not exist; .* holds "):
        build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")


def test_a_train_split_without_text_is_refused(tmp_path: Path) -> None:
    raw = write_raw(tmp_path / "raw", train=(["", "a"], ["b", " "]))
    with pytest.raises(ValueError, match="no pair of split 'train' has text on both sides"):
        build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")


TWO_CORPORA = """
import sys
from pathlib import Path
from bleuprint.params import Corpus, Splits
from bleuprint.tokenizing import build_corpus
raw, out, *corpora = sys.argv[1:]
for corpus in map(Corpus.model_validate_json, corpora):
    splits = Splits(train="train", validation="val", tests=("test",))
    build_corpus(corpus, splits, Path(raw), Path(out) / corpus.tokenizer.kind)
"""


def test_two_processes_write_the_same_bytes(raw: Path, tmp_path: Path) -> None:
    corpora = [make_corpus(settings).model_dump_json() for settings in (WORDS, LC_TOK)]
    environment = os.environ | {"PYTHONPATH": str(Path(segmentation.__file__).parents[1])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_CORPORA, str(raw), str(tmp_path / seed), *corpora],
            env=environment | {"PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    first, second = ({p.relative_to(tmp_path / s): p for p in sorted((tmp_path / s).rglob("*.*"))} for s in ("1", "2"))
    assert len(first) == 2 * (2 + 3 * 2 * 2)
    assert {name: path.read_bytes() for name, path in first.items()} == {n: p.read_bytes() for n, p in second.items()}


def test_a_second_build_replaces_the_first(raw: Path, tmp_path: Path) -> None:
    build_corpus(make_corpus(WORDS), SPLITS, raw, tmp_path / "out")
    (tmp_path / "out" / "stale.txt").touch()
    build_corpus(make_corpus(RAW), SPLITS, raw, tmp_path / "out")
    assert load_tokenizer(tmp_path / "out").target_text == "raw"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]
    assert not (tmp_path / "out" / "stale.txt").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "tokenizer.json is missing; make it with: python -m bleuprint tokenize c"),
        ("{", "tokenizer.json is not valid JSON"),
        ("[]", "tokenizer.json holds no `kind` of tokenizer; valid: words, bpe, basic"),
        ('{"kind": "wrds"}', r"tokenizer.json: unknown kind of tokenizer 'wrds' \(did you mean words\?\)"),
        ('{"kind": "bpe", "text": "lc-tok", "merges": 1}', "tokenizer.json: types is missing"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(text: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    if text is not None:
        (tmp_path / "c" / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path / "c")
