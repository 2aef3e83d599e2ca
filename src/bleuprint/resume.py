"""What a training leaves in its work directory: the next process goes on from there, bit for bit, or publishes it.

Of several processes that train together all read the state, and the first alone writes.
"""

import json
import logging
import math
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from bleuprint.checkpoint import load_into, load_state, save_state, save_weights, weights_of
from bleuprint.distributed import is_first
from bleuprint.files import atomic_directory, sha256_of
from bleuprint.history import METRICS, read_metrics, rewrite_metrics, write_history
from bleuprint.incidents import DIVERGED
from bleuprint.manifests import read_digests, write_digests
from bleuprint.params import Train

logger = logging.getLogger(__name__)

STATE = "state.pt"
Stop = Literal["max_steps", "patience", "diverged"]  # why a run is over


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
    sha256: dict[str, str] = field(default_factory=dict)  # of the weights kept, by file name


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
    weights, directory = weights_of(learner.model), work / "weights"
    kept = [directory / f"step-{progress.step:08d}.safetensors"]
    if loss < progress.best:
        kept.append(directory / f"best-{progress.step:08d}.safetensors")
    for path in kept:
        save_weights(weights, path)
    for old in sorted(directory.glob("step-*.safetensors"))[:-keep_last]:
        old.unlink()
    known = progress.sha256 | dict.fromkeys([path.name for path in kept], sha256_of(kept[0]))
    progress.sha256 = {name: digest for name, digest in known.items() if (directory / name).exists()}


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


def saved_step(work: Path) -> int:
    """Return after which update the state in `work` was saved; 0 where there is none."""
    path = work / STATE
    return load_state(path)["progress"]["step"] if path.exists() else 0


def resume(learner: Learner, work: Path) -> Progress:
    """Continue from the state in `work`, dropping what was written after it; a fresh Progress where there is none.

    ValueError where it is damaged.
    """
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
    """Remove weights and metrics that a killed process wrote after its last saved state, and how it once diverged."""
    (work / DIVERGED).unlink(missing_ok=True)
    for file in (work / "weights").glob("*-*.safetensors"):
        if int(file.stem.split("-")[1]) > progress.step:
            file.unlink()
    rewrite_metrics(work, progress.step, progress.epoch)


def publish(summary: Mapping[str, Any], sha256: Mapping[str, str], work: Path, out: Path) -> None:
    """Replace `out` by the finished run's weights, metrics, history and summary, all at once.

    weights/manifest.json has the sha256 of each file, by which its readers see damage. ValueError where one is not what
    was kept, by `sha256`; weights that an older release kept are not in there.
    """
    with atomic_directory(out) as directory:
        (directory / "weights").mkdir()
        ends = sorted((work / "weights").glob("step-*.safetensors"))
        best = max((work / "weights").glob("best-*.safetensors"), default=ends[-1])
        sources = {file.name: file for file in ends} | {"best.safetensors": best}
        for name, file in sources.items():
            shutil.copy(file, directory / "weights" / name)
        write_digests(directory / "weights")
        for name, digest in read_digests(directory / "weights").items():
            source = sources[name]
            if source.name in sha256 and sha256[source.name] != digest:
                raise ValueError(f"{source} is damaged; remove {work} to train the run afresh")
        shutil.copy(work / METRICS, directory)
        write_history(read_metrics(work), directory / "history.csv")
        (directory / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")


def summarise(learner: Learner, progress: Progress, stopped: Stop) -> dict[str, Any]:
    """Return what summary.json says of a finished run."""
    return {
        "epochs": progress.epoch,
        "steps": progress.step,
        "stopped": stopped,
        "validation_loss": None if stopped == "diverged" else progress.best,
        "source_tokens": progress.source_tokens,
        "target_tokens": progress.target_tokens,
        "flops": count_flops(learner, progress),
    }


def count_flops(learner: Learner, progress: Progress) -> float:
    """Return the operations of all updates, forward and backward: 6 for each matrix element and token it reads.

    Real tokens alone: the source's for the encoder, the target's for the decoder and the output projection; what
    attention does between tokens is left out (Kaplan et al. 2020, section 2.1). R-Drop reads everything twice.
    """
    matrices = {name: weight.numel() for name, weight in learner.model.named_parameters() if weight.dim() == 2}
    encoder, decoder = (
        sum(size for name, size in matrices.items() if name.startswith(part)) for part in ("encoder", "decoder")
    )
    per_target_token = decoder + learner.model.output_weight.numel()
    passes = 2 if learner.train.regularizers.r_drop else 1
    return 6.0 * passes * (encoder * progress.source_tokens + per_target_token * progress.target_tokens)
