"""The download stage of a data set in tar archives: fetch and verify as corpus.py does, then read the named members.

Nothing is extracted. An archive is read once, from its first byte to its last, and what a file of the data set is made
of goes into a file that we name: no name inside an archive becomes a path here. Members that nothing asks for are
passed over, whatever they are, but an archive that has an unsafe name in it is refused as a whole.
"""

import gzip
import logging
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from bleuprint.checksums import Known, read_known, record_new
from bleuprint.corpus import (
    SMALL_BYTES,
    Written,
    check_line_counts,
    expands_too_much,
    fetch,
    lines_of,
    progress_bar,
    split_of,
    unpacked_limit,
    warn_of_carriage_returns,
    write_manifest,
    write_plain,
)
from bleuprint.datasets import Archive, ArchivesDataset, Member, Splits
from bleuprint.files import atomic_directory, sha256_of
from bleuprint.lines import decode
from bleuprint.mistakes import suggest

if TYPE_CHECKING:
    from rich.progress import Progress

DOCUMENT = re.compile(r"""<doc\b[^>]*\bdocid\s*=\s*["']([^"']*)["']""", re.IGNORECASE)
SEGMENT = re.compile(r"""<seg\b[^>]*\bid\s*=\s*["']([^"']*)["'][^>]*>(.*?)</seg\s*>""", re.IGNORECASE)
SEGMENT_BEGINS = re.compile(r"<seg\b", re.IGNORECASE)
ENTITIES = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}

log = logging.getLogger(__name__)

Key = tuple[str, str]  # the document and the number of a segment


class Unpacked(NamedTuple):
    """A member as a plain file, and which segments it holds; a member that is plain text holds none."""

    path: Path
    written: Written
    segments: tuple[Key, ...]


def download(dataset: ArchivesDataset, out: Path, cache: Path, record: Path, mirrors: Sequence[str]) -> None:
    """Make data/raw/{dataset} from the first of `mirrors` that has each archive; `record` is the file of checksums.

    Verified archives stay in `cache`, so that a second call fetches nothing. ValueError names the archive, member or
    line at fault; an archive with a wrong checksum is deleted, and so is a broken one without any.
    """
    for name in dataset.files:
        split_of(name, dataset.splits)
    known = read_known(record)
    cache.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        packed = {
            name: fetch_archive(name, archive, known, cache, mirrors, bar) for name, archive in dataset.archives.items()
        }
    with atomic_directory(out) as directory:
        members = unpack_members(dataset, packed, known, directory)
        check_members(dataset, members)
        written = {
            name: join([members[part] for part in parts], directory / name) for name, parts in dataset.files.items()
        }
        for member in members.values():
            member.path.unlink()
        check_line_counts(dataset.splits, {name: item.lines for name, item in written.items()})
        write_manifest(directory, written)
    record_new(known, {name: packed[name] for name, archive in dataset.archives.items() if archive.sha256 is None})
    warn_of_carriage_returns(out, written.values())


def fetch_archive(
    name: str, archive: Archive, known: Known, cache: Path, mirrors: Sequence[str], bar: "Progress"
) -> Path:
    """Return an archive from the cache or a mirror, verified by all that is known of it. ValueError as `fetch`."""
    if not known.has_checksum(name, archive):  # nothing would tell that two halves do not belong together
        (cache / f"{name}.part").unlink(missing_ok=True)
    return fetch(name, archive.path, partial(known.mistake_in, name, archive), cache, mirrors, bar)


# --- members ----------------------------------------------------------------------------------------------------------


