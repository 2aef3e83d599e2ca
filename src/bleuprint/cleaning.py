"""Which pairs of a train split are dropped, and why: what the scripts of the field do, each rule with its source.

- Moses, scripts/training/clean-corpus-n.perl: sides without words, of too many words, of too unlike lengths, words that
  are too long. Its own limits but for the number of words are those of params.yaml.
- Moses, scripts/tokenizer/remove-non-printing-char.perl blanks control characters, line separators among them. Here the
  pair goes: two lines in one on one side, or broken text, has no true translation on the other.
- Mozilla's translations, pipeline/clean (as Marian's examples before it): a line is no text where fewer than half of
  its characters are letters.
- fairseq, examples/translation/prepare-wmt14en2de.sh: clean-corpus-n.perl once more, on subwords. Without it one long
  address would be a sentence of a thousand tokens.

None of them looks at languages, and none removes duplicates; so nor do we.
"""

import re
from collections.abc import Sequence
from typing import Literal, get_args

from bleuprint.params import Cleaning
from bleuprint.segmentation import Words

Fault = Literal[
    "control_characters", "few_letters", "empty", "many_words", "unlike_lengths", "long_word", "many_tokens"
]
# Control characters but for the tabulator, line and paragraph separators, and what stands for bytes that were no text.
CONTROL = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ufffd]")


def faults_looked_for(cleaning: Cleaning | None) -> tuple[Fault, ...]:
    """Return the faults that a pair can be dropped for, in the order in which they are looked for."""
    return get_args(Fault) if cleaning else ("empty",)


def fault_in_lines(cleaning: Cleaning, pair: tuple[str, str]) -> Fault | None:
    """Return what is wrong with a pair of lines before they are split into words, None where nothing is."""
    if any(CONTROL.search(line) for line in pair):
        return "control_characters"
    if any(share_of_letters(line) < cleaning.min_letters for line in pair):
        return "few_letters"
    return None


def share_of_letters(line: str) -> float:
    """Return how many of a line's characters other than white space are letters; 1 where there are none at all."""
    characters = "".join(line.split())
    return sum(map(str.isalpha, characters)) / len(characters) if characters else 1.0


def fault_in_words(cleaning: Cleaning, pair: tuple[Words, Words]) -> Fault | None:
    """Return what is wrong with a pair that has words on both sides, None where nothing is."""
    fewer, more = sorted(map(len, pair))
    if more > cleaning.max_words:
        return "many_words"
    if more > cleaning.max_ratio * fewer:
        return "unlike_lengths"
    if any(len(word) > cleaning.max_word_characters for words in pair for word in words):
        return "long_word"
    return None


def has_many_tokens(cleaning: Cleaning, pair: tuple[Sequence[int], Sequence[int]]) -> bool:
    """Return whether either side has too many ids, marks not counted."""
    return any(len(ids) > cleaning.max_tokens for ids in pair)
