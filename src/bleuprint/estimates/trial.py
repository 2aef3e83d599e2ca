"""A training tried for some seconds, in a process of its own: what `bleuprint plan` projects from.

Of its own, for the most memory that a process had is never less again, and one that the system ends for it takes no
other with it. Where the corpus is not made yet, sentences of one length stand in for it.
"""

import multiprocessing
import resource
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bleuprint.graph import Params
from bleuprint.params import BpeTokenizer
from bleuprint.process import prepare
from bleuprint.runs import CORPORA, recipe_of

if TYPE_CHECKING:
    from bleuprint.training import Recipe

# ASSUME: of a corpus that is not made yet: how many pieces of words a sentence has on either side.
STAND_IN_TOKENS = 30
STAND_IN_PAIRS = {"train": 20_000, "validation": 3_000}  # a plan needs some; newstest2013 has 3,000
WARM_UP_UPDATES = 2
MANY_BLOCKS = 10_000  # more than there are seconds for
TRIED_BATCHES = 2  # of an update that has more; adding up their gradients takes no time
MB = 1000**2


class Trial(NamedTuple):
    """What a training takes, by some updates of it: a token is a source or a target one, times are in seconds."""

    parameters: int
    epoch_updates: int
    epoch_tokens: tuple[int, int]  # source, target
    epoch_flops: float
    token_seconds: float
    epoch_end: float  # validation, weights, state
    save: float  # of the state
    memory_mb: int  # of a GPU, else resident


def is_made(corpus: str) -> bool:
    """Return whether a corpus is there."""
    return (CORPORA / corpus / "manifest.json").exists()


def try_apart(params: Params, run: str, seconds: float, scratch: Path) -> Trial:
    """Try a training in a process of its own; ValueError where that ends without an answer, or cannot be tried."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(try_here, params, run, seconds, scratch).result()
        except BrokenProcessPool:
            raise ValueError(
                f"the system ended the trial of {run}, as it does where memory is short; batches of fewer tokens "
                "(train.batches) need less"
            ) from None


def try_here(params: Params, run: str, seconds: float, scratch: Path) -> Trial:
    """Train a run for some seconds in this process, which did not import torch yet; files are written below `scratch`.

    ValueError where its corpus is not made and cannot be guessed.
    """
    prepare()
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        if is_made(params.run_named(run).corpus):
            return measure(recipe_of(params, run), seconds, scratch)
        return measure(stand_in(params, run, Path(directory)), seconds, scratch)


def measure(recipe: "Recipe", seconds: float, scratch: Path) -> Trial:
    """Return what a recipe takes, by updates of few batches and one epoch's worth of lengths."""
    from bleuprint.batching import open_pairs
    from bleuprint.estimates.speed import Effort, measure_cost
    from bleuprint.models import count_parameters
    from bleuprint.resume import Progress, count_flops
    from bleuprint.training import epoch_steps, new_learner

    pairs = open_pairs(recipe.corpus, recipe.splits.train)
    steps = epoch_steps(pairs, recipe.train, recipe.seed, 1)
    rows = [row for batches in steps for batch in batches for row in batch]
    tokens = int(pairs.source.lengths[rows].sum()), int(pairs.target.lengths[rows].sum()) - len(rows)
    few = min(TRIED_BATCHES, recipe.train.batches.batches_per_step)
    batches = recipe.train.batches.model_copy(update={"batches_per_step": few})
    tried = recipe._replace(train=recipe.train.model_copy(update={"batches": batches}))
    cost = measure_cost(tried, Effort(WARM_UP_UPDATES, MANY_BLOCKS, 1, 1, seconds), scratch)
    learner = new_learner(recipe)
    return Trial(
        count_parameters(learner.model),
        len(steps),
        tokens,
        count_flops(learner, Progress(source_tokens=tokens[0], target_tokens=tokens[1])),
        statistics.median(cost.token_seconds),
        sum(cost.epoch_end),
        cost.epoch_end.save_progress,
        cost.peak_mb if cost.peak_mb is not None else resident_mb(),
    )


def resident_mb() -> int:
    """Return the most memory that this process had, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // MB


# --- a corpus that is not there ---------------------------------------------------------------------------------------


def stand_in(params: Params, run: str, directory: Path) -> "Recipe":
    """Return the run's recipe over sentences of one length, drawn evenly from a vocabulary as large as its merges.

    ValueError where the tokenizer is not BPE: how many words there are only the text can tell.
    """
    import numpy as np

    from bleuprint.files import write_text
    from bleuprint.idstore import write_ids
    from bleuprint.tokenizers import BOS, EOS
    from bleuprint.training import Recipe

    spec = params.training_named(run)
    experiment, splits = params.recipes[spec.experiment], params.datasets[spec.dataset].splits
    tokenizer = params.corpora[spec.corpus].tokenizer
    if not isinstance(tokenizer, BpeTokenizer):
        raise ValueError(
            f"{CORPORA / spec.corpus} is not made; make it with: python -m bleuprint download {spec.dataset}; "
            f"python -m bleuprint tokenize {spec.corpus}"
        )
    random = np.random.default_rng(spec.seed)
    for split, pairs in zip((splits.train, splits.validation), STAND_IN_PAIRS.values(), strict=True):
        for side in ("source", "target"):
            sentences = random.integers(EOS + 1, tokenizer.merges, (pairs, STAND_IN_TOKENS))
            marked = [[BOS, *sentence, EOS] for sentence in sentences.tolist()]
            write_ids(directory, f"{split}.{side}", marked, tokenizer.merges)
    types = f'{{"vocabulary": {{"source": {tokenizer.merges}, "target": {tokenizer.merges}}}}}\n'
    write_text(directory / "manifest.json", types)
    return Recipe(spec.seed, experiment.model, experiment.train, params.machine, splits, directory, {})
