"""Which bytes an archive must have: what its publisher tells, or what the first download found.

Where a publisher tells no sha256, the first download records it and later ones verify it, in a file to be committed:
workflow/checksums/{dataset}.yaml. It is no output of the stage, for DVC deletes outputs before a stage runs; and no
input, for then the stage would change its own input.
"""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bleuprint.datasets import Archive
from bleuprint.files import write_text
from bleuprint.strict import Name, Sha256, Strict, read_yaml, validate

HEAD = """\
# sha256 of archives whose publisher tells none, as the first download found them; later downloads verify them. Commit
# this file. Where a publisher has changed an archive, delete its line: the next download records it anew.
"""

log = logging.getLogger(__name__)


class Record(Strict):
    """The file of checksums: by archive."""

    sha256: dict[Name, Sha256]


class Known(NamedTuple):
    """What earlier downloads recorded, and where."""

    sha256: Mapping[str, str]
    path: Path

    def has_checksum(self, name: str, archive: Archive) -> bool:
        """Return whether anything says which bytes an archive has."""
        return archive.sha256 is not None or archive.md5 is not None or name in self.sha256

    def mistake_in(self, name: str, archive: Archive, path: Path) -> str | None:
        """Return what is wrong with a whole archive, None where all that is known of it holds."""
        size = path.stat().st_size
        if archive.bytes is not None and size != archive.bytes:
            return f"it has {size:,} bytes, expected {archive.bytes:,}"
        for kind, expected in (("sha256", archive.sha256), ("md5", archive.md5)):
            if expected is not None and (found := digest(path, kind)) != expected:
                return f"{kind} is {found}, expected {expected}"
        if archive.sha256 is None and name in self.sha256 and (found := digest(path, "sha256")) != self.sha256[name]:
            return (
                f"sha256 is {found}, but the first download had {self.sha256[name]}; where the publisher has changed "
                f"the archive, delete its line in {self.path}"
            )
        return None


def digest(path: Path, kind: str) -> str:
    """Return the hexadecimal checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def read_known(path: Path) -> Known:
    """Return what the file of checksums has; ValueError where it is damaged."""
    return Known(validate(Record, read_yaml(path), path).sha256 if path.exists() else {}, path)


def record_new(known: Known, archives: Mapping[str, Path]) -> None:
    """Record the sha256 of those archives that have none yet; without such archives nothing is written."""
    new = {name: digest(archive, "sha256") for name, archive in archives.items() if name not in known.sha256}
    if new:
        lines = "".join(f'  {name}: "{found}"\n' for name, found in sorted({**known.sha256, **new}.items()))
        write_text(known.path, f"{HEAD}sha256:\n{lines}")
        log.warning("sha256 of %s recorded in %s: commit that file", ", ".join(new), known.path)
