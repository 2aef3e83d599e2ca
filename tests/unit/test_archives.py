"""Data sets in archives: small ones made here, hostile ones too; and sacreBLEU's reader of test sets beside ours."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from specs import bleuprint

from bleuprint import archives, corpus
from bleuprint.datasets import ArchivesDataset
from bleuprint.graph import load_params
from bleuprint.lines import read_pairs

ROOT = Path(__file__).parents[2]
SPLITS = {"train": "train", "validation": "val", "tests": ["test"]}
SOURCE = """<srcset setid="test" srclang="any">
<doc docid="one" genre="news">
<p>
<seg id="1">A dog &amp; a <cat>.</seg>
</p>
</doc>
<doc docid="two"><hl><seg id="1"> Two\u00a0\u2028 dogs & &lt;3 cats; R&D &amp;lt; &nbsp; </seg></hl>
<seg id="2">5 < 6</seg>
</doc>
</srcset>
"""
TARGET = """<refset setid="test" trglang="de">
<doc sysid="ref" docid="one">
<seg id="1">Ein Hund.</seg>
</doc>
<doc sysid="ref" docid="two">
<seg id="1">Zwei Hunde.</seg>
<seg id="2">5 &gt; 4</seg>
</doc>
</refset>
"""
MEMBERS: dict[str, dict[str, str]] = {
    "first": {"training/a.en": "One.\nTwo.\n", "training/a.de": "Eins.\nZwei.\n", "training/a.cs": "Jeden.\n"},
    "second": {"./b.de": "Drei.\r\n", "./b.en": "Three.\n"},
    "tests": {"dev/val.en": "Four.\n", "dev/val.de": "Vier.\n", "t-src.en.sgm": SOURCE, "t-ref.de.sgm": TARGET},
}
FILES = {
    "train.en": [("second", "b.en"), ("first", "training/a.en")],
    "train.de": [("second", "b.de"), ("first", "training/a.de")],
    "val.en": [("tests", "dev/val.en")],
    "val.de": [("tests", "dev/val.de")],
    "test.en": [("tests", "t-src.en.sgm")],
    "test.de": [("tests", "t-ref.de.sgm")],
}


def entry(name: str, text: str | bytes = "", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member, a regular file unless `fields` say otherwise."""
    data = text if isinstance(text, bytes) else text.encode()
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a tar archive of these members, packed by gzip."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as file:
        for info, data in members:
            file.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def packed(members: Mapping[str, Mapping[str, str]]) -> dict[str, bytes]:
    """Return the bytes of each archive."""
    return {name: tar(*(entry(path, text) for path, text in found.items())) for name, found in members.items()}


def with_text(name: str, text: str) -> dict[str, dict[str, str]]:
    """Return all members, with another text for one."""
    return {
        archive: {path: text if path == name else old for path, old in found.items()}
        for archive, found in MEMBERS.items()
    }


def described(data: bytes, *kinds: str) -> dict[str, Any]:
    """Return of an archive what `kinds` name: bytes, sha256, md5."""
    known = {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
    }
    return {kind: (value if kind in kinds else None) for kind, value in known.items()}


def dataset(files: Mapping[str, bytes], *kinds: str) -> ArchivesDataset:
    """Return the data set of these archives; `kinds` of what is known of them."""
    parts = {name: [{"archive": archive, "member": path} for archive, path in found] for name, found in FILES.items()}
    found = {name: {"path": f"up/{name}.tgz", **described(data, *kinds)} for name, data in files.items()}
    return ArchivesDataset.model_validate(
        {"kind": "archives", "mirrors": [], "splits": SPLITS, "archives": found, "files": parts}
    )


@pytest.fixture
def room(tmp_path: Path) -> SimpleNamespace:
    """Return where a download goes, what it may use, and a function that runs one."""
    room = SimpleNamespace(out=tmp_path / "raw/t", cache=tmp_path / "cache", record=tmp_path / "sums/t.yaml")
    mirror = tmp_path / "mirror"

    def download(files: Mapping[str, bytes], *kinds: str, spec: ArchivesDataset | None = None) -> None:
        (mirror / "up").mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (mirror / f"up/{name}.tgz").write_bytes(data)
        archives.download(spec or dataset(files, *kinds), room.out, room.cache, room.record, [mirror.as_uri()])

    room.download = download
    return room


def test_a_file_is_made_of_its_members_in_order(room: SimpleNamespace) -> None:
    room.download(packed(MEMBERS), "sha256")
    assert read_pairs(room.out, "train", "en", "de") == (["Three.", "One.", "Two."], ["Drei.", "Eins.", "Zwei."])
    assert read_pairs(room.out, "val", "en", "de") == (["Four."], ["Vier."])
    names = {path.name for path in room.out.iterdir()}
    assert names == {*FILES, "manifest.json"}
    manifest = json.loads((room.out / "manifest.json").read_text())["files"]
    text = (room.out / "train.de").read_bytes()
    assert manifest["train.de"] == {
        "lines": 3,
        "sha256": hashlib.sha256(text).hexdigest(),
        "stripped_carriage_returns": 1,
    }


