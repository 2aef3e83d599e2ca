"""Data sets and corpora by name: those that a result was scored on are found, or made again below work/."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bleuprint.datasets import ArchivesDataset, Dataset, MirroredDataset, TextsDataset
from bleuprint.files import sha256_of
from bleuprint.graph import Params

log = logging.getLogger(__name__)


class Places(NamedTuple):
    """Where committed files and data lie; `work` is where what is missing is made."""

    results: Path
    reports: Path
    readme: Path
    raw: Path
    corpora: Path
    downloads: Path
    checksums: Path
    work: Path


def make_dataset(spec: Dataset, out: Path, cache: Path, record: Path) -> None:
    """Fetch and verify a data set, or generate it, into `out`.

    `cache` keeps what was fetched, `record` the checksums of archives that publish none. ValueError where it cannot be.
    """
    from bleuprint import archives, corpus, texts, toy

    if isinstance(spec, MirroredDataset):
        corpus.download(spec, out, cache, corpus.mirrors_in_order(spec, os.environ))
    elif isinstance(spec, ArchivesDataset):
        archives.download(spec, out, cache, record, corpus.mirrors_in_order(spec, os.environ))
    elif isinstance(spec, TextsDataset):
        texts.download(spec, out, cache, record, texts.places_in_order(spec, os.environ))
    else:
        toy.generate(spec, out)


def find_raw(dataset: str, wanted: str, params: Params, places: Places) -> Path:
    """Return the directory of a data set whose manifest.json has the sha256 `wanted`, fetched where there is none.

    Where what is fetched has another one it is returned all the same: whoever compares says so. ValueError where it
    cannot be had.
    """
    return find_or_make(
        [places.raw / dataset, places.work / "raw" / dataset],
        wanted,
        lambda out: make_dataset(
            params.datasets[dataset], out, places.downloads / dataset, places.checksums / f"{dataset}.yaml"
        ),
    )


def find_corpus(name: str, wanted: str, raw: Path, params: Params, places: Places) -> Path:
    """Return the directory of a corpus, as `find_raw`; it is tokenised from `raw` where there is none."""
    from bleuprint.tokenizing import build_corpus

    spec = params.corpora[name]
    splits = params.datasets[spec.dataset].splits
    candidates = [places.corpora / name, places.work / "corpora" / name]
    return find_or_make(candidates, wanted, lambda out: build_corpus(spec, splits, raw, out))


def find_or_make(candidates: Sequence[Path], wanted: str, make: Callable[[Path], None]) -> Path:
    """Return the first directory whose manifest.json has the sha256 `wanted`; else make the last one and return it."""
    for directory in candidates:
        manifest = directory / "manifest.json"
        if manifest.is_file() and sha256_of(manifest) == wanted:
            return directory
    first, out = candidates[0], candidates[-1]
    log.warning("%s is %s: making %s", first, "not what was scored" if first.is_dir() else "not there", out)
    make(out)
    return out
