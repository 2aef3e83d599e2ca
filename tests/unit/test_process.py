"""What the process is told before torch starts; each setting is read back from where it acts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bleuprint import process

ROOT = Path(__file__).parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="settings of glibc and GNU OpenMP")
# Page faults while 20 blocks of 32 MiB are filled and freed, one after the other: 8,192 pages a block of 4 KiB.
COUNT_FAULTS = """
import resource, sys
import numpy as np
from bleuprint.process import keep_freed_memory, prepare
taken = {"keep": keep_freed_memory, "prepare": prepare, "let go": int}[sys.argv[1]]()
np.ones(2**22)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**22)
print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

# Runs the command line up to prepare(), and tells by its exit code whether torch has been imported until then.
STOP_AT_PREPARE = """
import sys
from bleuprint import process
process.prepare = lambda: sys.exit(8 if "torch" in sys.modules else 7)
from bleuprint.cli import main
main()
"""


def run(code: str, *arguments: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return what a fresh interpreter prints, stdout and stderr."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


@LINUX
def test_freed_memory_is_used_again() -> None:
    taken, kept = run(COUNT_FAULTS, "keep").split()
    if taken == "False":
        pytest.skip("this C library refuses the settings, and training goes on without them")
    _, prepared = run(COUNT_FAULTS, "prepare").split()
    _, unmapped = run(COUNT_FAULTS, "let go").split()
    assert max(int(kept), int(prepared)) < 20
    assert int(unmapped) > 200


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert not process.keep_freed_memory()


def test_spinning_is_cut_short_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores what stop_spinning changes
        monkeypatch.delenv(name)
    process.stop_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "77")
    process.stop_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "77"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    process.stop_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ


@LINUX
def test_torch_starts_with_the_settings() -> None:
    """GNU OpenMP prints its settings as it is loaded, with torch; importing process must not load torch before."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment["OMP_DISPLAY_ENV"] = "VERBOSE"
    printed = run("from bleuprint.process import prepare; prepare(); import torch", environment=environment)
    if "GOMP_SPINCOUNT" not in printed:
        pytest.skip("this torch does not use GNU OpenMP")
    assert "GOMP_SPINCOUNT = '1000'" in printed


@pytest.mark.parametrize("stage", ["train", "decode"])
def test_stages_that_use_torch_prepare_before_they_import_it(stage: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", STOP_AT_PREPARE, stage, "toy-1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode == 7, done.stderr
