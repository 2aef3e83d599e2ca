"""DVC's list of who works here, without those who no longer do; and its dvc.lock, which a kill may cut off."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.fs import localfs
from dvc.lock import LockError, make_lock
from dvc.rwlock import rwlock
from dvc.utils.serialize import dumps_yaml

from bleuprint.engines import dvc_kept_out, forget_killed, list_of_dvc, mend_lock_file, recorded, snakemake_alone


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[int]:
    """Run a process in another folder, which may have got the number of a killed one; return its number."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder, stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that this process works in."""
    root = tmp_path / "project"
    list_of_dvc(root).parent.mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


def ended() -> int:
    """Return the number of a process that is over."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def dvc_writes(root: Path, path: str) -> None:
    """Enter and leave DVC's list as a stage that writes `path`; LockError where it may not."""
    with rwlock(str(list_of_dvc(root).parent), localfs, "dvc repro", [], [str(root / path)], hardlink=False):
        pass


def test_only_who_works_here_stays_in_the_list(project: Path, elsewhere: int) -> None:
    here, gone = {"pid": os.getpid(), "cmd": "dvc repro"}, {"pid": ended(), "cmd": "dvc repro"}
    other = {"pid": elsewhere, "cmd": "dvc repro"}
    written = {"write": {"/a": here, "/b": gone, "/c": other}, "read": {"/d": [gone, here], "/e": [other]}}
    list_of_dvc(project).write_text(json.dumps(written))
    assert forget_killed(project) == 4
    assert json.loads(list_of_dvc(project).read_text()) == {"write": {"/a": here}, "read": {"/d": [here]}}
    assert forget_killed(project) == 0


def test_a_number_that_another_process_has_now_blocks_nobody(project: Path, elsewhere: int) -> None:
    killed = {"pid": elsewhere, "cmd": "dvc repro"}
    list_of_dvc(project).write_text(json.dumps({"write": {str(project / "data/raw/toy"): killed}, "read": {}}))
    with pytest.raises(LockError):
        dvc_writes(project, "data/raw/toy")
    with dvc_kept_out(project):
        pass
    dvc_writes(project, "data/raw/toy")


@pytest.mark.parametrize("text", ["", '{"write": {"/a": {"pid": 1, '])
def test_a_list_that_was_cut_off_is_begun_anew(project: Path, text: str) -> None:
    list_of_dvc(project).write_text(text)
    assert forget_killed(project) == 1
    dvc_writes(project, "data/raw/toy")


def test_dvc_may_write_only_where_no_snakemake_is(project: Path) -> None:
    with dvc_kept_out(project), pytest.raises(LockError, match="snakemake"):
        dvc_writes(project, "runs/toy-1/train/weights")
    dvc_writes(project, "runs/toy-1/train/weights")


def test_snakemake_is_kept_out_while_dvc_writes(project: Path) -> None:
    with (
        rwlock(str(list_of_dvc(project).parent), localfs, "dvc repro", [], [str(project / "data/raw")], hardlink=False),
        pytest.raises(ValueError, match=r"DVC works in .*; wait until it ends, or end it"),
        dvc_kept_out(project),
    ):
        pass


def test_of_two_snakemakes_one_is_refused(project: Path) -> None:
    with (
        snakemake_alone(project),
        pytest.raises(ValueError, match=r"another snakemake works in .*; wait until it ends, or end it"),
        snakemake_alone(project),
    ):
        pass
    with snakemake_alone(project):
        pass


# --- dvc.lock ---------------------------------------------------------------------------------------------------------

HASHED = {"path": "data/raw/toy", "hash": "md5", "md5": "0a" * 16, "size": 3}


def lock_file(**seeds: int) -> str:
    """Return a dvc.lock as DVC writes it, of stages with these seeds."""
    stages = {
        name: {"cmd": f"make {name}", "deps": [HASHED], "params": {"params.yaml": {"seed": seed}}, "outs": [HASHED]}
        for name, seed in seeds.items()
    }
    return dumps_yaml({"schema": "2.0", "stages": stages})


BEFORE, WRITTEN = lock_file(download=1, tokenize=1), lock_file(download=2, train=2, tokenize=2)


@pytest.fixture
def cut_off(project: Path) -> Callable[[int], dict[str, Any]]:
    """Return what cuts WRITTEN off in a project that has BEFORE in its last commit, and returns the mended stages."""
    path = project / "dvc.lock"
    path.write_text(BEFORE)
    for command in ("init --quiet", "add dvc.lock", "-c user.name=a -c user.email=a@b commit --quiet --message state"):
        subprocess.run(["git", *command.split()], check=True)

    def cut(at: int) -> dict[str, Any]:
        path.write_text(WRITTEN[:at])
        mend_lock_file(project)
        stages = recorded(path.read_text())
        assert stages is not None, at
        return stages

    return cut


def test_a_dvc_lock_that_was_cut_off_has_the_last_commits_stages_behind_the_cut(
    cut_off: Callable[[int], dict[str, Any]],
) -> None:
    before, written = recorded(BEFORE), recorded(WRITTEN)
    assert before is not None
    assert written is not None
    assert cut_off(0) == before
    assert cut_off(WRITTEN.index("outs:")) == before
    assert cut_off(WRITTEN.index("ake train")) == before | {"download": written["download"]}
    assert cut_off(len(WRITTEN)) == written


def test_what_was_cut_off_is_kept(cut_off: Callable[[int], dict[str, Any]], project: Path) -> None:
    cut_off(100)
    assert (project / ".dvc/tmp/dvc.lock.cut-off").read_text() == WRITTEN[:100]


def test_a_conflict_of_two_branches_is_left_to_the_user(project: Path) -> None:
    conflict = WRITTEN.replace(
        "        seed: 2\n", "<<<<<<< HEAD\n        seed: 2\n=======\n        seed: 1\n>>>>>>> other\n"
    )
    (project / "dvc.lock").write_text(conflict)
    assert not mend_lock_file(project)
    assert (project / "dvc.lock").read_text() == conflict


def test_a_dvc_lock_that_was_cut_off_anywhere_can_be_read_again(cut_off: Callable[[int], dict[str, Any]]) -> None:
    for at in range(0, len(WRITTEN), 5):
        assert "download" in cut_off(at), at


def test_a_whole_dvc_lock_is_left_alone(project: Path) -> None:
    (project / "dvc.lock").write_text(WRITTEN)
    assert not mend_lock_file(project)
    assert (project / "dvc.lock").read_text() == WRITTEN


def test_a_dvc_lock_that_is_being_written_is_left_alone(
    cut_off: Callable[[int], dict[str, Any]], project: Path
) -> None:
    (project / "dvc.lock").write_text(WRITTEN[:100])
    with make_lock(str(project / ".dvc/tmp/lock"), tmp_dir=str(project / ".dvc/tmp")):
        assert not mend_lock_file(project)
    assert (project / "dvc.lock").read_text() == WRITTEN[:100]
    assert mend_lock_file(project)
