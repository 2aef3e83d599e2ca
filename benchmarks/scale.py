"""Tokenize and batch millions of synthetic pairs: seconds, and the most memory that all processes together hold.

    python benchmarks/scale.py [--pairs 200000] [--corpus wmt14-bpe] [--keep FOLDER]

The text has what costs memory in a real one: word types without end (each word is drawn by Zipf's law and spelt by its
rank, so that 4.5 million pairs have about two million types), commas and full stops on their words, some pairs that
cleaning drops. It teaches nothing. `bleuprint tokenize` runs on it as a user would run it; then the first batch of an
epoch is made, and in a process of its own every batch of one.

Memory: every 0.2 s we add up, over all processes of the command, the most that each has been resident in so far (VmHWM
in /proc): pages that they share count in each, and peaks need not have come together, so that all of them together
never held more. PSS, where such pages are divided among them, is what they held at the moment. Linux alone.
Bars: 4.5 million pairs under 2 GB; the first batch within 60 s.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from table import print_table
from tokenizing import linked_project

from bleuprint.corpus import Written, write_manifest
from bleuprint.files import sha256_of
from bleuprint.graph import load_params
from bleuprint.params import Splits

ROOT = Path(__file__).resolve().parents[1]
SMALL_SPLIT = 3_000  # pairs of validation and of each test set, as newstest
BLOCK = 10_000  # pairs that are drawn at once
EXPONENT = {"en": 1.4, "de": 1.33}  # of Zipf's law: about 0.8 and 1.5 million types in 110 million words
FREQUENT = 40  # the first ranks are equally likely: Zipf's law alone would make a third of all words the same
CONSONANTS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "w", "sch", "st")
SYLLABLES = [consonant + vowel for vowel in ("an", "e", "ei", "ü") for consonant in CONSONANTS]
MEGABYTE = 1 << 20


class Memory(NamedTuple):
    """Bytes: the peaks of all processes so far, and what they hold now."""

    peaks: int
    pss: int


def main() -> None:
    """Write the text, tokenize it, batch it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--corpus", default="wmt14-bpe")
    parser.add_argument("--keep", type=Path, help="folder for text and ids; else a temporary one")
    parser.add_argument("--batch", choices=("first", "every"), help=argparse.SUPPRESS)
    parser.add_argument("--tokenized", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.batch:
        return batch(chosen.tokenized, chosen.batch)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep.resolve() if chosen.keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        project = linked_project(folder)
        corpus = load_params(project / "params.yaml").corpora[chosen.corpus]
        raw, out = project / "data/raw" / corpus.dataset, project / "data/corpora" / chosen.corpus
        splits = load_params(project / "params.yaml").datasets[corpus.dataset].splits
        text = write_text(raw, splits, chosen.pairs)
        batching = [str(Path(__file__).resolve()), "--tokenized", str(out), "--batch"]
        commands = {
            "bleuprint tokenize": ["-m", "bleuprint", "tokenize", chosen.corpus],
            "the first batch of an epoch": [*batching, "first"],
            "every batch of an epoch": [*batching, "every"],
        }
        rows = []
        for name, words in commands.items():
            seconds, most = watched(project, words)
            rate = f"{chosen.pairs / seconds:,.0f}"
            rows.append((name, f"{seconds:.0f}", rate, most.peaks // MEGABYTE, most.pss // MEGABYTE))
    header = ("command", "seconds", "pairs/s", "sum of peaks, MB", "most PSS, MB")
    print_table(f"{chosen.pairs:,} synthetic pairs, {chosen.corpus}, {text / 1e9:.2f} GB of text", header, rows)


# --- text -------------------------------------------------------------------------------------------------------------


def write_text(raw: Path, splits: Splits, pairs: int) -> int:
    """Write all splits of the data set, unless they are there, with their manifest; return the train split's bytes."""
    raw.mkdir(parents=True, exist_ok=True)
    written: dict[str, Written] = {}
    for seed, split in enumerate(splits.all):
        count = pairs if split == splits.train else SMALL_SPLIT
        if not (raw / f"{split}.de").exists():
            with (raw / f"{split}.en").open("w") as english, (raw / f"{split}.de.new").open("w") as german:
                for lines in draw(np.random.default_rng(seed), count):
                    english.writelines(lines["en"])
                    german.writelines(lines["de"])
            (raw / f"{split}.de.new").rename(raw / f"{split}.de")
        names = [f"{split}.{language}" for language in ("en", "de")]
        written |= {name: Written(sha256_of(raw / name), count, 0) for name in names}
    write_manifest(raw, written)  # tokenize reads no files without one
    return sum((raw / f"{splits.train}.{language}").stat().st_size for language in ("en", "de"))


def draw(random: np.random.Generator, pairs: int) -> Iterator[dict[str, list[str]]]:
    """Yield blocks of lines of both languages: some 25 words each, at times a pair that no one would keep."""
    spell = {language: Spelling(language) for language in ("en", "de")}
    for begin in range(0, pairs, BLOCK):
        count = min(BLOCK, pairs - begin)
        lengths = np.clip(random.lognormal(3.1, 0.5, count).astype(int), 3, 95)
        faults = random.random(count)
        lines = {}
        for language in ("en", "de"):
            own = np.maximum(1, lengths + random.integers(-2, 3, count))
            own[faults < 0.002] = 130  # too many words
            if language == "de":
                own[faults > 0.998] = 0  # no words on one side
            ranks = random.zipf(EXPONENT[language], int(own.sum()))
            ranks = np.where(ranks <= FREQUENT, random.integers(1, FREQUENT + 1, len(ranks)), ranks)
            words = spell[language].words(ranks)
            ends = np.cumsum(own).tolist()
            commas = random.random(len(words)) < 0.05
            for place in np.flatnonzero(commas).tolist():
                words[place] += ","
            begins = [0, *ends[:-1]]
            sentences = [" ".join(words[i:j]) for i, j in zip(begins, ends, strict=True)]
            lines[language] = [f"{sentence}.\n" if sentence else "\n" for sentence in sentences]
        for place in np.flatnonzero((faults > 0.5) & (faults < 0.501)).tolist():
            lines["en"][place] = f"\u2028{lines['en'][place]}"  # two lines in one
        yield lines


class Spelling:
    """Spells a rank as a word: each its own, the frequent ones short, capitals here and there."""

    def __init__(self, language: str) -> None:
        self.syllables = SYLLABLES if language == "en" else SYLLABLES[::-1]
        self.known: dict[int, str] = {}

    def words(self, ranks: np.ndarray) -> list[str]:
        """Return a word for each rank; those of frequent ranks are kept."""
        return [self.known[rank] if rank in self.known else self.spelt(rank) for rank in ranks.tolist()]

    def spelt(self, rank: int) -> str:
        """Return the rank in syllables, as a number in base 64."""
        left, word = rank, ""
        while left:
            left, digit = divmod(left, 64)
            word += self.syllables[digit * 37 % 64]
        word = word.capitalize() if rank % 5 == 0 else word
        if len(self.known) < 500_000:
            self.known[rank] = word
        return word


# --- measuring --------------------------------------------------------------------------------------------------------


def batch(corpus: Path, which: str) -> None:
    """Make the first batch of the first epoch, as training does before its first update, or every one."""
    from bleuprint.batching import collate, epoch_batches, open_pairs
    from bleuprint.params import TokenBatches

    pairs = open_pairs(corpus, "train")
    found = epoch_batches(pairs, TokenBatches(kind="tokens", max_tokens=3125, batches_per_step=8), seed=1, epoch=1)
    padded = sum(collate(pairs, rows).target.numel() for rows in (found[:1] if which == "first" else found))
    print(f"{len(pairs):,} pairs, {len(pairs.target.flat):,} target tokens, {len(found):,} batches, {padded:,} read")


def watched(project: Path, words: list[str]) -> tuple[float, Memory]:
    """Run `python WORDS` in a project, with the package that stands here; return seconds and the most memory held."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"}
    most, over = Memory(0, 0), threading.Event()
    began = time.perf_counter()
    command = subprocess.Popen([sys.executable, *words], cwd=project, env=environment)

    def watch() -> None:
        nonlocal most
        while not over.wait(0.2):
            now = memory(command.pid)
            most = Memory(max(most.peaks, now.peaks), max(most.pss, now.pss))

    watcher = threading.Thread(target=watch)
    watcher.start()
    failed = command.wait()
    seconds = time.perf_counter() - began
    over.set()
    watcher.join()
    if failed:
        sys.exit(f"{' '.join(words)} failed")
    return seconds, most


def memory(pid: int) -> Memory:
    """Return what a process and all below it hold; one that ends meanwhile holds nothing."""
    peaks = pss = 0
    for member in family(pid):
        try:
            peak = re.search(r"^VmHWM:\s+(\d+)", Path(f"/proc/{member}/status").read_text(), re.MULTILINE)
            share = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{member}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        if peak and share:  # a process that has just ended has neither
            peaks, pss = peaks + int(peak[1]) * 1024, pss + int(share[1]) * 1024
    return Memory(peaks, pss)


def family(pid: int) -> list[int]:
    """Return a process and all that it started, directly or not."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [pid, *(member for child in " ".join(texts).split() for member in family(int(child)))]


if __name__ == "__main__":
    main()
