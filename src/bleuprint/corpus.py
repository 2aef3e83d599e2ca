"""The download stage: fetch from the first mirror that has a file, verify, unpack, publish.

What it writes is read by lines.py. archives.py makes data sets of another kind with what stands here.
"""

import gzip
import hashlib
import json
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from bleuprint.datasets import ArchivesDataset, MirroredDataset, Splits
from bleuprint.files import atomic_directory, named_where_full, sha256_of
from bleuprint.lines import decode

if TYPE_CHECKING:
    import httpx
    from rich.progress import Progress

MIRROR_VARIABLE = "BLEUPRINT_MIRROR"
CONNECT_SECONDS = 15.0
READ_SECONDS = 60.0  # for one chunk, not for the whole file: a slow mirror may take its time, a silent one may not
CHUNK_BYTES = 1 << 16
BYTE_ORDER_MARK = "\ufeff"  # no character of the text, though it would be one of its first word
MAX_LINE_BYTES = 1 << 20  # no sentence is longer; without a limit a file without line ends would fill the memory
# A file that unpacks to more is no text: gzip makes a quarter of text, and a thousandth of zeros.
MAX_EXPANSION = 20
SMALL_BYTES = 1 << 26  # what any file may unpack to, however small it is

Check = Callable[[Path], str | None]  # says what is wrong with a whole file; None where it is the right one

log = logging.getLogger(__name__)


class HasLines(Protocol):
    """An open binary file, whether packed or not."""

    def readline(self, size: int, /) -> bytes: ...


class MirrorFailure(Exception):
    """Why one mirror did not give one file; the next mirror is tried."""


class Source(NamedTuple):
    """A mirror's file, open: `chunks` are its bytes from `first_byte` on; `size` is the whole file's, where known."""

    first_byte: int
    size: int | None
    chunks: Iterable[bytes]


class Written(NamedTuple):
    """What the manifest says of one file; `sha256` is that of the plain file, not of the packed one."""

    sha256: str
    lines: int
    stripped_carriage_returns: int


def download(dataset: MirroredDataset, out: Path, cache: Path, mirrors: Sequence[str]) -> None:
    """Make data/raw/{dataset} from the first of `mirrors` that has each file; see `mirrors_in_order`.

    Verified files stay in `cache`, partial ones as {name}.part, so that a second call resumes. ValueError names the
    file and what is wrong with it: no mirror, wrong sha256, broken gzip, not UTF-8, unequal line counts.
    """
    for name in dataset.files:
        split_of(name, dataset.splits)
    cache.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        packed = {
            name: fetch(name, file.path, partial(other_sha256, file.sha256), cache, mirrors, bar)
            for name, file in dataset.files.items()
        }
    with atomic_directory(out) as directory:
        gzipped = {name: file.path.endswith(".gz") for name, file in dataset.files.items()}
        written = {name: unpack(packed[name], gzipped[name], directory / name) for name in dataset.files}
        check_line_counts(dataset.splits, {name: item.lines for name, item in written.items()})
        write_manifest(directory, written)
    warn_of_carriage_returns(out, written.values())


def mirrors_in_order(dataset: MirroredDataset | ArchivesDataset, environment: Mapping[str, str]) -> list[str]:
    """Return the data set's mirrors, with BLEUPRINT_MIRROR in front where it is set; ValueError where it is no URL."""
    if not (first := environment[MIRROR_VARIABLE].strip() if MIRROR_VARIABLE in environment else ""):
        return list(dataset.mirrors)
    if "," in first or not re.match(r"(https?|file)://.", first):
        raise ValueError(f"{MIRROR_VARIABLE} is {first!r}, not one URL that begins with https://, http:// or file://")
    return [first, *dataset.mirrors]


def fetch(name: str, path: str, check: Check, cache: Path, mirrors: Sequence[str], bar: "Progress") -> Path:
    """Return `cache`/`name`, verified, from the cache or the first mirror that has `path`; ValueError says why none."""
    whole, part = cache / name, cache / f"{name}.part"
    level = logging.INFO if bar.disable else logging.DEBUG  # the bar and the lines would overwrite each other
    if whole.exists() and check(whole) is None:
        log.log(level, "%s: verified in %s", name, cache)
        return whole
    reasons = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{quote(path)}"
        try:
            fetch_from(url, check, part, bar)
        except MirrorFailure as failure:
            reasons.append(f"{without_password(url)}: {failure}")
            log.warning("%s: %s", name, reasons[-1])
            continue
        part.replace(whole)
        log.log(level, "%s: %s bytes from %s", name, f"{whole.stat().st_size:,}", without_password(url))
        return whole
    raise ValueError(f"{name} could not be downloaded: {'; '.join(reasons) or 'there is no mirror'}")


