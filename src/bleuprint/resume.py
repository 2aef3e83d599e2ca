"""What a training leaves in its work directory: the next process goes on from there, bit for bit, or publishes it.

Of several processes that train together all read the state, and the first alone writes.
"""

import json
import logging
import math
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bleuprint.checkpoint import load_into, load_state, save_state, save_weights, weights_of
from bleuprint.distributed import is_first
from bleuprint.files import atomic_directory
from bleuprint.history import METRICS, read_metrics, rewrite_metrics, write_history
from bleuprint.params import Train

logger = logging.getLogger(__name__)

STATE = "state.pt"


@dataclass
class Progress:
    """Where a run stands: with weights, optimizer and random state, all that resuming needs."""

    epoch: int = 1  # the epoch under way, from 1
    epoch_steps: int = 0  # updates done in it
    step: int = 0  # updates done in all
    epoch_loss: float = 0.0  # sum over the tokens since the epoch began, or over the updates of their means
    epoch_terms: int = 0  # how many tokens, or updates
    window_loss: float = 0.0  # the same since the last line of metrics.jsonl
    window_tokens: int = 0
    best: float = math.inf  # lowest validation loss
    bad_epochs: int = 0  # since then
    plateau_factor: float = 1.0
    plateau_best: float = math.inf
    plateau_bad_epochs: int = 0
    seconds: float = 0.0  # spent training, over all processes
    source_tokens: int = 0  # read in all updates, no padding
    target_tokens: int = 0  # predicted in all updates


class Learner(NamedTuple):
    """A model of models/ with its optimizer, on a device."""

    model: Any  # as models.build_model gives it
    optimizer: torch.optim.Adam
    device: torch.device
    train: Train

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context of forward passes: bf16 products with fp32 master weights, or plain fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.train.precision == "bf16")


def keep_weights(learner: Learner, progress: Progress, loss: float, keep_last: int, work: Path) -> None:
    """Write the weights at the end of an epoch, forget those older than keep_last epochs, note the best."""
    if not is_first():
        return
    weights = weights_of(learner.model)
    save_weights(weights, work / "weights" / f"step-{progress.step:08d}.safetensors")
    for old in sorted((work / "weights").glob("step-*.safetensors"))[:-keep_last]:
        old.unlink()
    if loss < progress.best:
        save_weights(weights, work / "weights" / f"best-{progress.step:08d}.safetensors")


def save_progress(learner: Learner, progress: Progress, work: Path) -> None:
    """Write the state from which the run resumes; only then forget the best weights before the present ones."""
    if not is_first():
        return
    random = {"cpu": torch.get_rng_state()}
    if learner.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state()
    state = {
        "progress": asdict(progress),
        "weights": weights_of(learner.model),
        "optimizer": learner.optimizer.state_dict(),
        "random": random,
    }
    save_state(state, work / STATE)
    for old in sorted((work / "weights").glob("best-*.safetensors"))[:-1]:
        old.unlink()


def resume(learner: Learner, work: Path) -> Progress:
    """Continue from the state in `work`, dropping what was written after it; a fresh Progress where there is none."""
    path = work / STATE
    progress = Progress()
    if path.exists():
        state = load_state(path)
        progress = Progress(**state["progress"])
        with torch.no_grad():
            load_into(learner.model, state["weights"], path)
        learner.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"]["cpu"])
        if learner.device.type == "cuda":
            torch.cuda.set_rng_state(state["random"]["cuda"])
        logger.info("resuming after step %d in epoch %d", progress.step, progress.epoch)
    if is_first():
        drop_later(progress, work)
    return progress


def drop_later(progress: Progress, work: Path) -> None:
    """Remove weights and metrics that a killed process wrote after its last saved state."""
    for file in (work / "weights").glob("*-*.safetensors"):
        if int(file.stem.split("-")[1]) > progress.step:
            file.unlink()
    rewrite_metrics(work, progress.step, progress.epoch)


def publish(summary: Mapping[str, Any], work: Path, out: Path) -> None:
    """Replace `out` by the finished run's weights, metrics, history and summary, all at once."""
    with atomic_directory(out) as directory:
        (directory / "weights").mkdir()
        ends = sorted((work / "weights").glob("step-*.safetensors"))
        for file in ends:
            shutil.copy(file, directory / "weights")
        best = max((work / "weights").glob("best-*.safetensors"), default=ends[-1])
        shutil.copy(best, directory / "weights" / "best.safetensors")
        shutil.copy(work / METRICS, directory)
        write_history(read_metrics(work), directory / "history.csv")
        (directory / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
