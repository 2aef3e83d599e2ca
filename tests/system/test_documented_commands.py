"""Every command that README.md and docs/ show is run in a clone: on the toy table, or as a plan where it takes long."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command

from bleuprint.cli import app
from clones import commit, run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# What is not there, or takes long, becomes what stands for it in the clone.
IN_THE_CLONE = {
    r"\btiny\b": "toy",
    r"test_2016_flickr": "test",
    r"data/raw/multi30k/\$D\.lc\.norm\.tok\.de": "data/raw/toy/$D.de",
    r"/mnt/share/": "../",
}


class Rule(NamedTuple):
    """Commands that match `command`, and what is run for them: \\g<0> is the command itself."""

    command: str
    run: str = r"\g<0>"


AS_THEY_ARE = [
    Rule(r"bleuprint( \w+)? --help", r"python -m \g<0>"),  # where it is installed: tests/system/test_wheel.py
    Rule(r"python -m bleuprint (use|cost|describe|card) .*"),
    Rule(r"python -m bleuprint (deviations|doctor|unlock|verify)"),
    Rule(r"python -m bleuprint (explain [a-z].*|export .*)"),
    Rule(r"python -m bleuprint new-experiment \S+ --from toy"),
    Rule(r"(python -m bleuprint new-experiment \S+) --from toy( --src .*)", r"\1 --from tiny\2"),  # toy has no French
    Rule(r"echo .* \| python -m bleuprint translate toy-1"),
    Rule(r"python -m bleuprint translate toy-1 .*\.en( --out out/)?"),
    Rule(r"python -m bleuprint translate toy-1 --interactive", r"\g<0> </dev/null"),
    Rule(r"dvc (status|pull|push|params diff|metrics show|plots show|remote add .*|exp (show|diff).*)"),
    Rule(r"dvc repro --pull .*"),  # all is there
    Rule(r"snakemake (-n|--cores 2 results/.*|--report report.html|--touch --forceall --quiet all)"),
    Rule(r"sacrebleu .*"),
    Rule(r"git restore .*"),
]
# These matter to the commands after them.
OF_THE_SHELL = [Rule(r"source \.venv/bin/activate|D=\w+|export MLFLOW_TRACKING_URI=\S+")]
# These say what they would do, or that they understand what they are asked.
AS_A_PLAN = [
    Rule(r"make( PYTHON=\S+)? [a-z-]+", r"\g<0> -n"),
    Rule(
        r"(BLEUPRINT_LAUNCHER=.* )?dvc repro( \w+@\S+)?", r"\1dvc status\2"
    ),  # --dry wants the files of later stages' deps
    Rule(r"dvc exp run -S .*", r"\g<0> --queue"),
    Rule(r"snakemake --profile \S+( -n)?", r"\g<0> -n"),
    Rule(r"snakemake --cores 2 --config .*", r"\g<0> -n"),
    Rule(r"python -m bleuprint (plan (full|wmt14)|verify forensics|explain \d.*|compare .+)", r"\g<0> --help"),
    Rule(r"torchrun --nproc-per-node 4 (.*)", r"torchrun --nproc-per-node 1 \1 --help"),
    Rule(r"bleuprint --install-completion", r"python -m \g<0> --help"),  # it would write into the user's home
    Rule(r"\w+=\S+ mlflow server .*", r"\g<0> --help"),
]


def blocks(page: Path, language: str) -> list[str]:
    """Return what stands in a page's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Return the commands of a block, without their comments."""
    lines = [re.sub(r"(^|\s+)#.*", "", line) for line in block.splitlines()]
    return [command.strip() for line in lines for command in line.split(";") if command.strip()]


def is_of_the_shell(command: str) -> bool:
    return any(re.fullmatch(rule.command, command) for rule in OF_THE_SHELL)


def in_the_clone(command: str) -> str:
    """Return what is run for a documented command; it must belong to one class."""
    for name, other in IN_THE_CLONE.items():
        command = re.sub(name, other, command)
    fitting = [rule for rule in AS_THEY_ARE + OF_THE_SHELL + AS_A_PLAN if re.fullmatch(rule.command, command)]
    assert len(fitting) == 1, f"say in {Path(__file__).name} how to run: {command}"
    return re.sub(fitting[0].command, fitting[0].run, command)


@pytest.fixture
def project(by_snakemake: Path, tmp_path: Path) -> Path:
    """Return a copy of a clone with the finished toy table, texts of a second run, parallel texts, and a .venv."""
    root = tmp_path / "project"
    shutil.copytree(by_snakemake, root, symlinks=True)
    shutil.copytree(root / "runs/toy-1/decode", root / "runs/toy-cased-1/decode")
    (root / "texts").mkdir()
    for language in ("en", "nl"):
        (root / f"texts/my.{language}").write_text("".join(f"sentence {number} .\n" for number in range(100)))
    for name in ("news", "a", "b"):
        shutil.copy(root / "data/raw/toy/test.en", root / f"{name}.en")
    (root / ".venv").symlink_to(sys.prefix)
    commit(root)
    return root


@pytest.fixture(scope="module")
def seen() -> set[str]:
    """Collect the commands that have been run: what several pages show is run once."""
    return set()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.name)
def test_the_commands_of_a_page(project: Path, page: Path, seen: set[str]) -> None:
    for block in blocks(page, "sh"):
        script = [in_the_clone(command) for command in commands(block) if command not in seen]
        seen.update(command for command in commands(block) if not is_of_the_shell(command))
        run(project, "bash", "-euxo", "pipefail", "-c", "\n".join(script))


def test_the_table_with_comparisons_can_be_used(project: Path) -> None:
    """docs/adding-an-experiment.md, with `toy` for the experiment that is copied and for the baseline."""
    texts = [text.replace("tiny", "toy") for text in blocks(ROOT / "docs/adding-an-experiment.md", "yaml")]
    [greedy] = [text for text in texts if text.startswith("experiments:\n")]
    [compared] = [text for text in texts if "comparisons:" in text]
    run(project, "python", "-m", "bleuprint", "new-experiment", "my-experiment", "--from", "toy")
    with (project / "params.yaml").open("a") as file:
        file.write(greedy.removeprefix("experiments:\n"))
    (project / "workflow/tables/my-comparison.yaml").write_text(compared)
    run(project, "python", "-m", "bleuprint", "use", "my-comparison")
    changed = json.loads(run(project, "dvc", "status", "--json"))
    assert [stage for stage in changed if stage.startswith("train@")] == ["train@my-experiment-1"]
    assert "average@my-greedy-1" in changed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_a_class(page: Path) -> None:
    for block in blocks(page, "sh"):
        for command in commands(block):
            in_the_clone(command)


def test_the_demo_ends_with_three_commands_that_run() -> None:
    planned = run(ROOT, "make", "-n", "demo")
    told = re.findall(r'^echo "  (.*?)  +\w.*"$', planned.partition("Next:")[2], flags=re.MULTILINE)
    assert len([in_the_clone(command) for command in told]) == 3


def test_an_unknown_command_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"say in test_documented_commands\.py how to run: rm -rf data"):
        in_the_clone("rm -rf data")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_named_in_the_text_exist(page: Path) -> None:
    text = page.read_text()
    ours = set(re.findall(r"`(?:python -m )?bleuprint ([a-z-]+)", text))
    assert ours <= set(get_command(app).commands)  # type: ignore[attr-defined]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