def other_sha256(expected: str, path: Path) -> str | None:
    """Return what to say of a file whose sha256 is not the expected one, None where it is."""
    return None if (got := sha256_of(path)) == expected else f"sha256 is {got}, expected {expected}"


def fetch_from(url: str, check: Check, part: Path, bar: "Progress") -> None:
    """Complete `part` from `url`; MirrorFailure where that fails or gives other bytes, which are deleted."""
    start = part.stat().st_size if part.exists() else 0
    if start and check(part) is None:
        return
    resumed = stream_into(part, url, start, bar)
    if resumed and check(part):  # the part was of another file, or of another version of it
        stream_into(part, url, 0, bar)
    if reason := check(part):
        part.unlink()
        raise MirrorFailure(reason)


def stream_into(part: Path, url: str, start: int, bar: "Progress") -> bool:
    """Write `url` into `part` from byte `start` on, or from 0 where that cannot be; return whether it resumed."""
    with open_source(url, start) as source, part.open("r+b" if source.first_byte else "wb") as file:
        file.seek(source.first_byte)
        task = bar.add_task(part.stem, total=source.size, completed=source.first_byte)
        with named_where_full(part, part, source.size):
            for chunk in source.chunks:
                file.write(chunk)
                bar.advance(task, len(chunk))
            file.truncate()
        return source.first_byte > 0


def without_password(url: str) -> str:
    """Return `url` as it may stand in a log."""
    return re.sub(r"//[^/@]*@", "//", url)


def progress_bar() -> "Progress":
    """Return a progress bar on stderr; where that is no terminal it shows nothing, and the log has a line per file."""
    from rich import progress
    from rich.console import Console

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.DownloadColumn())
    return progress.Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())


def open_source(url: str, start: int) -> AbstractContextManager[Source]:
    """Open a file of a mirror, at byte `start` where it can resume; MirrorFailure where it cannot be opened or read."""
    return open_file(url) if urlsplit(url).scheme == "file" else open_http(url, start)


@contextmanager
def open_file(url: str) -> Iterator[Source]:
    """Open a file:// URL, always from its first byte: a copy from a disk is not worth resuming."""
    if (host := urlsplit(url).netloc) not in ("", "localhost"):
        raise MirrorFailure(f"names the host {host!r}; a file:// URL is file:///absolute/path")
    path = Path(url2pathname(urlsplit(url).path))
    if not path.is_file():
        raise MirrorFailure("no such file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise MirrorFailure(str(error.strerror)) from None
    with file:
        yield Source(0, path.stat().st_size, iter(lambda: file.read(CHUNK_BYTES), b""))


@contextmanager
def open_http(url: str, start: int) -> Iterator[Source]:
    """Open an http(s):// URL at byte `start` where the server answers 206, else from its first byte."""
    import httpx

    # `identity`, and raw bytes below: a server that packs again, or a client that unpacks, would change the sha256.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    hooks = {"response": [refuse_foreign_redirect]}
    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=True, event_hooks=hooks) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            first_byte = first_byte_of(response, start)
            if first_byte is not None:
                yield Source(first_byte, size_of(response, first_byte), response.iter_raw())
                return
        with open_http(url, 0) as source:
            yield source
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise MirrorFailure(str(error) or type(error).__name__) from None


def refuse_foreign_redirect(response: "httpx.Response") -> None:
    """Raise MirrorFailure where a server sends us anywhere but to http(s), e.g. to a file of this machine."""
    if response.has_redirect_location:
        location = response.headers["Location"]
        if response.url.join(location).scheme not in ("http", "https"):
            raise MirrorFailure(f"redirects to {location}, and only http:// and https:// are followed")


def first_byte_of(response: "httpx.Response", start: int) -> int | None:
    """Return where the body begins in the file, None where the request for bytes from `start` on must be dropped."""
    if response.status_code == 200:
        return 0
    if start and response.status_code == 206:
        content_range = response.headers.get("Content-Range")
        return start if content_range and content_range.startswith(f"bytes {start}-") else None
    if start and response.status_code == 416:  # the part is as long as the file or longer
        return None
    raise MirrorFailure(f"HTTP {response.status_code} {response.reason_phrase}")


