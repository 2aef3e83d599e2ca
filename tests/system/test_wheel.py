"""What `pip install .` brings: all files of the package, its metadata, a command that works; built without network."""

import os
import shutil
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from clones import run

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the files that git has, in a folder of their own: a build leaves traces in its source."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = run(
        ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard", "src", "*.md", "LICENSE", "*.toml"
    )
    for name in names.split():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(out))
    subprocess.run([*PIP, "wheel", *options, str(source)], check=True)
    [path] = out.iterdir()
    return path


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    names = run(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard", "src").split()
    files = {name.removeprefix("src/") for name in names}
    assert {
        "bleuprint/py.typed",
        "bleuprint/reference/claims.yaml",
        "bleuprint/reporting/templates/report.html",
    } <= files
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == files


def test_its_metadata_are_complete(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        found = Parser().parsestr(archive.read(name).decode())
        assert name.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    for key in ("Name", "Version", "Summary", "Author", "License-Expression", "Keywords", "Requires-Python"):
        assert found[key], key
    assert found["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    assert str(found.get_payload()).startswith("# bleuprint")
    assert f"version: {found['Version']}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_command_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [*PIP, "install", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(wheel)], check=True
    )
    command, outside = str(tmp_path / "site/bin/bleuprint"), tmp_path / "outside"
    outside.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *words], cwd=outside, env=environment, capture_output=True, text=True)

    assert call("--help").stdout.startswith("Usage: bleuprint ")
    lost = call("train", "tiny-1")
    assert lost.returncode == 1
    assert lost.stderr == f"error: params.yaml does not exist in {outside}; run from the project's root\n"
    assert list(outside.iterdir()) == []
