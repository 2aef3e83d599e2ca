"""What happens before torch starts: settings that change speed but no result, and several processes instead of one."""

import ctypes
import os
import shutil
import sys

# malloc.h: parameters of mallopt(3).
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

LAUNCHER = "BLEUPRINT_LAUNCHER"
LAUNCHED = "RANK"  # torchrun sets it in the processes that it starts

NEVER = -1
ONE_GIB = 2**30


def prepare() -> None:
    """Make torch fast on a CPU, also on one that others use; call it before torch is imported."""
    keep_freed_memory()
    stop_spinning()


def launch(*arguments: str) -> None:
    """Go on as `$BLEUPRINT_LAUNCHER -m bleuprint ARGUMENTS` where that is set, for instance to a torchrun; else return.

    So both engines start several processes by the same command as one. ValueError where there is no such program.
    """
    launcher = os.environ.pop(LAUNCHER, "")  # gone for the new processes: they train
    if not launcher.strip() or LAUNCHED in os.environ:
        return
    words = launcher.split()
    if shutil.which(words[0]) is None:
        raise ValueError(f"{LAUNCHER} is {launcher!r}, but there is no program {words[0]}")
    os.execvp(words[0], [*words, "-m", "bleuprint", *arguments])


def keep_freed_memory() -> bool:
    """Let glibc reuse freed blocks below 1 GiB instead of unmapping them; return whether it took the settings.

    glibc otherwise returns every large tensor to the kernel on every step. 50 pairs of 64 MB tensors: 1.64 million page
    faults and 3.9 s before, none and 0.8 s after. On another C library (musl, macOS, Windows) nothing happens.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, ONE_GIB)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))


def stop_spinning() -> None:
    """Let OpenMP's threads spin shortly before they sleep, unless the user has set how.

    GNU OpenMP spins for milliseconds. On a core that another process wants, that is lost to both: two loops of small
    matrix products side by side on 2 cores did 3 rounds in the time in which they do 111 with this. A training alone
    loses about a tenth; OMP_WAIT_POLICY=ACTIVE takes that back.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
