"""What the fuzzers share: mutated bytes go in, and nothing but a sentence may come out.

`make fuzz` installs atheris, which is no part of the environment, and runs each for a part of FUZZ_SECONDS; one alone:
python tests/fuzz/fuzz_params.py work/fuzz/params -max_total_time=60 (libFuzzer's options). A crash leaves its bytes in
a file `crash-…`, and the same command with that file instead of the folder runs them again.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "work/faults.jsonl"
MEMORY = Path("/dev/shm")  # files of a few bytes, thousands a second: not on a disk
RECORD_EVERY = 50  # executions: libFuzzer ends the process without a word to Python


def fuzz(what: str, read: Callable[[bytes], object], seeds: Iterable[bytes]) -> None:
    """Run `read` on mutations of `seeds` until libFuzzer's time is over. Any error but a sentence is a crash."""
    corpus = Path(next(word for word in sys.argv[1:] if not word.startswith("-")))
    if not corpus.is_file():
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
    tried = {"executions": 0, "bytes": 0}

    def once(data: bytes) -> None:
        tried["executions"] += 1
        tried["bytes"] += len(data)
        try:
            read(data)
        except Exception as error:
            check(error)
        if tried["executions"] % RECORD_EVERY == 0:
            counts.write_text(f"{tried['executions']} {tried['bytes']} {what}\n", encoding="utf-8")

    counts = corpus.with_name(f"{corpus.name}.counts")
    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


def check(error: Exception) -> None:
    """Raise an error again unless console.py shows it as a sentence that was written for it.

    Subclasses of ValueError, such as UnicodeDecodeError, name neither file nor line.
    """
    told = type(error) is ValueError or isinstance(error, OSError | RecursionError)
    if not told or not str(error).strip():
        raise error


def scratch() -> Path:
    """Return an empty directory, in memory where that can be."""
    return Path(tempfile.mkdtemp(prefix="bleuprint-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
