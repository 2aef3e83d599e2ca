"""Text to words and back: spaCy's rules, the official chain of Multi30K (Moses rules), or plain white space."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any

from bleuprint.params import BpeTokenizer, WordsTokenizer

POOL_FROM_LINES = 20_000  # below this, starting processes costs more than sacremoses itself
CHUNK_LINES = 4_000

Words = list[str]  # of one sentence


def segment(settings: WordsTokenizer | BpeTokenizer, texts: Sequence[tuple[Sequence[str], str]]) -> list[list[Words]]:
    """Return the words of every line of each (lines, language); a line without text has none.

    Any run of white space is one space to BPE. ValueError where spaCy does not know a language.
    """
    if isinstance(settings, WordsTokenizer):
        return [spacy_words(lines, language, settings.lowercase) for lines, language in texts]
    lines_of = chain_texts(texts) if settings.text == "lc-tok" else [lines for lines, _ in texts]
    return [[line.split() for line in lines] for lines in lines_of]


def spacy_words(lines: Iterable[str], language: str, lowercase: bool) -> list[Words]:
    """Return spaCy's tokens of each line, lower-cased only afterwards (CLAIMS 1a); ValueError on an unknown language.

    White space between words can be a token: without it Multi30K would have fewer types than CLAIMS counts. No process
    pool: on 2 cores it made Multi30K slower (5.7 s, not 4.3 s), as each worker must import spaCy.
    """
    tokenize = spacy_tokenizer(language)
    words = ([token.text for token in tokenize(line.strip())] for line in lines)
    return [[word.lower() for word in line] if lowercase else line for line in words]


@cache
def spacy_tokenizer(language: str) -> Any:
    """Return spaCy's rule-based tokenizer, which needs no model; ValueError where spaCy does not know the language."""
    import spacy

    try:
        return spacy.blank(language).tokenizer
    except ImportError:
        raise ValueError(f"spaCy has no language {language!r}; valid are codes such as en and de") from None


def chain_texts(texts: Sequence[tuple[Sequence[str], str]]) -> list[list[str]]:
    """Return official_chain of each (lines, language); large inputs run on all cores, in chunks that keep their order.

    Multi30K on 2 idle cores: 2.7 s, and 4.6 s in one process. Processes are spawned, so a script of one's own that
    gets here needs the usual `if __name__ == "__main__":`.
    """
    if sum(len(lines) for lines, _ in texts) < POOL_FROM_LINES:
        return [official_chain(lines, language) for lines, language in texts]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = [
            [pool.submit(official_chain, chunk, language) for chunk in in_chunks(lines)] for lines, language in texts
        ]
        return [[line for future in text for line in future.result()] for text in futures]


def in_chunks(lines: Sequence[str]) -> list[Sequence[str]]:
    """Return the lines in pieces of CHUNK_LINES, in order."""
    return [lines[start : start + CHUNK_LINES] for start in range(0, len(lines), CHUNK_LINES)]


def official_chain(lines: Sequence[str], language: str) -> list[str]:
    """Return each line lower-cased, normalised, tokenised and escaped: tokens joined by one space.

    This is how multi30k's `lc.norm.tok` files were made; the tokens of all 64,950 English and German lines are equal.
    """
    normalizer, tokenizer = moses(language)
    # The newline stays on while normalising, as in Moses' own script: its rule that moves a full stop behind a closing
    # quotation mark asks for a character after the mark. Without it 8 German lines differ.
    normalized = (normalizer.normalize(line.lower() + "\n") for line in lines)
    return [" ".join(tokenizer.tokenize(line, aggressive_dash_splits=False, escape=True)) for line in normalized]


@cache
def moses(language: str) -> tuple[Any, Any]:
    """Return sacremoses' normaliser, with the Perl script's substitutions, and its tokenizer."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)


def detokenize(words: Sequence[str], language: str, escaped: bool) -> str:
    """Return words as running text by sacremoses' rules; `escaped` words have their XML escapes undone."""
    text: str = moses_detokenizer(language).detokenize(words, return_str=True, unescape=escaped)
    return text


@cache
def moses_detokenizer(language: str) -> Any:
    """Return sacremoses' detokenizer."""
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(language)
