"""What a Slurm cluster must have before jobs are sent to it; Snakemake's plugin finds out job by job, or never."""

import math
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SECONDS_TO_ANSWER = 60


class Request(NamedTuple):
    """What a job asks for; None where it leaves the choice to the cluster."""

    rule: str
    partition: str | None  # several as sbatch takes them: "short,long"
    minutes: int | None
    gpus: int | None


class Partition(NamedTuple):
    """What a partition has."""

    minutes: float  # the longest that a job may take
    gpus: bool


def refuse_impossible(requests: Iterable[Request]) -> None:
    """Raise ValueError with one sentence where Slurm can't be asked, or could never start one of the jobs."""
    partitions = read_partitions(ask_sinfo())
    for request in requests:
        names = request.partition.split(",") if request.partition else []
        for name in names:
            if name not in partitions:
                raise ValueError(
                    f"rule {request.rule} asks for the partition {name!r}; this cluster has: {', '.join(partitions)}"
                )
        refuse_too_much(request, {name: partitions[name] for name in names})


def refuse_too_much(request: Request, partitions: Mapping[str, Partition]) -> None:
    """Raise ValueError where none of the partitions that a job may run in has a GPU for it, or the time."""
    if not partitions:
        return
    names = ", ".join(partitions)
    if request.gpus and not any(partition.gpus for partition in partitions.values()):
        raise ValueError(f"rule {request.rule} asks for gpu={request.gpus}; the partition {names} has no GPU")
    longest = max(partition.minutes for partition in partitions.values())
    if request.minutes is not None and request.minutes > longest:
        raise ValueError(
            f"rule {request.rule} asks for runtime={request.minutes} minutes; the partition {names} allows {longest:g}"
        )


def ask_sinfo() -> str:
    """Return a line "name|longest time|what else it has" for each kind of node in each partition."""
    command = ["sinfo", "--all", "--noheader", "--format", "%R|%l|%G"]
    try:
        done = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS_TO_ANSWER)
    except FileNotFoundError:
        raise ValueError("there is no Slurm here (no sinfo): call snakemake where sbatch works") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"Slurm does not answer: sinfo took more than {SECONDS_TO_ANSWER} seconds") from None
    if done.returncode != 0:
        raise ValueError(f"Slurm does not answer: {done.stderr.strip()}")
    return done.stdout


def read_partitions(lines: str) -> dict[str, Partition]:
    """Return sinfo's partitions by name; one with a GPU in any of its nodes has GPUs."""
    partitions: dict[str, Partition] = {}
    for line in lines.splitlines():
        name, longest, resources = line.split("|")
        gpus = re.search(r"\bgpu\b", resources) is not None
        before = partitions.get(name)
        partitions[name] = Partition(minutes_of(longest), gpus or (before is not None and before.gpus))
    return partitions


def minutes_of(text: str) -> float:
    """Return Slurm's "days-hours:minutes:seconds" as minutes; infinity for "infinite"."""
    if text == "infinite":
        return math.inf
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return 1440 * int(days or 0) + seconds / 60
