"""The command line: quick help, one sentence per mistake, a log per stage, and nothing heavy where it is not needed."""

import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file
from specs import ROOT, bleuprint, start

from bleuprint.console import plain_errors, sentence, start_log
from bleuprint.graph import load_table
from bleuprint.idstore import write_ids
from bleuprint.runs import code_files
from bleuprint.tokenizers import SPECIALS

STAGES = ["download", "tokenize", "train", "average", "decode", "attend", "score", "report"]
COMMANDS = [
    *STAGES, "check", "doctor", "use", "new-experiment", "readme", "deviations", "verify", "explain", "compare", "card",
    "describe", "cost", "plan", "translate", "export", "track", "unlock", "ui",
]  # fmt: skip
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
HEAVY = {"torch", "mlflow", "spacy", "pydantic", "ruamel", "numpy", "pandas", "altair", "sacrebleu", "rich", "filelock"}
# Runs the command line, then prints which of the modules named in the first argument it has imported.
TELL_IMPORTS = """
import sys
asked = set(sys.argv.pop(1).split(","))
from bleuprint.cli import main
try:
    main()
finally:
    print("imported:", *sorted(asked & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with params.yaml and the tables, and no data."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "params.yaml", root)
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    return root


# --- help ------------------------------------------------------------------------------------------------------------


def test_help_lists_every_command_and_imports_nothing_heavy(tmp_path: Path) -> None:
    done = start(tmp_path, "-c", TELL_IMPORTS, ",".join(HEAVY), "--help")
    listed = re.findall(r"^  ([a-z][\w-]*)  +([A-Z].*)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in listed] == COMMANDS
    assert all(text.endswith(".") and not text.endswith("...") for _, text in listed)
    assert done.stdout.splitlines()[-1] == "imported:"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    from typer.testing import CliRunner

    from bleuprint.cli import app

    shown = CliRunner().invoke(app, [command, "--help"]).stdout
    assert re.search(rf"^  Example: python -m bleuprint {command}\b", shown, re.MULTILINE)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["download", "toi"], r"unknown dataset 'toi' \(did you mean toy\?\); valid: multi30k, .*wmt14, toy"),
        (["tokenize", "toy"], r"unknown corpus 'toy'.*; valid: multi30k-words, .*toy-words"),
        (["train", "tinny-1"], r"unknown run 'tinny-1'.*; in the active table: .*; experiments: toy, tiny"),
        (["train", "ablate-greedy-1"], r"ablate-greedy-1 is not trained, .*: python -m bleuprint train ablate-tiny-1"),
        (["score", "tiny-987"], r"runs/tiny-987/train/summary.json is missing"),  # a run of no table is a run
        (
            ["describe", "readme-1"],
            r"data/corpora/multi30k-words/manifest.json is missing; .* give both --src-vocab",
        ),
        (["use", "defualt"], r"unknown table 'defualt' \(did you mean default\?\); valid: ablation, default, "),
        (["readme"], r"README.md: No such file or directory"),
    ],
)
def test_a_mistake_is_one_sentence(project: Path, words: list[str], message: str) -> None:
    done = bleuprint(project, *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(f"error: {message}[^\n]*\n", done.stderr)
    assert not (project / "runs").exists()
    assert not (project / "results").exists()


def test_bad_parameters_stop_every_stage_and_leave_nothing(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(re.sub(r"\blr: \S+,", "lr: -1,", text, count=1))
    done = bleuprint(tmp_path, "download", "toy")
    assert (done.returncode, done.stderr) == (
        1,
        "error: params.yaml: experiments.toy.train.schedule.lr is -1: it should be greater than 0\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_a_file_that_is_in_the_way_is_named(tmp_path: Path) -> None:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "data").write_text("no directory")
    done = bleuprint(tmp_path, "download", "toy")
    assert done.returncode == 1
    assert re.fullmatch(r"error: data\S*: (Not a directory|File exists)\n", done.stderr)
    log = (tmp_path / "work/logs/download-toy.log").read_text()
    assert re.match(r"\d\d:\d\d:\d\d \d{4}-\d\d-\d\d: python -m bleuprint download toy\n", log)
    assert "Traceback (most recent call last)" in log


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = bleuprint(tmp_path, "download", "toy", BLEUPRINT_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied", "data/raw"), "data/raw: Permission denied"),
        (OSError(18, "Invalid cross-device link", "a", None, "b"), "a -> b: Invalid cross-device link"),
        (OSError(28, "No space left on device", "a"), "a: No space left on device"),
        (OSError("broken"), "broken"),
        (ValueError("a is 1; valid: 2"), "a is 1; valid: 2"),
    ],
)
def test_errors_of_the_file_system_name_the_file(error: ValueError | OSError, text: str) -> None:
    assert sentence(error) == text


# --- interruption and logs -------------------------------------------------------------------------------------------


@pytest.fixture
def own_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stand in an empty directory, and leave the logging of pytest as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bleuprint", "train", "tiny-1"])
    before = logging.getLogger().handlers[:]
    yield
    for handler in set(logging.getLogger().handlers) - set(before):
        logging.getLogger().removeHandler(handler)
        handler.close()


@pytest.mark.usefixtures("own_logging")
def test_ctrl_c_says_that_the_same_command_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stopped, plain_errors("resumes"):
        raise KeyboardInterrupt
    assert stopped.value.exit_code == 130
    assert capsys.readouterr().err == "interrupted; the same command resumes: python -m bleuprint train tiny-1\n"


@pytest.mark.usefixtures("own_logging")
def test_messages_go_to_stderr_and_to_the_log_of_the_stage(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with plain_errors("resumes"):
            start_log("train", "tiny-1")
            logging.getLogger("bleuprint.training").info("step 1")
            logging.getLogger("bleuprint.training").debug("detail")
            logging.getLogger("another").warning("careful")
            logging.getLogger("another").info("chatter")
        for handler in logging.getLogger().handlers[-2:]:
            logging.getLogger().removeHandler(handler)
    log = re.sub(r"^\d\d:\d\d:\d\d ", "", Path("work/logs/train-tiny-1.log").read_text(), flags=re.MULTILINE)
    once = ["step 1", "detail", "careful"]
    assert [line for line in log.splitlines() if "python -m" not in line] == once * 2  # appended: a run may resume
    assert re.fullmatch(r"(\d\d:\d\d:\d\d step 1\n\d\d:\d\d:\d\d careful\n){2}", capsys.readouterr().err)


# --- a stage ---------------------------------------------------------------------------------------------------------

SUMMARY = {
    "steps": 6,
    "epochs": 1,
    "stopped": "max_steps",
    "validation_loss": 1.5,
    "source_tokens": 60,
    "target_tokens": 70,
    "flops": 1e9,
}
TOKENIZER = {
    "kind": "words",
    "lowercase": False,
    "min_frequency": 1,
    "source": "en",
    "target": "de",
    "source_types": SPECIALS,
    "target_types": [*SPECIALS, "der", "Hund"],
}


@pytest.fixture
def decoded(tmp_path: Path) -> Path:
    """A project with all that `score toy-1` reads, in small."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    texts = {
        "data/raw/toy/manifest.json": "{}",
        "data/corpora/toy-words/manifest.json": "{}",
        "data/corpora/toy-words/tokenizer.json": json.dumps(TOKENIZER),
        "runs/toy-1/train/summary.json": json.dumps(SUMMARY),
        "runs/toy-1/train/metrics.jsonl": "",
        "runs/toy-1/train/history.csv": "epoch,step\n1,6\n",
        "runs/toy-1/decode/val.forced.txt": "der Hund\n",
        "runs/toy-1/decode/val.forced-ref.txt": "der Hund\n",
    }
    for kind in ("hyp.txt", "hyp.lc-tok.txt", "ref.txt", "ref.lc-tok.txt"):
        texts[f"runs/toy-1/decode/test.{kind}"] = "der Hund sieht die Katze und schläft\n" * 3
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    write_ids(tmp_path / "data/corpora/toy-words", "val.target", [[2, 4, 5, 3]], 6)
    (tmp_path / "runs/toy-1/average").mkdir()
    save_file({"w": np.zeros((2, 3), np.float32)}, tmp_path / "runs/toy-1/average/weights.safetensors")
    return tmp_path


