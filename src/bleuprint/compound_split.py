r"""The text that the paper's BLEU is counted on: cased Moses tokens, their compounds split at hyphens (CLAIMS 3).

The chain is that of tensor2tensor's get_ende_bleu.sh, where multi-bleu.perl follows:

    tokenizer.perl -l de | perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'

A compound that is translated right gives three matches and not one; one that is missing leaves three words missing. So
the score may be above that of the tokens as they are, or below.

ASSUME: hypotheses and references go through the same chain. The script takes references that somebody else tokenised,
and a later form of it replaces Unicode punctuation in the hypotheses alone, so that the two fit.
"""

import re
from collections.abc import Iterable

from bleuprint.segmentation import moses

PAIR = ("en", "de")  # source and target: nothing else is published in it
HYPHEN = re.compile(rb"(\S)-(\S)")  # bytes, as Perl reads a line


def compound_split(lines: Iterable[str]) -> list[str]:
    """Return German running text as Moses' tokens, compounds split, joined by one space."""
    tokenizer = moses(PAIR[1])[1]
    tokens = (tokenizer.tokenize(line, aggressive_dash_splits=False, escape=True, return_str=True) for line in lines)
    return [split_at_hyphens(line) for line in tokens]


def split_at_hyphens(tokens: str) -> str:
    """Return a line of tokens in which a hyphen between two characters is the token ##AT##-##AT##.

    A match ends with the character after its hyphen, as in Perl: the second hyphen of a-b-c stays where it is. That of
    x-ö-z does not, for an ö is two bytes.
    """
    return HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()
