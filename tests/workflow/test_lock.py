"""requirements.lock: what `pip install --require-hashes` needs to be told, of every package but torch."""

import re
from pathlib import Path
from typing import Any

import pytest
from modules import ROOT

LOCKS = ("requirements.lock", "tests/fuzz/requirements.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_but_torchs_has_a_release_and_hashes(name: str) -> None:
    """A package added by hand: `make lock`, or the hashes that pip names when it refuses."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    for entry in re.split(r"\n(?=\S)", text.strip()):
        head, *hashes = entry.replace("\\\n", "\n").split()
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[^ ]+", head), entry
        assert bool(hashes) == (not head.startswith("torch==")), entry
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", found) for found in hashes), entry


def test_every_dependency_is_pinned() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = {re.split(r"[><=\[]", item)[0] for items in (project["dependencies"], *extras) for item in items}
    pinned = re.findall(r"^([a-z0-9.-]+)==", (ROOT / LOCKS[0]).read_text(), re.MULTILINE)
    assert {name.replace(".", "-") for name in wanted} <= {name.replace(".", "-") for name in pinned}


def test_an_audit_of_nothing_is_called_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    from audit import tell

    skipped: dict[str, Any] = {"name": "a", "skip_reason": "not found"}
    clean: dict[str, Any] = {"name": "b", "version": "1", "vulns": []}
    assert tell([skipped]) == 0
    assert "audit skipped" in capsys.readouterr().out
    assert tell([skipped, clean]) == 0
    assert tell([clean, {**clean, "vulns": [{"id": "CVE-1"}]}]) == 1
    assert "b 1: CVE-1\n2 of 2 packages audited, 1 vulnerabilities known\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "status"), [("ERROR: invalid requirements input: a.txt", 1), ("Max retries exceeded with url", 0)]
)
def test_only_an_audit_without_network_is_skipped(tmp_path: Path, said: str, status: int) -> None:
    from audit import audit

    command = tmp_path / "pip-audit"
    command.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    command.chmod(0o755)
    assert audit(str(command), "a.txt") == status


def test_dvc_reads_yaml_by_the_c_library() -> None:
    """It reads params.yaml once for each stage of the active table."""
    from ruamel.yaml import YAML
    from ruamel.yaml.cyaml import CParser

    assert YAML(typ="safe").Parser is CParser
