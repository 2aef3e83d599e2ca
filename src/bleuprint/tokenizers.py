"""Learnt tokenizers: text to ids, and back for decoding. learning.py learns them.

Four kinds: spaCy or basic English words with one vocabulary per language; joint BPE on the official chain's tokens
(`lc-tok`), on cased tokens (`tok`) or on cased `raw` text. The ids of the special symbols stand here and nowhere else.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from bleuprint.params import BasicTokenizer, BpeText, Tokenizer, WordsTokenizer
from bleuprint.segmentation import Words, detokenize, join_apostrophes, segment_lines
from bleuprint.segmentation import official_chain as official_chain  # for decoding and scoring
from bleuprint.strict import Name, Strict, choose, validate

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine
    from tokenizers.models import BPE

UNK, PAD, BOS, EOS = range(4)
SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")  # names and order: CLAIMS 1a
UNKNOWN_SURFACE = "⁇"  # UNK in running text: one token to every scorer, where <unk> would be three

SPACE = "\u2581"  # stands for a space inside BPE pieces; in a text it reads as a space, as in SentencePiece
CACHED_WORDS = 200_000  # of which the pieces are kept: all that are frequent, and no more than some 60 MB

Side = Literal["source", "target"]
Marks = Literal["both", "end", "none"]


# --- what is learnt; the fields are those of tokenizer.json -----------------------------------------------------------


class WordTypes(Strict):
    """Word types of both languages, a type's id being its position; a subclass is a Tokenizer too."""

    source: Name
    target: Name
    source_types: tuple[str, ...]
    target_types: tuple[str, ...]

    @property
    def target_text(self) -> Literal["words"]:
        """Say what kind of tokens `decode_tokens` gives."""
        return "words"

    @property
    def vocabulary(self) -> dict[Side, int]:
        """Count the types of each side, special symbols included."""
        return {"source": len(self.source_types), "target": len(self.target_types)}

    @cached_property
    def ids(self) -> dict[Side, dict[str, int]]:
        """Map words to ids; special symbols are left out, so that no text can spell them."""
        return {"source": ids_of_words(self.source_types), "target": ids_of_words(self.target_types)}

    def encode_words(self, side: Side, sentences: Iterable[Words]) -> list[list[int]]:
        """Return the ids of segmented sentences; UNK is a word outside the vocabulary."""
        ids = self.ids[side]
        return [[ids.get(word, UNK) for word in words] for words in sentences]

    def encode_source(self, line: str) -> list[int]:
        """Return the ids of a source line, without marks."""
        return self.encode_words("source", segment_lines(cast("Tokenizer", self), [line], self.source))[0]

    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a target line, without marks."""
        return self.encode_words("target", segment_lines(cast("Tokenizer", self), [line], self.target))[0]

    def decode_tokens(self, ids: Sequence[int]) -> str:
        """Return the target words joined by spaces; marks and pads are skipped."""
        return " ".join(spell(ids, self.target_types, SPECIALS[UNK]))


class LearnedWords(WordTypes, WordsTokenizer):
    """spaCy words."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return target ids as running text; marks and pads are skipped."""
        return detokenize(spell(ids, self.target_types, UNKNOWN_SURFACE), self.target, escaped=False)


class LearnedBasic(WordTypes, BasicTokenizer):
    """Basic English words."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return target ids as running text, as well as can be; marks and pads are skipped.

        pi-tau has no way back: this one is ours. Apostrophes are joined to their neighbours, the other marks are set by
        sacremoses' rules. Case, double quotation marks, colons and semicolons are lost for good: the English references
        of Multi30K, there and back, have a BLEU of 99.8 (2016), 99.9 (2017) and 100.0 (mscoco) with themselves
        lower-cased, and of 89.7, 89.2 and 89.6 as they are (sacreBLEU 13a): no hypothesis can have a better one.
        """
        words = join_apostrophes(spell(ids, self.target_types, UNKNOWN_SURFACE))
        return detokenize(words, self.target, escaped=False)


