"""The toy table through profiles/slurm on a Slurm of one node, its training cancelled once on the way.

`make test-slurm`: as root, with Debian's packages.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from ruamel.yaml import YAML

from bleuprint.cluster import Request, refuse_impossible
from clones import ROOT, SAME_BYTES, changed_stages, clone, environment, planned_jobs, run
from one_node_slurm import ETC, Controller

PATIENCE_SECONDS = 3600
TRAIN = YAML().load(ROOT / "params.yaml")["experiments"]["toy"]["train"]
CANCELLED_AFTER = 2 * TRAIN["checkpoint_every_steps"] + TRAIN["log_every_steps"]  # updates
# What squeue says that a job was asked for: partition, cores, memory, time, GPUs. Each as its rule and the profile say.
ASKED = {
    "tokenize": ("cpu", "2", "4000M", "1:00:00", "N/A"),
    "train": ("gpu", "2", "8000M", "1-00:00:00", "gres:gpu:1"),
    "average": ("cpu", "1", "4000M", "30:00", "N/A"),
    "decode": ("gpu", "2", "8000M", "4:00:00", "gres:gpu:1"),
    "attend": ("gpu", "2", "8000M", "10:00", "gres:gpu:1"),
    "score": ("cpu", "1", "4000M", "1:00:00", "N/A"),
    "report": ("cpu", "1", "2000M", "10:00", "N/A"),
}


class Job(NamedTuple):
    """A job as squeue describes it, also when it is over."""

    number: str
    rule: str
    state: str
    asked: tuple[str, ...]


class Outcome(NamedTuple):
    """What came of a call of Snakemake whose training was cancelled."""

    root: Path
    reached: int  # the update that the training had logged last when it was cancelled
    lock: bytes  # dvc.lock at that time
    jobs: list[Job]


def jobs_of_slurm() -> list[Job]:
    """Return all jobs since the Slurm was started, the first one first."""
    fields = ("JobID", "Comment", "State", "Partition", "cpus-per-task", "MinMemory", "TimeLimit", "tres-per-job")
    command = ["squeue", "--noheader", "--states", "all", "--sort", "i"]
    form = ",".join(f"{field}:80" for field in fields)
    said = subprocess.run([*command, "--Format", form], text=True, check=True, capture_output=True).stdout
    rows = [[line[i : i + 80].strip() for i in range(0, 80 * len(fields), 80)] for line in said.splitlines()]
    return [Job(row[0], rule_of(row[1]), row[2], tuple(row[3:])) for row in rows]


def rule_of(comment: str) -> str:
    """Return the rule that the plugin names in a job's comment: rule_train_wildcards_toy-1."""
    return comment.removeprefix("rule_").partition("_wildcards_")[0]


def last_update(log: str) -> int:
    """Return the last update that a log of the training tells of; 0 before the first."""
    return max((int(step) for step in re.findall(r" step (\d+) epoch ", log)), default=0)


def training_log(root: Path) -> str:
    file = root / "work/logs/train-toy-1.log"
    return file.read_text() if file.exists() else ""


@contextmanager
def snakemake(root: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Call Snakemake through the profile, on one core as on many a login node; its jobs must not have fewer for it."""
    command = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), "snakemake", "--profile", "profiles/slurm"]
    with (
        log.open("w") as said,
        subprocess.Popen(
            [*command, *options], cwd=root, env=environment(), stdout=said, stderr=subprocess.STDOUT
        ) as call,
    ):
        try:
            yield call
        finally:
            call.send_signal(signal.SIGINT)  # where it has not ended: it cancels its jobs


def wait_until(call: subprocess.Popen[bytes], log: Path, happens: Callable[[], bool]) -> None:
    """Wait for something that must happen while Snakemake runs."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not happens():
        assert call.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="session")
