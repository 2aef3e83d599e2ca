"""Checks of the project for `doctor`: parameters, folders, mirrors, DVC's record, MLflow, git. All are short."""

import hashlib
import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from bleuprint.checks.findings import Finding, worst
from bleuprint.corpus import mirrors_in_order, without_password
from bleuprint.database import DATABASES, SQLITE, check_database, shown, tracking_uri
from bleuprint.datasets import ArchivesDataset, Dataset, GeneratedDataset, MirroredDataset
from bleuprint.graph import Params
from bleuprint.provenance import describe_git, installed_version
from bleuprint.strict import read_yaml
from bleuprint.texts import places_in_order

ANSWER_SECONDS = 4.0  # for a mirror or a server that is there
FOLDERS = ("data", "runs", "results", "reports", "work", ".dvc")
NAMED = 3  # stages that are named; the others are counted


# --- folders ----------------------------------------------------------------------------------------------------------


def check_folders(root: Path) -> Finding:
    """Write a file into every folder that stages write into, and take it away again."""
    folders = [root, *(root / name for name in FOLDERS if os.path.lexists(root / name))]
    found = worst([writable(folder) for folder in folders])
    return found if found.state != "ok" else Finding("ok", f"{len(folders)} can be written to")


def writable(folder: Path) -> Finding:
    """Say whether a file can be made in a folder."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            return Finding("ok", str(folder))
    except OSError as error:
        return Finding(
            "problem", f"{folder} cannot be written to: {error.strerror}", f"ls -ld {folder}; chmod or chown it"
        )


# --- mirrors ----------------------------------------------------------------------------------------------------------


def check_mirrors(params: Params, raw: Path, environment: Mapping[str, str] = os.environ) -> Finding:
    """Ask one mirror after the other for a file of each data set of the active table; all data sets at once."""
    names = [name for name in params.inputs.datasets if not isinstance(params.datasets[name], GeneratedDataset)]
    if not names:
        return Finding("ok", "the active table needs none")
    with ThreadPoolExecutor(len(names)) as pool:
        return worst(list(pool.map(lambda name: mirror_of(name, params.datasets[name], raw, environment), names)))


def mirror_of(name: str, dataset: Dataset, raw: Path, environment: Mapping[str, str]) -> Finding:
    """Say from where a data set could be had; one that is here already needs no mirror."""
    there = (raw / name / "manifest.json").is_file()
    try:
        mirrors, path = mirrors_and_file(dataset, environment)
    except ValueError as error:
        return Finding("problem", str(error), "unset BLEUPRINT_MIRROR, or give one URL")
    reasons: list[str] = []
    for mirror in mirrors:
        if (reason := unreachable(f"{mirror.rstrip('/')}/{quote(path)}")) is None:
            ahead = f" ({'; '.join(reasons)})" if reasons else ""
            return Finding("ok", f"{name} from {without_password(mirror)}{ahead}")
        reasons.append(f"{without_password(mirror)}: {reason}")
    text = f"{name}: no mirror answers ({'; '.join(reasons)})"
    if there:
        return Finding("ok", f"{text}, but it is in {raw / name}")
    return Finding("problem", text, "BLEUPRINT_MIRROR=file:///path/to/a/copy, or another https:// address")


def mirrors_and_file(dataset: Dataset, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the mirrors of a data set, and the path of one of its files below them."""
    assert not isinstance(dataset, GeneratedDataset)
    if isinstance(dataset, ArchivesDataset):
        return mirrors_in_order(dataset, environment), next(iter(dataset.archives.values())).path
    if isinstance(dataset, MirroredDataset):
        return mirrors_in_order(dataset, environment), next(iter(dataset.files.values())).path
    return places_in_order(dataset, environment), next(iter(dataset.files.values())).path


