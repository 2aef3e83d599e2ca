"""A bit flips on the disk: whoever reads the file says so, or it was a bit that says nothing."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
import torch
from copy_task import corpus, finished, recipe_for
from torch import nn

from bleuprint.checkpoint import average_run, load_state, load_weights, save_state
from bleuprint.graph import load_params
from bleuprint.intact import check_corpus, check_raw
from bleuprint.tokenizing import build_corpus
from bleuprint.toy import generate
from bleuprint.training import train_run, work_directory
from clones import run
from reliability import Record

__all__ = ["corpus", "finished"]  # fixtures

ROOT = Path(__file__).parents[3]
FLIPS = 100  # in each kind of file


def flip(path: Path, bit: int) -> None:
    """Turn one bit of a file round, as a disk does: its time stays."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flipped(path: Path, times: int) -> Iterator[int]:
    """Yield bits, drawn anew each time, of which the file has the other value meanwhile."""
    for _ in range(times):
        bit = random.randrange(path.stat().st_size * 8)
        flip(path, bit)
        yield bit
        flip(path, bit)


def same(left: Any, right: Any) -> bool:
    """Return whether nested tensors and plain values are equal."""
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def said_by(read: Callable[[], Any]) -> tuple[str | None, Any]:
    """Return the sentence with which a file is refused, or what was read."""
    try:
        return None, read()
    except ValueError as error:
        return str(error), None


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small toy data set, raw and as a corpus."""
    root, params = tmp_path_factory.mktemp("data"), load_params(ROOT / "params.yaml")
    spec = params.datasets["toy"].model_copy(update={"pairs": {"train": 100, "val": 10, "test": 10}})
    generate(spec, root / "raw/toy")  # type: ignore[arg-type]
    build_corpus(params.corpora["toy-words"], spec.splits, root / "raw/toy", root / "corpora/toy-words")
    return root


def test_a_flipped_bit_of_raw_data_is_named(data: Path, record: Record) -> None:
    directory = data / "raw/toy"
    check_raw(directory)
    files = [path for path in sorted(directory.iterdir()) if path.name != "manifest.json"]
    for path in files:
        for _ in flipped(path, FLIPS // 10):
            with pytest.raises(ValueError, match=rf"{path.name} is damaged.*python -m bleuprint download toy"):
                check_raw(directory)
    record("fault", "a flipped bit in data/raw", FLIPS // 10 * len(files), FLIPS // 10 * len(files))


def test_a_flipped_bit_of_token_files_is_named(data: Path, record: Record) -> None:
    directory = data / "corpora/toy-words"
    check_corpus(directory)
    files = [path for path in sorted(directory.iterdir()) if path.name != "manifest.json"]
    for path in files:
        for _ in flipped(path, FLIPS // 10):
            with pytest.raises(ValueError, match=rf"{path.name} is damaged.*python -m bleuprint tokenize toy"):
                check_corpus(directory)
    record("fault", "a flipped bit in data/corpora", FLIPS // 10 * len(files), FLIPS // 10 * len(files))


def test_a_flipped_bit_of_a_manifest_changes_no_model(data: Path, record: Record) -> None:
    """What decides a model or the data is compared with the files; what only tells (`dropped`) may be wrong."""
    directory = data / "corpora/toy-words"
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    noticed = 0
    for _ in flipped(path, FLIPS):
        refusal, _ = said_by(lambda: check_corpus(directory))
        if refusal is not None:
            assert "manifest.json" in refusal
            noticed += 1
        else:
            found = json.loads(path.read_text())
            assert {k: found[k] for k in ("files", "vocabulary", "pairs")} == {
                k: manifest[k] for k in ("files", "vocabulary", "pairs")
            }
    assert noticed > FLIPS / 2
    record("fault", "a flipped bit in a corpus's manifest: noticed, or without effect", FLIPS, FLIPS)


@pytest.mark.parametrize("key", ["source", "target"])
def test_a_vocabulary_that_is_not_the_files_is_refused(data: Path, tmp_path: Path, key: str) -> None:
    directory = tmp_path / "toy-words"
    shutil.copytree(data / "corpora/toy-words", directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["vocabulary"][key] += 1
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="it has other sizes than the files beside it"):
        check_corpus(directory)


# --- states and weights -----------------------------------------------------------------------------------------------


def test_a_flipped_bit_of_a_state_is_noticed_or_says_nothing(tmp_path: Path, record: Record) -> None:
    """torch.load itself looks at no checksum; zip files have bits that nobody reads, such as their times."""
    model = nn.Linear(30, 30)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 30)).sum().backward()
    optimizer.step()
    path = tmp_path / "state.pt"
    progress = {"step": 7, "best": 1.5, "sha256": {"a": "b"}}
    state = {"progress": progress, "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    save_state(state, path)
    noticed = 0
    for bit in flipped(path, 10 * FLIPS):
        refusal, found = said_by(lambda: load_state(path))
        assert same(found, state) if refusal is None else str(path) in refusal, bit
        noticed += refusal is not None
    assert noticed > 8 * FLIPS
    record("fault", "a flipped bit in a training's state: noticed, or without effect", 10 * FLIPS, 10 * FLIPS)


def test_a_flipped_bit_of_weights_is_named(finished: Path, tmp_path: Path, record: Record) -> None:
    shutil.copytree(finished / "weights", tmp_path / "weights")
    path = sorted((tmp_path / "weights").glob("step-*"))[-1]
    for bit in flipped(path, FLIPS):
        with pytest.raises(ValueError, match=rf"{path.name} is damaged"):
            average_run(tmp_path / "weights", 2, tmp_path / "average.safetensors")
        assert not (tmp_path / "average.safetensors").exists(), bit
    record("fault", "a flipped bit in the weights of a training", FLIPS, FLIPS)


def test_a_flipped_bit_of_averaged_weights_is_noticed(finished: Path, tmp_path: Path, record: Record) -> None:
    path = tmp_path / "weights.safetensors"
    average_run(finished / "weights", 2, path)
    weights = load_weights(path)
    noticed = 0
    for bit in flipped(path, 3 * FLIPS):
        refusal, found = said_by(lambda: load_weights(path))  # not refused: a bit of the word `sha256`
        assert same(found, weights) if refusal is None else str(path) in refusal, bit
        noticed += refusal is not None
    assert noticed > 2.9 * FLIPS
    record("fault", "a flipped bit in averaged weights: noticed, or without effect", 3 * FLIPS, 3 * FLIPS)


def test_weights_that_changed_since_their_epoch_are_not_published(corpus: Path, tmp_path: Path, record: Record) -> None:
    """Killed before the end; what was kept of an earlier epoch is damaged; the same command finds it at the end."""
    recipe = recipe_for(corpus, {"keep_last": 3})

    class CutOff(Exception):
        pass

    def observe(step: int, metrics: object) -> None:
        if step == 24:
            raise CutOff

    work = work_directory(tmp_path / "work", "copy-1", recipe)
    with pytest.raises(CutOff):
        train_run(recipe, work, tmp_path / "out", observe)
    path = sorted((work / "weights").glob("step-*"))[-1]
    flip(path, path.stat().st_size * 8 - 100)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged; remove .* to train the run afresh"):
        train_run(recipe, work, tmp_path / "out", lambda step, metrics: None)
    assert not (tmp_path / "out").exists()
    record("fault", "a flipped bit in the weights that a training under way keeps", 1, 1)


# --- by the commands --------------------------------------------------------------------------------------------------


def test_every_stage_looks_at_what_it_reads(toy_project: Path, record: Record) -> None:
    """And DVC's cache, which gives back what it has: the stage that reads it sees it."""
    weights = sorted((toy_project / "runs/toy-1/train/weights").glob("step-*"))[-1]
    faults = {
        "tokenize toy-words": toy_project / "data/raw/toy/train.de",
        "train toy-1": toy_project / "data/corpora/toy-words/train.target.ids.npy",
        "average toy-1": weights,
        "decode toy-1": toy_project / "runs/toy-1/average/weights.safetensors",
    }
    for command, path in faults.items():
        bit = path.stat().st_size * 8 - 100
        flip(path, bit)
        said = run(toy_project, "python", "-m", "bleuprint", *command.split(), fails=True)
        assert f"error: {path.relative_to(toy_project)} is damaged" in said
        assert "Traceback" not in said
        flip(path, bit)
    cached = object_of(toy_project, faults["train toy-1"])
    flip(cached, cached.stat().st_size * 8 - 100)
    shutil.rmtree(toy_project / "data/corpora/toy-words")
    run(toy_project, "dvc", "checkout", "--force", "tokenize@toy-words")
    said = run(toy_project, "python", "-m", "bleuprint", "train", "toy-1", fails=True)
    assert "error: data/corpora/toy-words/train.target.ids.npy is damaged" in said
    record("fault", "a flipped bit before tokenize, train, average, decode, and in DVC's cache", 5, 5)


def object_of(project: Path, file: Path) -> Path:
    """Return where DVC's cache keeps the bytes of a file of the workspace."""
    digest = md5(file.read_bytes()).hexdigest()
    return project / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
