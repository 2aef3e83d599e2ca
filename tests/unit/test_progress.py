"""A training on a terminal has a bar, in a pipe plain lines: on a real pseudo-terminal, and with a real training."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from specs import ROOT, bleuprint

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SHOW = """
import logging, sys, time
from bleuprint.console import log_to_stderr
from bleuprint.progress import training_bar

log_to_stderr()
said = logging.getLogger("bleuprint.training").info
with training_bar("toy-1", 200) as show:
    for step in (120, 140, 160, 180, 200):
        said("step %d epoch 1 train_loss 1.5", step)
        show(step, {"train_loss": 1.5, "lr": 0.1, "tokens_per_second": 12345.0})
        time.sleep(0.12)
    said("step 200 epoch 1 validation_loss 0.25")
    show(200, {"train_loss_epoch": 1.5, "validation_loss": 0.25})
said("step 7 after the bar")
"""


def heed_ctrl_c() -> None:
    """Heed SIGINT, as a terminal's programs do: those of a shell that was sent to the background inherit deafness."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_a_terminal(where: Path, *command: str, interrupt_at: str = "") -> tuple[int, str]:
    """Run Python with a terminal of 120 columns as stderr; return exit status and what it showed."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=slave,
        preexec_fn=heed_ctrl_c,
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 65536):
                shown += part
                if interrupt_at and re.search(interrupt_at, ESCAPE.sub("", shown.decode(errors="replace"))):
                    process.send_signal(signal.SIGINT)
                    interrupt_at = ""
        except OSError:  # the other end is closed
            pass
        process.wait()
    os.close(master)
    return process.returncode, shown.decode()


def test_a_terminal_shows_a_bar_with_loss_speed_and_time_left(tmp_path: Path) -> None:
    code, shown = on_a_terminal(tmp_path, "-c", SHOW)
    assert code == 0, shown
    plain = ESCAPE.sub("", shown)
    assert re.search(r"train toy-1 ━+\S* *160/200 loss 1\.500 +12,345 tokens/s \d:\d\d:\d\d", plain)
    assert re.search(r"200/200 loss 1\.500 validation 0\.250 12,345 tokens/s", plain)
    lines = re.findall(r"\d\d:\d\d:\d\d (step .*?)\s*$", plain, re.MULTILINE)
    assert lines == ["step 200 epoch 1 validation_loss 0.25", "step 7 after the bar"]  # the others are in the bar


def test_a_pipe_gets_lines_without_a_bar(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", SHOW], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 7
    assert not ESCAPE.search(done.stderr)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the toy corpus and a training of toy-1 that nobody waits for."""
    root = tmp_path_factory.mktemp("toy")
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    text = (ROOT / "params.yaml").read_text()
    for key, value in {"max_steps": 100000, "checkpoint_every_steps": 5, "log_every_steps": 5}.items():
        text = re.sub(rf"\b{key}: \d+", f"{key}: {value}", text, count=1)  # toy stands first
    (root / "params.yaml").write_text(text)
    for stage in (("download", "toy"), ("tokenize", "toy-words")):
        assert bleuprint(root, *stage).returncode == 0
    return root


def test_ctrl_c_ends_a_training_and_says_how_to_go_on(toy: Path) -> None:
    command = ("-m", "bleuprint", "train", "toy-1")
    for already in (0, 5):  # the second one goes on
        code, shown = on_a_terminal(toy, *command, interrupt_at=r"\d\d/100000")  # the state of update 5 is saved then
        plain = ESCAPE.sub("", shown)
        assert code == 130, plain
        [(step, _)] = re.findall(r"train toy-1 \S+ +(\d+)/100000 (loss)", plain)[:1]
        assert int(step) > already
        last = plain.strip().splitlines()[-1].strip()
        assert last == (
            "interrupted; the same command goes on from the last saved state: python -m bleuprint train toy-1"
        )
        assert "Traceback" not in plain
    log = (toy / "work/logs/train-toy-1.log").read_text()
    assert re.search(r"step 5 epoch 1 train_loss", log)  # what the bar shows is in the log
