import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bleuprint.provenance import collect, cpu_model, describe_git, hash_files, output_of, summarise_training

STARTED = datetime(2025, 1, 2, 3, 4, 5, 678, UTC)


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    for name in ("params.yaml", "dvc.lock", "results/a.json"):
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_commit_and_dirty_flag(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert describe_git(checkout) == {"commit": commit, "dirty": False}
    (checkout / "params.yaml").write_text("two\n")
    assert describe_git(checkout) == {"commit": commit, "dirty": True}


def test_an_untracked_module_makes_the_checkout_dirty(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    assert describe_git(checkout)["dirty"] is True


def test_what_the_graph_writes_does_not_make_it_dirty(checkout: Path) -> None:
    (checkout / "results" / "a.json").unlink()
    (checkout / "dvc.lock").write_text("two\n")
    assert describe_git(checkout)["dirty"] is False


def test_outside_of_a_checkout_git_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_git(tmp_path) == {"commit": None, "dirty": None}
    git(tmp_path, "init", "-q")  # and before the first commit
    assert describe_git(tmp_path) == {"commit": None, "dirty": None}


def test_a_command_that_is_absent_or_fails_is_null() -> None:
    assert output_of("no-such-command-anywhere") is None
    assert output_of("git", "no-such-subcommand") is None
    assert output_of("git", "--version") is not None


def test_the_whole_can_be_stored(tmp_path: Path) -> None:
    found = json.loads(json.dumps(collect(STARTED, 2, tmp_path / "gone.jsonl", tmp_path), allow_nan=False))
    assert found["started"] == "2025-01-02T03:04:05+00:00"
    assert found["finished"] > found["started"]
    assert (found["threads"], found["training"]) == (2, None)
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory_bytes"] > 2**28
    assert found["versions"]["sacrebleu"]
    assert set(found) == {"git", "started", "finished", "machine", "threads", "python", "versions", "training"}


def test_cpu_model(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 3: fast\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 3: fast"


def test_training_speed_and_time(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    rows = [{"tokens_per_second": speed, "seconds": seconds} for speed, seconds in ((9.0, 1.5), (1.0, 2.5), (8.0, 9))]
    log.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"epoch": 1, "validation_loss": 2.0}]))
    assert summarise_training(log) == {"seconds": 9, "tokens_per_second": 8.0, "processes": None, "made_with": None}
    log.write_text('{"step": 1}\n')
    assert summarise_training(log) == {
        "seconds": None,
        "tokens_per_second": None,
        "processes": None,
        "made_with": None,
    }
    log.write_text('{"step": 1}\n{"st')
    with pytest.raises(ValueError, match=r"metrics\.jsonl holds a line that is not JSON"):
        summarise_training(log)


@pytest.mark.parametrize(
    ("starts", "processes"),
    [([(0, 1)], [1]), ([(0, 2), (7, 2)], [2]), ([(0, 1), (7, 4), (9, 1)], [1, 4, 1]), ([(0, 1), (0, 2)], [2])],
)
def test_processes_in_order_but_those_whose_updates_are_lost(
    tmp_path: Path, starts: list[tuple[int, int]], processes: list[int]
) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": step, "processes": count}) + "\n" for step, count in starts))
    found = summarise_training(log)
    assert found is not None
    assert found["processes"] == processes


def test_hashes_are_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert hash_files({"raw": tmp_path / "empty"}) == {
        "raw": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    }
