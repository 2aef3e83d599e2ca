"""Imports flow one way: cli → stages → {checkpoint, objective, batching, search} → {models, tokenizers} → params."""

import subprocess
import sys

import pytest
from modules import ROOT, all_behind, foreign_imports, module_names, own_imports

# From the bottom up; a module imports from the layers below its own and from nowhere else. A new module is added here.
LAYERS = (
    ("checks", "estimates", "reporting", "translation", "verdicts"),  # packages: a sentence each
    (
        "verdicts/curves",
        "database",
        "files",
        "checks/findings",
        "legacy_score",
        "lines",
        "reporting/markdown",
        "mistakes",
        "overrides",
        "reporting/pointers",
        "process",
        "progress",
    ),
    ("console", "reporting/hypertext", "strict"),
    ("attended", "datasets", "reporting/licences"),
    ("params",),
    ("graph",),
    (
        "checksums",
        "corpus",
        "reporting/deviations",
        "device",
        "distributed",
        "history",
        "idstore",
        "manifests",
        "first_translations",
        "provenance",
        "segmentation",
        "tables",
    ),
    (
        "archives",
        "cleaning",
        "compound_split",
        "checks/machine_checks",
        "engines",
        "origin",
        "texts",
        "tokenizers",
        "toy",
    ),
    ("inspection", "intact", "learning", "checks/project_checks"),
    ("checks/doctor", "tokenizing"),
    ("models/dropout", "models/uncached"),
    ("models/*",),
    ("models",),
    ("batching", "checkpoint", "hypotheses", "metrics", "objective", "search", "tracking"),
    ("consistency", "incidents", "subwords"),
    ("resume",),
    ("updates",),
    ("decoding", "inputs", "scoring", "training", "ui"),
    ("attention",),
    (
        "estimates/cost",
        "estimates/describe",
        "translation/export",
        "verdicts/published",
        "replay",
        "runs",
        "estimates/speed",
    ),
    ("new_experiment", "estimates/plans", "translation/translating", "estimates/trial"),
    ("translation/exported", "estimates/planning"),
    ("verdicts/claims", "verdicts/evidence", "verdicts/statistics"),
    ("verdicts/comparisons", "verdicts/reckoning", "verdicts/significance"),
    (
        "reporting/figures",
        "reporting/interactive",
        "reporting/lengths",
        "reporting/run_tables",
        "reporting/samples",
        "reporting/sections",
    ),
    ("reporting/forensics", "reporting/run_facts"),
    ("reporting/reported",),
    ("reporting/card", "reporting/explain", "reporting/page"),
    ("report",),
    ("verify",),
    ("translation/attention_page",),
    ("commands/completion",),
    ("commands/arguments", "commands/unchanged"),
    (
        "commands/estimates",
        "commands/project",
        "commands/records",
        "commands/results",
        "commands/stages",
        "commands/translation",
    ),
    ("commands",),
    ("cli",),
    ("__main__",),
)
# What reads results, or only counts words, starts without torch: at once, and on a machine that has none.
WITHOUT_TORCH = (
    "compound_split", "hypotheses", "metrics", "scoring", "verdicts/published", "verdicts/claims",
    "verdicts/curves", "verdicts/evidence", "verdicts/statistics", "verdicts/comparisons", "reporting/markdown",
    "reporting/figures", "reporting/run_tables", "reporting/sections", "reporting/forensics", "report",
    "estimates/cost", "estimates/plans", "inputs", "verify", "reporting/explain", "reporting/pointers",
    "verdicts/reckoning", "verdicts/significance", "reporting/card", "attended", "reporting/hypertext",
    "reporting/interactive", "reporting/lengths", "reporting/licences", "reporting/page", "reporting/run_facts",
    "reporting/reported", "reporting/samples",
)  # fmt: skip
# A model is arithmetic.
FILES_AND_LOGS = {
    "os",
    "io",
    "pathlib",
    "shutil",
    "tempfile",
    "json",
    "csv",
    "pickle",
    "logging",
    "safetensors",
    "rich",
}


def layer_of(module: str) -> int:
    """Return the number of a module's layer."""
    for number, layer in enumerate(LAYERS):
        if module in layer:
            return number
    assert module.startswith("models/"), f"{module} stands in no layer: add it to LAYERS"
    return next(number for number, layer in enumerate(LAYERS) if "models/*" in layer)


@pytest.mark.parametrize("module", module_names())
def test_imports_go_down(module: str) -> None:
    upward = {other for other in own_imports(module) if layer_of(other) >= layer_of(module)}
    assert not upward, f"{module} imports {', '.join(sorted(upward))}, which does not stand below it"


@pytest.mark.parametrize("module", [name for name in module_names() if name.startswith("models")])
def test_a_model_knows_nothing_of_files_logs_or_training(module: str) -> None:
    assert not foreign_imports(module) & FILES_AND_LOGS
    others = {other for other in own_imports(module) if not other.startswith("models")}
    assert others <= {"params", "tokenizers"}  # its hyper-parameters, and the id of the pad symbol


def test_mlflow_is_imported_in_one_place() -> None:
    assert [module for module in module_names() if "mlflow" in foreign_imports(module)] == ["tracking"]


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_no_torch_in_the_source(module: str) -> None:
    assert not [other for other in all_behind(module) if "torch" in foreign_imports(other)]


def test_no_torch_at_run_time() -> None:
    """Of others' packages too: sacreBLEU scores, altair draws, and torch is not in the process."""
    code = """
import sys
from bleuprint import metrics
from bleuprint.reporting import figures
from bleuprint.verdicts import claims
from bleuprint.params import Scoring
settings = Scoring(bootstrap_resamples=2, bootstrap_seed=1)
for name in metrics.METRICS:
    metrics.score_corpus(metrics.build_metric(name), ["ein Hund rennt ."], ["ein Hund rennt ."], settings)
figures.render_svg(figures.loss_chart([{"run": "a", "step": 1, "loss of": "training", "loss": 1.0}]))
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
