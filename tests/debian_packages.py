"""Debian's packages, installed by root for the tests that need them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

from filelock import FileLock

LOCK = Path(gettempdir()) / "bleuprint-apt-get.lock"  # apt-get refuses to run beside itself


def install(packages: tuple[str, ...], are_there: Callable[[], bool]) -> str | None:
    """Install packages unless they are there already; return apt-get's last words where it cannot, else None."""
    with FileLock(LOCK):
        return None if are_there() else apt_get(packages, are_there)


def apt_get(packages: tuple[str, ...], are_there: Callable[[], bool]) -> str | None:
    """Install packages; return apt-get's last words if they are not there then."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ("apt-get", "install", "--yes", "--no-install-recommends", *packages)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if not are_there():  # the lists of packages may be old, or not there at all
        subprocess.run(("apt-get", "update"), env=environment, capture_output=True)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return None if are_there() else f"{' '.join(command)}: {' '.join(done.stderr.strip().splitlines()[-1:])}"