def size_of(response: "httpx.Response", first_byte: int) -> int | None:
    """Return the whole file's size in bytes, None where the server does not say."""
    length = response.headers.get("Content-Length")
    return first_byte + int(length) if length else None


def unpack(packed: Path, gzipped: bool, plain: Path) -> Written:
    """Write `packed` as lines, see `write_plain`; ValueError names a file that is no whole gzip file too."""
    with gzip.open(packed) if gzipped else packed.open("rb") as source:
        try:
            return write_plain(bounded(lines_of(source, packed), packed), plain, packed)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{packed} (for {plain.name}) is a broken or truncated gzip file: {error}") from None


def bounded(lines: Iterable[bytes], packed: Path) -> Iterator[bytes]:
    """Yield the lines of a packed file; ValueError where they are more bytes than text can be packed into it."""
    count, limit = 0, unpacked_limit(packed)
    for line in lines:
        count += len(line)
        if count > limit:
            raise ValueError(expands_too_much(packed, limit))
        yield line


def unpacked_limit(packed: Path) -> int:
    """Return the bytes that a file may unpack to."""
    return max(SMALL_BYTES, MAX_EXPANSION * packed.stat().st_size)


def expands_too_much(packed: Path, limit: int) -> str:
    """Return what to say of a file that unpacks to more."""
    return f"{packed} is refused: its {packed.stat().st_size:,} bytes unpack to more than {limit:,}"


def lines_of(source: HasLines, label: Path | str) -> Iterator[bytes]:
    """Yield the lines of a binary file with their b"\\n", the only separator; ValueError names one beyond the limit."""
    for number, line in enumerate(iter(lambda: source.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"{label}, line {number} has more than {MAX_LINE_BYTES:,} bytes: this is no text")
        yield line


def write_plain(lines: Iterable[bytes], plain: Path, label: Path | str) -> Written:
    """Write lines as strict UTF-8 that ends in "\\n", with one "\\r" before it stripped and counted.

    A byte order mark in front of the first is left out. Nothing else is normalised. ValueError names the line of
    `label` that is not UTF-8.
    """
    count = stripped = 0
    digest = hashlib.sha256()
    with plain.open("wb") as file:
        for line in lines:
            count += 1
            text = decode(line.removesuffix(b"\n"), label, count)
            if count == 1 and text.startswith(BYTE_ORDER_MARK):
                log.warning("%s begins with a byte order mark, which is left out", label)
                text = text.removeprefix(BYTE_ORDER_MARK)
            stripped += text.endswith("\r")
            line = text.removesuffix("\r").encode() + b"\n"
            digest.update(line)
            file.write(line)
    return Written(digest.hexdigest(), count, stripped)


def warn_of_carriage_returns(out: Path, written: Iterable[Written]) -> None:
    """Log how many lines of a data set were not as they were sent."""
    if stripped := sum(item.stripped_carriage_returns for item in written):
        log.warning("%s: %d lines ended in CR LF, the CR is stripped", out, stripped)


def split_of(name: str, splits: Splits) -> str:
    """Return a file's split: `val` of val.en, `test` of test.lc.norm.tok.de; ValueError lists the splits."""
    found = [split for split in splits.all if name.startswith(f"{split}.")]
    if not found:
        raise ValueError(
            f"file {name!r} belongs to no split; names begin with one of {', '.join(splits.all)} and a dot"
        )
    return max(found, key=len)


def check_line_counts(splits: Splits, lines: Mapping[str, int]) -> None:
    """Raise ValueError where the files of a split, official tokens included, have unequal numbers of lines."""
    for split in splits.all:
        counts = {name: count for name, count in lines.items() if split_of(name, splits) == split}
        if len(set(counts.values())) != 1:
            found = ", ".join(f"{name} {count}" for name, count in counts.items()) or "no file"
            raise ValueError(f"the files of split {split!r} must have equal line counts, but there is {found}")


def write_manifest(directory: Path, written: Mapping[str, Written]) -> None:
    """Write manifest.json: the same bytes for the same data, whichever mirror it came from."""
    files = {name: item._asdict() for name, item in written.items()}
    text = json.dumps({"files": files}, indent=2, sort_keys=True, ensure_ascii=False)
    (directory / "manifest.json").write_text(text + "\n", encoding="utf-8")
