"""The download stage of parallel text files in any languages: fetch as corpus.py does, and hold out what is not there.

Of two files alone, pairs for validation and tests are taken out of them. Which ones follows from the seed and a pair's
number: another release of Python or of numpy draws the same.
"""

import hashlib
import heapq
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bleuprint.checksums import Known, read_known, record_new
from bleuprint.corpus import (
    Written,
    check_line_counts,
    fetch,
    mirrors_in_order,
    progress_bar,
    split_of,
    unpack,
    warn_of_carriage_returns,
    write_manifest,
    write_plain,
)
from bleuprint.datasets import Archive, HeldOut, MirroredDataset, Splits, TextFile, TextsDataset
from bleuprint.files import atomic_directory

if TYPE_CHECKING:
    from rich.progress import Progress

log = logging.getLogger(__name__)


def download(dataset: TextsDataset, out: Path, cache: Path, record: Path, places: Sequence[str]) -> None:
    """Make data/raw/{dataset} from the first of `places` (URLs) that has each file; `record` has checksums.

    ValueError names the file and what is wrong with it: in no place, another sha256, broken gzip, not UTF-8, unequal
    line counts, fewer pairs than are held out.
    """
    for name in dataset.files:
        split_of(name, dataset.splits)
    known = read_known(record)
    cache.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        packed = {name: fetch_text(name, file, known, cache, places, bar) for name, file in dataset.files.items()}
    with atomic_directory(out) as directory:
        written = {
            name: unpack(packed[name], file.path.endswith(".gz"), directory / name)
            for name, file in dataset.files.items()
        }
        warn_of_carriage_returns(out, written.values())
        if dataset.held_out:
            written = hold_out(directory, written, dataset.splits, dataset.held_out)
        check_line_counts(dataset.splits, {name: item.lines for name, item in written.items()})
        write_manifest(directory, written)
    record_new(known, {name: packed[name] for name, file in dataset.files.items() if file.sha256 is None})


def places_in_order(dataset: TextsDataset, environment: Mapping[str, str]) -> list[str]:
    """Return the places as URLs, with BLEUPRINT_MIRROR in front where one is on the web; ValueError if it is none."""
    urls = tuple(place if "://" in place else Path(place).absolute().as_uri() for place in dataset.places)
    if not any(url.startswith("http") for url in urls):
        return list(urls)
    mirrored = MirroredDataset(kind="mirrored", mirrors=urls, splits=dataset.splits, files={})
    return mirrors_in_order(mirrored, environment)


def fetch_text(name: str, file: TextFile, known: Known, cache: Path, places: Sequence[str], bar: "Progress") -> Path:
    """Return a file from the cache or a place, verified by what is known of it. ValueError as corpus.fetch."""
    as_archive = Archive(path=file.path, bytes=None, sha256=file.sha256, md5=None)
    if not known.has_checksum(name, as_archive):  # nothing would tell an old copy, or one half, from the right file
        for leftover in (cache / name, cache / f"{name}.part"):
            leftover.unlink(missing_ok=True)
    return fetch(name, file.path, partial(known.mistake_in, name, as_archive), cache, places, bar)


# --- held-out pairs ---------------------------------------------------------------------------------------------------


def hold_out(directory: Path, written: Mapping[str, Written], splits: Splits, held_out: HeldOut) -> dict[str, Written]:
    """Replace the train files of a directory by those of all splits; return what is written of each.

    A pair of which one side stands in a held-out pair too would give its answer away: it is left out, and counted.
    ValueError where files have unequal numbers of lines, or nothing is left to train on.
    """
    counts = {name: item.lines for name, item in written.items()}
    if len(set(counts.values())) != 1:
        found = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"parallel files must have equal line counts, but there is {found}")
    total = next(iter(counts.values()))
    rows = draw_rows(total, held_out, splits)
    whole = {name: (directory / name).rename(directory / f"whole-{name}") for name in written}
    drawn = {row for split in rows.values() for row in split}
    told = rows_told(whole.values(), drawn)
    train = [row not in drawn and row not in told for row in range(total)]
    if not any(train):
        raise ValueError(
            f"held_out leaves nothing to train on: {total} pairs, of which {len(told)} repeat one held out"
        )
    log.info("%s: %d of %d pairs; %d left out that repeat one held out", splits.train, sum(train), total, len(told))
    result = {}
    for name, path in whole.items():
        suffix = name.removeprefix(splits.train)
        for split, wanted in {splits.train: train, **{it: flags(total, rows[it]) for it in rows}}.items():
            result[f"{split}{suffix}"] = write_plain(chosen(path, wanted), directory / f"{split}{suffix}", path)
        path.unlink()
    return result


def draw_rows(total: int, held_out: HeldOut, splits: Splits) -> dict[str, list[int]]:
    """Return the rows of each split that is held out, of 0 to `total`; ValueError where there are too few."""
    needed = sum(held_out.pairs.values())
    if needed >= total:
        raise ValueError(f"held_out takes {needed} pairs of {total}: none is left to train on")

    def lot(row: int) -> bytes:
        return hashlib.sha256(f"{held_out.seed} {row}".encode()).digest()

    drawn = iter(heapq.nsmallest(needed, range(total), key=lot))
    return {
        split: sorted(next(drawn) for _ in range(held_out.pairs[split])) for split in (splits.validation, *splits.tests)
    }


def rows_told(paths: Iterable[Path], drawn: Collection[int]) -> set[int]:
    """Return the rows, none of them drawn, of which any file's line is also the line of a drawn row in that file."""
    told: set[int] = set()
    for path in paths:
        with path.open("rb") as file:
            held = {line for row, line in enumerate(file) if row in drawn}
        with path.open("rb") as file:
            told |= {row for row, line in enumerate(file) if line in held and row not in drawn}
    return told


def flags(total: int, rows: Sequence[int]) -> list[bool]:
    """Return for each of `total` rows whether it is one of `rows`."""
    wanted = set(rows)
    return [row in wanted for row in range(total)]


def chosen(path: Path, wanted: Sequence[bool]) -> Iterator[bytes]:
    """Yield the lines of a file that are wanted, with their ends."""
    with path.open("rb") as file:
        for line, is_wanted in zip(file, wanted, strict=True):
            if is_wanted:
                yield line