def test_score_needs_no_torch_and_no_mlflow_that_works(decoded: Path) -> None:
    nowhere = f"sqlite:///{decoded}/params.yaml/mlflow.db"
    done = start(decoded, "-c", TELL_IMPORTS, "torch,spacy,sacrebleu", "score", "toy-1", MLFLOW_TRACKING_URI=nowhere)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "imported: sacrebleu\n"
    lines = [line[9:] for line in done.stderr.splitlines()]
    assert lines[0] == "wrote results/toy-1.json"
    assert [line[:30] for line in lines[1:]] == ["MLflow takes no more numbers o"]
    result = json.loads((decoded / "results/toy-1.json").read_text())
    assert result["parameters"] == 6
    assert result["test_sets"]["test"]["bleu_lc_tok"]["score"] == 100.0
    assert result["legacy_score"] == {"split": "val", "score": 100.0, "epochs": {}}
    assert set(result["code"]) == set(code_files("transformer"))
    assert set(result["data"]) == {"raw", "corpus"}
    kept, made = (decoded / "results/toy-1", decoded / "runs/toy-1/decode")
    assert (kept / "test.hyp.txt").read_text() == (made / "test.hyp.txt").read_text()
    assert (kept / "val.forced-rows.txt").read_text() == "0\n"


def test_report_imports_no_torch(project: Path) -> None:
    done = start(project, "-c", TELL_IMPORTS, "torch,mlflow,spacy", "report")
    assert re.search(r"error: results/\S+\.json is missing", done.stderr)
    assert done.stdout == "imported:\n"


