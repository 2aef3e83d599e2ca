"""What is learnt from counts of words: vocabularies and merges."""

from collections import Counter

import pytest

from bleuprint.learning import frequent_types, learn_merges, texts_with
from bleuprint.tokenizers import SPECIALS


def counts_of(*texts: str) -> Counter[str]:
    """Count the words of texts."""
    return Counter(word for text in texts for word in text.split())


def test_types_are_ordered_by_frequency_then_code_point() -> None:
    counts = counts_of("b ä a once", "a ä b Z Z <pad>", "c c c <pad>")
    assert frequent_types(counts, min_frequency=2) == [*SPECIALS, "c", "Z", "a", "b", "ä"]


@pytest.mark.parametrize("merges", [1, 5, 10])
def test_merges_are_the_most_frequent_pairs_in_order(merges: int) -> None:
    counts = counts_of("ab ab ab abc abc", "abc", "xy xy", "once")  # what occurs once is not merged
    learned = [("a", "b"), ("▁", "ab"), ("▁ab", "c"), ("x", "y"), ("▁", "xy")]
    if merges <= len(learned):
        assert learn_merges(counts, merges) == learned[:merges]
    else:
        with pytest.raises(ValueError, match="no more than 5 merges"):
            learn_merges(counts, merges)


def test_merges_do_not_depend_on_the_order_of_the_words() -> None:
    """Many pairs are as frequent as each other here."""
    counts = counts_of("der hund bellt und der hund schläft die katze schläft die maus bellt")
    backwards = dict(reversed(list(counts.items())))
    assert learn_merges(counts, 12) == learn_merges(backwards, 12)


def test_texts_have_each_word_as_often_as_counted() -> None:
    counts = Counter({"often": 2500, "a": 1000, "once": 1})
    texts = list(texts_with(counts))
    assert counts_of(*texts) == counts
    assert max(len(text.split()) for text in texts) == 1000
    assert all(text == " ".join(text.split()) for text in texts)  # a space at an end would be a word of its own