def by_slurm(slurm: Controller, origin: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Build the table through the profile, with a scancel in the middle of the training."""
    place = tmp_path_factory.mktemp("clone")
    root, log, before = clone(origin, place / "slurm"), place / "snakemake.log", jobs_of_slurm()
    with snakemake(root, log, "--slurm-init-seconds-before-status-checks", "10") as call:
        wait_until(call, log, lambda: last_update(training_log(root)) >= CANCELLED_AFTER)
        reached, lock = last_update(training_log(root)), (root / "dvc.lock").read_bytes()
        (training,) = [job for job in jobs_of_slurm() if job.rule == "train"]
        subprocess.run(["scancel", training.number], check=True)
        assert call.wait(PATIENCE_SECONDS) == 0, log.read_text()
    return Outcome(root, reached, lock, [job for job in jobs_of_slurm() if job not in before])


@pytest.mark.parametrize("name", SAME_BYTES)
def test_the_results_are_those_of_this_machine_alone(by_slurm: Outcome, by_snakemake: Path, name: str) -> None:
    assert (by_slurm.root / name).read_bytes() == (by_snakemake / name).read_bytes()


def test_each_job_is_asked_for_what_its_rule_and_the_profile_say(by_slurm: Outcome) -> None:
    assert {job.rule: job.asked for job in by_slurm.jobs} == ASKED


def test_a_cancelled_training_is_submitted_again_and_goes_on(by_slurm: Outcome) -> None:
    once = [(rule, "COMPLETED") for rule in ASKED if rule != "train"]  # decode and attend in either order
    assert sorted((job.rule, job.state) for job in by_slurm.jobs if job.rule != "train") == sorted(once)
    assert [job.state for job in by_slurm.jobs if job.rule == "train"] == ["CANCELLED", "COMPLETED"]
    (resumed,) = re.findall(r"resuming after step (\d+) ", training_log(by_slurm.root))  # Snakemake began another log
    assert by_slurm.reached - int(resumed) < TRAIN["checkpoint_every_steps"]


def test_dvc_is_told_once_by_the_call_itself(by_slurm: Outcome, origin: Path) -> None:
    """Each job is a call of Snakemake too, and would commit what its siblings have not finished."""
    assert by_slurm.lock == (origin / "dvc.lock").read_bytes()
    assert changed_stages(by_slurm.root) == []
    assert planned_jobs(by_slurm.root) == []


def test_a_partition_that_is_not_there_is_refused_before_any_job(
    slurm: Controller, origin: Path, tmp_path: Path
) -> None:
    root, before = clone(origin, tmp_path / "clone"), jobs_of_slurm()
    nowhere = ("--default-resources", "slurm_partition=nowhere")
    said = run(root, "snakemake", "data/corpora/toy-words", "--profile", "profiles/slurm", *nowhere, fails=True)
    assert "rule tokenize asks for the partition 'nowhere'; this cluster has: cpu, gpu" in said
    assert "Traceback" not in said
    assert jobs_of_slurm() == before
    assert not (root / "data").exists()


def test_more_time_than_a_partition_allows_is_refused(slurm: Controller) -> None:
    """Slurm would take such a job and never start it."""
    refuse_impossible([Request("train", "gpu", 2880, 1)])
    with pytest.raises(ValueError, match="rule train asks for runtime=2881 minutes; the partition gpu allows 2880"):
        refuse_impossible([Request("train", "gpu", 2881, 1)])


def test_a_controller_out_of_reach_is_said(slurm: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text(re.sub(r"(?m)^SlurmctldPort=.*$", "SlurmctldPort=1", (ETC / "slurm.conf").read_text()))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    with pytest.raises(ValueError, match=r"Slurm does not answer: .*Unable to contact slurm controller"):
        refuse_impossible([])


def test_a_controller_that_is_away_for_a_while_is_waited_for(slurm: Controller, origin: Path, tmp_path: Path) -> None:
    root, log = clone(origin, tmp_path / "clone"), tmp_path / "snakemake.log"
    with snakemake(root, log, "data/corpora/toy-words", "--slurm-init-seconds-before-status-checks", "2") as call:
        wait_until(call, log, lambda: "has been submitted" in log.read_text())
        slurm.stop()
        wait_until(call, log, lambda: "Slurm does not answer" in log.read_text())
        slurm.start()
        assert call.wait(PATIENCE_SECONDS) == 0, log.read_text()
    assert (root / "data/corpora/toy-words/manifest.json").exists()
