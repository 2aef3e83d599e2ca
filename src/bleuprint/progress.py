"""What is seen of a stage under way: a bar on a terminal, elsewhere a line at times.

Of a training a terminal shows one line that moves, above it what stays; a pipe, and so an engine's or a cluster's log,
gets one line every few seconds. All lines of a training are in work/logs. decoding.py does both for itself.
"""

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_SECONDS = 10.0  # between two lines of a log

Observer = Callable[[int, Mapping[str, float]], None]

logger = logging.getLogger(__name__)


# --- a training -------------------------------------------------------------------------------------------------------


@contextmanager
def training_progress(run: str, max_steps: int) -> Iterator[Observer]:
    """Give the block a function of (step, metrics) that shows loss, tokens/s and the time left to the last update.

    On a terminal it moves a bar; elsewhere it writes a line to stderr, at most one in LINE_SECONDS.
    """
    if not sys.stderr.isatty():
        with own_lines() as handlers:
            yield Lines(handlers, max_steps)
        return
    with quiet_default_console(), open_bar() as bar, lines_above():
        task = bar.add_task(f"train {run}", total=max_steps, start=False, loss="", valid="", rate="")
        yield lambda step, metrics: show(bar, task, step, metrics)


class Lines:
    """Writes, of the updates that are told to it, one line every LINE_SECONDS; the time left counts this process."""

    def __init__(self, handlers: Sequence[logging.Handler], max_steps: int) -> None:
        self.handlers, self.max_steps = handlers, max_steps
        self.first: tuple[int, float] | None = None  # update and time
        self.last = -LINE_SECONDS

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if "train_loss" not in metrics or now - self.last < LINE_SECONDS:
            return
        self.first, self.last = self.first or (step, now), now
        text = f"step {step} of {self.max_steps}, loss {metrics['train_loss']:.3f}, "
        text += f"{metrics['tokens_per_second']:,.0f} tokens/s"
        first, began = self.first
        if step > first:
            text += f", at most {duration((now - began) / (step - first) * (self.max_steps - step))} left"
        record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None)
        for handler in self.handlers:
            handler.handle(record)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: 45 s, 12 min, 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def open_bar() -> "Progress":
    """Return the bar, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    texts = (TextColumn(f"{{task.fields[{name}]}}") for name in ("loss", "valid", "rate"))
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), *texts, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def show(bar: "Progress", task: "TaskID", step: int, metrics: Mapping[str, float]) -> None:
    """Move the bar to an update; the first one of this process begins its clock, for a run may resume."""
    texts = bar.tasks[task].fields
    if "train_loss" in metrics:
        texts["loss"] = f"loss {metrics['train_loss']:.3f}"
        texts["rate"] = f"{metrics['tokens_per_second']:,.0f} tokens/s"
    if "validation_loss" in metrics:
        texts["valid"] = f"validation {metrics['validation_loss']:.3f}"
    if bar.tasks[task].started:
        bar.update(task, completed=step)
    else:
        bar.reset(task, completed=step)  # draws at once: the texts must be there


@contextmanager
def lines_above() -> Iterator[None]:
    """Let what is logged to stderr appear above the bar, without the lines that the bar shows itself."""
    with own_lines() as handlers:
        before = [handler.stream for handler in handlers]
        for handler in handlers:
            handler.setStream(sys.stderr)  # rich's, while the bar is there
        try:
            yield
        finally:
            for handler, stream in zip(handlers, before, strict=True):
                handler.setStream(stream)


@contextmanager
def own_lines() -> Iterator[list[logging.StreamHandler]]:
    """Give the block the handlers that write to stderr, from which training.py's lines of its updates are kept."""
    handlers = [one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler]
    for handler in handlers:
        handler.addFilter(is_no_step)
    try:
        yield handlers
    finally:
        for handler in handlers:
            handler.removeFilter(is_no_step)


def is_no_step(record: logging.LogRecord) -> bool:
    """Return whether a line is another than training.py's of some updates; the end of an epoch is one to keep."""
    text = record.getMessage()
    return record.name == logger.name or not text.startswith("step ") or "validation_loss" in text


@contextmanager
def quiet_default_console() -> Iterator[None]:
    """Send what is drawn on rich's own console nowhere: training.py has a plain bar there, and two would overwrite."""
    import rich

    rich.reconfigure(file=io.StringIO(), force_terminal=False)
    try:
        yield
    finally:
        rich.reconfigure()


# --- a download -------------------------------------------------------------------------------------------------------


@contextmanager
def download_lines(cache: Path) -> Iterator[None]:
    """Log every LINE_SECONDS how much of the files is here that the block fetches into `cache` as {name}.part.

    On a terminal it does nothing: corpus.py has a bar there.
    """
    if sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=watch_parts, args=(cache, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def watch_parts(cache: Path, over: threading.Event) -> None:
    """Log the size of each partial file that has grown, until it is over."""
    before: dict[str, int] = {}
    while not over.wait(LINE_SECONDS):
        now = part_sizes(cache)
        for name, size in now.items():
            if size > before.get(name, 0):
                logger.info("%s: %s bytes so far", name, f"{size:,}")
        before = now


def part_sizes(cache: Path) -> dict[str, int]:
    """Return how many bytes of each unfinished file are here; one that is finished meanwhile is left out."""
    sizes = {}
    for part in sorted(cache.glob("*.part")):
        with suppress(FileNotFoundError):
            sizes[part.stem] = part.stat().st_size
    return sizes
