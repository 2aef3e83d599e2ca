"""The toy grammar against German as a speaker writes it, and the promises that a data set makes."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bleuprint import toy
from bleuprint.datasets import GeneratedDataset
from bleuprint.lines import read_pairs

NOUNS = {noun.english: noun for noun in (*toy.NOUNS, *toy.PLACES)}
VERBS = {verb.english: verb for verb in toy.VERBS}
ADJECTIVES = {word.english: word for word in toy.ADJECTIVES}
MODIFIERS = {word.english: word for word in toy.COMPOUND_MODIFIERS}
MODALS = {modal.english: modal for modal in toy.MODALS}


def dataset(seed: int = 1, train: int = 300, test: int = 50) -> GeneratedDataset:
    return GeneratedDataset.model_validate(
        {
            "kind": "generated",
            "seed": seed,
            "splits": {"train": "train", "validation": "val", "tests": ["test"]},
            "pairs": {"train": train, "val": 50, "test": test},
        }
    )


def phrase(text: str, plural: bool = False, relative: toy.Predicate | None = None) -> toy.NounPhrase:
    """Return the tree of e.g. "a small village dog"."""
    article, *described, noun = text.split()
    adjective = next((ADJECTIVES[word] for word in described if word in ADJECTIVES), None)
    modifier = next((MODIFIERS[word] for word in described if word in MODIFIERS), None)
    return toy.NounPhrase("a" if article == "a" else "the", adjective, modifier, NOUNS[noun], plural, relative)


def predicate(
    verb: str, object_: toy.NounPhrase | None = None, place: toy.NounPhrase | None = None, modal: str | None = None
) -> toy.Predicate:
    return toy.Predicate(MODALS[modal] if modal else None, VERBS[verb], object_, place)


# --- German grammar ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("english", "plural", "case", "german"),
    [
        ("the old dog", False, "nom", "der alte Hund"),
        ("the old dog", False, "acc", "den alten Hund"),
        ("the old dog", False, "dat", "dem alten Hund"),
        ("a old dog", False, "nom", "ein alter Hund"),
        ("a old dog", False, "acc", "einen alten Hund"),
        ("a old dog", False, "dat", "einem alten Hund"),
        ("the big cat", False, "nom", "die große Katze"),
        ("the big cat", False, "acc", "die große Katze"),
        ("the big cat", False, "dat", "der großen Katze"),
        ("a big cat", False, "nom", "eine große Katze"),
        ("a big cat", False, "acc", "eine große Katze"),
        ("a big cat", False, "dat", "einer großen Katze"),
        ("the small child", False, "nom", "das kleine Kind"),
        ("the small child", False, "acc", "das kleine Kind"),
        ("the small child", False, "dat", "dem kleinen Kind"),
        ("a small child", False, "nom", "ein kleines Kind"),
        ("a small child", False, "acc", "ein kleines Kind"),
        ("a small child", False, "dat", "einem kleinen Kind"),
        ("the young woman", True, "nom", "die jungen Frauen"),
        ("the young woman", True, "acc", "die jungen Frauen"),
        ("a young woman", True, "nom", "zwei junge Frauen"),
        ("a young woman", True, "acc", "zwei junge Frauen"),
        ("a clever village dog", False, "acc", "einen klugen Dorfhund"),
        ("the circus horse", True, "nom", "die Zirkuspferde"),
    ],
)
def test_articles_and_adjectives_agree_in_gender_number_and_case(
    english: str, plural: bool, case: toy.Case, german: str
) -> None:
    assert " ".join(toy.german_noun_phrase(phrase(english, plural), case)) == german


SLEEPS = predicate("sleeps")
CALLS = predicate("calls", phrase("the dog"))
SEES = predicate("sees", phrase("a dog"), phrase("the garden"))


@pytest.mark.parametrize(
    ("clause", "second", "inverted", "final"),
    [
        (
            toy.Clause(phrase("the man"), CALLS),
            "der Mann ruft den Hund an",
            "ruft der Mann den Hund an",
            "der Mann den Hund anruft",
        ),
        (
            toy.Clause(phrase("the man", plural=True), CALLS._replace(modal=MODALS["wants to"])),
            "die Männer wollen den Hund anrufen",
            "wollen die Männer den Hund anrufen",
            "die Männer den Hund anrufen wollen",
        ),
        (
            toy.Clause(phrase("a cat", relative=SLEEPS), SEES),
            "eine Katze, die schläft, sieht einen Hund in dem Garten",
            "sieht eine Katze, die schläft, einen Hund in dem Garten",
            "eine Katze, die schläft, einen Hund in dem Garten sieht",
        ),
        (
            toy.Clause(phrase("the child", relative=predicate("helps", phrase("a friend"))), SLEEPS),
            "das Kind, das einem Freund hilft, schläft",
            "schläft das Kind, das einem Freund hilft",
            "das Kind, das einem Freund hilft, schläft",
        ),
    ],
)
def test_the_verb_stands_second_first_or_last(clause: toy.Clause, second: str, inverted: str, final: str) -> None:
    orders: tuple[toy.Order, ...] = ("second", "inverted", "final")
    written = [toy.punctuate(["x", *toy.german_clause(clause, order)]) for order in orders]
    assert written == [f"X {text}." for text in (second, inverted, final)]


@pytest.mark.parametrize(
    ("clause", "english"),
    [
        (toy.Clause(phrase("a old man"), CALLS), "an old man calls the dog"),
        (toy.Clause(phrase("a man", plural=True), SLEEPS), "two men sleep"),
        (
            toy.Clause(phrase("the cat", True, SLEEPS), SEES._replace(modal=MODALS["wants to"])),
            "the cats who sleep want to see a dog in the garden",
        ),
        (
            toy.Clause(phrase("a small village dog"), SEES._replace(modal=MODALS["can"])),
            "a small village dog can see a dog in the garden",
        ),
    ],
)
def test_english_agrees_and_keeps_its_order(clause: toy.Clause, english: str) -> None:
    assert " ".join(toy.english_clause(clause)) == english


FINITE = "|".join(
    {form for verb in (*toy.VERBS, *toy.REPORTING_VERBS, *toy.MODALS) for form in (verb.german, verb.german_plural)}
)
LAST = rf"(an|ab)?({FINITE})"


@pytest.mark.parametrize(
    ("draw", "english", "german"),
    [
        (toy.plain, r"(The|An?|Two) [^,]+", rf".*\b({FINITE})\b.*"),
        (toy.fronted_adverb, "Today [^,]+", rf"Heute ({FINITE}) .*"),
        (toy.fronted_adverb, "Now [^,]+", rf"Jetzt ({FINITE}) .*"),
        (toy.reported, "[^,]+ (says?|knows?) that [^,]+", rf".* (sagt|sagen|weiß|wissen), dass .* {LAST}"),
        (toy.subordinate_first, "When [^,]+, [^,]+", rf"Wenn .* {LAST}, ({FINITE}) .*"),
        (toy.subordinate_first, "Because [^,]+, [^,]+", rf"Weil .* {LAST}, ({FINITE}) .*"),
        (toy.subordinate_last, "[^,]+ when [^,]+", rf".*, wenn .* {LAST}"),
        (toy.subordinate_last, "[^,]+ because [^,]+", rf".*, weil .* {LAST}"),
    ],
)
def test_each_construction_has_its_frame_in_both_languages(
    draw: Callable[[random.Random], toy.Words], english: str, german: str
) -> None:
    rng = random.Random(0)
    drawn = [[toy.punctuate(side) for side in draw(rng)] for _ in range(200)]
    framed = [(source, target) for source, target in drawn if re.fullmatch(rf"{english}\.", source)]
    assert len(framed) > 50
    assert all(re.fullmatch(rf"{german}\.", target) for _, target in framed)


# --- the data set -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate the data set of params.yaml's size once."""
    out = tmp_path_factory.mktemp("raw") / "toy"
    toy.generate(dataset(seed=2017, train=2000, test=200), out)
    return out


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+|[.,]", sentence)


