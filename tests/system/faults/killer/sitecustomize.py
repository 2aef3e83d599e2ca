"""Strikes a command at one call within one of its functions; Python loads it where this folder is on PYTHONPATH.

BLEUPRINT_TEST_STRIKE is a JSON list:

- command, e.g. "bleuprint decode": only the process that has these words in its command line is watched;
- file and function, e.g. "decoding.py", "decode_run": calls are counted while it runs, of whatever it calls in turn, C
  included; not while it imports;
- number: at which call the whole process group gets the signal; 0 strikes never, and the count is the last line;
- signal;
- log: gets a line with the place, written before the signal is sent.
"""

import atexit
import json
import os
import sys
from types import FrameType


def watch(file: str, function: str, number: int, signal: int, log: str) -> None:
    calls = inside = importing = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls, inside, importing
        if event in ("call", "return"):
            name, step = frame.f_code.co_name, 1 if event == "call" else -1
            if name == function and frame.f_code.co_filename.endswith(file):
                inside += step
            elif name == "_find_and_load":
                importing += step
        if inside and importing <= 0:
            calls += 1
            if calls == number:
                sys.setprofile(None)
                note(log, f"{frame.f_code.co_filename}:{frame.f_lineno} {event}")
                os.killpg(0, signal)

    if number == 0:
        atexit.register(lambda: note(log, str(calls)))
    sys.setprofile(count)


def note(log: str, line: str) -> None:
    with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123 - pathlib would be imported into every process
        file.write(f"{line}\n")


if "BLEUPRINT_TEST_STRIKE" in os.environ:
    command, *how = json.loads(os.environ["BLEUPRINT_TEST_STRIKE"])
    if command in " ".join(sys.orig_argv):
        watch(*how)
