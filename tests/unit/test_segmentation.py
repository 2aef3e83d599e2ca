"""Text to words and back."""

import pytest

from bleuprint import segmentation
from bleuprint.segmentation import chain_texts, detokenize, official_chain, spacy_words


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


def test_processes_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [([f"Dog {i} isn't here." for i in range(10)], "en"), ([f"„Hund {i}.“" for i in range(6)], "de")]
    alone = chain_texts(texts)
    monkeypatch.setattr(segmentation, "POOL_FROM_LINES", 1)
    monkeypatch.setattr(segmentation, "CHUNK_LINES", 4)
    assert chain_texts(texts) == alone
    assert [len(lines) for lines in alone] == [10, 6]


def test_unknown_language_is_named() -> None:
    with pytest.raises(ValueError, match="spaCy has no language 'xx-none'"):
        spacy_words(["a"], "xx-none", lowercase=True)


def test_words_are_split_before_they_are_lower_cased() -> None:
    assert spacy_words(["Dr. Grau", "dr. Grau"], "de", lowercase=True) == [["dr.", "grau"], ["dr", ".", "grau"]]
    assert spacy_words([" Dr. Grau\n"], "de", lowercase=False) == [["Dr.", "Grau"]]


def test_white_space_within_a_line_can_be_a_word() -> None:
    assert spacy_words(["a  dog", " \t "], "en", lowercase=True) == [["a", " ", "dog"], []]