def test_test_sets_are_read_as_sacrebleu_reads_them(room: SimpleNamespace, tmp_path: Path) -> None:
    """But for entities, which it leaves, and segments that do not begin their line, which it misses."""
    room.download(packed(MEMBERS), "sha256")
    sources, references = read_pairs(room.out, "test", "en", "de")
    assert sources == ["A dog & a <cat>.", "Two dogs & <3 cats; R&D &lt; &nbsp;", "5 < 6"]
    assert references == ["Ein Hund.", "Zwei Hunde.", "5 > 4"]
    plain = SOURCE.replace("<hl>", "\n").replace("</hl>", "\n").replace("&amp;", "").replace("&lt;", "")
    (tmp_path / "a.sgm").write_text(plain)
    FakeSGMLDataset("t", data=[], langpairs={})._convert_format(str(tmp_path / "a.sgm"), str(tmp_path / "theirs"))
    ours = [text for *_, text in archives.segments_of(io.BytesIO(plain.encode()), "a.sgm")]
    assert ours == (tmp_path / "theirs").read_text().split("\n")[:-1]


# --- checksums --------------------------------------------------------------------------------------------------------


def test_what_is_known_is_verified_and_nothing_recorded(room: SimpleNamespace) -> None:
    files = packed(MEMBERS)
    room.download(files, "bytes", "sha256", "md5")
    assert not room.record.exists()
    assert sorted(path.name for path in room.cache.iterdir()) == sorted(files)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bytes", r"second could not be downloaded: .*second\.tgz: it has [\d,]+ bytes, expected [\d,]+$"),
        ("sha256", r"second could not be downloaded: .*second\.tgz: sha256 is [0-9a-f]{64}, expected [0-9a-f]{64}$"),
        ("md5", r"second could not be downloaded: .*second\.tgz: md5 is [0-9a-f]{32}, expected [0-9a-f]{32}$"),
    ],
)
def test_another_archive_is_refused(room: SimpleNamespace, kind: str, message: str) -> None:
    files = packed(MEMBERS)
    spec = dataset(files, kind)
    with pytest.raises(ValueError, match=message):
        room.download(files | {"second": files["first"]}, spec=spec)
    assert not room.out.exists()
    assert not list(room.cache.glob("second*"))
    assert not room.record.exists()


