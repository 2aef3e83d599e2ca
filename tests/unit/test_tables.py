"""`use TABLE` changes the active table of params.yaml and nothing else."""

import difflib
import os
import shutil
from pathlib import Path

import pytest

from bleuprint.graph import load_params
from bleuprint.strict import read_yaml
from bleuprint.tables import replace_blocks, use

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def default_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """params.yaml with `default` active, whatever table is active here."""
    path = tmp_path_factory.mktemp("default") / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    use("default", path, ROOT / "workflow/tables")
    return path.read_text()


@pytest.fixture
def project(tmp_path: Path, default_text: str) -> Path:
    """A params.yaml with `default` active, and the tables."""
    (tmp_path / "params.yaml").write_text(default_text)
    shutil.copytree(ROOT / "workflow/tables", tmp_path / "tables")
    return tmp_path


def use_in(project: Path, table: str) -> bool:
    return use(table, project / "params.yaml", project / "tables")


def changed_keys(before: str, after: str) -> set[str]:
    """Return the top-level keys below which a line differs."""
    keys, current = set(), ""
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line[2:3].strip() and line[2] != "#" and line[0] != "?":
            current = line[2:].partition(":")[0]
        if line[0] in "+-":
            keys.add(current)
    return keys


def test_only_the_four_keys_change(project: Path) -> None:
    params = project / "params.yaml"
    before = params.read_text()
    assert use_in(project, "demo")
    after = params.read_text()
    assert changed_keys(before, after) == {"table", "inputs", "trainings", "runs"}
    assert [line for line in before.split("\n") if "#" in line] == [line for line in after.split("\n") if "#" in line]
    assert load_params(params).table == "demo"
    assert list(load_params(params).runs) == ["toy-1"]


def test_there_and_back_gives_the_same_bytes(project: Path) -> None:
    before = (project / "params.yaml").read_bytes()
    use_in(project, "demo")
    use_in(project, "default")
    assert (project / "params.yaml").read_bytes() == before


def test_the_active_table_again_does_not_touch_the_file(project: Path) -> None:
    before = (project / "params.yaml").stat()
    assert not use_in(project, "default")
    after = (project / "params.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_same_runs_in_another_order_are_taken_over(project: Path) -> None:
    table = project / "tables/default.yaml"
    table.write_text('title: "t"\nruns: [readme-1, tiny-1]\n')
    assert use_in(project, "default")
    table.write_text('title: "t"\nruns: [tiny-1, readme-1]\n')
    assert use_in(project, "default")
    assert list(load_params(project / "params.yaml").runs) == ["tiny-1", "readme-1"]


def test_blocks_are_replaced_wherever_and_however_they_stand() -> None:
    text = (
        "# first\nother: &shared {a: 1.0e-5}  # kept\nruns: {x: 1,\n  y: [2]}   # trailing\n\n"
        "more: {<<: *shared}\ntable: 'a'"
    )
    after = replace_blocks(text, {"table": "b", "runs": {"z-1": {"seed": 1}}}, Path("params.yaml"))
    assert after == (
        "# first\nother: &shared {a: 1.0e-5}  # kept\nruns:\n  z-1: {seed: 1}   # trailing\n\n"
        "more: {<<: *shared}\ntable: b"
    )


def test_long_items_stay_on_one_line() -> None:
    item = {f"key-{i}": "a-rather-long-value" for i in range(9)}
    after = replace_blocks("runs: {}\nmore: 1\n", {"runs": {"x": item}}, Path("params.yaml"))
    assert [line.partition(":")[0] for line in after.splitlines()] == ["runs", "  x", "more"]


def test_an_empty_value_is_replaced_too() -> None:
    after = replace_blocks("runs:  # none\n\nmore: 1\n", {"runs": {"x": {"seed": 1}}}, Path("params.yaml"))
    assert after == "runs:\n  x: {seed: 1}  # none\n\nmore: 1\n"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ValueError, match=r"params\.yaml: runs is missing"):
        replace_blocks("table: a\n", {"table": "b", "runs": {}}, Path("params.yaml"))


