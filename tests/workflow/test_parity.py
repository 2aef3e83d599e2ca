"""dvc.yaml and Snakefile are two writings of one graph, for every table."""

from pathlib import Path

import pytest
from graphs import copy_project, differences, dvc_graph, snakemake_graph
from modules import ROOT

from bleuprint.params import load_table
from bleuprint.tables import use

TABLES = sorted(path.stem for path in (ROOT / "workflow/tables").glob("*.yaml"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("table", TABLES)
def test_both_engines_have_the_same_graph(project: Path, table: str) -> None:
    use(table, project / "params.yaml", project / "workflow/tables")
    dvc, snakemake = dvc_graph(project), snakemake_graph(project)
    assert not (found := differences(dvc, snakemake)), "the engines differ:\n" + "\n".join(found)
    runs = load_table(table, project / "workflow/tables").runs
    stages = {f"{stage}@{run}" for stage in ("train", "average", "decode", "score") for run in runs}
    assert stages | {f"report@{table}"} <= set(dvc), "a table's stage is missing in both engines"


# What an edit of one side alone must be reported as.
EDITS = {
    "command": (
        "python -m bleuprint average ${key}",
        "python -m bleuprint average ${key} --last 5",
        "average@toy-1: command is 'python -m bleuprint average toy-1 --last 5' in DVC, "
        "'python -m bleuprint average toy-1' in Snakemake",
    ),
    "input": (
        "        - src/bleuprint/resume.py\n        - src/bleuprint/training.py\n      params",
        "        - src/bleuprint/training.py\n      params",
        "train@toy-1: input src/bleuprint/resume.py only in Snakemake",
    ),
    "output": (
        "        - runs/${key}/train/metrics.jsonl\n      metrics",
        "        - runs/${key}/train/metrics.jsonl\n        - runs/${key}/train/extra\n      metrics",
        "train@toy-1: output runs/toy-1/train/extra only in DVC",
    ),
    "parameter left out": (
        "        - runs.${key}.seed\n",
        "",
        "train@toy-1: parameter seed is absent in DVC, 1 in Snakemake",
    ),
    "parameter of another section": (
        "experiments.${item.experiment}.average",
        "experiments.tiny.average",
        'average@toy-1: parameter average is {"last": 10} in DVC, {"last": 3} in Snakemake',
    ),
    "stage": ("  average:\n    foreach", "  mean:\n    foreach", "mean@toy-1: only DVC has it"),
}


@pytest.mark.parametrize(("old", "new", "message"), EDITS.values(), ids=EDITS.keys())
def test_an_edit_of_one_side_is_reported(tmp_path: Path, old: str, new: str, message: str) -> None:
    project = copy_project(tmp_path)
    use("demo", project / "params.yaml", project / "workflow/tables")
    text = (project / "dvc.yaml").read_text()
    assert text.count(old) == 1, old
    (project / "dvc.yaml").write_text(text.replace(old, new))
    assert message in differences(dvc_graph(project), snakemake_graph(project))
