"""manifest.json beside files: the sha256 of each, by which whoever reads them sees that a bit has changed."""

import json
import platform
from pathlib import Path
from typing import Any

from bleuprint.files import sha256_of

MANIFEST = "manifest.json"


def write_digests(directory: Path) -> None:
    """Write the manifest of all files in a directory, with what else decided their bits."""
    manifest = {"files": {path.name: sha256_of(path) for path in sorted(directory.iterdir())}, "made_with": made_with()}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def made_with() -> dict[str, Any]:
    """Return what decides the bits of weights besides parameters, data and code (docs/what-changes-bits.md)."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_initialized() else None,
    }


def read_digests(directory: Path) -> dict[str, str]:
    """Return the sha256 of each file by its name; ValueError where the manifest is missing or damaged.

    That of data/raw tells more of each file than its sha256.
    """
    path = directory / MANIFEST
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name: said if isinstance(said, str) else said["sha256"] for name, said in files.items()}
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged: it does not name files and their sha256") from None


def check_directory(directory: Path, again: str) -> None:
    """Raise ValueError where a file that a manifest names is damaged or missing; `again` is the stage for it."""
    try:
        for name, digest in read_digests(directory).items():
            compare(directory / name, digest)
    except ValueError as error:
        raise ValueError(f"{error}; make it again with: python -m bleuprint {again}") from None


def check_file(path: Path) -> None:
    """Raise ValueError where the manifest beside a file, if there is one, names it with another sha256."""
    if (path.parent / MANIFEST).exists():
        digests = read_digests(path.parent)
        if path.name in digests:
            compare(path, digests[path.name])


def compare(path: Path, digest: str) -> None:
    """Raise ValueError unless a file has this sha256."""
    if not path.is_file():
        raise ValueError(f"{path} is missing, which {path.parent / MANIFEST} names")
    if sha256_of(path) != digest:
        raise ValueError(f"{path} is damaged: {path.parent / MANIFEST} was written for other bytes")
