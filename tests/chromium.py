"""A real headless Chromium, Debian's, driven by Playwright, which brings none of its own."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from debian_packages import install

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALL = "BLEUPRINT_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """Return where a Chromium is, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


def why_not() -> str | None:
    """Return why there can be no browser here, None where there is one; install it where root asks for that."""
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install bleuprint[dev]"
    if program() is None and os.environ.get(INSTALL) == "1":
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return "Chromium is not installed, which takes root and apt-get"
        return install(("chromium",), lambda: program() is not None)
    return None if program() else f"Chromium is not installed; {INSTALL}=1 lets root install Debian's package"


@pytest.fixture(scope="module")  # no longer: while it is there, its event loop keeps others from running in the process
def browser() -> "Iterator[Browser]":
    """Run a headless Chromium and yield it; skips where there is none."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # No sandbox: root has none. No GPU and little shared memory, as in a container.
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=program(), args=options)
        yield running
        running.close()
