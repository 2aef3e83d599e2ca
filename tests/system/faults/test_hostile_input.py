"""What comes from outside runs no code, opens no other file and shows as nothing but text."""

import ast
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bleuprint import corpus, ui
from bleuprint.checkpoint import load_state, load_weights, save_state
from bleuprint.graph import load_params
from bleuprint.mistakes import suggest
from bleuprint.reporting.markdown import code, escape, markdown_table
from bleuprint.strict import read_yaml
from reliability import Record

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


class Touches:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


# --- pickles ----------------------------------------------------------------------------------------------------------


def test_a_pickle_that_runs_code_is_refused_wherever_one_could_stand(tmp_path: Path, record: Record) -> None:
    proof, bad = tmp_path / "proof", tmp_path / "bad"
    bad.write_bytes(pickle.dumps(Touches(proof)))
    pickle.loads(bad.read_bytes())  # it does run code
    proof.unlink()
    save_state({"a": torch.ones(1)}, tmp_path / "good")
    assert load_state(tmp_path / "good")["a"] == 1
    torch.save({"weights": Touches(proof)}, tmp_path / "zipped")
    np.save(tmp_path / "a.npy", np.array([Touches(proof)], dtype=object), allow_pickle=True)
    for read in (
        lambda: load_state(bad),
        lambda: load_state(tmp_path / "zipped"),
        lambda: load_weights(bad),
        lambda: np.load(tmp_path / "a.npy"),
    ):
        with pytest.raises((ValueError, pickle.UnpicklingError)):
            read()
        assert not proof.exists(), "the pickle ran"
    record("input", "pickles that run code", 4, 4, sum(path.stat().st_size for path in tmp_path.iterdir()))


FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "marshal.loads",
    "yaml.load", "yaml.unsafe_load", "subprocess.getoutput", "joblib.load", "shelve.open",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: path.stem)
def test_no_code_is_built_from_data(path: Path) -> None:
    """No eval, no pickle, no shell; torch loads weights only, numpy no objects, YAML is the safe kind."""
    for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
        name, where = ast.unparse(call.func), f"{path}, line {call.lineno}"
        given = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
        assert name not in FORBIDDEN, where
        assert given.get("shell") in (None, "False"), where
        assert given.get("allow_pickle") in (None, "False"), where
        if name == "torch.load":
            assert given["weights_only"] == "True", where
        if name == "YAML":
            assert given.get("typ") in ("'safe'", "'rt'", None), where


# --- params.yaml ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:pathlib.Path.touch [{proof}]",
        "!!python/object/new:os.system ['touch {proof}']",
        "!!python/name:os.system",
        "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch {proof}']",
    ],
)
def test_params_cannot_run_code(tmp_path: Path, tag: str, record: Record) -> None:
    proof, path = tmp_path / "proof", tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text()
    path.write_text(re.sub(r"^table: .*", f"table: {tag.format(proof=proof)}", text, flags=re.MULTILINE))
    with pytest.raises(ValueError, match=r"params\.yaml"):
        load_params(path)
    with pytest.raises(ValueError, match=r"is not valid YAML: could not determine a constructor for the tag"):
        read_yaml(path)
    assert not proof.exists()
    record("input", f"YAML tag {tag.partition(' ')[0]}", 1, 1, path.stat().st_size)


