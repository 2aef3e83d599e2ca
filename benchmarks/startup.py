"""Time what a user waits for although there is nothing to do.

    python benchmarks/startup.py [RUN] [--repeats 5]

Bars: `bleuprint --help` 0.3 s; `dvc repro` with nothing to do and `snakemake -n` 5 s each; `bleuprint score RUN`
imports no torch. The engines look at this checkout as it is, and the table says what they find. Nothing of it is run or
changed: where DVC would have something to do, `dvc repro --dry` is timed in place of `dvc repro`.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from table import measure, print_table, spread
from tokenizing import ROOT, linked_project, start

# Runs the command line, then says whether it has imported torch.
TELL_TORCH = """
import sys
from bleuprint.cli import main
try:
    main()
finally:
    print("imports torch" if "torch" in sys.modules else "imports no torch")
"""
Row = tuple[str, str, str, str]


def help_row(repeats: int) -> Row:
    """Time `bleuprint --help`."""
    seconds = measure(lambda: start(ROOT, "-m", "bleuprint", "--help"), repeats)
    return "bleuprint --help", "0.3", spread(seconds), ""


def score_row(run: str) -> Row:
    """Score a run into a temporary project, with an MLflow of its own, and say whether torch was imported."""
    with tempfile.TemporaryDirectory() as folder:
        project = linked_project(Path(folder), "data", "runs")
        said = start(project, "-c", TELL_TORCH, "score", run).stdout.splitlines()[-1]
    return f"bleuprint score {run}", "", "not timed", said


def dvc_row(repeats: int) -> Row:
    """Time `dvc repro` where it has nothing to do, else `dvc repro --dry`."""
    planned = tool("dvc", "repro", "--dry")
    stages = re.findall(r"^Running stage '(.+)':$", planned, re.MULTILINE)
    command = ["repro", "--dry"] if stages else ["repro"]
    seconds = measure(lambda: tool("dvc", *command), repeats)
    return " ".join(["dvc", *command]), "5", spread(seconds), f"{len(stages)} stages to run"


def snakemake_row(repeats: int) -> Row:
    """Time `snakemake -n`."""
    planned = tool("snakemake", "-n")
    total = re.search(r"^total +(\d+)$", planned, re.MULTILINE)
    seconds = measure(lambda: tool("snakemake", "-n"), repeats)
    return "snakemake -n", "5", spread(seconds), f"{total[1] if total else 0} jobs to run"


def tool(name: str, *words: str) -> str:
    """Run a program of the virtual environment at the root of the project; return stdout and stderr."""
    program = str(Path(sys.executable).with_name(name))
    done = subprocess.run(
        [program, *words], cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{name} {' '.join(words)} failed:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="tiny-1", metavar="RUN")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    rows = [help_row(chosen.repeats), score_row(chosen.run), dvc_row(chosen.repeats), snakemake_row(chosen.repeats)]
    print_table("Starting, seconds", ("command", "bar", "measured", "found"), rows)


if __name__ == "__main__":
    main()
