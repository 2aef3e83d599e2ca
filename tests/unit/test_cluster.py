"""What a Slurm cluster can't do is said before jobs are sent to it; tests/cluster asks a real one."""

import math
from pathlib import Path

import pytest

from bleuprint.cluster import Partition, Request, ask_sinfo, minutes_of, read_partitions, refuse_too_much

# Two kinds of nodes in one partition, as sinfo prints them.
SINFO = """\
long|infinite|(null)
mixed|2-12:30:00|(null)
mixed|2-12:30:00|gpu:a100:4(S:0-1),tmp:1
gpuless|30:00|license_gpus:1
"""


def test_a_partition_has_gpus_if_one_kind_of_its_nodes_has() -> None:
    assert read_partitions(SINFO) == {
        "long": Partition(math.inf, False),
        "mixed": Partition(2 * 1440 + 12 * 60 + 30, True),
        "gpuless": Partition(30, False),
    }


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("infinite", math.inf), ("1-00:00:00", 1440), ("12:00:00", 720), ("30:00", 30), ("0:30", 0.5)],
)
def test_slurm_times_in_minutes(text: str, minutes: float) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (Request("train", "long", 10_000, 1), "rule train asks for gpu=1; the partition long has no GPU"),
        (Request("train", "long,gpuless", 10_000, 1), "the partition long, gpuless has no GPU"),
        (Request("score", "gpuless", 31, 0), "rule score asks for runtime=31 minutes; the partition gpuless allows 30"),
    ],
)
def test_what_no_partition_of_a_job_has_is_refused(request_: Request, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        refuse_too_much(request_, partitions_of(request_))


@pytest.mark.parametrize(
    "request_",
    [
        Request("train", "long,mixed", 10_000, 1),  # Slurm takes the first one that fits
        Request("score", "gpuless", 30, 0),
        Request("score", "gpuless", None, None),
        Request("train", None, 10_000, 1),  # the cluster's own partition
    ],
)
def test_what_can_run_is_not_refused(request_: Request) -> None:
    refuse_too_much(request_, partitions_of(request_))


def partitions_of(request: Request) -> dict[str, Partition]:
    names = (request.partition or "").split(",")
    return {name: partition for name, partition in read_partitions(SINFO).items() if name in names}


def test_a_machine_without_slurm_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="there is no Slurm here"):
        ask_sinfo()