def unpack_members(
    dataset: ArchivesDataset, packed: Mapping[str, Path], known: Known, directory: Path
) -> dict[Member, Unpacked]:
    """Write every member that the data set names into `directory`; ValueError as `read_archive`."""
    members = list(dict.fromkeys(member for parts in dataset.files.values() for member in parts))
    found: dict[Member, Unpacked] = {}
    for name, archive in dataset.archives.items():
        paths = {it.member: directory / f"member-{i}" for i, it in enumerate(members) if it.archive == name}
        try:
            unpacked = read_archive(packed[name], archive.path, paths)
        except ValueError:
            if not known.has_checksum(name, archive):
                packed[name].unlink()  # the next call fetches it again
            raise
        found |= {Member(archive=name, member=path): item for path, item in unpacked.items()}
    return found


def read_archive(packed: Path, name: str, wanted: Mapping[str, Path]) -> dict[str, Unpacked]:
    """Write each member that `wanted` names as plain lines into its file; `name` tells how the archive is packed.

    ValueError where the archive is broken or grows beyond bounds, has an unsafe name in it, or lacks a member.
    """
    found: dict[str, Unpacked] = {}
    names = []
    with opened(packed, name) as file, refused_where_broken(packed):
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for entry in tar:
                names.append(entry.name)
                member = safe_name(entry.name, packed)
                if entry.size > file.limit:  # tarfile would look for its end, block by block, for years
                    raise ValueError(expands_too_much(packed, file.limit))
                if member not in wanted:
                    continue
                if mistake := mistake_in(entry, member in found):
                    raise ValueError(f"{packed} is refused: its member {member} is {mistake}")
                source = tar.extractfile(entry)
                assert source is not None
                found[member] = unpack_member(source, member, f"{packed}: {member}", wanted[member])
        while file.read(SMALL_BYTES):  # on to the end, where gzip's own checksum stands
            pass
    for member in wanted:
        if member not in found:
            raise ValueError(f"{packed} has no member {member!r}{suggest(member, names, 'it has')}")
    return found


def mistake_in(entry: tarfile.TarInfo, is_found: bool) -> str | None:
    """Return what is wrong with a member that is wanted, None where it is a plain file."""
    if entry.issparse():  # holes take no room in an archive: no limit on what is read of it would see them
        return "a sparse file, which may grow to any size"
    if not entry.isreg() and not is_found:
        return "no regular file but a link, a folder or a device"
    return "there twice" if is_found else None


def safe_name(name: str, packed: Path) -> str:
    """Return a member's name without "./" in it; ValueError where it would leave the folder it is extracted in."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        raise ValueError(f"{packed} is refused: the name {name!r} in it leads out of the folder it is unpacked in")
    return str(path)


class Readable(Protocol):
    """An open binary file, whether packed or not."""

    def read(self, size: int, /) -> bytes: ...


class Bounded:
    """A file that may be read up to a number of bytes."""

    def __init__(self, file: Readable, limit: int, packed: Path) -> None:
        self.file, self.limit, self.packed, self.count = file, limit, packed, 0

    def read(self, size: int) -> bytes:
        """Return the next bytes; ValueError beyond the limit."""
        data = self.file.read(size)
        self.count += len(data)
        if self.count > self.limit:
            raise ValueError(expands_too_much(self.packed, self.limit))
        return data


@contextmanager
def opened(packed: Path, name: str) -> Iterator[Any]:
    """Open an archive as a tar file that is read in order, and no further than text can be packed."""
    limit = unpacked_limit(packed)
    with gzip.open(packed) if name.endswith((".tgz", ".gz")) else packed.open("rb") as file:
        yield Bounded(
            file, limit, packed
        )  # typed Any: `read` is all that tarfile asks of a stream, whatever its types say


@contextmanager
def refused_where_broken(packed: Path) -> Iterator[None]:
    """Turn what gzip and tarfile raise at a broken archive into one sentence; of a bad header, tarfile's names none."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError) as error:
        raise ValueError(f"{packed} is a broken or truncated archive: {error}") from None
    except ValueError as error:
        if str(packed) in str(error):
            raise
        raise ValueError(f"{packed} is a broken or truncated archive: {error}") from None


