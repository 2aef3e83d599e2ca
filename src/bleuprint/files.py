"""Files and directories that appear whole or not at all."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a sibling of `path`, flush it to the disk and put it in place; on failure the old file stays.

    OSError where the disk is full or forbids it, also where the library that writes has an error class of its own;
    ValueError where there is a folder, a device or a pipe, which a file would replace.
    """
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{path} is no file but a {'folder' if path.is_dir() else 'device or a pipe'}: name another one"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(path)
    partial = partial_of(path)
    try:
        with named_where_full(path, partial):
            write(partial)
            sync(partial)
        if path.exists():
            partial.chmod(path.stat().st_mode)
        partial.replace(path)
        sync(path.parent)
    except (OSError, ValueError):
        raise
    except Exception as error:  # SafetensorError, torch's RuntimeError
        words = " ".join(str(error).split())
        raise OSError(f"{path} cannot be written: {words}; {space_for(partial)}") from error
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file with "\\n" ends: another reader sees the old or the new text."""
    write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8", newline="\n"))


@contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """Yield an empty sibling of `out` to build in, and put it in the place of `out` when the block ends well."""
    out.parent.mkdir(parents=True, exist_ok=True)
    remove_stale(out)
    partial, old = partial_of(out), out.with_name(f"{out.name}.partial-old")
    partial.mkdir()
    try:
        with named_where_full(out, partial):
            yield partial
            for path in (*partial.rglob("*"), partial):
                sync(path)
        if out.exists():
            out.rename(old)  # a rename does not replace a directory that holds something
        partial.rename(out)
        sync(out.parent)
    finally:
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def named_where_full(path: Path, partial: Path, size: int | None = None) -> Iterator[None]:
    """Let an OSError of a full disk or a used up quota tell what could not be written, and how much space it takes.

    Python's own names no file. `partial` is what is there of it so far, `size` its bytes as a whole, where known.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise OSError(error.errno, f"{error.strerror}; {space_for(partial, size)}", str(path)) from error


def space_for(partial: Path, size: int | None = None) -> str:
    """Return how many bytes a file or directory takes, at least, and how many are free where it is."""
    files = [path for path in (partial, *partial.rglob("*")) if path.is_file()]
    written = sum(path.stat().st_size for path in files)
    needed = f"more than {written:,} bytes are" if size is None else f"{size:,} bytes are"
    return f"{needed} needed, and beside the {written:,} written {shutil.disk_usage(partial.parent).free:,} are free"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep other processes out of a directory, made where it is missing; ValueError where one is in it already."""
    with locked(directory / "lock", f"another process works in {directory}"):
        yield


@contextmanager
def locked(lock: Path, busy: str) -> Iterator[None]:
    """Hold a lock as long as the block runs; ValueError says `busy` and what to do where another process holds it.

    The lock is the system's: a process that was killed holds nothing.
    """
    from filelock import FileLock, Timeout

    lock.parent.mkdir(parents=True, exist_ok=True)
    own = FileLock(lock)
    try:
        own.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{busy}; wait until it ends, or end it") from None
    try:
        yield
    finally:
        own.release()


def partial_of(path: Path) -> Path:
    """Return the sibling in which this process builds `path`; git and DVC ignore such names."""
    return path.with_name(f"{path.name}.partial-{os.getpid()}")


def remove_stale(path: Path) -> None:
    """Remove what a killed process left of `path`, and no file that only has a similar name."""
    if not path.parent.is_dir():
        return
    for stale in list(path.parent.iterdir()):
        if not re.fullmatch(rf"{re.escape(path.name)}\.partial-(\d+|old)", stale.name):
            continue
        if stale.is_dir():
            shutil.rmtree(stale)
        else:
            stale.unlink()


def sync(path: Path) -> None:
    """Flush a file or directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