NAMES = [
    "a;touch proof",
    "a b",
    "$(touch proof)",
    "`touch proof`",
    "a\ntouch proof",
    "a'b",
    'a"b',
    "../a",
    "-rf",
    "a|b",
    "ä",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_a_shell_or_a_path_would_read_are_refused(name: str, record: Record) -> None:
    """Of runs, experiments, corpora and data sets: all that stands in the commands of dvc.yaml and the Snakefile."""
    data = read_yaml(ROOT / "params.yaml")
    for section in ("runs", "trainings", "experiments", "corpora", "datasets"):
        changed = data | {section: {**data[section], name: next(iter(data[section].values()))}}
        with pytest.raises(ValueError, match=r"string_pattern_mismatch|should match pattern"):
            type(load_params(ROOT / "params.yaml")).model_validate(changed)
    for key in ("table",):
        with pytest.raises(ValueError, match=r"should match pattern"):
            type(load_params(ROOT / "params.yaml")).model_validate(data | {key: name})
    record(
        "input", f"name {json.dumps(name, ensure_ascii=False).replace('|', chr(92) + '|')}", 6, 6, len(name.encode())
    )


@pytest.mark.parametrize("engine", ["repro", "snakemake"])
def test_neither_engine_runs_a_name(engine: str, tmp_path: Path, record: Record) -> None:
    """`make` reads params.yaml by the strict models before DVC does; Snakemake reads it so itself."""
    for name in ("src", "workflow", "profiles"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dvc.yaml", "Snakefile", "Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    text = (ROOT / "params.yaml").read_text()
    bad = text.replace("\n    multi30k: {module", "\n    a;touch proof;: {module")
    bad = bad.replace("\ndatasets:\n", "\ndatasets:\n  a;touch proof;: {kind: a}\n")
    assert bad.count("touch proof") == 2
    (tmp_path / "params.yaml").write_text(bad)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**ENVIRONMENT, "PATH": path, "PYTHONPATH": "src"}
    subprocess.run(["dvc", "init", "--quiet", "--no-scm"], cwd=tmp_path, check=True, env=environment)
    command = ["make", f"VENV={sys.prefix}", "STAMP=", engine]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode != 0
    assert (
        "params.yaml: inputs.datasets.a;touch proof; is 'a;touch proof;': it should match" in done.stdout + done.stderr
    )
    assert not (tmp_path / "proof").exists()
    record("input", f"a data set named as a command, make {engine}", 1, 1, len(bad))


# --- text that is shown -----------------------------------------------------------------------------------------------

SHOWN = [
    "<script>alert(1)</script>",
    "a|b",
    "`a`",
    "[a](javascript:b)",
    "*a* _b_",
    "a\nb",
    "&amp;",
    "\\",
    "$a$",
    "<!--",
]


@pytest.mark.parametrize("text", SHOWN)
def test_markdown_shows_text_as_it_is(text: str, record: Record) -> None:
    """By GitHub's own rules, as markdown-it reads them: one cell, nothing but text in it."""
    from markdown_it import MarkdownIt

    shown = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render(markdown_table(["a", "b"], [[escape(text), code(text)]]))
    )
    assert shown.count("<td>") == 2
    first, second = re.findall(r"<td>(.*?)</td>", shown, re.DOTALL)
    assert "<" not in first, first
    assert re.fullmatch(r"<code>[^<]*</code>", second), second
    record("input", "markup in a Markdown table", len(SHOWN), len(SHOWN), sum(len(item.encode()) for item in SHOWN))


CONTROLS = ["a\u202eb", "a\u2066b", "a\u200fb", "a\x1b[31mb", "a\x07b", "a\u2028b", "a\x00b"]


@pytest.mark.parametrize("text", CONTROLS)
def test_control_and_bidirectional_characters_are_spelt_out(text: str) -> None:
    """They would reorder a line, colour a terminal, or end a row."""
    for shown in (escape(text), code(text)):
        assert shown.isprintable(), ascii(shown)
        assert f"U+{ord(text[1]):04X}" in shown or text[1] == "\u2028"


def test_a_mistake_shows_a_hostile_name_spelt_out() -> None:
    assert "\x1b" not in f"unknown run {'a' + chr(27)!r}{suggest('a', ['b'])}"


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def redirecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Run a server on 127.0.0.1 that sends everybody to the address in its path; yield its own, and who asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(302)
            self.send_header("Location", self.path[1:].removesuffix("/a.en"))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", seen
        http.shutdown()


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1:70/a", "data:,a"])
def test_a_redirect_elsewhere_is_refused(
    redirecting: tuple[str, list[str]], target: str, tmp_path: Path, record: Record
) -> None:
    address, seen = redirecting
    with corpus.progress_bar() as bar, pytest.raises(ValueError, match=r"and only http:// and https:// are followed"):
        corpus.fetch("a", "a.en", lambda path: None, tmp_path, [f"{address}/{target}"], bar)
    assert len(seen) == 1
    assert not list(tmp_path.iterdir())
    record("input", f"redirect to {target.partition(':')[0]}", 1, 1, len(target))


def test_a_redirect_without_end_ends(redirecting: tuple[str, list[str]], tmp_path: Path) -> None:
    address, _ = redirecting
    with corpus.progress_bar() as bar, pytest.raises(ValueError, match=r"[Ee]xceeded maximum allowed redirects"):
        corpus.fetch("a", "a.en", lambda path: None, tmp_path, [f"{address}//a.en"], bar)


@pytest.mark.parametrize(
    "url", ["ftp://a/b", "gopher://a", "data:,a", "javascript:a", "/etc/passwd", "file:", "http:a"]
)
def test_other_addresses_are_refused_in_params(url: str, tmp_path: Path, record: Record) -> None:
    text = (ROOT / "params.yaml").read_text()
    bad = re.sub(r"\n      - https://raw[^\n]*", f"\n      - {json.dumps(url)}", text, count=1)
    (tmp_path / "params.yaml").write_text(bad)
    with pytest.raises(ValueError, match=r"datasets\.multi30k\.mirrors\S* is .*: it should match pattern"):
        load_params(tmp_path / "params.yaml")
    record("input", f"mirror {url}", 1, 1, len(url))


# --- MLflow -----------------------------------------------------------------------------------------------------------


def test_mlflow_listens_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `bleuprint ui` becomes, taken at the last moment: the address is 127.0.0.1, and no argument is a secret."""
    found: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(os, "execve", lambda program, words, environment: found.extend(words))
    ui.serve(5999)
    assert found[found.index("--host") + 1] == "127.0.0.1"
    assert "0.0.0.0" not in " ".join(found)
    assert not any("sqlite" in word for word in found)
