"""The pages that the engines make of a finished table: `snakemake --report` and `dvc plots show`."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from clones import run

FILES = {
    "Report": [
        "reports/demo/figures/bleu.svg",
        "reports/demo/figures/loss.svg",
        "reports/demo/report.html",
        "reports/demo/results.md",
    ],
    "Scores": ["results/toy-1.json", "results/toy-1.provenance.json"],
    "Training": ["runs/toy-1/train/history.csv"],
}
CAPTIONS = {
    "history.csv": r"loss of <strong>toy-1</strong>.* minimises it with 0\.1;.* Seed 1\.",
    "toy-1.json": r"Scores of <strong>toy-1</strong>.* from 1000 resamples",
    "toy-1.provenance.json": r"scores of <strong>toy-1</strong>",
    "results.md": r"The table <em>demo</em>.* Runs: toy-1\.",
    "loss.svg": r"A figure of the table <em>demo</em>.*\(toy-1\)",
}


@pytest.fixture
def project(by_snakemake: Path, tmp_path: Path) -> Path:
    shutil.copytree(by_snakemake, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def test_snakemakes_report_has_every_category_with_captions(project: Path) -> None:
    run(project, "snakemake", "--report", "report.html")
    page = (project / "report.html").read_text()
    found = re.search(r"var categories = (.*?);\s*</script>", page)
    assert found
    categories = {name: parts["Other"] for name, parts in json.loads(found[1]).items()}
    assert {name: files for name, files in categories.items() if name in FILES} == FILES
    captions = dict(re.findall(r'"filename": "([^"]+)".*?"caption": ("(?:[^"\\]|\\.)*")', page))
    for name, expected in CAPTIONS.items():
        assert re.search(expected, " ".join(json.loads(captions[name]).split())), name


def test_dvc_draws_the_runs_history(project: Path) -> None:
    run(project, "dvc", "plots", "show")
    page = (project / "dvc_plots/index.html").read_text()
    found = re.search(r'"data": \{"values": (\[.*?\])\}', page)
    assert found
    drawn = [(row["step"], row["validation_loss"]) for row in json.loads(found[1])]
    with (project / "runs/toy-1/train/history.csv").open() as file:
        assert drawn == [(row["step"], row["validation_loss"]) for row in csv.DictReader(file)]
