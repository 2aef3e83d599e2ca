"""What the shell completes: the names that params.yaml and workflow/tables have."""

import re
from pathlib import Path

import pytest
from specs import ROOT, start

from bleuprint.commands import completion
from bleuprint.graph import load_params


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_names_are_those_that_the_yaml_reader_finds() -> None:
    params = load_params()
    assert completion.datasets("") == list(params.datasets)
    assert completion.corpora("") == list(params.corpora)
    assert sorted(completion.experiments("")) == sorted(params.recipes)
    assert completion.runs("")[: len(params.runs)] == list(params.runs)


def test_only_what_begins_so_is_offered_and_once() -> None:
    found = completion.runs("tiny-")
    assert {"tiny-1", "tiny-cased-1"} <= set(found)
    assert all(name.startswith("tiny-") for name in found)
    assert len(set(found)) == len(found)
    assert completion.tables("de") == ["default", "demo"]


def test_outside_a_project_nothing_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert completion.runs("") == completion.tables("") == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bleuprint train to", ["toy-1"]),
        ("bleuprint tokenize toy", ["toy-words"]),
        ("bleuprint use dem", ["demo"]),
        ("bleuprint expl", ["explain"]),
        ("bleuprint new-experiment x --from to", ["toy"]),
    ],
)
def test_bash_is_told(words: str, expected: list[str]) -> None:
    """As the script that `bleuprint --show-completion bash` prints asks for it."""
    asked = {"_BLEUPRINT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "import sys; sys.argv = ['bleuprint']; from bleuprint.cli import main; main()"
    assert start(ROOT, "-c", code, **asked).stdout.split() == expected


def test_the_script_for_bash_asks_in_that_way() -> None:
    code = "import sys; sys.argv = ['bleuprint', '--show-completion', 'bash']; from bleuprint.cli import main; main()"
    shown = start(ROOT, "-c", code).stdout
    assert re.search(r"_BLEUPRINT_COMPLETE=complete_bash", shown)
    assert "complete -o default -F _bleuprint_completion bleuprint" in shown


def test_python_dash_m_gives_the_script_of_the_command_alone() -> None:
    """Its own would take over what TAB does after `python`, and fail at it."""
    shown = start(ROOT, "-m", "bleuprint", "--show-completion", "bash").stdout
    assert shown.splitlines()[-1] == "complete -o default -F _bleuprint_completion bleuprint"