def unreachable(url: str) -> str | None:
    """Return why a file cannot be had, None where it can; nothing but its head is fetched."""
    import httpx

    if urlsplit(url).scheme == "file":
        return None if Path(url2pathname(urlsplit(url).path)).is_file() else "no such file"
    try:
        response = httpx.head(url, timeout=ANSWER_SECONDS, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    return None if response.is_success else f"HTTP {response.status_code} {response.reason_phrase}"


# --- DVC --------------------------------------------------------------------------------------------------------------


def check_dvc(params: Params, root: Path) -> Finding:
    """Compare what dvc.lock says of the active table's stages with code and parameters as they are.

    Data are not looked at, for that takes minutes: `dvc status` does.
    """
    if not (root / ".dvc").is_dir():
        return Finding("problem", f"{root}/.dvc is not there: this is no DVC project", "git clone, or dvc init")
    if not (root / "dvc.lock").is_file():
        return Finding("warning", "dvc.lock is not there: nothing has been run", "dvc repro")
    try:
        lock, values = read_yaml(root / "dvc.lock"), read_yaml(root / "params.yaml")
    except ValueError as error:
        return Finding("problem", str(error), "git checkout dvc.lock, or resolve the merge")
    reasons = {name: reason_to_run(lock["stages"].get(name), values, root) for name in stages_of(params)}
    late = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    if not late:
        return Finding("ok", f"{len(reasons)} stages as in dvc.lock, by code and parameters")
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    return Finding("warning", f"would run again: {', '.join(late[:NAMED])}{more}", "dvc repro; dvc status says why")


def stages_of(params: Params) -> list[str]:
    """Return the names of the active table's stages, in the graph's order."""
    of: dict[str, Iterable[str]] = {
        "download": params.inputs.datasets,
        "tokenize": params.inputs.corpora,
        "train": params.trainings,
        "average": params.runs,
        "decode": params.runs,
        "attend": params.runs,
        "score": params.runs,
        "report": [params.table],
    }
    return [f"{stage}@{name}" for stage, names in of.items() for name in names]


def reason_to_run(stage: Mapping[str, Any] | None, values: Mapping[str, Any], root: Path) -> str | None:
    """Return why a stage is out of date by what dvc.lock has of it, None where it is not."""
    if stage is None:
        return "never run"
    for dependency in stage["deps"]:
        path = root / dependency["path"]
        if dependency["path"].startswith("src/") and not (path.is_file() and md5_of(path) == dependency["md5"]):
            return f"{dependency['path']} changed"
    recorded = stage["params"]["params.yaml"] if "params" in stage else {}
    changed = [key for key, value in recorded.items() if value_at(values, key) != value]
    return f"{changed[0]} changed" if changed else None


def md5_of(path: Path) -> str:
    """Return a file's md5, as DVC writes it."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def value_at(values: Any, key: str) -> Any:
    """Return what stands at a dotted key, None where nothing does."""
    for part in key.split("."):
        values = values[part] if isinstance(values, dict) and part in values else None
    return values


# --- MLflow -----------------------------------------------------------------------------------------------------------


def check_mlflow(root: Path) -> Finding:
    """Look whether MLflow's database or server is there, and is of the installed release."""
    uri = tracking_uri(root)
    advice = "start what it names, or unset MLFLOW_TRACKING_URI"
    try:
        if uri.startswith(SQLITE):
            return check_sqlite(Path(uri.removeprefix(SQLITE)))
        if uri.startswith(("http:", "https:")):
            return check_server(uri)
        if uri.startswith(DATABASES):
            with socket.create_connection(host_and_port(uri), ANSWER_SECONDS):
                pass
            check_database(uri)
            return Finding("ok", shown(uri))
        return Finding("problem", f"MLFLOW_TRACKING_URI is {shown(uri)}: MLflow takes no such address here", advice)
    except OSError as error:
        return Finding("problem", f"{shown(uri)} cannot be used: {error}", advice)


def host_and_port(uri: str) -> tuple[str, int]:
    """Return where a database listens."""
    from sqlalchemy import make_url

    url = make_url(uri)
    ports = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
    return url.host or "localhost", url.port or ports[url.get_backend_name()]


def check_sqlite(path: Path) -> Finding:
    """Open the file, and compare the version of its tables with the installed MLflow's."""
    if not path.exists():
        if not path.parent.is_dir():
            return Finding("problem", f"{path.parent} is not there, so {path.name} cannot be made", "mkdir it")
        return Finding("ok", f"{path.name} is made by the first training")
    try:
        with closing(sqlite3.connect(path, timeout=ANSWER_SECONDS)) as database:
            database.execute("BEGIN IMMEDIATE")
            found = {row[0] for row in database.execute("SELECT version_num FROM alembic_version")}
    except sqlite3.Error as error:
        return Finding("problem", f"{path} cannot be used: {error}", "nothing reads it back: move it away")
    if found != (newest := newest_tables()) and newest:
        return Finding(
            "problem",
            f"{path.name} has tables of version {', '.join(sorted(found)) or 'none'}, and mlflow "
            f"{installed_version('mlflow')} wants {', '.join(sorted(newest))}",
            f"mlflow db upgrade sqlite:///{path}",
        )
    return Finding("ok", f"{path.name}, tables of mlflow {installed_version('mlflow')}")


def newest_tables() -> set[str]:
    """Return the version of the installed MLflow's tables, by the files of its migrations: an import takes seconds."""
    spec = find_spec("mlflow")
    if spec is None or spec.origin is None:
        return set()
    revisions, older = set(), set()
    for path in (Path(spec.origin).parent / "store/db_migrations/versions").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if found := re.search(r"""^revision\b[^=]*=\s*["'](\w+)["']""", text, re.MULTILINE):
            revisions.add(found[1])
        if found := re.search(r"^down_revision\b[^=]*=(.*)$", text, re.MULTILINE):
            older.update(re.findall(r"""["'](\w+)["']""", found[1]))
    return revisions - older


def check_server(uri: str) -> Finding:
    """Ask a server for its version; ConnectionError where it does not answer as MLflow does."""
    import httpx

    try:
        response = httpx.get(f"{uri.rstrip('/')}/version", timeout=ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionError(str(error) or type(error).__name__) from None
    if not response.is_success:
        raise ConnectionError(f"HTTP {response.status_code} {response.reason_phrase}")
    version, own = response.text.strip(), installed_version("mlflow")
    if version.partition(".")[0] != (own or "").partition(".")[0]:
        return Finding(
            "warning", f"{shown(uri)} runs mlflow {version[:20]}, here it is {own}", "the same release on both"
        )
    return Finding("ok", f"{shown(uri)}, mlflow {version}")


# --- git --------------------------------------------------------------------------------------------------------------


def check_git(root: Path) -> Finding:
    """Say whether what is run could be found again: results name the commit."""
    git = describe_git(root)
    if git["commit"] is None:
        return Finding("warning", "no commit here: results will name none", "git clone, or git init and commit")
    if git["dirty"]:
        return Finding("warning", f"{git['commit'][:9]} with uncommitted changes: results will say so", "git status")
    return Finding("ok", f"{git['commit'][:9]}, clean")
