"""params.yaml is read strictly, and what is wrong in it is said in words of the file."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bleuprint.graph import Params, load_params, load_table
from bleuprint.strict import read_yaml, validate

ROOT = Path(__file__).parents[2]
FILE = Path("params.yaml")
REMOVE = object()


@pytest.fixture(scope="module")
def original() -> dict[str, Any]:
    return read_yaml(ROOT / FILE)


def changed(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a copy with the value at a /-separated key replaced, or removed."""
    data = copy.deepcopy(data)
    *path, last = key.split("/")
    section: Any = data
    for part in path:
        section = section[part]
    if value is REMOVE:
        del section[last]
    else:
        section[last] = value
    return data


TRAIN = "experiments/toy/train"
MISTAKES: list[tuple[str, Any, str]] = [
    (f"{TRAIN}/schedule/lr", -1, "experiments.toy.train.schedule.lr is -1: it should be greater than 0"),
    (f"{TRAIN}/schedule/lr", float("nan"), "experiments.toy.train.schedule.lr is nan: it should be a finite number"),
    (
        f"{TRAIN}/schedule/wamup_steps",
        5,
        "experiments.toy.train.schedule.wamup_steps is not a known key (did you mean warmup_steps?); "
        "valid in experiments.toy.train.schedule: kind, lr, warmup_steps",
    ),
    (
        f"{TRAIN}/schedule/kind",
        "noan",
        "experiments.toy.train.schedule.kind is 'noan' (did you mean noam?); valid: inverse_sqrt, noam, plateau",
    ),
    (
        f"{TRAIN}/schedule/kind",
        REMOVE,
        "experiments.toy.train.schedule.kind is missing; valid: inverse_sqrt, noam, plateau",
    ),
    (f"{TRAIN}/schedule", 3, "experiments.toy.train.schedule is 3: it should be a mapping"),
    (f"{TRAIN}/optimizer/betas", 0.9, "experiments.toy.train.optimizer.betas is 0.9: it should be a list"),
    (f"{TRAIN}/optimizer/betas", [0.9], "experiments.toy.train.optimizer.betas.1 is missing"),
    (f"{TRAIN}/optimizer/kind", REMOVE, "experiments.toy.train.optimizer.kind is missing"),
    (
        f"{TRAIN}/optimizer/kind",
        "adamv",
        "experiments.toy.train.optimizer.kind is 'adamv' (did you mean adam?); valid: adam, adamw",
    ),
    (f"{TRAIN}/max_steps", REMOVE, "experiments.toy.train.max_steps is missing"),
    (f"{TRAIN}/precision", "fp31", "experiments.toy.train.precision is 'fp31' (did you mean fp32?); valid: fp32, bf16"),
    ("experiments/toy/model", None, "experiments.toy.model is None: it should be a mapping"),
    ("experiments/toy/model/n_heads", 7, "experiments.toy.model: d_model 64 is not divisible by n_heads 7"),
    (
        "experiments/toy/decode/length_penalty/length",  # the name of a kind, but no key
        1,
        "experiments.toy.decode.length_penalty.length is not a known key; "
        "valid in experiments.toy.decode.length_penalty: kind, alpha",
    ),
    ("experiments/toy/average/last", 99, "experiments.toy: average.last 99 is more than train.keep_last 3"),
    (
        "experiments/toy/corpus",
        "toy-word",
        "experiments.toy.corpus: unknown corpus 'toy-word' (did you mean toy-words?)",
    ),
    ("experiments/toy-lr0.1", {}, "experiments.toy-lr0.1 is 'toy-lr0.1': it should match pattern"),  # DVC reads a dot
    ("datasets/toy/seed", 2**63, "datasets.toy.seed is 9223372036854775808: it should be less than"),
    ("experiments/a b", {}, "experiments.a b is 'a b': it should match pattern"),
    (
        "datasets/multi30k/files/train.en/sha256",
        "12",
        "datasets.multi30k.files.train.en.sha256 is '12': it should match",
    ),
    (
        "datasets/multi30k/files/train.en/path",
        "../x",
        "datasets.multi30k.files.train.en.path: '../x' is not a relative",
    ),
    (
        "datasets/multi30k/splits/tests",
        [],
        "datasets.multi30k.splits.tests is []: the list should have at least 1 item",
    ),
    (
        "datasets/multi30k/splits/validation",
        "train",
        "datasets.multi30k.splits: split 'train' is trained on, so it can be neither validation nor test",
    ),
    (
        "datasets/multi30k/splits/tests",
        ["val", "val"],
        "datasets.multi30k.splits: a test split is named twice: val, val",
    ),
    ("machine/threads", 2**63, "machine.threads is 9223372036854775808: it should be less than"),
    (
        "corpora/toy-words/target",
        "d" * 101,
        f"corpora.toy-words.target is '{'d' * 12}...{'d' * 13}': it should have at most 100 characters",
    ),
    ("datasets/toy/pairs", {"train": 1}, "datasets.toy: pairs must name exactly the splits train, val, test"),
    (
        "corpora/toy-words/dataset",
        "toi",
        "corpora.toy-words.dataset: unknown dataset 'toi' (did you mean toy?); valid: ",
    ),
    ("corpora/toy-words/tokenizer/kind", "bpe", "corpora.toy-words.tokenizer.text is missing"),
    ("scoring", REMOVE, "scoring is missing"),
    (
        "experimentz",
        {},
        "experimentz is not a known key (did you mean experiments?); "
        "valid: table, inputs, trainings, runs, machine, scoring, datasets, corpora, experiments",
    ),
]


