"""What a terminal shows of a training: one line that moves, above it what stays. Elsewhere the log's lines do that."""

import io
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Observer = Callable[[int, Mapping[str, float]], None]


@contextmanager
def training_bar(run: str, max_steps: int) -> Iterator[Observer]:
    """Give the block a function of (step, metrics) that moves a bar: loss, tokens/s, time left to the last update.

    Where stderr is no terminal it does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda step, metrics: None
        return
    with quiet_default_console(), open_bar() as bar, lines_above(bar):
        task = bar.add_task(f"train {run}", total=max_steps, start=False, loss="", valid="", rate="")
        yield lambda step, metrics: show(bar, task, step, metrics)


def open_bar() -> "Progress":
    """Return the bar, on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    texts = (TextColumn(f"{{task.fields[{name}]}}") for name in ("loss", "valid", "rate"))
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), *texts, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def show(bar: "Progress", task: "TaskID", step: int, metrics: Mapping[str, float]) -> None:
    """Move the bar to an update; the first one of this process begins its clock, for a run may resume."""
    if not bar.tasks[task].started:
        bar.reset(task, completed=step)
    texts = bar.tasks[task].fields
    if "train_loss" in metrics:
        texts["loss"] = f"loss {metrics['train_loss']:.3f}"
        texts["rate"] = f"{metrics['tokens_per_second']:,.0f} tokens/s"
    if "validation_loss" in metrics:
        texts["valid"] = f"validation {metrics['validation_loss']:.3f}"
    bar.update(task, completed=step)


@contextmanager
def lines_above(bar: "Progress") -> Iterator[None]:
    """Let what is logged to stderr appear above the bar, without the lines that the bar shows itself."""
    handlers = [one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler]
    before = [handler.stream for handler in handlers]
    for handler in handlers:
        handler.setStream(sys.stderr)  # rich's, while the bar is there
        handler.addFilter(is_no_step)
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            handler.setStream(stream)
            handler.removeFilter(is_no_step)


def is_no_step(record: logging.LogRecord) -> bool:
    """Return whether a line is another than that of some updates; the end of an epoch is one to keep."""
    text = record.getMessage()
    return not text.startswith("step ") or "validation_loss" in text


@contextmanager
def quiet_default_console() -> Iterator[None]:
    """Send what is drawn on rich's own console nowhere: training.py has a plain bar there, and two would overwrite."""
    import rich

    rich.reconfigure(file=io.StringIO(), force_terminal=False)
    try:
        yield
    finally:
        rich.reconfigure()