class LearnedBpe(BpeText):
    """BPE of both languages: types, whose id is their position, and merges ("left right") in the order of learning."""

    source: Name
    target: Name
    types: tuple[str, ...]
    learned_merges: tuple[str, ...]

    @property
    def target_text(self) -> Literal["lc-tok", "tok", "raw"]:
        """Say what kind of tokens `decode_tokens` gives."""
        return self.text

    @property
    def vocabulary(self) -> dict[Side, int]:
        """Count the types of each side, special symbols included."""
        return {"source": len(self.types), "target": len(self.types)}

    @cached_property
    def engine(self) -> "Engine":
        """Return the `tokenizers` object that encodes."""
        from tokenizers.models import BPE

        special, pieces = self.types[: len(SPECIALS)], self.types[len(SPECIALS) :]
        names = [*(f" {name}" for name in special), *pieces]  # no text can spell these: its spaces have become SPACE
        merges = [(left, right) for left, right in map(str.split, self.learned_merges)]
        return bpe_engine(BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges, unk_token=names[UNK]))

    @cached_property
    def pieces(self) -> dict[str, list[int]]:
        """Return the ids of words that were encoded already; a word has the same in every sentence."""
        return {}

    def encode_words(self, side: Side, sentences: Iterable[Words]) -> list[list[int]]:
        """Return the ids of segmented sentences, whichever their side; UNK is a character outside the vocabulary."""
        sentences = list(sentences)
        words = set(chain.from_iterable(sentences))
        if len(self.pieces.keys() | words) > CACHED_WORDS:
            self.pieces.clear()
        new = list(words - self.pieces.keys())
        encodings = self.engine.encode_batch([f" {word}" for word in new])
        self.pieces.update((word, encoding.ids) for word, encoding in zip(new, encodings, strict=True))
        pieces = self.pieces
        return [[i for word in sentence for i in pieces[word]] for sentence in sentences]

    def encode_source(self, line: str) -> list[int]:
        """Return the ids of a source line, without marks."""
        return self.encode_words("source", segment_lines(self, [line], self.source))[0]

    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a target line, without marks."""
        return self.encode_words("target", segment_lines(self, [line], self.target))[0]

    def join_pieces(self, ids: Sequence[int], unknown: str) -> Words:
        """Return the words that the pieces spell; marks and pads are skipped."""
        return "".join(spell(ids, self.types, unknown)).replace(SPACE, " ").split()

    def decode_tokens(self, ids: Sequence[int]) -> str:
        """Return the target words joined by one space, escapes kept; marks and pads are skipped."""
        return " ".join(self.join_pieces(ids, SPECIALS[UNK]))

    def decode(self, ids: Sequence[int]) -> str:
        """Return target ids as running text, escapes undone; marks and pads are skipped."""
        words = self.join_pieces(ids, UNKNOWN_SURFACE)
        return " ".join(words) if self.text == "raw" else detokenize(words, self.target, escaped=True)


Learned = LearnedWords | LearnedBpe | LearnedBasic
KINDS: dict[str, type[LearnedWords] | type[LearnedBpe] | type[LearnedBasic]] = {
    "words": LearnedWords,
    "bpe": LearnedBpe,
    "basic": LearnedBasic,
}


def spell(ids: Sequence[int], types: Sequence[str], unknown: str) -> list[str]:
    """Return the type of each id, `unknown` for UNK; marks and pads are skipped."""
    return [unknown if i == UNK else types[i] for i in ids if i not in (PAD, BOS, EOS)]


def ids_of_words(types: Sequence[str]) -> dict[str, int]:
    """Map every type but the special symbols to its position."""
    return {word: i for i, word in enumerate(types) if i >= len(SPECIALS)}


def bpe_engine(model: "BPE") -> "Engine":
    """Return a tokenizer around a BPE model: no normaliser, SPACE for spaces and in front of the first word."""
    from tokenizers import Tokenizer as Engine
    from tokenizers.pre_tokenizers import Metaspace

    engine = Engine(model)
    engine.pre_tokenizer = Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    return engine


# --- the file ---------------------------------------------------------------------------------------------------------


def load_tokenizer(corpus_dir: Path) -> Learned:
    """Return the tokenizer of data/corpora/{corpus}; ValueError names the file that is missing or not understood."""
    path = corpus_dir / "tokenizer.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing; make it with: python -m bleuprint tokenize {corpus_dir.name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(data, dict) or "kind" not in data:
        raise ValueError(f"{path} holds no `kind` of tokenizer; valid: {', '.join(KINDS)}")
    choose("kind of tokenizer", data["kind"], KINDS, f"{path}: ")
    return validate(KINDS[data["kind"]], data, path)