def test_no_english_sentence_stands_twice(raw: Path) -> None:
    english = [line for split in ("train", "val", "test") for line in read_pairs(raw, split, "en", "de")[0]]
    assert len(set(english)) == len(english) == 2250


def test_sentences_are_raw_text_of_4_to_20_words(raw: Path) -> None:
    for side in read_pairs(raw, "train", "en", "de"):
        lengths = [len(line.split()) for line in side]
        assert (min(lengths), max(lengths)) == (4, 20)
        assert all(re.fullmatch(r"[A-Z]\w*(,? \w+)*\.", line) for line in side)


def test_every_word_is_frequent_and_none_is_unknown_in_the_tests(raw: Path) -> None:
    for side, (fewest, most) in enumerate([(60, 80), (100, 120)]):
        train = Counter(word for line in read_pairs(raw, "train", "en", "de")[side] for word in words(line))
        assert fewest <= len(train) <= most
        assert min(train.values()) >= 20
        test = {word for line in read_pairs(raw, "test", "en", "de")[side] for word in words(line)}
        assert test <= set(train)


def test_one_english_sentence_has_one_german_one() -> None:
    rng, german_of = random.Random(0), dict[str, str]()
    for _ in range(5_000):
        english, german = (toy.punctuate(side) for side in toy.pick(rng, toy.SENTENCES)(rng))
        assert german_of.setdefault(english, german) == german


