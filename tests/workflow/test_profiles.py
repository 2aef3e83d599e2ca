"""What profiles/default limits on one machine cuts nothing that a cluster is asked for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from graphs import copy_project
from modules import ROOT


def planned(project: Path, *options: str) -> list[tuple[str, set[str]]]:
    """Return the rule and the resources of each job that Snakemake plans in a project with profiles/."""
    shutil.copytree(ROOT / "profiles", project / "profiles")
    command = [sys.executable, "-m", "snakemake", "-n", *options]
    done = subprocess.run(command, cwd=project, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "profiles/default" in said
    jobs = re.findall(r"^rule (\w+):\n(?:.+\n)*?    resources: (.+)\n", said, re.MULTILINE)
    return [(rule, set(resources.split(", "))) for rule, resources in jobs]


def test_a_training_may_ask_for_several_gpus(tmp_path: Path) -> None:
    """Snakemake cuts a job's `gpu` to a limit on `gpu`; the limit is on another resource."""
    options = ("--until", "train", "--set-resources", "train:gpu=4", "train:gpu_jobs=2")
    trainings = [resources for rule, resources in planned(copy_project(tmp_path), *options) if rule == "train"]
    assert trainings
    for resources in trainings:
        assert {"gpu=4", "gpu_jobs=1"} <= resources, "gpu_jobs is limited, gpu is not"


def test_every_job_with_a_gpu_is_counted_by_the_limit(tmp_path: Path) -> None:
    with_gpu = [(rule, resources) for rule, resources in planned(copy_project(tmp_path)) if "gpu=1" in resources]
    assert {rule for rule, _ in with_gpu} == {"train", "decode", "attend"}
    assert [rule for rule, resources in with_gpu if "gpu_jobs=1" not in resources] == []