@pytest.mark.parametrize("change", ["another run", "another order"])
def test_a_table_with_other_runs_than_params_yaml_is_not_reported(project: Path, tmp_path: Path, change: str) -> None:
    """Someone has added a run to the table's file and not called `use`: the report would lack it without a word."""
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    table = tmp_path / "workflow/tables/default.yaml"
    runs = load_table("default", table.parent).runs
    names = ", ".join(("tiny-2", *runs) if change == "another run" else reversed(runs))
    table.write_text(f'title: "t"\nruns: [{names}]\n')
    done = bleuprint(tmp_path, "report")
    assert done.returncode == 1
    assert done.stderr == (
        "error: workflow/tables/default.yaml names other runs than params.yaml, or in another order; "
        "take them over with: python -m bleuprint use default\n"
    )


def test_a_damaged_mlflow_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database " * 100)
    done = bleuprint(tmp_path, "ui", "--port", "5987")
    assert done.returncode == 1
    assert re.fullmatch(r"error: sqlite:///\S+/mlflow\.db cannot be opened: file is not a database\n", done.stderr)


def test_a_reader_that_has_enough_is_no_mistake(project: Path) -> None:
    command = [sys.executable, "-m", "bleuprint", "describe", "toy-1", "--src-vocab", "9", "--tgt-vocab", "9"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=project, env=ENVIRONMENT, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = bleuprint(tmp_path, "ui", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == f"error: port {port} cannot be used (Address already in use); choose another with --port\n"
    assert list(tmp_path.iterdir()) == []


def test_a_servers_own_page_is_named(tmp_path: Path) -> None:
    done = bleuprint(tmp_path, "ui", MLFLOW_TRACKING_URI="http://host:5000")
    assert done.returncode == 1
    assert done.stderr == "error: MLFLOW_TRACKING_URI is http://host:5000: open that page, or unset the variable\n"


# --- training --------------------------------------------------------------------------------------------------------

BRIEF = {"max_steps": 40, "checkpoint_every_steps": 10, "log_every_steps": 5}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the toy corpus and 40 updates for toy-1."""
    root = tmp_path_factory.mktemp("toy")
    shutil.copytree(ROOT / "workflow/tables", root / "workflow/tables")
    shutil.copy(ROOT / "params.yaml", root)
    text = (root / "params.yaml").read_text()
    for key, value in BRIEF.items():
        text = re.sub(rf"\b{key}: \d+", f"{key}: {value}", text, count=1)  # toy stands first
    (root / "params.yaml").write_text(text)
    for stage in (("download", "toy"), ("tokenize", "toy-words")):
        assert bleuprint(root, *stage).returncode == 0
    return root


def wait_for(line: str, process: subprocess.Popen[str]) -> None:
    """Read what a process says until a line holds `line`."""
    assert process.stderr is not None
    assert any(line in said for said in process.stderr), f"ended without {line!r}"


def test_two_processes_on_one_run(toy: Path, tmp_path: Path) -> None:
    shutil.copytree(toy, tmp_path, dirs_exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    text = (tmp_path / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(text.replace("max_steps: 40\n", "max_steps: 100000\n"))
    command = [sys.executable, "-m", "bleuprint", "train", "toy-1"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as first:
        wait_for("step 5 ", first)
        second = bleuprint(tmp_path, "train", "toy-1")
        first.kill()
    assert second.returncode == 1
    assert re.fullmatch(
        r"error: another process works in work/train/toy-1-\w+; wait until it ends, or end it\n", second.stderr
    )


def test_parameters_that_change_during_a_stage_are_not_taken_for_its_own(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edited while `average` works, which is made to do nothing else: the engines would record the new ones."""
    from typer.testing import CliRunner

    from bleuprint import checkpoint
    from bleuprint.cli import app

    path = tmp_path / "params.yaml"
    shutil.copy(toy / "params.yaml", path)
    monkeypatch.chdir(tmp_path)
    changed = path.read_text().replace("alpha: 1.0", "alpha: 0.5")
    monkeypatch.setattr(checkpoint, "average_run", lambda *_: path.write_text(changed))
    refused = CliRunner().invoke(app, ["average", "toy-1"])
    assert refused.exit_code == 1
    assert (
        "error: parameters of toy-1 changed while average worked; make it again: python -m bleuprint average toy-1\n"
        in refused.stderr
    )
    assert CliRunner().invoke(app, ["average", "toy-1"]).exit_code == 0


def test_parameters_that_change_during_a_training_are_not_taken_for_its_own(toy: Path, tmp_path: Path) -> None:
    """DVC and Snakemake read params.yaml when the command has ended."""
    shutil.copytree(toy, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "params.yaml").read_text()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "bleuprint", "train", "toy-1"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as training:
        wait_for("step 5 ", training)
        (tmp_path / "params.yaml").write_text(before.replace("label_smoothing: 0.1", "label_smoothing: 0.2", 1))
        wait_for("error: parameters, corpus or code of toy-1 changed while it trained; train it again", training)
        assert training.wait() == 1