def test_a_first_download_records_and_a_later_one_verifies(
    room: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    files = packed(MEMBERS)
    room.download(files, "md5")
    known = corpus_record(room)
    assert known == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert "sha256 of first, second, tests recorded in" in caplog.text
    before = room.record.read_bytes()
    room.download(files)
    assert room.record.read_bytes() == before
    other = files | {"second": tar(entry("b.en", "Six.\n"), entry("b.de", "Sechs.\n"))}
    (room.cache / "second").unlink()
    with pytest.raises(
        ValueError, match=rf"the first download had {known['second']}; .* delete its line in .*t\.yaml$"
    ):
        room.download(other)
    assert (room.out / "train.en").read_text().startswith("Three.\n")  # the earlier output stands
    room.record.write_text("".join(line for line in before.decode().splitlines(True) if "second:" not in line))
    room.download(other)
    assert corpus_record(room) == known | {"second": hashlib.sha256(other["second"]).hexdigest()}


def corpus_record(room: SimpleNamespace) -> dict[str, str]:
    """Return the recorded checksums."""
    from bleuprint.checksums import read_known

    return dict(read_known(room.record).sha256)


def test_the_sha256_of_params_yaml_comes_before_the_record(room: SimpleNamespace) -> None:
    files = packed(MEMBERS)
    room.record.parent.mkdir()
    room.record.write_text(f"sha256:\n  first: '{'0' * 64}'\n")
    room.download(files, "sha256")
    assert corpus_record(room) == {"first": "0" * 64}


def test_a_damaged_record_is_named(room: SimpleNamespace) -> None:
    room.record.parent.mkdir()
    room.record.write_text("sha256: {first: abc}\n")
    with pytest.raises(ValueError, match=r"t\.yaml: sha256\.first is 'abc': it should match pattern"):
        room.download(packed(MEMBERS))


def test_an_archive_that_nothing_is_known_of_is_not_resumed(room: SimpleNamespace) -> None:
    files = packed(MEMBERS)
    room.cache.mkdir()
    (room.cache / "first.part").write_bytes(files["first"][:100])
    room.download(files)
    assert (room.cache / "first").read_bytes() == files["first"]


# --- bad archives -----------------------------------------------------------------------------------------------------

A_EN, A_DE = entry("training/a.en", "One.\nTwo.\n"), entry("training/a.de", "Eins.\nZwei.\n")
HOSTILE = {
    "a name with ..": (
        entry("training/../../evil", "x"),
        r"first is refused: the name 'training/\.\./\.\./evil' in it",
    ),
    "an absolute name": (entry("/etc/evil", "x"), r"first is refused: the name '/etc/evil' in it leads out of"),
    "a Windows name": (entry(r"..\evil", "x"), r"first is refused: the name '\.\.\\\\evil' in it leads out of"),
    "a symbolic link": (
        entry("training/a.en", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        r"first is refused: its member training/a\.en is no regular file but a link, a folder or a device$",
    ),
    "a hard link": (entry("training/a.en", type=tarfile.LNKTYPE, linkname="training/a.de"), "is no regular file"),
    "a device": (entry("training/a.en", type=tarfile.CHRTYPE), "is no regular file"),
    "a pipe": (entry("training/a.en", type=tarfile.FIFOTYPE), "is no regular file"),
    "a folder": (entry("training/a.en", type=tarfile.DIRTYPE), "is no regular file"),
    "a member twice": (A_EN, r"first is refused: its member training/a\.en is there twice$"),
    "a sparse file": (
        entry("training/a.en", "\n", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000"}),
        r"its member training/a\.en is a sparse file",
    ),
    "a header that makes no sense": (
        entry("training/a.cs", "x", pax_headers={"GNU.sparse.map": "a,b", "GNU.sparse.size": "9"}),
        r"first is a broken or truncated archive: invalid literal",
    ),
    "a bomb": (entry("training/a.cs", b"\0" * (1 << 27)), r"its [\d,]+ bytes unpack to more than 67,108,864$"),
}


def test_a_size_beyond_all_bounds_ends_at_once(tmp_path: Path) -> None:
    """Python's tarfile reads on to where such a member would end, in blocks of 10 KiB."""
    header, _ = entry("training/a.cs")
    header.size = 1 << 60
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT))
    with pytest.raises(ValueError, match=r"a\.tar is refused: its 512 bytes unpack to more than 67,108,864$"):
        archives.read_archive(tmp_path / "a.tar", "a.tar", {"training/a.en": tmp_path / "out"})


@pytest.mark.parametrize("kind", ["sha256", "none"])
@pytest.mark.parametrize(("member", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_archives_are_refused_and_nothing_is_written(
    room: SimpleNamespace, member: tuple[tarfile.TarInfo, bytes], message: str, kind: str
) -> None:
    first = [A_DE, A_EN, member] if member[0].type == tarfile.REGTYPE else [A_DE, member]
    files = packed(MEMBERS) | {"first": tar(*first)}
    with pytest.raises(ValueError, match=message) as caught:
        room.download(files, kind)
    assert "\n" not in str(caught.value)
    assert not list(room.out.parent.glob("*"))
    assert {path.name for path in room.out.parents[1].rglob("*")} & {"evil"} == set()
    assert (room.cache / "first").exists() == (kind == "sha256")  # what nothing vouches for is fetched again
    assert not room.record.exists()


def test_harmless_members_that_nothing_asks_for_are_passed_over(room: SimpleNamespace) -> None:
    others = [
        entry("training", type=tarfile.DIRTYPE, mode=0o755),
        entry("training/link", type=tarfile.SYMTYPE, linkname="../../etc/passwd"),
        entry("training/tty", type=tarfile.CHRTYPE),
        entry("training/a.bin", b"\xff\xfe" * 1000),
    ]
    room.download(packed(MEMBERS) | {"first": tar(*others, A_EN, A_DE)}, "sha256")
    assert (room.out / "train.en").read_text() == "Three.\nOne.\nTwo.\n"


GOOD = packed(MEMBERS)["first"]
BROKEN = {
    "truncated": (GOOD[:-20], "is a broken or truncated archive: "),
    "truncated tar": (gzip.compress(gzip.decompress(GOOD)[:700]), "is a broken or truncated archive: "),
    "no gzip": (b"not gzip", "is a broken or truncated archive: "),
    "no tar": (gzip.compress(b"no tar" * 1000), "is a broken or truncated archive: "),
    "another checksum at its end": (GOOD[:-8] + b"\0\0\0\0" + GOOD[-4:], "is a broken or truncated archive: CRC check"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_archives_are_named_and_fetched_again(room: SimpleNamespace, data: bytes, message: str) -> None:
    files = packed(MEMBERS)
    with pytest.raises(ValueError, match=rf"cache/first {message}"):
        room.download(files | {"first": data})
    assert not list(room.out.parent.glob("*"))
    room.download(files)
    assert (room.out / "train.en").exists()


BAD_TEXTS = {
    "missing": (
        MEMBERS | {"first": {"training/a.de": "Eins.\n"}},
        r"cache/first has no member 'training/a\.en' \(did you mean training/a\.de\?\); it has: training/a\.de$",
    ),
    "not UTF-8": (None, r"first: training/a\.en, line 2 is not UTF-8: byte 0xff"),
    "unequal": (
        with_text("training/a.en", "One.\n") | {"second": {"b.en": "Three.\nFour.\n", "b.de": "Drei.\n"}},
        r"the members of split 'train' must have equal line counts, but there is b\.en 2, b\.de 1$",
    ),
    "no segment": (with_text("t-src.en.sgm", "Text.\n"), r"tests: t-src\.en\.sgm has no <seg> in it$"),
    "a segment of two lines": (
        with_text("t-src.en.sgm", '<doc docid="a">\n<seg id="1">A\ndog.</seg>\n</doc>\n'),
        r"t-src\.en\.sgm, line 2: a <seg> must have an id and end on its line$",
    ),
    "a segment without number": (with_text("t-src.en.sgm", "<seg>A dog.</seg>\n"), "line 1: a <seg> must have an id"),
    "another order of documents": (
        with_text("t-ref.de.sgm", TARGET.replace("one", "x").replace("two", "one").replace("x", "two")),
        r"t-src\.en\.sgm and t-ref\.de\.sgm do not pair up: segments one 1 and two 1 stand in one place$",
    ),
    "another number": (with_text("t-ref.de.sgm", TARGET.replace('id="2"', 'id="3"')), "segments two 2 and two 3 stand"),
    "fewer segments": (
        with_text("t-ref.de.sgm", TARGET.replace('<seg id="2">5 &gt; 4</seg>\n', "")),
        r"split 'test' must have equal line counts, but there is t-src\.en\.sgm 3, t-ref\.de\.sgm 2$",
    ),
}


@pytest.mark.parametrize(("members", "message"), BAD_TEXTS.values(), ids=BAD_TEXTS.keys())
def test_bad_members_are_named(room: SimpleNamespace, members: dict[str, dict[str, str]] | None, message: str) -> None:
    files = packed(members or MEMBERS)
    if members is None:
        files["first"] = tar(entry("training/a.en", b"One.\n\xff\n"), A_DE)
    with pytest.raises(ValueError, match=message):
        room.download(files, "sha256")
    assert not list(room.out.parent.glob("*"))


def test_a_line_without_end_is_refused(room: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 1000)
    files = packed(with_text("training/a.en", "One.\n" + "x" * 1001))
    with pytest.raises(ValueError, match=r"first: training/a\.en, line 2 has more than 1,000 bytes: this is no text$"):
        room.download(files, "sha256")


# --- the command line and params.yaml ---------------------------------------------------------------------------------


def test_the_command_downloads_archives_and_records_beside_the_tables(tmp_path: Path) -> None:
    files = packed(MEMBERS)
    (tmp_path / "mirror/up").mkdir(parents=True)
    for name, data in files.items():
        (tmp_path / f"mirror/up/{name}.tgz").write_bytes(data)
    spec = json.dumps(dataset(files).model_dump(mode="json"))
    text = (ROOT / "params.yaml").read_text()
    assert text.count("\ndatasets:\n") == 1
    (tmp_path / "params.yaml").write_text(text.replace("\ndatasets:\n", f"\ndatasets:\n  pets: {spec}\n"))
    done = bleuprint(tmp_path, "download", "pets", BLEUPRINT_MIRROR=(tmp_path / "mirror").as_uri())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/raw/pets/train.en").read_text() == "Three.\nOne.\nTwo.\n"
    record = (tmp_path / "workflow/checksums/pets.yaml").read_text()
    assert f'  second: "{hashlib.sha256(files["second"]).hexdigest()}"\n' in record


def test_wmt14_is_three_corpora_and_two_test_sets() -> None:
    data = load_params(ROOT / "params.yaml").datasets["wmt14"]
    assert isinstance(data, ArchivesDataset)
    assert data.splits.all == ("train", "val", "newstest2013", "newstest2014")
    english, german = (data.files[f"train.{language}"] for language in ("en", "de"))
    assert [item.archive for item in english] == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    assert [item.member.removesuffix("en") + "de" for item in english] == [item.member for item in german]
    assert all(archive.sha256 or archive.md5 for archive in data.archives.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"archive": "frist", "member": "a"}, r"unknown archive 'frist' \(did you mean first\?\)"),
        ({"archive": "first", "member": "../a"}, r"'\.\./a' is not a relative path without \.\."),
    ],
)
def test_files_name_archives_and_members_that_can_be(change: dict[str, str], message: str) -> None:
    data = dataset(packed(MEMBERS)).model_dump()
    data["files"]["val.en"] = [change]
    with pytest.raises(ValidationError, match=message):
        ArchivesDataset.model_validate(data)
