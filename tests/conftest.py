"""What all tests share: nothing of the user's machine decides whether they pass."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
for name in ("BLEUPRINT_MIRROR", "BLEUPRINT_DEBUG", "MLFLOW_TRACKING_URI", "DVC_ROOT", "SACREBLEU_SEED"):
    os.environ.pop(name, None)

# A machine that also trains is no reason to fail.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def multi30k_mirror() -> str:
    """The file:// address of Multi30K: BLEUPRINT_MIRROR, or ../shared/data/multi30k; skips where it is at neither."""
    here = Path(__file__).parents[2] / "shared/data/multi30k"
    if MIRROR.startswith("file://"):
        return MIRROR
    if not here.is_dir():
        pytest.skip(f"no Multi30K in {here}; BLEUPRINT_MIRROR=file:///... names another place")
    return here.as_uri()
