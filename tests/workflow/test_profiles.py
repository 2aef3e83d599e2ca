"""What profiles/default limits on one machine cuts nothing that a cluster is asked for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from graphs import copy_project
from modules import ROOT


def test_a_training_may_ask_for_several_gpus(tmp_path: Path) -> None:
    """Snakemake cuts a job's `gpu` to a limit on `gpu`; the limit is on another resource."""
    project = copy_project(tmp_path)
    shutil.copytree(ROOT / "profiles", project / "profiles")
    command = ["-n", "--until", "train", "--set-resources", "train:gpu=4", "train:gpu_jobs=2"]
    done = subprocess.run([sys.executable, "-m", "snakemake", *command], cwd=project, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "profiles/default" in done.stderr + done.stdout
    jobs = re.findall(r"^rule train:\n(?:.+\n)*?    resources: (.+)\n", done.stdout + done.stderr, re.MULTILINE)
    assert jobs
    for resources in jobs:
        assert {"gpu=4", "gpu_jobs=1"} <= set(resources.split(", ")), "gpu_jobs is limited, gpu is not"
