"""Text to words and back: spaCy's rules, the official chain of Multi30K (Moses rules), basic English, or white space.

Large texts are split on all cores. How many there are, and where the chunks end, changes no word: every line is split
alone.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import chain, islice
from multiprocessing import get_context
from typing import Any, TypeVar

from bleuprint.params import BasicTokenizer, BpeText, Tokenizer, WordsTokenizer

CHUNK_PAIRS = 1_000  # enough chunks for the last ones to end at about the same time on every core
POOL_FROM_CHUNKS = 10  # below this, starting processes costs more than they save
MAX_PROCESSES = 8  # each imports spaCy or sacremoses first: with more, that is most of what they do
CHUNKS_AHEAD = 4  # that wait for each process, or for us behind it: no more of a text is ever in memory

BASIC_MARKS = str.maketrans({mark: f" {mark} " for mark in "'.,()!?"} | dict.fromkeys(";:", " "))

Words = list[str]  # of one sentence
Chunk = TypeVar("Chunk")
Result = TypeVar("Result")


def map_chunks(settings: Tokenizer, function: Callable[[Chunk], Result], chunks: Iterable[Chunk]) -> Iterator[Result]:
    """Yield function(chunk) of every chunk, in order, where `function` splits lines into words as `settings` say.

    Many chunks are given to one process a core, unless they are quickly split. ChildProcessError where a process dies.
    """
    processes = min(usable_cores(), MAX_PROCESSES)
    quick = isinstance(settings, BasicTokenizer) or (isinstance(settings, BpeText) and settings.text == "raw")
    chunks = iter(chunks)
    first = list(islice(chunks, POOL_FROM_CHUNKS))
    if quick or processes == 1 or len(first) < POOL_FROM_CHUNKS:
        return map(function, chain(first, chunks))
    return map_in_processes(function, chain(first, chunks), processes)


def usable_cores() -> int:
    """Return how many cores this process may run on; taskset and Slurm allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(function: Callable[[Chunk], Result], chunks: Iterable[Chunk], processes: int) -> Iterator[Result]:
    """Yield function(chunk) of every chunk, in order, computed in several processes a few chunks ahead.

    The stage for multi30k-words: 3.0 s on 2 cores, 5.7 s on one. Processes are spawned: there is no other way on
    Windows, and on Linux a fork would copy the locks of the threads that numpy, torch or `tokenizers` may have running.
    (A fork server with spaCy in it was slower: it cannot do without torch.) A script of one's own that gets here
    therefore needs the usual `if __name__ == "__main__":`.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), initializer=hide_torch) as pool:
            for chunk in chunks:
                waiting.append(pool.submit(function, chunk))
                if len(waiting) > CHUNKS_AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool:
        raise ChildProcessError("a process that splits lines into words died: stopped, or short of memory?") from None


def hide_torch() -> None:
    """Let `import torch` fail in a process that has not done it yet and only splits lines.

    Importing spaCy imports torch where it is installed, 2.5 s and not 0.9, and its tokenizer has no use for it.
    """
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # documented: None stops an import


def segment_lines(settings: Tokenizer | BpeText, lines: Sequence[str], language: str) -> list[Words]:
    """Return the words of each line; any run of white space is one space to BPE. ValueError on an unknown language."""
    if isinstance(settings, WordsTokenizer):
        return spacy_words(lines, language, settings.lowercase)
    if isinstance(settings, BasicTokenizer):
        return [basic_words(line) for line in lines]
    texts = {"lc-tok": official_chain, "tok": moses_tokens, "raw": lambda lines, _: lines}
    return [line.split() for line in texts[settings.text](lines, language)]


def spacy_words(lines: Iterable[str], language: str, lowercase: bool) -> list[Words]:
    """Return spaCy's tokens of each line, lower-cased only afterwards (CLAIMS 1a); ValueError on an unknown language.

    White space between words can be a token: without it Multi30K would have fewer types than CLAIMS counts.
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


def basic_words(line: str) -> Words:
    """Return the words of torchtext's tokenizer "basic_english" (0.15), which pi-tau uses for German too (CLAIMS 2).

    Lower-cased; double quotation marks vanish; semicolons, colons and "<br />" become spaces, seven marks words of
    their own. Nothing else is split off: a hyphen, a dash or a typographic quotation mark stays on its word.
    """
    return line.lower().replace('"', "").replace("<br />", " ").translate(BASIC_MARKS).split()


def join_apostrophes(words: Sequence[str]) -> Words:
    """Return basic English words with each apostrophe joined to its neighbours: man ' s is man's.

    ASSUME: every apostrophe stands inside a word. In Multi30K's English train text 460 of 494 do.
    """
    return " ".join(words).replace(" ' ", "'").split()


def official_chain(lines: Sequence[str], language: str) -> list[str]:
    """Return each line lower-cased, normalised, tokenised and escaped: tokens joined by one space.

    This is how multi30k's `lc.norm.tok` files were made; the tokens of all 64,950 English and German lines are equal.
    """
    normalizer, _ = moses(language)
    # The newline stays on while normalising, as in Moses' own script: its rule that moves a full stop behind a closing
    # quotation mark asks for a character after the mark. Without it 8 German lines differ.
    return moses_tokens([normalizer.normalize(line.lower() + "\n") for line in lines], language)


def moses_tokens(lines: Iterable[str], language: str) -> list[str]:
    """Return each line tokenised and escaped by Moses' rules, as tokenizer.perl does: tokens joined by one space."""
    _, tokenizer = moses(language)
    return [" ".join(tokenizer.tokenize(line, aggressive_dash_splits=False, escape=True)) for line in lines]


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
