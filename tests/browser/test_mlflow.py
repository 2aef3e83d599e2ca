"""What a user sees of three runs in MLflow's own pages: `bleuprint ui` serves them, a real browser opens them."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 180_000  # MLflow's pages are 20 MB of scripts; a machine that trains takes its time
FILL = """
from pathlib import Path
from bleuprint.tracking import Data, Settings, track_scores, tracked

for seed in (1, 2, 3):
    run = f"toy-{seed}"
    settings = Settings(
        {"experiment": "toy", "seed": seed, "train": {"schedule": {"lr": 0.001 * seed}}},
        {"decode": {"beam": 4}},
        [Data("toy-words", Path("data/corpora/toy-words"), "ab" * 32)],
    )
    with tracked("seeds", run, Path(f"{run}.id"), settings) as observe:
        for step in range(100, 1100, 100):
            observe(step, {"train_loss": 500.0 / step + seed})
    texts = {f"results/{run}.json": "{}", "translations/test.txt": f"hypothesis  of {run}"}
    track_scores("seeds", run, 1000, settings, {"test/bleu_lc_tok": 90.0 + seed}, lambda: texts)
"""


class Pages(NamedTuple):
    """The address of the runs, as `bleuprint ui` tells it, and MLflow's id of each run."""

    runs: str
    ids: dict[str, str]

    def of(self, run: str, part: str = "") -> str:
        return f"{self.runs}/{self.ids[run]}/{part}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Three runs of one table in a project with a commit and a dvc.lock, and a server over them."""
    project = tmp_path_factory.mktemp("project")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    (project / "dvc.lock").write_text("schema: '2.0'\n")
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "state"]):
        subprocess.run(command, cwd=project, check=True)
    subprocess.run([sys.executable, "-c", FILL], cwd=project, env=environment, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "bleuprint", "ui", "--port", port]
    with subprocess.Popen(
        command, cwd=project, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        assert server.stderr is not None
        said = ""
        while "Application startup complete" not in said:
            line = server.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        told = re.search(r"the runs are on (\S+);", said)
        assert told, said
        yield Pages(told[1], {run: (project / f"{run}.id").read_text().strip() for run in ("toy-1", "toy-2", "toy-3")})
        os.killpg(server.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def page(browser: "Browser") -> "Iterator[Page]":
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()


def open_text(page: "Page", address: str, text: str) -> None:
    """Open a page and wait until a text is seen on it."""
    page.goto(address)
    page.get_by_text(text, exact=True).first.wait_for()


def open_table(page: "Page", pages: Pages) -> None:
    """Open the list of runs and unfold the table's, unless an earlier test has."""
    open_text(page, pages.runs, "seeds")
    if page.get_by_role("link", name="toy-1", exact=True).count() == 0:
        page.locator("[row-index='0'] button").first.click()
    for run in pages.ids:
        page.get_by_role("link", name=run, exact=True).wait_for()


def test_a_table_is_one_run_with_a_run_below_for_each_of_its_own(page: "Page", pages: Pages) -> None:
    open_text(page, pages.runs, "seeds")
    assert page.get_by_role("link", name=re.compile(r"^(seeds|toy-\d)$")).count() == 1
    open_table(page, pages)


def test_three_runs_are_compared(page: "Page", pages: Pages) -> None:
    open_table(page, pages)
    for run in pages.ids:
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=run, exact=True))
        row.get_by_role("checkbox", name=re.compile("toggle row selection")).check()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("Comparing 3 Runs from 1 Experiment").wait_for()
    shown = page.inner_text("body")
    for text in (*pages.ids, "train.schedule.lr", "0.001", "0.003", "train_loss", "test/bleu_lc_tok"):
        assert text in shown
    page.locator(".js-plotly-plot").first.wait_for(state="attached")


def test_a_loss_is_a_curve(page: "Page", pages: Pages) -> None:
    page.goto(pages.of("toy-2", "model-metrics"))
    page.locator(".js-plotly-plot .scatterlayer path.js-line").first.wait_for(state="attached")
    drawn = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data.map(trace => [...trace.y]))"
    )
    losses = [500.0 / step + 2 for step in range(100, 1100, 100)]
    assert any(losses in traces for traces in drawn)


def test_a_run_tells_where_it_comes_from(page: "Page", pages: Pages) -> None:
    open_text(page, pages.of("toy-2"), "Tags")
    shown = page.inner_text("body")
    assert re.search(r"commit\s*:\s*[0-9a-f]{40}", shown)
    assert re.search(r"dvc\.lock\s*:\s*[0-9a-f]{64}", shown)
    assert "toy-words (" + "ab" * 18 in shown
    for text in ("seeds", "train.schedule.lr", "decode.beam"):
        assert text in shown


def test_result_and_translations_are_there(page: "Page", pages: Pages) -> None:
    open_text(page, pages.of("toy-2", "artifacts"), "translations")
    page.get_by_text("results", exact=True).first.click()
    page.get_by_text("toy-2.json", exact=True).first.wait_for()
    page.get_by_text("translations", exact=True).first.click()
    page.get_by_text("test.txt", exact=True).first.click()
    page.get_by_text("hypothesis of toy-2").wait_for()
