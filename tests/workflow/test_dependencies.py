"""A stage depends on the modules that decide its bytes: all that it imports but those excused here, with a reason."""

import pytest
from graphs import Graph, copy_project, dvc_graph
from modules import ROOT, all_behind

from bleuprint.new_experiment import Wish, add_experiment
from bleuprint.runs import CODE, TRAIN_CODE
from bleuprint.tables import use

SOURCE = "src/bleuprint/"
# The module whose function is the stage; {module} and {model} are the data set's and the run's.
ENTRIES = {
    "download": ("{module}",),
    "tokenize": ("tokenizing",),
    "train": ("training", "models/{model}"),
    "average": ("checkpoint",),
    "decode": ("decoding", "models/{model}"),
    "attend": ("attention", "models/{model}"),
    "score": ("scoring", "hypotheses"),
    "report": ("report", "reporting/page"),
}
# These decide no bytes of any stage.
NEVER = {
    "graph": "what it reads stands in the stage's params",
    "params": "what it reads stands in the stage's params",
    "datasets": "what it reads stands in the stage's params",
    "checksums": "whether an archive is the right one, not what is in it",
    "strict": "how parameters are read, not which",
    "mistakes": "words of an error",
    "overrides": "what it sets stands in the stage's params",
    "files": "how bytes come to the disk, not which",
    "incidents": "what is said and kept of a training that failed",
    "manifests": "whether bytes are the right ones, not which",
    "device": "the stage's params name it",
    "models": "finds a model's file by name",
    "tracking": "a copy of the numbers for human eyes",
}
EXCUSED = {
    "train": {
        "segmentation": "makes the ids that the stage reads",
        "tokenizers": "other ids of the special symbols are another corpus",
    },
    "decode": {
        "models/dropout": "a model that translates drops nothing",
    },
    "attend": {
        "models/dropout": "a model that translates drops nothing",
    },
    "report": {
        "compound_split": "makes the text that scoring scores",
        "legacy_score": "scoring's, not the report's",
        "lines": "reads what scoring scores",
        "segmentation": "makes the text that scoring scores",
        "provenance": "writes what stands beside a result",
    },
}
# And of a model that is not models/transformer.py's.
EXCUSED_OF_OTHERS = {
    "train": {
        "models/uncached": "searches for translations",
    },
}
STAGES = ("train", "decode", "attend", "score")
TABLE = "title: Models that decode uncached\nruns: [published-1, pitau-1]\n"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Return the graphs of five tables in one: data sets and models of all kinds."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    (project / "workflow/tables/uncached.yaml").write_text(TABLE)
    found: dict = {}
    add_experiment(Wish("french", "tiny", None, "fr", None, None), project)
    for table in ("demo", "default", "uncached", "wmt14", "french"):
        use(table, project / "params.yaml", project / "workflow/tables")
        found |= dvc_graph(project)
    return found


def code_of(graph: Graph, stage: str) -> set[str]:
    """Return the modules among a stage's inputs."""
    paths = {path.removeprefix(SOURCE) for path in graph[stage].inputs if path.startswith(SOURCE)}
    return {path.removesuffix(".py") for path in paths if path.endswith(".py")}


@pytest.mark.parametrize(
    ("stage", "module", "model"),
    [
        ("download@toy", "toy", ""),
        ("download@multi30k", "corpus", ""),
        ("download@wmt14", "archives", ""),
        ("download@multi30k-fr", "texts", ""),
        ("tokenize@wmt14-bpe", "", ""),
        ("tokenize@toy-words", "", ""),
        ("tokenize@multi30k-bpe", "", ""),
        *((f"{stage}@{run}", "", "transformer") for run in ("toy-1", "tiny-1") for stage in STAGES[:-1]),
        *((f"{stage}@published-1", "", "hyunwoongko") for stage in STAGES),
        *((f"{stage}@pitau-1", "", "pitau") for stage in STAGES),
        ("average@toy-1", "", ""),
        ("score@toy-1", "", "transformer"),
        ("report@demo", "", ""),
    ],
)
def test_a_stage_depends_on_what_decides_its_bytes(graph: Graph, stage: str, module: str, model: str) -> None:
    kind = stage.partition("@")[0]
    imported = all_behind(*(entry.format(module=module, model=model) for entry in ENTRIES[kind]))
    excused = set(EXCUSED[kind]) if kind in EXCUSED else set()
    if kind in EXCUSED_OF_OTHERS and model != "transformer":
        excused |= set(EXCUSED_OF_OTHERS[kind])
    assert excused <= imported, "an excuse for what is not imported"
    expected = imported - set(NEVER) - excused
    if kind == "score":
        expected |= {*CODE, f"models/{model}"}  # it writes their hashes
    assert code_of(graph, stage) == expected


def test_a_report_depends_on_its_templates(graph: Graph) -> None:
    folder = f"{SOURCE}reporting/templates"
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).iterdir()}
    assert templates == {path for path in graph["report@demo"].inputs if path.startswith(f"{folder}/")}


def test_the_fingerprint_of_a_training_covers_its_code(graph: Graph) -> None:
    assert {*TRAIN_CODE, "models/transformer"} == code_of(graph, "train@toy-1")


def test_a_result_names_all_code_behind_it(graph: Graph) -> None:
    """All that download, tokenize, train, average and decode depend on, but the grammar: that the data's hash names."""
    stages = ("download@multi30k", "tokenize@multi30k-bpe", "train@tiny-1", "average@tiny-1", "decode@tiny-1")
    assert {*CODE, "models/transformer"} == set().union(*(code_of(graph, stage) for stage in stages))
