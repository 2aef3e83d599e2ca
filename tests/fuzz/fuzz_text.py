"""Fuzz the readers of gzipped text and of tar archives, from the packed bytes to lines on the disk."""

import gzip
import io
import tarfile

import atheris
from harness import fuzz, scratch

with atheris.instrument_imports(include=["bleuprint"]):
    from bleuprint.archives import read_archive
    from bleuprint.corpus import unpack
    from bleuprint.lines import read_lines

SCRATCH = scratch()
PACKED, PLAIN = SCRATCH / "a.en.gz", SCRATCH / "a.en"


def tar(*names: str) -> bytes:
    """Return a tar archive with a line in each member."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            file.addfile(info, io.BytesIO(b"one\n"))
    return buffer.getvalue()


# The first byte says what the others are: text packed here, a gzip file as it is, a tar packed here or as it is.
SEEDS = (
    b"\0One.\r\nTwo\xe2\x80\xa8three.\n\n",
    b"\1" + gzip.compress(b"One.\nTwo.\n"),
    b"\2" + tar("a.en"),
    b"\3" + gzip.compress(tar("b/../c", "a.en")),
    b"\2" + tar("a.sgm", "a.en", "/etc/x"),
)


def read(data: bytes) -> None:
    kind, rest = (data[0] % 4, data[1:]) if data else (0, data)
    PACKED.write_bytes(gzip.compress(rest, 1) if kind in (0, 2) else rest)
    if kind < 2:
        written = unpack(PACKED, True, PLAIN)
        assert written.lines == len(read_lines(PLAIN))
    else:
        found = read_archive(PACKED, "a.tgz", {"a.en": PLAIN})
        assert found["a.en"].written.lines == len(read_lines(PLAIN))
    assert {path.name for path in SCRATCH.iterdir()} <= {PACKED.name, PLAIN.name}, "no name in an archive is a path"


if __name__ == "__main__":
    fuzz("gzipped text and tar archives", read, SEEDS)