@pytest.mark.parametrize(("key", "value", "message"), MISTAKES)
def test_a_mistake_is_named_with_its_key_value_and_what_is_valid(
    original: dict[str, Any], key: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(f"params.yaml: {message}")):
        validate(Params, changed(original, key, value), FILE)


def test_several_mistakes_have_a_line_each(original: dict[str, Any]) -> None:
    data = changed(changed(original, f"{TRAIN}/max_steps", 0), "machine/threads", -2)
    with pytest.raises(ValueError, match="machine") as caught:
        validate(Params, data, FILE)
    assert str(caught.value).split("\n") == [
        "params.yaml: machine.threads is -2: it should be greater than or equal to 1",
        "params.yaml: experiments.toy.train.max_steps is 0: it should be greater than or equal to 1",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{TRAIN}/max_steps", "200"),
        (f"{TRAIN}/max_steps", 200.0),
        (f"{TRAIN}/max_steps", True),
        (f"{TRAIN}/schedule/lr", "1e-3"),
        ("experiments/toy/model/scale_embeddings", "yes"),
        ("experiments/toy/model/scale_embeddings", 1),
        ("table", 1),
    ],
)
def test_nothing_is_coerced(original: dict[str, Any], key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{key.replace('/', '.')} is {value!r}: it should be a valid"):
        validate(Params, changed(original, key, value), FILE)


# --- weights of another experiment -----------------------------------------------------------------------------------

GREEDY = {
    "search": "greedy",
    "beam": 1,
    "length_penalty": {"kind": "length", "alpha": 0.0},
    "max_extra_tokens": 50,
    "max_batch_tokens": 4096,
    "forced": "averaged",
}


def reusing(data: dict[str, Any], weights: str, **more: Any) -> dict[str, Any]:
    """Return a copy with an experiment `toy-greedy` of the weights named, and with others."""
    experiment = {"weights": weights, "average": {"last": 2}, "decode": GREEDY}
    experiments = {**data["experiments"], "toy-greedy": {**experiment, **more}}
    return changed(data, "experiments", experiments)


def test_an_experiment_with_weights_has_its_own_average_and_decode_and_nothing_else(original: dict[str, Any]) -> None:
    params = validate(Params, reusing(original, "toy"), FILE)
    recipe, toy = params.recipes["toy-greedy"], params.recipes["toy"]
    assert (recipe.average.last, recipe.decode.search) == (2, "greedy")
    assert recipe.model_copy(update={"average": toy.average, "decode": toy.decode}) == toy
    assert params.run_named("toy-greedy-2").model_dump() == {
        **params.run_named("toy-2").model_dump(),
        "experiment": "toy-greedy",
        "recipe": "toy",
        "trained": "toy-2",
    }
    assert (params.run_named("toy-2").recipe, params.run_named("toy-2").trained) == ("toy", "toy-2")


def test_only_a_run_with_weights_of_its_own_is_trained(original: dict[str, Any]) -> None:
    params = validate(Params, reusing(original, "toy"), FILE)
    assert params.training_named("toy-2").model_dump().items() <= params.run_named("toy-2").model_dump().items()
    message = "toy-greedy-2 is not trained, it has the weights of toy-2; .* python -m bleuprint train toy-2"
    with pytest.raises(ValueError, match=message):
        params.training_named("toy-greedy-2")


@pytest.mark.parametrize(
    ("weights", "more", "message"),
    [
        ("toi", {}, "experiments.toy-greedy.weights: unknown experiment 'toi' (did you mean toy?); valid: toy, tiny, "),
        ("toy-1", {}, "experiments.toy-greedy.weights: unknown experiment 'toy-1' (did you mean toy?); valid: toy, "),
        ("toy-greedy", {}, "experiments.toy-greedy.weights: toy-greedy is not trained, it has `weights` itself"),
        ("toy", {"corpus": "toy-words"}, "experiments.toy-greedy.corpus is not a known key; valid in"),
        ("toy", {"decode": REMOVE}, "experiments.toy-greedy.decode is missing"),
        ("toy", {"decode": GREEDY | {"beam": 0}}, "experiments.toy-greedy.decode.beam is 0: it should be greater than"),
        ("toy", {"average": {"last": 4}}, "experiments.toy-greedy: average.last 4 is more than train.keep_last 3"),
    ],
)
def test_mistakes_in_weights_are_named(
    original: dict[str, Any], weights: str, more: dict[str, Any], message: str
) -> None:
    data = reusing(original, weights, **more)
    data["experiments"]["toy-greedy"] = {k: v for k, v in data["experiments"]["toy-greedy"].items() if v is not REMOVE}
    with pytest.raises(ValueError, match="^" + re.escape(f"params.yaml: {message}")) as caught:
        validate(Params, data, FILE)
    assert "\n" not in str(caught.value)


def test_weights_of_weights_are_refused(original: dict[str, Any]) -> None:
    data = reusing(original, "toy")
    data["experiments"]["toy-again"] = {**data["experiments"]["toy-greedy"], "weights": "toy-greedy"}
    message = "experiments.toy-again.weights: toy-greedy is not trained, it has `weights` itself"
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        validate(Params, data, FILE)
    assert "valid: toy, tiny" in str(caught.value)
    assert "toy-again," not in str(caught.value)


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_file_and_stay(original: dict[str, Any]) -> None:
    params = load_params(ROOT / FILE)
    assert params.model_dump(mode="json") == original
    with pytest.raises(ValidationError, match="frozen"):
        params.machine.threads = 3


def test_a_float_as_dvc_writes_it_is_a_float(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("lr: 1e-05\n")
    assert read_yaml(path) == {"lr": 1e-5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "is not valid YAML"),
        ("a: 1\na: 2\n", "is not valid YAML.*duplicate key"),
        ("- 1\n", "holds no mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / FILE
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        load_params(path)


def test_outside_of_the_project_it_says_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not exist in .*; run from the project's root"):
        load_params(tmp_path / FILE)


# --- runs and tables -------------------------------------------------------------------------------------------------


def test_any_experiment_with_any_seed_is_a_run() -> None:
    params = load_params(ROOT / FILE)
    run = params.run_named("tiny-cased-12")
    assert (run.experiment, run.seed, run.corpus, run.model) == ("tiny-cased", 12, "multi30k-cased-bpe", "transformer")


@pytest.mark.parametrize(
    "name",
    [
        "tiny",
        "tiny-",
        "tiny-01",
        "tiny-x",
        "tinny-1",
        "-1",
        "tiny-1/../x",
        f"tiny-{2**63}",
        "tiny-٣",
        "tiny-" + "9" * 5000,
    ],
)
def test_an_unknown_run_lists_runs_and_experiments(name: str) -> None:
    params = load_params(ROOT / FILE)
    with pytest.raises(ValueError, match=f"unknown run {name!r}") as caught:
        params.run_named(name)
    assert f"in the active table: {', '.join(params.runs)};" in str(caught.value)
    assert str(caught.value).endswith(f"experiments: {', '.join(params.experiments)}")


@pytest.mark.parametrize("key", ["runs", "trainings", "inputs/corpora", "inputs/datasets"])
def test_runs_and_inputs_that_do_not_follow_from_the_table_say_how_to_mend_it(
    original: dict[str, Any], key: str
) -> None:
    with pytest.raises(ValueError, match=f"rewrite it with: python -m bleuprint use {original['table']}"):
        validate(Params, changed(original, key, {}), FILE)


@pytest.mark.parametrize("path", sorted((ROOT / "workflow/tables").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_table_has_runs_that_exist(path: Path) -> None:
    params = load_params(ROOT / FILE)
    table = load_table(path.stem, path.parent)
    assert list(params.derive(table.runs)["runs"]) == list(table.runs)
