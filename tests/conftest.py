"""What all tests share: nothing of the user's machine decides whether they pass."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from chromium import browser  # noqa: F401 - fixtures
from clones import by_snakemake, origin  # noqa: F401
from one_node_slurm import Controller, install, one_node_slurm, why_not
from reliability import record, skip_slow_faults, toy_project  # noqa: F401 - fixtures

# A test that commits needs no git identity, and none tells its makers or a tracking server about itself.
os.environ.update(
    GIT_AUTHOR_NAME="test",
    GIT_AUTHOR_EMAIL="test@localhost",
    GIT_COMMITTER_NAME="test",
    GIT_COMMITTER_EMAIL="test@localhost",
    GIT_CONFIG_NOSYSTEM="1",
    DVC_NO_ANALYTICS="1",
    MLFLOW_DISABLE_TELEMETRY="true",
)
MIRROR = os.environ.get("BLEUPRINT_MIRROR", "")
for name in ("BLEUPRINT_MIRROR", "BLEUPRINT_DEBUG", "BLEUPRINT_LAUNCHER", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
    os.environ.pop(name, None)
for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "BLEUPRINT_OVERRIDES", "SACREBLEU_SEED"):
    os.environ.pop(name, None)

# A machine that also trains is no reason to fail.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_slow_faults(items)


@pytest.fixture(scope="session")
def multi30k_mirror() -> str:
    """The file:// address of Multi30K: BLEUPRINT_MIRROR, or ../shared/data/multi30k; skips where it is at neither."""
    here = Path(__file__).parents[2] / "shared/data/multi30k"
    if MIRROR.startswith("file://"):
        return MIRROR
    if not here.is_dir():
        pytest.skip(f"no Multi30K in {here}; BLEUPRINT_MIRROR=file:///... names another place")
    return here.as_uri()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """Run a Slurm of one node until the session ends, and yield its controller. Skips where there can be none."""
    reason = why_not()
    if reason is None:
        try:
            install()
        except OSError as error:
            reason = str(error)
    if reason is not None:
        pytest.skip(reason)
    with one_node_slurm(tmp_path_factory.mktemp("slurm")) as controller:
        yield controller
