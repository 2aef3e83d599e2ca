"""Where a run comes from, as tags for MLflow: commit, dvc.lock, who called the stage, machine and directory."""

import os
import socket
from hashlib import sha256
from pathlib import Path

from bleuprint.provenance import describe_git

ROOT_TAG = "bleuprint.root"


def project_root() -> Path:
    """Return DVC_ROOT where it is set (an experiment of DVC may run in a copy of the project), else where we are."""
    return Path(os.environ.get("DVC_ROOT") or ".").resolve()


def origin_tags(root: Path) -> dict[str, str]:
    """Return where a run comes from: git commit, dvc.lock, orchestrator, place; what is unknown has no tag."""
    tags = {"orchestrator": orchestrator(), ROOT_TAG: place(root)}
    git = describe_git(root)
    if git["commit"] is not None:
        tags |= {"mlflow.source.git.commit": git["commit"], "mlflow.source.git.dirty": str(git["dirty"])}
        tags["commit"] = git["commit"] + (" with changes" if git["dirty"] else "")  # MLflow's pages hide its own tags
    lock = root / "dvc.lock"
    if lock.is_file():
        tags["dvc.lock"] = sha256(lock.read_bytes()).hexdigest()
    return tags


def orchestrator() -> str:
    """Return who called the stage. DVC says so in its stages; the Snakefile sets BLEUPRINT_ORCHESTRATOR."""
    if "DVC_STAGE" in os.environ:
        return "dvc"
    return os.environ.get("BLEUPRINT_ORCHESTRATOR") or "shell"


def place(root: Path) -> str:
    """Return machine and directory, e.g. "host:/home/me/bleuprint"."""
    return f"{socket.gethostname()}:{root}"