def unpack_member(source: IO[bytes], member: str, label: str, plain: Path) -> Unpacked:
    """Write one member as plain lines, of an .sgm its segments; ValueError names the line at fault."""
    lines = lines_of(source, label)
    if member.endswith(".sgm"):
        segments = list(segments_of(lines, label))
        keys = tuple((document, number) for document, number, _ in segments)
        unpacked = Unpacked(plain, write_plain((f"{text}\n".encode() for *_, text in segments), plain, label), keys)
    else:
        unpacked = Unpacked(plain, write_plain(lines, plain, label), ())
    log.info("%s: %s lines", label, f"{unpacked.written.lines:,}")
    return unpacked


def join(members: Sequence[Unpacked], plain: Path) -> Written:
    """Write members one after the other into one file."""
    with plain.open("wb") as file:
        for member in members:
            with member.path.open("rb") as source:
                shutil.copyfileobj(source, file)
    return Written(
        sha256_of(plain),
        sum(member.written.lines for member in members),
        sum(member.written.stripped_carriage_returns for member in members),
    )


def check_members(dataset: ArchivesDataset, members: Mapping[Member, Unpacked]) -> None:
    """Raise ValueError unless the files of a split are made of as many members, each as long as those in its place.

    Two members that differ would shift all pairs behind them, even where other members made up for it in the sum.
    """
    for split, names in files_of_splits(dataset.splits, dataset.files).items():
        parts = [dataset.files[name] for name in names]
        if len({len(found) for found in parts}) > 1:
            found = ", ".join(f"{name} {len(dataset.files[name])}" for name in names)
            raise ValueError(f"the files of split {split!r} must have equal numbers of members, but there is {found}")
        for place in zip(*parts, strict=True):
            check_same(split, {member.member: members[member] for member in place})


def files_of_splits(splits: Splits, files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each split."""
    return {split: [name for name in files if split_of(name, splits) == split] for split in splits.all}


def check_same(split: str, members: Mapping[str, Unpacked]) -> None:
    """Raise ValueError unless members have equal numbers of lines, and the same segments in the same order."""
    if len({item.written.lines for item in members.values()}) > 1:
        found = ", ".join(f"{name} {item.written.lines}" for name, item in members.items())
        raise ValueError(f"the members of split {split!r} must have equal line counts, but there is {found}")
    for row in zip(*(item.segments for item in members.values() if item.segments), strict=True):
        if len(set(row)) > 1:
            found = " and ".join(f"{document} {number}" for document, number in row)
            raise ValueError(f"{' and '.join(members)} do not pair up: segments {found} stand in one place")


# --- SGML -------------------------------------------------------------------------------------------------------------


def segments_of(lines: Iterable[bytes], label: str) -> Iterator[tuple[str, str, str]]:
    """Yield document, number and text of each segment of a WMT test set, in the file's order.

    These files look like SGML and cannot be parsed as such: "&" and "<" stand in them as they are. So, as sacreBLEU
    reads them, a segment begins and ends on one line, and any run of white space in it is one space. The four entities
    that mteval-v14.pl knows are resolved; sacreBLEU's authors found none in the test sets since 2009 (its issue 15).
    ValueError names the line of a segment without number or end.
    """
    document, count = "", 0
    for number, line in enumerate(lines, 1):
        text = decode(line.removesuffix(b"\n"), label, number)
        if opening := DOCUMENT.search(text):
            document = opening[1]
        found = SEGMENT.findall(text)
        if len(found) != len(SEGMENT_BEGINS.findall(text)):
            raise ValueError(f"{label}, line {number}: a <seg> must have an id and end on its line")
        count += len(found)
        for segment, content in found:
            yield document, segment, " ".join(resolve(content).split())
    if not count:
        raise ValueError(f"{label} has no <seg> in it")


def resolve(text: str) -> str:
    """Return text with its entities as the characters that they stand for, each once: &amp;lt; is &lt;."""
    return re.sub("|".join(ENTITIES), lambda found: ENTITIES[found[0]], text)
