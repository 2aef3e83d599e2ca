"""A text ten times as long takes no more memory: each part alone, and the stage, by what the system gave its processes.

The texts are of few words: how many different ones there are is the one thing that memory may grow with.
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from specs import ROOT, start
from test_tokenizers import ENGLISH, GERMAN, write_raw

from bleuprint import segmentation
from bleuprint.idstore import characters_writer, writer
from bleuprint.learning import learn_merges, texts_with
from bleuprint.lines import iterate_lines, iterate_pairs
from bleuprint.params import BasicTokenizer, BpeTokenizer
from bleuprint.segmentation import map_chunks

MB = 1 << 20
TIMES = 10


def peak_of(work: Callable[..., object], *arguments: object) -> int:
    """Return the most bytes that Python and numpy had allocated at once while `work` ran."""
    tracemalloc.start()
    work(*arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def write_lines(path: Path, count: int) -> Path:
    path.write_text("".join(f"{line}\n" for line in (ENGLISH * (count // 10))), encoding="utf-8")
    return path


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / f"{count}.en", count) for count in (20_000, 20_000 * TIMES)]
    few, many = (peak_of(lambda path: sum(map(len, iterate_lines(path))), path) for path in paths)
    assert many < 1.2 * few
    assert many < paths[1].stat().st_size / 20


def test_pairs_are_read_one_by_one_and_counted_only_where_they_are_unequal(tmp_path: Path) -> None:
    for language in ("en", "de"):
        write_lines(tmp_path / f"train.{language}", 50_000)
    pairs = iterate_pairs(tmp_path, "train", "en", "de")
    assert peak_of(lambda: list(islice(pairs, 3))) < MB
    assert peak_of(lambda: sum(1 for _ in pairs)) < MB
    with (tmp_path / "train.de").open("a") as file:
        file.write("more\n")

    def refused() -> None:
        with pytest.raises(ValueError, match=r"train\.en has 50000 lines and .*train\.de has 50001"):
            sum(1 for _ in iterate_pairs(tmp_path, "train", "en", "de"))

    assert peak_of(refused) < MB


def test_ids_go_to_the_disk_piece_by_piece(tmp_path: Path) -> None:
    piece = [[4] * 25] * 1_000

    def write(pieces: int) -> None:
        with writer(tmp_path, "train.source", 37_000) as append, characters_writer(tmp_path, "train.source") as lengths:
            for _ in range(pieces):
                append(piece)
                lengths(np.full(len(piece), 80))

    few, many = (peak_of(write, pieces) for pieces in (20, 20 * TIMES))
    assert len(np.load(tmp_path / "train.source.ids.npy", mmap_mode="r")) == 20 * TIMES * 25_000
    assert many < 1.2 * few


def test_a_tokenizer_is_learnt_from_counts_and_not_from_the_text() -> None:
    words = Counter(word for line in (*ENGLISH, *GERMAN) for word in line.split())
    often = Counter({word: count * 2_000 for word, count in words.items()})
    assert sum(map(len, texts_with(often))) > MB
    few, many = (peak_of(learn_merges, counts, 60) for counts in (words, often))
    assert many < few + MB


QUICK = BasicTokenizer(kind="basic")
SLOW = BpeTokenizer(kind="bpe", text="tok", merges=60, min_frequency=1)


@pytest.mark.parametrize("settings", [QUICK, SLOW])
def test_one_process_reads_no_more_chunks_than_show_whether_there_are_many(
    settings: BasicTokenizer | BpeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segmentation, "usable_cores", lambda: 1)
    read: list[int] = []

    def chunks() -> Iterator[int]:
        for number in range(10 * segmentation.POOL_FROM_CHUNKS):
            read.append(number)
            yield number

    for place, _ in enumerate(map_chunks(settings, abs, chunks())):
        assert len(read) <= max(place + 1, segmentation.POOL_FROM_CHUNKS)


# --- what the system gave ---------------------------------------------------------------------------------------------

# The most that this process was resident in, and any of those that it started, in bytes. ru_maxrss would have for this
# process what its parent had when it was started.
MOST = """
def most():
    import re, resource
    own = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]
    print(int(own) * 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""
MAP = """
from bleuprint.segmentation import map_in_processes
chunks = (" " * 2**20 for _ in range({count}))
assert sum(map_in_processes(len, chunks, processes=2)) == {count} * 2**20
most()
"""
BUILD = """
from pathlib import Path
from test_tokenizers import BASIC, SPLITS, make_corpus
from bleuprint.tokenizing import build_corpus
build_corpus(make_corpus(BASIC), SPLITS, Path("{raw}"), Path("{raw}-ids"))
most()
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def most_of(root: Path, code: str) -> list[int]:
    """Return what `most` prints at the end of a program."""
    done = start(root, "-c", MOST + code, PYTHONPATH=f"{ROOT / 'src'}:{ROOT / 'tests/unit'}")
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


@linux
def test_neither_side_of_several_processes_keeps_what_is_done(tmp_path: Path) -> None:
    few, many = (most_of(tmp_path, MAP.format(count=count)) for count in (20, 20 * TIMES))
    for before, after in zip(few, many, strict=True):
        assert after < before + 30 * MB, "180 MB more went through"


@linux
def test_the_stage_keeps_neither_text_nor_words_nor_ids(tmp_path: Path) -> None:
    most = []
    for lines in (10_000, 10_000 * TIMES):
        write_raw(tmp_path / str(lines), train=(ENGLISH * (lines // 10), GERMAN * (lines // 10)))
        most.append(most_of(tmp_path, BUILD.format(raw=lines))[0])
        ids = np.load(tmp_path / f"{lines}-ids/train.source.ids.npy", mmap_mode="r")
        assert len(ids) > 8 * lines
    assert most[1] < most[0] + 15 * MB, "its words take more than 100 MB"
