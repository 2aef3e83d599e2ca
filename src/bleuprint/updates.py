"""One update of the weights, and one pass over the validation split.

Nothing here asks the device for a number, so a GPU is never waited for inside an update: losses stay where they were
made, and the batches of the next updates are made and copied beside the work on this one. Where several processes train
together, each takes its rows of every batch (distributed.py).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from bleuprint.batching import Batch, Pairs, collate, ordered_batches
from bleuprint.consistency import consistent_cross_entropy
from bleuprint.distributed import share, sum_gradients, sum_over_ranks
from bleuprint.incidents import enough_memory
from bleuprint.objective import Loss, cross_entropy
from bleuprint.params import Train
from bleuprint.resume import Learner
from bleuprint.tokenizers import PAD

AHEAD = 4  # updates whose batches are made before they are needed

Item = TypeVar("Item")
Made = TypeVar("Made")


class Prepared(NamedTuple):
    """This process's rows of a batch, B, on the device where they are learnt; N tokens of them are to be predicted."""

    source: Tensor  # (B, S), as wide as the whole batch: to some models padding is not nothing
    inputs: Tensor  # (B, T)
    real: Tensor  # (N,) which of the B * T positions have something to predict
    labels: Tensor  # (N,) what
    source_tokens: int  # of the whole batch, no padding
    tokens: int  # to be predicted, of the whole batch


def prepare(batch: Batch, device: torch.device) -> Prepared:
    """Count, take this process's rows, find what is to be predicted there, and copy it all to the device.

    The copy may still be under way.
    """
    source_tokens, tokens = (int((x != PAD).sum()) for x in (batch.source, batch.labels))
    labels = share(batch.labels).flatten()
    real = (labels != PAD).nonzero().squeeze(1)
    mine = share(batch.source), share(batch.inputs), real, labels[real]
    source, inputs, real, labels = (move(x, device) for x in mine)
    return Prepared(source, inputs, real, labels, source_tokens, tokens)


def move(x: Tensor, device: torch.device) -> Tensor:
    """Return `x` on the device; a GPU reads it from pinned memory while the processor goes on."""
    return x if device.type == "cpu" else x.pin_memory().to(device, non_blocking=True)


def prepared(pairs: Pairs, updates: Iterable[Sequence], device: torch.device) -> Iterator[list[Prepared]]:
    """Yield the batches of each update, given their row numbers, made ahead of time by another thread."""
    return ahead(lambda rows: [prepare(collate(pairs, batch), device) for batch in rows], updates)


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """Yield make(item) for each item, in order; another thread makes up to AHEAD of them before they are asked for."""
    with ThreadPoolExecutor(1) as thread:
        waiting: deque[Future[Made]] = deque()
        try:
            for item in items:
                waiting.append(thread.submit(make, item))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def train_step(learner: Learner, batches: Sequence[Prepared], lr: float) -> Tensor:
    """Do one update over all batches; return the summed cross-entropy of this process's rows, and the gradient's norm.

    Those are two float64 values on the device. The gradient is that of the sum over all tokens divided by their number,
    however they are spread over batches and processes; its norm, before it is clipped, is the same in all processes.
    """
    tokens = sum(batch.tokens for batch in batches)
    total = torch.zeros((), dtype=torch.float64, device=learner.device)
    for batch in filter(has_rows, batches):
        loss = training_loss(learner, batch)
        (loss.smoothed / tokens).backward()
        total += loss.plain
    sum_gradients(learner.model.parameters())
    norm = clip(list(learner.model.parameters()), learner.train.optimizer.clip_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = lr
    learner.optimizer.step()
    learner.optimizer.zero_grad(set_to_none=True)
    return torch.stack((total, norm.double()))


def clip(weights: Sequence[nn.Parameter], clip_norm: float | None) -> Tensor:
    """Scale the gradients down to clip_norm where their norm is above it; return that norm.

    It is computed without clip_norm too: where it is no number, Adam makes weights that are none of it.
    """
    if clip_norm is not None:
        return nn.utils.clip_grad_norm_(weights, clip_norm)
    return nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])


def has_rows(batch: Prepared) -> bool:
    """Return whether this process has a part of a batch: there may be fewer rows than processes."""
    return len(batch.source) > 0


def training_loss(learner: Learner, batch: Prepared) -> Loss:
    """Return what an update minimises on a batch, summed over its tokens."""
    smoothing, alpha = learner.train.label_smoothing, learner.train.regularizers.r_drop
    if not alpha:
        return batch_loss(learner, batch, smoothing)
    model = learner.model
    with learner.precision():
        twice = model(batch.source.repeat(2, 1), batch.inputs.repeat(2, 1)).unflatten(0, (2, -1)).flatten(1, 2)
        first, second = (hidden.index_select(0, batch.real) for hidden in twice)
        return consistent_cross_entropy(
            first, second, model.output_weight, model.output_bias, batch.labels, smoothing, alpha
        )


def batch_loss(learner: Learner, batch: Prepared, smoothing: float) -> Loss:
    """Return the loss summed over the tokens of a batch; logits are made at real positions only."""
    model = learner.model
    with learner.precision():
        hidden = model(batch.source, batch.inputs).flatten(0, 1).index_select(0, batch.real)
        return cross_entropy(hidden, model.output_weight, model.output_bias, batch.labels, smoothing)


def epoch_term(train: Train, loss: float, tokens: int) -> tuple[float, int]:
    """Return what a batch with this summed loss adds to the sum and to the divisor of an epoch's loss."""
    return (loss, tokens) if train.epoch_loss == "tokens" else (loss / tokens, 1)


@torch.no_grad()
def evaluate(learner: Learner, pairs: Pairs) -> float:
    """Return the mean cross-entropy per target token, in nats, without dropout or smoothing; the same in all processes.

    Each takes its rows of every batch.
    """
    learner.model.eval()
    plan = [[rows] for rows in ordered_batches(pairs, learner.train.batches)]
    losses, tokens, none = list[Tensor](), list[int](), torch.zeros((), device=learner.device)
    with enough_memory(pairs, plan, lambda: len(losses), learner.train.batches):
        for (batch,) in prepared(pairs, plan, learner.device):
            losses.append(batch_loss(learner, batch, 0.0).plain if has_rows(batch) else none)
            tokens.append(batch.tokens)
    learner.model.train()
    total, terms = 0.0, 0
    for loss, count in zip(sum_over_ranks(torch.stack(losses)).tolist(), tokens, strict=True):
        more, weight = epoch_term(learner.train, loss, count)
        total, terms = total + more, terms + weight
    return total / terms
