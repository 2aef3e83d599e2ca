"""What every command does: messages to stderr and into a log, one sentence where it fails."""

import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path

import typer

from bleuprint.files import FULL

LOGS = Path("work/logs")
LOCKS = Path("work/locks")
HELD = ExitStack()  # locks of the command under way
AS_BY_SIGPIPE = 141  # the exit code of a process that it ends
LINE = logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")

logger = logging.getLogger("bleuprint")


@contextmanager
def plain_errors(again: str) -> Iterator[None]:
    """End with one sentence on stderr: exit code 1 for a mistake of the user or the system, 130 for Ctrl-C.

    Without one where the reader of stdout has enough, with exit code 141.

    The traceback goes into the stage's log; BLEUPRINT_DEBUG=1 shows it. `again` says what the same command does then.
    """
    log_to_stderr()
    try:
        yield
    except BrokenPipeError:  # the reader of stdout has enough: `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain at its end
        raise typer.Exit(AS_BY_SIGPIPE) from None
    except (ValueError, OSError, RecursionError) as error:
        logger.debug("failed", exc_info=True)
        if os.environ.get("BLEUPRINT_DEBUG"):
            raise
        typer.secho(f"error: {sentence(error)}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        logger.debug("interrupted")
        typer.secho(f"interrupted; the same command {again}: {this_command()}", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    finally:
        HELD.close()


def sentence(error: ValueError | OSError | RecursionError) -> str:
    """Return what went wrong; for a failure of the file system with the file's name in front."""
    if isinstance(error, RecursionError):
        return f"a file may be nested too deeply ({error})"
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.errno in FULL and error.filename is None:
        return f"{error.strerror} in {Path.cwd()}; {shutil.disk_usage(Path()).free:,} bytes are free there"
    files = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return f"{files}: {error.strerror}" if files else error.strerror


def log_to_stderr() -> None:
    """Send the package's messages and the warnings of others to stderr, one `HH:MM:SS message` a line."""
    logger.setLevel(logging.DEBUG)
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    handler.setFormatter(LINE)
    logging.getLogger().addHandler(handler)


def only_errors() -> None:
    """Send neither messages nor warnings to stderr any more: another process of the same training does."""
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.ERROR)


def start_log(stage: str, name: str) -> None:
    """Append the same messages, and tracebacks, to work/logs/{stage}-{name}.log, below a line with date and command."""
    LOGS.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(LOGS / f"{stage}-{name}.log", encoding="utf-8")
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is the stage's to tell
    handler.setFormatter(LINE)
    logging.getLogger().addHandler(handler)
    logger.debug("%s: %s", date.today().isoformat(), this_command())


def start_alone(stage: str, name: str) -> None:
    """Start the log of a stage, and keep a second process of the same stage out until the command ends.

    A stage whose engine was killed alone still writes, and the next engine knows nothing of it. ValueError says so.
    """
    from bleuprint.files import locked

    start_log(stage, name)
    HELD.enter_context(locked(LOCKS / f"{stage}-{name}", f"another process makes {stage} {name}"))


def wrote(path: Path) -> None:
    """Say that a stage is done, and where its output is."""
    logger.info("wrote %s", path)


def this_command() -> str:
    """Return the command line as a user would type it again."""
    return shlex.join(["python", "-m", "bleuprint", *sys.argv[1:]])
