"""Several processes, or ranks, that train one run: `torchrun --nproc-per-node N -m bleuprint train RUN`.

Each batch is dealt out by rows; gradients and losses are summed over the ranks, and all do the same update. So the
batches, their order, the rates and what is minimised (the sum of losses over all tokens of all ranks and accumulated
batches, divided by their number) are those of one process, and without dropout the losses differ from its by rounding
alone. With dropout each rank draws masks of its own: the first goes on with the numbers that one process would draw,
rank r takes others, made of (seed, r, the update of the last saved state).

Another number of ranks may resume a run, for the state is that of the first; from there on the masks are others. Where
the number stays the same, a resumed run ends with the bits of an uninterrupted one.

In one process every function here gives back what it is given, or does nothing.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

logger = logging.getLogger(__name__)

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # in the order of Place
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")  # of rank 0; alone they say nothing: some containers set them for all
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# For the slowest to come: the first one may wait two minutes for MLflow's database, and copies weights at the end.
PATIENCE = timedelta(minutes=10)
BUCKET = 2**23  # values that are summed at a time, 32 MiB


class Place(NamedTuple):
    """Which of how many processes this one is."""

    rank: int  # from 0
    local_rank: int  # among those of its host
    processes: int


def find_place(environment: Mapping[str, str]) -> Place:
    """Return what torchrun says in the environment; without it, the place of a process alone.

    ValueError where a part is missing or is no number.
    """
    given = [name for name in VARIABLES if name in environment]
    if not given:
        return Place(0, 0, 1)
    missing = [name for name in (*VARIABLES, *ADDRESS) if name not in environment]
    if missing:
        raise ValueError(
            f"{', '.join(given)} is set, but not {', '.join(missing)}; start several processes with torchrun, "
            f"which sets all of them, or unset {', '.join(VARIABLES)}"
        )
    place = Place(*(count_in(environment, name) for name in VARIABLES))
    if max(place.rank, place.local_rank) >= place.processes:
        raise ValueError(
            f"RANK {place.rank} and LOCAL_RANK {place.local_rank} are not both below WORLD_SIZE {place.processes}"
        )
    return place


def count_in(environment: Mapping[str, str], name: str) -> int:
    """Return a variable as a whole number; ValueError where it is none."""
    value = environment[name]
    if not value.isdecimal():
        raise ValueError(f"{name} is {value!r}, not a whole number; torchrun sets it")
    return int(value)


@contextmanager
def joined(place: Place, device: torch.device) -> Iterator[None]:
    """Connect this process with the others for the block; alone it goes without.

    ValueError where no GPU is left for it, ConnectionError where the others do not come within PATIENCE.
    """
    if place.processes == 1:
        yield
        return
    if device.type == "cuda":
        take_gpu(place.local_rank, torch.cuda.device_count())
    with reached():
        dist.init_process_group(BACKENDS[device.type], timeout=PATIENCE)
    logger.info(
        "%d processes train together (%s); if one dies, torchrun ends the others, and the same command goes on from "
        "the last saved state",
        place.processes,
        dist.get_backend(),
    )
    try:
        yield
    except BaseException:
        if device.type == "cpu":  # NCCL would wait for those who do not answer
            dist.destroy_process_group()  # without this gloo's threads abort the process when it ends
        raise
    dist.destroy_process_group()


def take_gpu(local_rank: int, gpus: int) -> None:
    """Let a process compute on the GPU with its number; ValueError where its host has fewer."""
    if local_rank >= gpus:
        raise ValueError(
            f"process {local_rank + 1} of this host has no GPU, torch finds {gpus} here; start no more than that "
            "(--nproc-per-node), or set machine.device to cpu"
        )
    torch.cuda.set_device(local_rank)


def own_device(device: torch.device) -> torch.device:
    """Return the device with the number that take_gpu chose: threads that make batches would choose the first GPU."""
    return torch.device("cuda", torch.cuda.current_device()) if several() and device.type == "cuda" else device


@contextmanager
def reached() -> Iterator[None]:
    """Turn what the backends raise where another process does not answer into a ConnectionError."""
    try:
        yield
    except RuntimeError as error:  # gloo's errors have no class of their own
        if "EADDRINUSE" in str(error):
            raise ConnectionError("MASTER_PORT is taken; take another one, or let torchrun find one") from error
        raise ConnectionError(
            "another process of this training has ended or does not answer; the same command goes on from the last "
            "saved state (BLEUPRINT_DEBUG=1 shows what torch says)"
        ) from error


def several() -> bool:
    """Return whether this process trains with others."""
    return dist.is_available() and dist.is_initialized()


def is_first() -> bool:
    """Return whether this is the process that writes, logs and tracks."""
    return not several() or dist.get_rank() == 0


# --- at the beginning -------------------------------------------------------------------------------------------------


def begin_together(own: str, weights: Iterable[nn.Parameter], seed: int, step: int) -> None:
    """Make sure that all processes begin alike, and draw apart from here on.

    ValueError where what decides a run, as `own` says it, is not the same in all.
    """
    if not several():
        return
    found = [""] * dist.get_world_size()
    with reached():
        dist.all_gather_object(found, own)
        for weight in weights:  # other processors may have drawn other last bits
            dist.broadcast(weight.detach(), 0)
    strangers = [str(rank) for rank, other in enumerate(found) if other != found[0]]
    if strangers:
        raise ValueError(
            f"process {', '.join(strangers)} has other parameters, code, data or saved state than process 0; all hosts "
            "need the same directory, for instance on a shared file system"
        )
    draw_apart(seed, step)


def draw_apart(seed: int, step: int) -> None:
    """Give each process but the first random numbers of its own: whenever a state is saved, or gone on from."""
    if not is_first():
        torch.manual_seed(int(np.random.SeedSequence([seed, dist.get_rank(), step]).generate_state(1, np.uint64)[0]))


# --- in every update --------------------------------------------------------------------------------------------------


def share(batch: Tensor) -> Tensor:
    """Return this process's rows of a batch (B, ...), every N-th; none where there are fewer rows than processes."""
    return batch[dist.get_rank() :: dist.get_world_size()] if several() else batch


def sum_over_ranks(values: Tensor) -> Tensor:
    """Replace values by their sums over all processes, the same bits in each, and return them."""
    if several():
        with reached():
            dist.all_reduce(values)
    return values


def sum_gradients(weights: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its sum over all processes; one that had nothing to learn from counts as zeros.

    All weights of a model have a gradient (tests/unit/test_distributed.py), so that no zeros stay that one process
    would not have. Nothing waits for a GPU.
    """
    if not several():
        return
    waiting = []
    for bucket in buckets(weights):
        flat = torch.cat([gradient_of(weight).flatten() for weight in bucket])
        with reached():
            waiting.append(dist.all_reduce(flat, async_op=True))
        for weight, part in zip(bucket, flat.split([weight.numel() for weight in bucket]), strict=True):
            weight.grad = part.view_as(weight)
    with reached():
        for work in waiting:
            work.wait()


def gradient_of(weight: nn.Parameter) -> Tensor:
    """Return a weight's gradient, zeros where this process had no rows."""
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def buckets(weights: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield the weights in order, in groups that end with the one that brings them to BUCKET values."""
    bucket: list[nn.Parameter] = []
    for weight in weights:
        bucket.append(weight)
        if sum(each.numel() for each in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