def test_word_order_alone_tells_who_does_what() -> None:
    """The same English words in another order have another translation: a model without positions cannot get both."""
    dog, cat = phrase("the old dog"), phrase("the cat")
    clauses = [toy.Clause(subject, predicate("sees", object_)) for subject, object_ in ((dog, cat), (cat, dog))]
    assert len({tuple(sorted(toy.english_clause(clause))) for clause in clauses}) == 1
    assert [" ".join(toy.german_clause(clause, "second")) for clause in clauses] == [
        "der alte Hund sieht die Katze",
        "die Katze sieht den alten Hund",
    ]


def test_most_sentences_have_nouns_to_confuse_and_a_verb_that_moves(raw: Path) -> None:
    english, german = read_pairs(raw, "train", "en", "de")
    nouns = {form for noun in toy.NOUNS for form in (noun.english, noun.english_plural)}
    counts = [sum(word in nouns for word in words(line)) for line in english]
    assert sum(count >= 2 for count in counts) > 0.85 * len(counts)
    assert sum(count >= 3 for count in counts) > 0.5 * len(counts)
    last = {verb.german for verb in toy.VERBS} | {modal.german for modal in toy.MODALS} | {"an", "ab"}
    moved = [bool(last & {before for before, _ in re.findall(r"(\w+)([.,])", line)}) for line in german]
    assert sum(moved) > 0.5 * len(moved)


def test_the_manifest_describes_the_files(raw: Path) -> None:
    files = json.loads((raw / "manifest.json").read_text())["files"]
    assert sorted(files) == sorted(path.name for path in raw.iterdir() if path.name != "manifest.json")
    assert files["train.de"]["lines"] == 2000
    assert len(files["train.de"]["sha256"]) == 64


def test_the_same_seed_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = f"from test_toy import dataset, toy, Path; toy.generate(dataset(), Path({str(tmp_path)!r}) / 'SEED')"
    for hash_seed in ("0", "1"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(Path(toy.__file__).parents[1]), str(Path(__file__).parent)]),
        }
        subprocess.run([sys.executable, "-c", code.replace("SEED", hash_seed)], env=environment, check=True)
    contents = [{p.name: p.read_bytes() for p in (tmp_path / seed).iterdir()} for seed in ("0", "1")]
    assert contents[0] == contents[1]
    toy.generate(dataset(seed=2), tmp_path / "other")
    assert (tmp_path / "other" / "train.en").read_bytes() != contents[0]["train.en"]


def test_a_longer_test_split_leaves_the_training_pairs_alone(tmp_path: Path) -> None:
    for test in (10, 20):
        toy.generate(dataset(test=test), tmp_path / str(test))
    assert (tmp_path / "10" / "train.de").read_bytes() == (tmp_path / "20" / "train.de").read_bytes()


def test_a_grammar_that_runs_out_of_sentences_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(toy, "SENTENCES", (lambda rng: (["one", "two", "three", "four"], list("abcd")),))
    with pytest.raises(ValueError, match="the toy grammar gave 1 new sentences in 30000 draws, not 300"):
        toy.generate(dataset(), tmp_path / "toy")
    assert list(tmp_path.iterdir()) == []
