"""The number that hyunwoongko's README calls BLEU, from its description (CLAIMS 1c): it is not BLEU, nor a translation.

Two sentences are paired word by word, by position; each pair of words is compared as two strings of characters. The
README's 26.4 is the mean over batches of the validation set, of hypotheses that were predicted word by word with the
reference before each word (teacher forcing), and in the padding behind it too.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp, log
from statistics import fmean
from typing import NamedTuple

ORDERS = (1, 2, 3, 4)  # of the n-grams of characters
BATCH = 128  # sentences; the last batch weighs as much as the others


class Statistics(NamedTuple):
    """Sums over the word pairs of one sentence; lengths and n-grams are in characters."""

    hypothesis_length: int
    reference_length: int
    matches: tuple[int, ...]  # of each order
    totals: tuple[int, ...]


def legacy_score(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the score, 0 to 100, of space-joined words against reference words, sentence by sentence, in their order.

    ValueError where the numbers of sentences differ or there are none.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"legacy_score compares {len(hypotheses)} hypotheses with {len(references)} references")
    scores = [sentence_score(*pair) for pair in zip(hypotheses, references, strict=True)]
    return fmean(fmean(scores[i : i + BATCH]) for i in range(0, len(scores), BATCH))


def sentence_score(hypothesis: str, reference: str) -> float:
    """Return 100 x brevity penalty x geometric mean of the four precisions; 0 where any of the ten sums is 0."""
    sums = statistics(words(hypothesis), words(reference))
    if 0 in (sums.hypothesis_length, sums.reference_length, *sums.matches, *sums.totals):
        return 0.0
    precision = fmean(log(match / total) for match, total in zip(sums.matches, sums.totals, strict=True))
    return 100 * exp(min(0.0, 1 - sums.reference_length / sums.hypothesis_length) + precision)


def words(sentence: str) -> list[str]:
    """Return the words without those that contain "<", `<unk>` among them."""
    return [word for word in sentence.split() if "<" not in word]


def statistics(hypothesis: Sequence[str], reference: Sequence[str]) -> Statistics:
    """Return the sums over the pairs of words; words beyond the shorter sentence are not looked at."""
    pairs = list(zip(hypothesis, reference, strict=False))
    return Statistics(
        hypothesis_length=sum(len(hyp) for hyp, _ in pairs),
        reference_length=sum(len(ref) for _, ref in pairs),
        matches=tuple(sum((ngrams(hyp, n) & ngrams(ref, n)).total() for hyp, ref in pairs) for n in ORDERS),
        totals=tuple(sum(max(len(hyp) + 1 - n, 0) for hyp, _ in pairs) for n in ORDERS),
    )


def ngrams(word: str, order: int) -> Counter[str]:
    """Return how often each n-gram of characters stands in a word."""
    return Counter(word[i : i + order] for i in range(len(word) - order + 1))
