"""A run beyond its stages: where it lies, the code that decides its bytes, its recipe, and what MLflow shows of it.

What a function needs is imported inside it, as in commands/.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bleuprint.graph import Params
    from bleuprint.tracking import Settings
    from bleuprint.training import Recipe

# Where everything lies, seen from the project's root.
RAW = Path("data/raw")
CORPORA = Path("data/corpora")
RUNS = Path("runs")
RESULTS = Path("results")
REPORTS = Path("reports")
WORK = Path("work")
DOWNLOADS = WORK / "downloads"
CHECKSUMS = Path("workflow/checksums")
PACKAGE = Path(__file__).parent

# The modules that decide a run's bytes, besides its model: results/{run}.json has their hashes, dvc.yaml's `score` and
# Snakemake's depend on them.
TRAIN_CODE = (
    "batching",
    "checkpoint",
    "consistency",
    "distributed",
    "history",
    "models/dropout",
    "objective",
    "resume",
    "subwords",
    "training",
    "updates",
)
CODE = (
    *TRAIN_CODE,
    "cleaning",
    "corpus",
    "decoding",
    "idstore",
    "learning",
    "lines",
    "models/uncached",
    "search",
    "segmentation",
    "tokenizers",
    "tokenizing",
)


def settings_of(params: "Params", run: str) -> "Settings":
    """Return what MLflow shows of a run and of the corpus that it reads."""
    from bleuprint.provenance import hash_files
    from bleuprint.tracking import Data, Settings

    spec = params.run_named(run)
    recipe = params.recipes[spec.experiment].model_dump(mode="json")
    later = {"average": recipe.pop("average"), "decode": recipe.pop("decode"), "trained": spec.trained}
    later["train"] = {"max_steps": recipe["train"].pop("max_steps")}
    corpus = CORPORA / spec.corpus
    manifests = {"corpus": corpus / "manifest.json"}
    data = [Data(spec.corpus, corpus, hash_files(manifests)["corpus"])] if manifests["corpus"].is_file() else []
    return Settings({"experiment": spec.experiment, "seed": spec.seed, **recipe}, later, data)


def recipe_of(params: "Params", run: str) -> "Recipe":
    """Return all that decides the weights of a run, as it stands now; ValueError for a run with another's weights."""
    from bleuprint.provenance import hash_files
    from bleuprint.training import Recipe

    spec = params.training_named(run)
    experiment = params.recipes[spec.experiment]
    return Recipe(
        spec.seed,
        experiment.model,
        experiment.train,
        params.machine,
        params.datasets[spec.dataset].splits,
        CORPORA / spec.corpus,
        hash_files(train_code_files(spec.model)),
    )


def note_processes(work: Path, processes: int) -> None:
    """Write into metrics.jsonl how many processes train from the saved state on, or from the beginning."""
    from bleuprint.checkpoint import load_state
    from bleuprint.history import append_metrics, rewrite_metrics
    from bleuprint.resume import STATE

    state = work / STATE
    at = load_state(state)["progress"] if state.exists() else {"step": 0, "epoch": 1}
    rewrite_metrics(work, at["step"], at["epoch"])  # as resuming does: a killed process may have left half a line
    append_metrics(work, at["step"], at["epoch"], {"processes": processes})


def code_files(model: str) -> dict[str, Path]:
    """Return the modules that decide a run's bytes, e.g. {"search.py": src/bleuprint/search.py}."""
    return {f"{module}.py": PACKAGE / f"{module}.py" for module in (*CODE, f"models/{model}")}


def train_code_files(model: str) -> dict[str, Path]:
    """Return the modules that decide a run's weights, by their names without .py."""
    return {module: PACKAGE / f"{module}.py" for module in (*TRAIN_CODE, f"models/{model}")}
