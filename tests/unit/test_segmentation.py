"""Text to words and back, in one process and in several."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from bleuprint import segmentation
from bleuprint.params import BasicTokenizer, BpeTokenizer, Tokenizer, WordsTokenizer
from bleuprint.segmentation import (
    basic_words,
    detokenize,
    hide_torch,
    join_apostrophes,
    map_chunks,
    map_in_processes,
    official_chain,
    segment_lines,
    spacy_words,
)

WORDS = WordsTokenizer(kind="words", lowercase=True, min_frequency=1)
LC_TOK = BpeTokenizer(kind="bpe", text="lc-tok", merges=1, min_frequency=1)
RAW = BpeTokenizer(kind="bpe", text="raw", merges=1, min_frequency=1)
BASIC = BasicTokenizer(kind="basic")

# A script that forgets `if __name__ == "__main__":`. Each of its processes runs it again, and dies of that.
UNGUARDED = """
from bleuprint.segmentation import map_in_processes
try:
    list(map_in_processes(str.split, ["A dog."], processes=2))
except OSError as error:
    print(error)
"""


def run(*words: str) -> str:
    """Return what a fresh interpreter prints on stdout."""
    environment = os.environ | {"PYTHONPATH": str(Path(segmentation.__file__).parents[1])}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("de", "Ein Hund bellt.", "ein hund bellt ."),
        ("de", "„Ruhe, bitte!“", "&quot; ruhe , bitte ! &quot;"),
        ("de", "Dort steht: „Ruhe.“", "dort steht : &quot; ruhe &quot; ."),  # needs the newline while normalising
        ("de", "„He ’em an“", "&quot; he &quot; em an &quot;"),  # needs perl_parity
        ("de", "ein T-Shirt für 5,30 €", "ein t-shirt für 5,30 €"),  # hyphens are not split
        ("en", "It's a [dog] & <cat> | bird", "it &apos;s a &#91; dog &#93; &amp; &lt; cat &gt; &#124; bird"),
        ("en", " two\tspaces  here ", "two spaces here"),
        ("en", "", ""),
    ],
)
def test_official_chain(language: str, line: str, expected: str) -> None:
    assert official_chain([line], language) == [expected]


@pytest.mark.parametrize(
    ("words", "language", "escaped", "expected"),
    [
        (["ein", "hund", ",", "der", "bellt", "."], "de", False, "ein hund, der bellt."),
        (["&quot;", "ruhe", "!", "&quot;", "&amp;", "ruhe"], "de", True, '"ruhe!" & ruhe'),
        (["a", "&amp;"], "en", False, "a &amp;"),
        ([], "en", True, ""),
    ],
)
def test_detokenize(words: list[str], language: str, escaped: bool, expected: str) -> None:
    assert detokenize(words, language, escaped) == expected


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [WORDS, LC_TOK])
def test_processes_and_chunks_change_nothing(settings: Tokenizer) -> None:
    lines = [*(f"Dog {i} isn't here." for i in range(10)), "", "„Hund“."]
    alone = segment_lines(settings, lines, "en")
    chunks = [lines[start : start + 5] for start in (0, 5, 10)]
    found = list(map_in_processes(partial(segment_lines, settings, language="en"), chunks, processes=2))
    assert [len(words) for words in found] == [5, 5, 2]
    assert [line for words in found for line in words] == alone
    assert alone[10] == []


def test_no_more_chunks_are_read_than_are_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentation, "CHUNKS_AHEAD", 2)
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    for place, result in enumerate(map_in_processes(abs, numbers(), processes=2)):
        assert result == place
        assert len(read) <= place + 1 + 2 * 2


@pytest.mark.parametrize(
    ("settings", "cores", "chunks", "processes"),
    [
        (WORDS, 2, 6, 2),
        (LC_TOK, 99, 6, 8),
        (LC_TOK, 1, 6, None),
        (WORDS, 2, 5, None),
        (RAW, 2, 6, None),
        (BASIC, 2, 6, None),
    ],
)
def test_several_processes_only_where_they_pay(
    settings: Tokenizer,
    cores: int,
    chunks: int,
    processes: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []

    def pretend(function: Callable[[int], int], chunks: Iterable[int], count: int) -> Iterator[int]:
        started.append(count)
        return map(function, chunks)

    monkeypatch.setattr(segmentation, "map_in_processes", pretend)
    monkeypatch.setattr(segmentation, "usable_cores", lambda: cores)
    monkeypatch.setattr(segmentation, "POOL_FROM_CHUNKS", 6)
    assert list(map_chunks(settings, abs, iter(range(chunks)))) == list(range(chunks))
    assert started == ([processes] if processes else [])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_cores_are_those_that_this_process_may_use() -> None:
    code = "import os; from bleuprint.segmentation import usable_cores; os.sched_setaffinity(0, {%d}); "
    assert run("-c", code % min(os.sched_getaffinity(0)) + "print(usable_cores())") == "1\n"


def test_an_error_in_another_process_arrives_as_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^spaCy has no language 'xx-none'[^\n]*$"):
        list(map_in_processes(partial(segment_lines, WORDS, ["A dog."]), ["en", "xx-none", "en"], processes=2))


def test_a_process_that_dies_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    expected = "a process that splits lines into words died: stopped, or short of memory?\n"
    assert run(str(tmp_path / "script.py")) == expected


def test_words_are_split_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; from bleuprint.segmentation import hide_torch, spacy_words; hide_torch(); "
    shown = run("-c", code + "print(spacy_words(['A dog.'], 'en', True), sys.modules['torch'])")
    assert shown == "[['a', 'dog', '.']] None\n"
    imported = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", imported)
    hide_torch()
    assert sys.modules["torch"] is imported  # it cannot be taken back from those who have it


# --- words ------------------------------------------------------------------------------------------------------------


def test_unknown_language_is_named() -> None:
    with pytest.raises(ValueError, match="spaCy has no language 'xx-none'"):
        spacy_words(["a"], "xx-none", lowercase=True)


def test_words_are_split_before_they_are_lower_cased() -> None:
    assert spacy_words(["Dr. Grau", "dr. Grau"], "de", lowercase=True) == [["dr.", "grau"], ["dr", ".", "grau"]]
    assert spacy_words([" Dr. Grau\n"], "de", lowercase=False) == [["Dr.", "Grau"]]


def test_white_space_within_a_line_can_be_a_word() -> None:
    assert spacy_words(["a  dog", " \t "], "en", lowercase=True) == [["a", " ", "dog"], []]


# --- basic English ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("You can now install TorchText using pip!", "you can now install torchtext using pip !"),
        ("It's a dog's life, isn't it?", "it ' s a dog ' s life , isn ' t it ?"),
        ('A sign says "No dogs"; a man (old) waits: Mr. X...', "a sign says no dogs a man ( old ) waits mr . x . . ."),
        ("U.S. 5,300<br />a<br/>b", "u . s . 5 , 300 a<br/>b"),
        ("Ein „Hund“ – auf-und-ab; STRASSE ß", "ein „hund“ – auf-und-ab strasse ß"),
        (" a\u00a0b\tc\u2028d ", "a b c d"),
        ('"; :', ""),
    ],
)
def test_basic_english(line: str, expected: str) -> None:
    assert basic_words(line) == expected.split()
    assert segment_lines(BASIC, [line], "de") == [expected.split()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [("it ' s a dog ' s life", "it's a dog's life"), ("rock ' n ' roll", "rock'n'roll"), ("' a", "' a"), ("", "")],
)
def test_apostrophes_are_joined_to_their_neighbours(words: str, expected: str) -> None:
    assert " ".join(join_apostrophes(words.split())) == expected
