"""A disk that is full or read-only ends each stage with one sentence; once it is not, the same command ends well."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bleuprint.console import sentence
from bleuprint.files import atomic_directory, sha256_of, write_text
from reliability import Record

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "src"),
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:1",  # nobody there: the disk is what is looked at
}
STAGES = {  # command, what it makes
    "download": (["download", "toy"], "data/raw/toy"),
    "tokenize": (["tokenize", "toy-words"], "data/corpora/toy-words"),
    "train": (["train", "toy-1"], "runs/toy-1/train"),
    "average": (["average", "toy-1"], "runs/toy-1/average"),
    "decode": (["decode", "toy-1"], "runs/toy-1/decode"),
    "score": (["score", "toy-1"], "results"),
    "attend": (["attend", "toy-1"], "results/toy-1.attention.json"),
    "report": (["report"], "reports/demo"),
}
SPACE = r"; (?:more than )?[\d,]+ bytes are needed, and beside the [\d,]+ written [\d,]+ are free"
FULL = rf"error: (\S+): No space left on device{SPACE}\n$"
WEIGHTS = rf"error: (\S+) cannot be written: [^\n]*{SPACE}\n$"  # the libraries that write them have errors of their own
MIB = 1 << 20

needs_mount = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None,
    reason="only root can mount a disk",
)


@contextmanager
def disk(where: Path, size: int) -> Iterator[Path]:
    """Mount a disk of this size in memory; skips where that is not allowed."""
    where.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


def make_project(root: Path) -> Path:
    """Make a project with a toy table of 60 updates."""
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    shutil.copy(ROOT / "params.yaml", root)
    (root / "reports").mkdir()
    shutil.copy(ROOT / "reports/deviations.json", root / "reports")  # of the report, and outside the graph
    run(root, "use", "demo")
    yaml = YAML(typ="safe", pure=True)
    params = yaml.load(root / "params.yaml")
    params["datasets"]["toy"]["pairs"] = {"train": 300, "val": 50, "test": 50}
    params["experiments"]["toy"]["train"] |= {"max_steps": 60, "checkpoint_every_steps": 5}
    with (root / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    return root


def run(root: Path, *words: str, fails: bool = False) -> str:
    """Run a command to its end and return its messages; it must end well, or must not."""
    done = subprocess.run(
        [sys.executable, "-m", "bleuprint", *words], cwd=root, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def fill(root: Path, free: int) -> Path:
    """Fill the disk until no more than `free` bytes are left, and return what fills it."""
    filler = root / "filler"
    size = shutil.disk_usage(root).free - free
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return filler


def bytes_of(root: Path, made: str) -> dict[str, str]:
    """Return the sha256 of what a stage makes, but for what differs by machine and time."""
    files = [path for path in (root / made).rglob("*") if path.is_file()]
    timed = ("provenance", "metrics.jsonl", "history.csv", "attention")  # the last is made after what it lies beside
    return {
        str(path.relative_to(root)): sha256_of(path) for path in files if not any(word in path.name for word in timed)
    }


def room_for(stage: str, finished: Path) -> int:
    """Return the bytes to leave free: less than a stage needs, for a training as much as its second epoch does not."""
    if stage == "train":
        state = next((finished / "work/train").rglob("state.pt")).stat().st_size
        return 2 * state
    return {"download": 16, "tokenize": 16, "average": 64, "decode": 4, "score": 0, "attend": 0, "report": 16}[
        stage
    ] * 1024


@pytest.mark.slow_faults
@needs_mount
def test_every_stage_survives_a_full_disk(tmp_path: Path, record: Record) -> None:
    finished = make_project(tmp_path / "finished")
    for words, _ in STAGES.values():
        run(finished, *words)
    with disk(tmp_path / "disk", 64 * MIB) as mounted:
        root = make_project(mounted / "project")
        for stage, (words, made) in STAGES.items():
            filler = fill(root, room_for(stage, finished))
            told = run(root, *words, fails=True)
            assert re.search(FULL, told) or re.search(WEIGHTS, told), f"{stage}: {told}"
            assert "Traceback" not in told
            assert "Logging error" not in told
            assert not list(root.rglob("*.partial-*"))
            assert stage == "train" or not bytes_of(root, made), "nothing half-made is taken for whole"
            filler.unlink()
            told = run(root, *words)
            assert stage != "train" or "resuming after step" in told, told
            found, expected = bytes_of(root, made), bytes_of(finished, made)
            assert found.keys() == expected.keys()
            assert stage == "report" or found == expected, stage  # the report tells times
            record("fault", f"full disk: {stage}", 1, 1)


@pytest.mark.slow_faults
@needs_mount
def test_every_stage_names_what_a_read_only_disk_refuses(tmp_path: Path, record: Record) -> None:
    with disk(tmp_path / "disk", 8 * MIB) as mounted:
        root = make_project(mounted / "project")
        (root / "work/logs").mkdir(parents=True)
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
        for stage, (words, _) in STAGES.items():
            told = run(root, *words, fails=True)
            assert re.fullmatch(r"error: \S*work/logs/\S+: Read-only file system\n", told), told
            record("fault", f"read-only disk: {stage}", 1, 1)


@needs_mount
def test_a_download_into_a_full_disk_says_what_is_needed(tmp_path: Path, record: Record) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/a.en").write_bytes(b"text\n" * 40_000)
    from bleuprint.corpus import fetch, progress_bar

    with disk(tmp_path / "disk", MIB) as mounted:
        fill(mounted, 8192)
        with progress_bar() as bar, pytest.raises(OSError, match="No space") as caught:
            fetch("a", "a.en", lambda path: None, mounted, [(tmp_path / "mirror").as_uri()], bar)
        told = f"error: {sentence(caught.value)}\n"
        assert re.search(FULL, told), told
        assert "a.part: " in told
        assert "; 200,000 bytes are needed, and beside the 8,192 written 0 are free" in told
    record("fault", "full disk: what a mirror sends", 1, 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_the_old_file_stays_and_a_quota_is_told_as_a_full_disk(number: int, tmp_path: Path) -> None:
    """Raised by hand: a quota needs a file system that counts."""
    write_text(tmp_path / "a", "old")
    with pytest.raises(OSError) as caught:  # noqa: PT011 PT012 SIM117  the sentence is looked at below
        with atomic_directory(tmp_path / "b") as directory:
            (directory / "c").write_bytes(bytes(1000))
            raise OSError(number, os.strerror(number))
    told = sentence(caught.value)
    assert re.fullmatch(rf"{tmp_path}/b: {os.strerror(number)}{SPACE}", told), told
    assert "more than 1,000 bytes are needed, and beside the 1,000 written" in told
    assert (tmp_path / "a").read_text() == "old"
    assert not (tmp_path / "b").exists()


def test_an_error_that_names_no_file_names_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    told = sentence(OSError(errno.ENOSPC, "No space left on device"))
    assert re.fullmatch(rf"No space left on device in {tmp_path}; [\d,]+ bytes are free there", told)
