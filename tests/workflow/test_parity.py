"""dvc.yaml and Snakefile are two writings of one graph, for every table."""

from pathlib import Path

import pytest
from graphs import copy_project, differences, dvc_graph, snakemake_graph
from modules import ROOT

from bleuprint.graph import load_params, load_table
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
    stages = {f"{stage}@{run}" for stage in ("average", "decode", "attend", "score") for run in runs}
    trainings = {f"train@{run.trained}" for run in load_params(project / "params.yaml").runs.values()}
    assert stages | trainings | {f"report@{table}"} <= set(dvc), "a table's stage is missing in both engines"


REUSE = """
  toy-greedy:
    weights: toy
    average: {last: 1}
    decode: {search: greedy, beam: 1, length_penalty: {kind: length, alpha: 0.0}, max_extra_tokens: 50, \
max_batch_tokens: 4096, forced: averaged}
"""


def test_a_run_with_weights_of_a_run_that_the_table_does_not_name(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    with (project / "params.yaml").open("a") as file:
        file.write(REUSE)
    (project / "workflow/tables/reuse.yaml").write_text("title: Reuse\nruns: [toy-greedy-2]\n")
    use("reuse", project / "params.yaml", project / "workflow/tables")
    dvc, snakemake = dvc_graph(project), snakemake_graph(project)
    assert differences(dvc, snakemake) == []
    stages = {stage for stage in dvc if "toy" in stage and not stage.startswith(("download", "tokenize"))}
    later = {f"{stage}@toy-greedy-2" for stage in ("average", "decode", "attend", "score")}
    assert stages == {"train@toy-2", *later}
    read = {path for stage in later for path in dvc[stage].inputs if path.startswith("runs/") and "/train/" in path}
    assert read == dvc["train@toy-2"].outputs
    assert dvc["decode@toy-greedy-2"].parameters["decode"]["search"] == "greedy"


# What an edit of one side alone must be reported as.
EDITS = {
    "command": (
        "python -m bleuprint average ${key}",
        "python -m bleuprint average ${key} --last 5",
        "average@toy-1: command is 'python -m bleuprint average toy-1 --last 5' in DVC, "
        "'python -m bleuprint average toy-1' in Snakemake",
    ),
    "input": (
        "        - src/bleuprint/resume.py\n        - src/bleuprint/subwords.py\n",
        "        - src/bleuprint/subwords.py\n",
        "train@toy-1: input src/bleuprint/resume.py only in Snakemake",
    ),
    "output": (
        "        - runs/${key}/train/metrics.jsonl\n      metrics",
        "        - runs/${key}/train/metrics.jsonl\n        - runs/${key}/train/extra\n      metrics",
        "train@toy-1: output runs/toy-1/train/extra only in DVC",
    ),
    "parameter left out": (
        "        - runs.${key}\n        - scoring\n",
        "        - runs.${key}\n",
        "score@toy-1: parameter scoring is absent in DVC, "
        '{"bootstrap_resamples": 1000, "bootstrap_seed": 12345} in Snakemake',
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
