"""The download stage against real files, a real HTTP server on 127.0.0.1, and the real data set where it is at hand."""

import gzip
import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from bleuprint import corpus
from bleuprint.datasets import MirroredDataset, Splits
from bleuprint.graph import load_params
from bleuprint.lines import read_pairs

ROOT = Path(__file__).parents[2]
TEXTS = {
    "train.en": "One dog.\nTwo dogs.\n",
    "train.de": "Ein Hund.\nZwei Hunde.\n",
    "val.en": "A cat.\n",
    "val.de": "Eine Katze.\n",
    "test.en": "A horse.\n",
    "test.de": "Ein Pferd.\n",
    "test.lc.tok.de": "ein pferd .\n",
}
SPLITS = {"train": "train", "validation": "val", "tests": ["test"]}


def packed(texts: dict[str, str]) -> dict[str, bytes]:
    """Return what a mirror holds: path → gzipped bytes."""
    return {f"raw/{name}.gz": gzip.compress(text.encode(), mtime=0) for name, text in texts.items()}


def dataset(files: dict[str, bytes], mirrors: tuple[str, ...] = ()) -> MirroredDataset:
    """Return a data set of exactly these files, e.g. {"raw/val.en.gz": b"..."}."""
    described = {
        path.removeprefix("raw/").removesuffix(".gz"): {"path": path, "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in files.items()
    }
    return MirroredDataset.model_validate(
        {"kind": "mirrored", "mirrors": mirrors, "splits": SPLITS, "files": described}
    )


def store(directory: Path, files: dict[str, bytes]) -> str:
    """Write the files below `directory` and return it as a mirror."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory.as_uri()


@pytest.fixture
def room(tmp_path: Path) -> SimpleNamespace:
    """Return where a download goes and what it may use."""
    return SimpleNamespace(out=tmp_path / "raw" / "pets", cache=tmp_path / "cache", mirror=tmp_path / "mirror")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Run an HTTP server; tests set its files, redirects and whether it resumes, and read the requests it saw."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = SimpleNamespace(files={}, redirects={}, resumes=True, cut=None, requests=[])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            state.requests.append((self.path, wanted))
            if self.path in state.redirects:
                return self.answer(302, b"", {"Location": state.redirects[self.path]})
            if self.path[1:] not in state.files:
                return self.answer(404, b"", {})
            data = state.files[self.path[1:]]
            if wanted is None or not state.resumes:
                return self.answer(200, data, {})
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                return self.answer(416, b"", {})
            self.answer(206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: state.cut])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        state.url = f"http://127.0.0.1:{http.server_port}"
        yield state
        http.shutdown()


def leftovers(room: SimpleNamespace) -> list[Path]:
    """Return what lies where the data set should be, and beside it."""
    return list(room.out.parent.glob("*")) if room.out.parent.exists() else []


# --- what a good download gives ---------------------------------------------------------------------------------------


def test_download_unpacks_every_file_and_describes_it(room: SimpleNamespace) -> None:
    files = packed(TEXTS)
    corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    assert {path.name: path.read_text() for path in room.out.iterdir() if path.name != "manifest.json"} == TEXTS
    manifest = json.loads((room.out / "manifest.json").read_text())["files"]
    assert manifest["train.de"] == {
        "lines": 2,
        "sha256": hashlib.sha256(TEXTS["train.de"].encode()).hexdigest(),
        "stripped_carriage_returns": 0,
    }
    assert leftovers(room) == [room.out]


def test_manifest_does_not_depend_on_mirror_cache_or_earlier_output(
    room: SimpleNamespace, server: SimpleNamespace
) -> None:
    files = packed(TEXTS)
    server.files = {f"pets/{path}": data for path, data in files.items()}
    corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    first = (room.out / "manifest.json").read_bytes()
    (room.out / "stale").touch()
    corpus.download(dataset(files), room.out, room.cache.with_name("other"), [f"{server.url}/pets/"])
    assert (room.out / "manifest.json").read_bytes() == first
    assert not (room.out / "stale").exists()
    assert leftovers(room) == [room.out]


def test_plain_files_are_taken_as_they_are(room: SimpleNamespace) -> None:
    files = {path.removesuffix(".gz"): gzip.decompress(data) for path, data in packed(TEXTS).items()}
    corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    assert (room.out / "test.lc.tok.de").read_text() == TEXTS["test.lc.tok.de"]


def test_only_a_newline_separates_lines_and_one_carriage_return_is_stripped_and_counted(room: SimpleNamespace) -> None:
    odd = {**TEXTS, "val.en": "a\u2028b\x0cc\x85d\re\r\r\n", "val.de": "Ende ohne Zeilenende"}
    files = packed(odd)
    corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    assert read_pairs(room.out, "val", "en", "de") == (["a\u2028b\x0cc\x85d\re\r"], ["Ende ohne Zeilenende"])
    manifest = json.loads((room.out / "manifest.json").read_text())["files"]
    assert manifest["val.en"]["stripped_carriage_returns"] == 1
    assert (room.out / "val.de").read_bytes() == b"Ende ohne Zeilenende\n"


def test_without_a_terminal_each_file_is_one_plain_line(
    room: SimpleNamespace, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    files = packed(TEXTS)
    with caplog.at_level(logging.INFO):
        corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    assert [line.split(":")[0] for line in caplog.messages] == list(TEXTS)
    assert capfd.readouterr().out == ""


# --- mirrors ----------------------------------------------------------------------------------------------------------


def test_second_mirror_is_used_where_the_first_lacks_a_file_or_has_a_bad_one(
    room: SimpleNamespace, server: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    files = packed(TEXTS)
    server.files = {path: data for path, data in files.items() if "val" not in path} | {"raw/test.en.gz": b"bad"}
    corpus.download(dataset(files), room.out, room.cache, [server.url, store(room.mirror, files)])
    assert (room.out / "val.en").read_text() == TEXTS["val.en"]
    assert f"val.en: {server.url}/raw/val.en.gz: HTTP 404 Not Found" in caplog.messages
    assert f"test.en: {server.url}/raw/test.en.gz: sha256 is {hashlib.sha256(b'bad').hexdigest()}" in caplog.text


def test_one_sentence_lists_every_mirror_and_its_reason(room: SimpleNamespace, server: SimpleNamespace) -> None:
    files = packed(TEXTS)
    mirrors = [server.url.replace("//", "//me:secret@"), room.mirror.as_uri(), "http://127.0.0.1:1", "file://a/b"]
    with pytest.raises(ValueError, match=r"^train\.en could not be downloaded: ") as caught:
        corpus.download(dataset(files), room.out, room.cache, mirrors)
    message = str(caught.value)
    assert f"{server.url}/raw/train.en.gz: HTTP 404 Not Found; " in message
    assert f"{room.mirror.as_uri()}/raw/train.en.gz: no such file; " in message
    assert "http://127.0.0.1:1/raw/train.en.gz: " in message
    assert "refused" in message
    assert "names the host 'a'" in message
    assert "secret" not in message
    assert "\n" not in message
    assert leftovers(room) == []


def test_a_wrong_sha256_is_refused_and_the_bad_file_deleted(room: SimpleNamespace) -> None:
    files = packed(TEXTS)
    mirror = store(room.mirror, files | {"raw/val.de.gz": b"tampered"})
    expected = hashlib.sha256(files["raw/val.de.gz"]).hexdigest()
    got = hashlib.sha256(b"tampered").hexdigest()
    with pytest.raises(
        ValueError, match=rf"^val\.de .*{mirror}/raw/val\.de\.gz: sha256 is {got}, expected {expected}$"
    ):
        corpus.download(dataset(files), room.out, room.cache, [mirror])
    assert not list(room.cache.glob("val.de*"))
    assert leftovers(room) == []


def test_no_mirror_at_all_is_an_error(room: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"^train\.en could not be downloaded: there is no mirror"):
        corpus.download(dataset(packed(TEXTS)), room.out, room.cache, [])


@pytest.mark.parametrize("value", ["/data", "ftp://a/b", "file://a,file://b", "https://"])
def test_the_mirror_variable_must_hold_one_url(value: str) -> None:
    with pytest.raises(ValueError, match=r"BLEUPRINT_MIRROR is '.*', not one URL that begins with https://, http://"):
        corpus.mirrors_in_order(dataset(packed(TEXTS)), {"BLEUPRINT_MIRROR": value})


def test_the_mirror_variable_comes_first() -> None:
    data = dataset(packed(TEXTS), mirrors=("https://a.org/b",))
    assert corpus.mirrors_in_order(data, {"BLEUPRINT_MIRROR": "file:///c/"}) == ["file:///c/", "https://a.org/b"]
    assert corpus.mirrors_in_order(data, {"BLEUPRINT_MIRROR": ""}) == ["https://a.org/b"]
    assert corpus.mirrors_in_order(data, {}) == ["https://a.org/b"]


# --- resume and redirects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resumes", "part", "ranges"),
    [
        (True, slice(0, 10), ["bytes=10-"]),  # goes on
        (False, slice(0, 10), ["bytes=10-"]),  # the server sends it whole
        (True, slice(1, 11), ["bytes=10-", None]),  # another file's part: the whole has the wrong sha256
        (True, slice(1, None), ["bytes={longer}-", None]),
    ],
)
def test_a_partial_file_is_resumed_or_restarted(
    room: SimpleNamespace, server: SimpleNamespace, resumes: bool, part: slice, ranges: list[str | None]
) -> None:
    files = server.files = packed(TEXTS)
    server.resumes = resumes
    room.cache.mkdir()
    left = files["raw/train.en.gz"][part] + (b"longer" if part.stop is None else b"")
    (room.cache / "train.en.part").write_bytes(left)
    corpus.download(dataset(files), room.out, room.cache, [server.url])
    assert (room.out / "train.en").read_text() == TEXTS["train.en"]
    expected = [wanted and wanted.format(longer=len(left)) for wanted in ranges]
    assert [wanted for path, wanted in server.requests if "train.en" in path] == expected
    assert not list(room.cache.glob("*.part"))


def test_a_connection_that_breaks_leaves_a_part_that_the_next_call_resumes(
    room: SimpleNamespace, server: SimpleNamespace
) -> None:
    files = server.files = packed(TEXTS)
    server.cut = 7
    with pytest.raises(ValueError, match=r"train\.en could not be downloaded: .*peer closed connection"):
        corpus.download(dataset(files), room.out, room.cache, [server.url])
    assert (room.cache / "train.en.part").read_bytes() == files["raw/train.en.gz"][:7]
    server.cut = None
    corpus.download(dataset(files), room.out, room.cache, [server.url])
    assert server.requests[1] == ("/raw/train.en.gz", "bytes=7-")


def test_verified_files_are_not_fetched_again(room: SimpleNamespace, server: SimpleNamespace) -> None:
    files = server.files = packed(TEXTS)
    corpus.download(dataset(files), room.out, room.cache, [server.url])
    corpus.download(dataset(files), room.out, room.cache, [server.url])
    assert len(server.requests) == len(files)


def test_a_redirect_is_followed_over_http_and_refused_to_a_local_file(
    room: SimpleNamespace, server: SimpleNamespace
) -> None:
    files = packed(TEXTS)
    server.files = {f"moved/{path}": data for path, data in files.items()}
    server.redirects = {f"/{path}": f"/moved/{path}" for path in files}
    corpus.download(dataset(files), room.out, room.cache, [server.url])
    store(room.mirror, files)
    server.redirects = {f"/{path}": (room.mirror / path).as_uri() for path in files}
    with pytest.raises(ValueError, match=r"redirects to file:///.*, and only http:// and https:// are followed"):
        corpus.download(dataset(files), room.out, room.cache.with_name("empty"), [server.url])


# --- bad data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "data", "message"),
    # named, for pytest makes names of bytes, and gzip writes the second into them: two workers collected other names
    [
        pytest.param(
            "raw/val.en.gz",
            packed(TEXTS)["raw/val.en.gz"][:-9],
            r"val\.en.* is a broken or truncated gzip file",
            id="truncated",
        ),
        pytest.param(
            "raw/val.en.gz",
            b"not gzip",
            r"val\.en.* is a broken or truncated gzip file",
            id="not gzip",
        ),
        pytest.param(
            "raw/val.en.gz",
            gzip.compress(b"A\nB\xff\n"),
            r"val\.en, line 2 is not UTF-8: byte 0xff",
            id="not UTF-8",
        ),
        pytest.param(
            "raw/val.en.gz",
            gzip.compress(b"A\n" + b" " * (1 << 20) + b"\n"),
            r"line 2 has more than 1,048,576 bytes",
            id="long line",
        ),
        pytest.param(
            "raw/val.en.gz",
            gzip.compress((b"x" * 65_535 + b"\n") * 1025),
            r"its [\d,]+ bytes unpack to more than 67,108,864$",
            id="unpacks to too much",
        ),
        pytest.param(
            "raw/val.en.gz",
            gzip.compress(b"A\nB\n"),
            r"split 'val' must have equal line counts.*val\.en 2, val\.de 1",
            id="a line too many",
        ),
        pytest.param(
            "raw/test.lc.tok.de.gz",
            gzip.compress(b""),
            r"split 'test'.*test\.de 1, test\.lc\.tok\.de 0",
            id="official text missing",
        ),
        pytest.param(
            "raw/dev.en.gz",
            gzip.compress(b"A\n"),
            r"'dev\.en' belongs to no split; .* begin with one of train, val, test",
            id="no split",
        ),
    ],
)
def test_bad_data_is_named_and_nothing_is_published(
    room: SimpleNamespace, path: str, data: bytes, message: str
) -> None:
    good = packed(TEXTS)
    corpus.download(dataset(good), room.out, room.cache, [store(room.mirror, good)])
    files = good | {path: data}
    with pytest.raises(ValueError, match=message):
        corpus.download(dataset(files), room.out, room.cache, [store(room.mirror, files)])
    assert leftovers(room) == [room.out]
    assert (room.out / "val.en").read_text() == TEXTS["val.en"]  # the earlier output stands


def test_a_file_belongs_to_the_split_with_the_longest_name() -> None:
    splits = Splits.model_validate({"train": "test", "validation": "val", "tests": ["test.lc"]})
    assert [corpus.split_of(name, splits) for name in ("test.en", "test.lc.de")] == ["test", "test.lc"]


def test_what_a_killed_process_left_is_cleared_away(room: SimpleNamespace) -> None:
    (room.out.parent / "pets.partial-1").mkdir(parents=True)
    with corpus.atomic_directory(room.out) as partial:
        (partial / "file").touch()
    assert leftovers(room) == [room.out]


# --- the real data ----------------------------------------------------------------------------------------------------


def test_multi30k_has_the_known_number_of_pairs(tmp_path: Path, multi30k_mirror: str) -> None:
    data = load_params(ROOT / "params.yaml").datasets["multi30k"]
    assert isinstance(data, MirroredDataset)
    corpus.download(data, tmp_path / "multi30k", tmp_path / "cache", [multi30k_mirror])
    pairs = {split: len(read_pairs(tmp_path / "multi30k", split, "en", "de")[0]) for split in data.splits.all}
    assert list(pairs.values()) == [29000, 1014, 1000, 1000, 461]
