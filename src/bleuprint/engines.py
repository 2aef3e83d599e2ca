"""One engine at a time in a project, and nothing that a killed one left in the way of the next.

Two calls of DVC see each other in .dvc/tmp/rwlock, its list of who reads and writes what. Snakemake enters itself there
as a reader of everything, so that the two engines see each other too. Its own lock would outlive a kill until somebody
says --unlock; profiles/default leaves it out, and the system's lock, which ends with the process, stands for it.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bleuprint.files import locked, write_text
from bleuprint.provenance import output_of

START_OF_A_STAGE = re.compile(r"^  [^ ]", re.MULTILINE)  # in dvc.lock
OUTPUTS = ("data", "runs", "results", "reports")  # all that stages write, and most of what they read

logger = logging.getLogger(__name__)


@contextmanager
def snakemake_alone(root: Path) -> Iterator[None]:
    """Keep a second snakemake out of a project; ValueError where one is in it already."""
    with locked(root / "work/snakemake.lock", f"another snakemake works in {root}"):
        yield


@contextmanager
def dvc_kept_out(root: Path) -> Iterator[None]:
    """Let no DVC write in a project, though read; ValueError, with its process, where one writes there already.

    What a killed DVC left half is mended first.
    """
    from dvc.fs import localfs
    from dvc.lock import LockError
    from dvc.rwlock import rwlock

    forget_killed(root)
    mend_lock_file(root)
    paths = [str(root.resolve() / name) for name in OUTPUTS]
    with ExitStack() as stack:
        try:
            stack.enter_context(rwlock(str(list_of_dvc(root).parent), localfs, "snakemake", paths, [], hardlink=False))
        except LockError as error:
            raise ValueError(f"DVC works in {root}; wait until it ends, or end it: {error}") from None
        yield


def forget_killed(root: Path) -> int:
    """Remove from DVC's list those who no longer work in the project, and return how many.

    DVC itself does so only while no other process has the number of the killed one, and refuses to work at all when it
    was killed in the middle of writing the list: that is begun anew.
    """
    from dvc.lock import make_lock

    path = list_of_dvc(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    with make_lock(f"{path}.lock", tmp_dir=str(path.parent)):
        if not path.exists():
            return 0
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            logger.warning("%s was cut off when DVC was killed; it is begun anew", path)
            path.unlink()
            return 1
        readers, writers = entries.get("read") or {}, entries.get("write") or {}
        left = {
            "write": {name: who for name, who in writers.items() if works_in(who, root)},
            "read": {
                name: kept for name, all in readers.items() if (kept := [who for who in all if works_in(who, root)])
            },
        }
        gone = count(writers, readers) - count(left["write"], left["read"])
        if gone:
            write_text(path, json.dumps(left))
        return gone


def count(writers: dict[str, Any], readers: dict[str, list[Any]]) -> int:
    """Return how many entries there are."""
    return len(writers) + sum(len(who) for who in readers.values())


def works_in(who: dict[str, Any], root: Path) -> bool:
    """Return whether a process of DVC's list is alive and in the project; of another user's process we can't know."""
    import psutil

    try:
        return Path(psutil.Process(int(who["pid"])).cwd()).is_relative_to(root.resolve())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def list_of_dvc(root: Path) -> Path:
    """Return the file in which DVC's processes say what they read and write."""
    return root / ".dvc/tmp/rwlock"


# --- dvc.lock ---------------------------------------------------------------------------------------------------------


def mend_lock_file(root: Path) -> bool:
    """Make dvc.lock whole where DVC was killed while it wrote it, and return whether it was cut off.

    DVC writes the whole file anew, in place. The stages before the cut stay, the others are taken from the last commit;
    what was run since then DVC finds in its cache, or runs again. Nothing is done while a DVC holds the project's lock,
    for then it may be writing.
    """
    from dvc.lock import LockError, make_lock
    from dvc.utils.serialize import dumps_yaml

    path, kept = root / "dvc.lock", list_of_dvc(root).with_name("dvc.lock.cut-off")
    if not is_cut_off(path):
        return False
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        with make_lock(str(kept.with_name("lock")), tmp_dir=str(kept.parent)):
            if not is_cut_off(path):
                return False
            text = path.read_text(encoding="utf-8", errors="replace")
            *_, cut = 0, *(start.start() for start in START_OF_A_STAGE.finditer(text))
            committed = output_of("git", "-C", str(root), "show", "HEAD:./dvc.lock")
            stages = {**(recorded(f"{committed}\n") or {}), **(recorded(text[:cut]) or {})}
            path.replace(kept)
            write_text(path, dumps_yaml({"schema": "2.0", "stages": stages}))
    except LockError:
        return False
    logger.warning("%s was cut off when DVC was killed; mended by the last commit. As it was: %s", path, kept)
    return True


def is_cut_off(path: Path) -> bool:
    """Return whether there is a dvc.lock that is not whole; one with the marks of a merge is its user's to mend."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    return text is not None and recorded(text) is None and "\n<<<<<<< " not in text


def recorded(text: str) -> dict[str, Any] | None:
    """Return the stages of a dvc.lock, None where it is cut off.

    That is one that DVC would not read, that has no key `stages`, or whose last line does not end. A cut at the end of
    a line may go unseen: DVC then finds in its cache, or runs again, what is missing.
    """
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from dvc.utils.serialize import loads_yaml
    from dvc.utils.strictyaml import YAMLValidationError, validate
    from ruamel.yaml import YAMLError

    try:
        stages: dict[str, Any] | None = validate(loads_yaml(text), COMPILED_LOCKFILE_SCHEMA).get("stages")
    except (YAMLError, YAMLValidationError):
        return None
    return stages if text.endswith("\n") else None