def test_it_repairs_runs_that_no_longer_follow_from_the_experiments(project: Path) -> None:
    params = project / "params.yaml"
    use_in(project, "demo")
    recipe = "  toy-words:\n    dataset: toy\n"
    text = params.read_text()
    copy = text[text.index(recipe) : text.index("\n\n", text.index(recipe))]
    renamed = text.replace(copy, f"{copy}\n{copy.replace('toy-words', 'toy-again')}")
    params.write_text(renamed.replace("corpus: toy-words\n    model:", "corpus: toy-again\n    model:"))
    with pytest.raises(ValueError, match="python -m bleuprint use demo"):
        load_params(params)
    assert use_in(project, "demo")
    assert load_params(params).runs["toy-1"].corpus == "toy-again"


# An experiment with the weights of another, and tables with and without the run that is trained.
REUSE = """
  toy-greedy:
    weights: toy
    average: {last: 1}
    decode: {search: greedy, beam: 1, length_penalty: {kind: length, alpha: 0.0}, max_extra_tokens: 50, \
max_batch_tokens: 4096, forced: averaged}
"""


@pytest.mark.parametrize(
    ("runs", "trainings"),
    [
        (["toy-greedy-2"], ["toy-2"]),
        (["toy-greedy-2", "toy-2"], ["toy-2"]),
        (["toy-1", "toy-greedy-2"], ["toy-1", "toy-2"]),
    ],
)
def test_the_trainings_are_those_that_the_runs_need(project: Path, runs: list[str], trainings: list[str]) -> None:
    params = project / "params.yaml"
    params.write_text(params.read_text().rstrip() + REUSE)
    (project / "tables/reuse.yaml").write_text(f"title: Reuse\nruns: [{', '.join(runs)}]\n")
    use_in(project, "reuse")
    found = read_yaml(params)
    assert (list(found["runs"]), list(found["trainings"])) == (runs, trainings)
    assert {run["trained"] for run in found["runs"].values()} == set(trainings)
    assert list(found["inputs"]["corpora"]) == ["toy-words"]


def test_an_unknown_table_lists_the_tables(project: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown table 'demos' \(did you mean demo\?\); valid: .*default, demo"):
        use_in(project, "demos")


def test_an_anchor_that_would_be_lost_is_named(project: Path) -> None:
    path = project / "params.yaml"
    text = path.read_text().replace("seed: 1,", "seed: &one 1,", 1).replace("seed: 12345", "seed: *one", 1)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"params\.yaml: without table, .* found undefined alias 'one'"):
        use_in(project, "demo")
    assert path.read_text() == text


def test_a_run_without_experiment_leaves_the_file_alone(project: Path) -> None:
    (project / "tables/odd.yaml").write_text("title: Odd\nruns: [toy-1, toi-2]\n")
    before = (project / "params.yaml").read_bytes()
    with pytest.raises(ValueError, match=r"table odd: unknown run 'toi-2'.*experiments: .*toy"):
        use_in(project, "odd")
    assert (project / "params.yaml").read_bytes() == before


def test_a_write_that_fails_leaves_the_file_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    before = (project / "params.yaml").read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        use_in(project, "demo")
    assert (project / "params.yaml").read_bytes() == before
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "tables"]


def test_permissions_stay(project: Path) -> None:
    (project / "params.yaml").chmod(0o664)
    use_in(project, "demo")
    assert (project / "params.yaml").stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("table", sorted(path.stem for path in (ROOT / "workflow/tables").glob("*.yaml")))
def test_every_table_can_be_used(project: Path, table: str) -> None:
    use_in(project, table)
    params = load_params(project / "params.yaml")
    assert list(params.runs) == read_yaml(project / f"tables/{table}.yaml")["runs"]
