"""Both engines' graphs, expanded in process into the same plain nodes."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modules import ROOT

# What makes the graphs.
PARTS = (
    ".dvc/config",
    ".dvcignore",
    "dvc.yaml",
    "Snakefile",
    "workflow",
    "params.yaml",
    "reports/deviations.json",
    "src/bleuprint",
)

# The singular of the sections of params.yaml that hold things by name: `corpora.toy-words` is Snakemake's `corpus`.
SINGULAR = {"datasets": "dataset", "corpora": "corpus", "experiments": "experiment", "runs": "run"}


@dataclass(frozen=True)
class Node:
    """One stage of DVC, one job of Snakemake."""

    command: str
    inputs: frozenset[str]
    outputs: frozenset[str]
    parameters: Mapping[str, Any]


Graph = Mapping[str, Node]


def copy_project(root: Path) -> Path:
    """Copy what makes the graphs; no data, no results, and nothing of this checkout's state."""
    for part in PARTS:
        target = root / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, target)
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    return root


def dvc_graph(root: Path) -> Graph:
    """Return {stage: node} of dvc.yaml and params.yaml in `root`."""
    from dvc.dependency.param import ParamsDependency
    from dvc.repo import Repo

    graph = {}
    with Repo(str(root)) as repo:
        for stage in repo.index.stages:
            params = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
            values = {key: value for dep in params for key, value in dep.read_params().items()}
            missing = {key for dep in params for key in dep.params} - set(values)
            assert not missing, f"{stage.name} asks for {missing}, which params.yaml does not have"
            graph[stage.name] = Node(
                command=stage.cmd,
                inputs=frozenset(dep.def_path for dep in stage.deps if dep not in params),
                outputs=frozenset(out.def_path for out in stage.outs),
                parameters={parameter_name(key): plain(value) for key, value in values.items()},
            )
    return with_files_of_folders(graph)


def parameter_name(key: str) -> str:
    """Return what Snakemake calls the slice: `runs.tiny-1.seed` is `seed`, `corpora.toy-words` is `corpus`."""
    first, *rest = key.split(".")
    return SINGULAR[first] if first in SINGULAR and len(rest) == 1 else key.split(".")[-1]


def snakemake_graph(root: Path) -> Graph:
    """Return {rule@wildcard: node} of all jobs behind `rule all` in `root`, whether they need to run or not."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import DAGSettings, OutputSettings, Quietness, ResourceSettings

    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        workflow_api = api.workflow(ResourceSettings(cores=1), snakefile=root / "Snakefile", workdir=root)
        workflow_api.dag(DAGSettings())
        workflow = workflow_api._workflow  # the public calls print the graph, none returns it
        workflow._prepare_dag(forceall=False, ignore_incomplete=True, lock_warn_only=True, nolock=True)
        workflow._build_dag()
        graph = {job_name(job): job_node(job) for job in workflow.dag.jobs if job.rule.name != "all"}
    return with_files_of_folders(graph)


def job_name(job: Any) -> str:
    """Return rule@wildcard, as DVC names what a foreach makes."""
    return "@".join((job.rule.name, *job.wildcards))


def job_node(job: Any) -> Node:
    """Return a job's shell command, files and params. log, benchmark, threads and resources are Snakemake's own."""
    return Node(
        command=job.shellcmd,
        inputs=frozenset(map(str, job.input)),
        outputs=frozenset(map(str, job.output)),
        parameters={name: plain(value) for name, value in job.params.items()},
    )


def plain(value: Any) -> Any:
    """Return a value as JSON reads it back: no tuples, no wrappers."""
    return json.loads(json.dumps(value))


def with_files_of_folders(graph: Graph) -> Graph:
    """Return the graph with every input folder replaced by the outputs below it; `results` is all runs' results."""
    outputs = sorted({path for node in graph.values() for path in node.outputs})
    return {
        name: Node(node.command, frozenset(expand(node.inputs, outputs)), node.outputs, node.parameters)
        for name, node in graph.items()
    }


def expand(inputs: Iterable[str], outputs: Iterable[str]) -> Iterable[str]:
    """Yield each path, or the outputs below it where there are any."""
    for path in inputs:
        yield from [out for out in outputs if out.startswith(f"{path}/")] or [path]


def differences(dvc: Graph, snakemake: Graph) -> list[str]:
    """Return one line for each thing that one engine has and the other has not."""
    lines = [f"{name}: only DVC has it" for name in sorted(dvc.keys() - snakemake.keys())]
    lines += [f"{name}: only Snakemake has it" for name in sorted(snakemake.keys() - dvc.keys())]
    for name in sorted(dvc.keys() & snakemake.keys()):
        lines += [f"{name}: {line}" for line in node_differences(dvc[name], snakemake[name])]
    return lines


def node_differences(dvc: Node, snakemake: Node) -> list[str]:
    """Return one line for each difference between two nodes of the same name."""
    lines = []
    if dvc.command != snakemake.command:
        lines.append(f"command is {dvc.command!r} in DVC, {snakemake.command!r} in Snakemake")
    for kind in ("inputs", "outputs"):
        left, right = getattr(dvc, kind), getattr(snakemake, kind)
        lines += [f"{kind[:-1]} {path} only in DVC" for path in sorted(left - right)]
        lines += [f"{kind[:-1]} {path} only in Snakemake" for path in sorted(right - left)]
    for key in sorted(dvc.parameters.keys() | snakemake.parameters.keys()):
        left, right = (show(node.parameters, key) for node in (dvc, snakemake))
        if left != right:
            lines.append(f"parameter {key} is {left} in DVC, {right} in Snakemake")
    return lines


def show(parameters: Mapping[str, Any], key: str) -> str:
    """Return a parameter as JSON with sorted keys; 1 and 1.0 are one number."""
    if key not in parameters:
        return "absent"
    return json.dumps(floats(parameters[key]), sort_keys=True)


def floats(value: Any) -> Any:
    """Return a value with every whole float as an int: YAML's `0` and a model's 0.0 are the same parameter."""
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [floats(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
