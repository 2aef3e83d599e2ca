"""A training on a terminal has a bar, in a pipe a line at times: on a real pseudo-terminal, and with a real training.

So has a download, whose bar test_corpus.py sees.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from specs import ROOT, bleuprint

from bleuprint.progress import duration

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SHOW = """
import logging, sys, time
from bleuprint.console import log_to_stderr
from bleuprint.progress import training_progress

log_to_stderr()
said = logging.getLogger("bleuprint.training").info
with training_progress("toy-1", 200) as show:
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


def in_a_pipe(where: Path, script: str) -> list[str]:
    """Run Python without a terminal; return the lines on stderr, without their times."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", script], cwd=where, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert not ESCAPE.search(done.stderr)
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in done.stderr.splitlines()]


def test_a_pipe_gets_a_line_at_times(tmp_path: Path) -> None:
    assert in_a_pipe(tmp_path, SHOW) == [
        "step 120 of 200, loss 1.500, 12,345 tokens/s",
        "step 200 epoch 1 validation_loss 0.25",  # is told whenever it comes
        "step 7 after the bar",
    ]


def test_the_lines_tell_the_time_left(tmp_path: Path) -> None:
    at_once = SHOW.replace("\nlog_to", "\nimport bleuprint.progress as it; it.LINE_SECONDS = 0.0\nlog_to")
    lines = [line for line in in_a_pipe(tmp_path, at_once) if " of 200" in line]
    assert len(lines) == 5
    assert "left" not in lines[0]
    left = [int(seconds) for line in lines[1:] for seconds in re.findall(r", at most (\d+) s left$", line)]
    assert len(left) == 4  # how long 60, 40, 20 and no updates take, at 20 in 0.12 s or, on a busy machine, more
    assert left[-1] == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (5900, "98 min"), (6000, "1.7 h")]
)
def test_durations_are_told_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_download_tells_in_a_pipe_how_much_is_here(tmp_path: Path) -> None:
    """By the stage's own command, from a server that sends the second half when the first has been told."""
    told = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "200000")
            self.end_headers()
            self.wfile.write(bytes(100_000))
            if told.wait(60):
                self.wfile.write(bytes(100_000))

        def log_message(self, *_: object) -> None:
            pass

    shutil.copytree(ROOT / "workflow/tables", tmp_path / "workflow/tables")
    script = "import bleuprint.progress as it; it.LINE_SECONDS = 0.01; from bleuprint.cli import app; app()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_PROXY": "127.0.0.1", "BLEUPRINT_MIRROR": ""}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        mirror = f"http://127.0.0.1:{http.server_port}"
        (tmp_path / "params.yaml").write_text(re.sub(r"https://raw\S+", mirror, (ROOT / "params.yaml").read_text()))
        command = [sys.executable, "-c", script, "download", "multi30k"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            first = next((line for line in process.stderr if "so far" in line), "")
            told.set()
            rest = process.stderr.read()
        http.shutdown()
    [(name, size)] = re.findall(r" (\S+): ([\d,]+) bytes so far\n", first)
    assert name == "train.en"
    assert 0 < int(size.replace(",", "")) <= 100_000
    assert process.returncode == 1
    assert "sha256 is" in rest  # zeros are no captions


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
