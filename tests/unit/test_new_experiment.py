"""`new-experiment`: what it adds, what it leaves alone, what it refuses."""

import difflib
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from small_params import write_small_params
from specs import bleuprint

from bleuprint.graph import Params, load_params, load_table
from bleuprint.new_experiment import Wish, add_experiment, write_together
from bleuprint.tables import use
from bleuprint.verdicts.published import ValueClaim, check_claims, load_claims

ROOT = Path(__file__).parents[2]
PARAMS = "params.yaml"
CLAIMS = "workflow/claims.yaml"


@pytest.fixture(scope="module")
def small_params(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_params(tmp_path_factory.mktemp("params"))


@pytest.fixture
def project(tmp_path: Path, small_params: Path) -> Path:
    shutil.copy(small_params, tmp_path)
    (tmp_path / "workflow").mkdir()
    shutil.copy(ROOT / CLAIMS, tmp_path / "workflow")
    shutil.copytree(ROOT / "workflow/tables", tmp_path / "workflow/tables")
    (tmp_path / "texts").mkdir()
    for language in ("en", "nl"):
        (tmp_path / f"texts/my.{language}").write_text("".join(f"{language} {i}\n" for i in range(25)))
    return tmp_path


def wish(
    name: str,
    of: str = "tiny",
    source: str | None = None,
    target: str | None = None,
    data: str | None = None,
    texts: tuple[Path, Path] | None = None,
) -> Wish:
    return Wish(name, of, source, target, data, texts)


def state(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def added(root: Path, request: Wish) -> tuple[Params, list[str]]:
    """Add an experiment; return the parameters and the lines that are new, having seen that no other changed."""
    before = (root / PARAMS).read_text().splitlines()
    add_experiment(request, root)
    changes = list(difflib.ndiff(before, (root / PARAMS).read_text().splitlines()))
    assert not [line for line in changes if line.startswith("-")], "an older line has changed"
    return load_params(root / PARAMS), [line[2:] for line in changes if line.startswith("+")]


# --- what is added ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["tiny", "preln", "paper", "ablate-greedy"])
def test_a_copy_says_what_its_original_says(project: Path, of: str) -> None:
    params, lines = added(project, wish("mine", of))
    assert params.experiments["mine"] == params.experiments[of]
    assert not [line for line in lines if "ASSUME" in line or "DEVIATES" in line]
    assert lines[0] == f"  mine:  # from {of}, which says why"
    assert use("mine", project / PARAMS, project / "workflow/tables")
    assert list(load_params(project / PARAMS).runs) == ["mine-1"]


def test_what_a_killed_call_left_is_not_in_the_way(project: Path) -> None:
    """params.yaml is written last: without it there is no experiment yet."""
    before = (project / PARAMS).read_bytes()
    add_experiment(wish("mine"), project)
    whole = state(project)
    (project / PARAMS).write_bytes(before)
    add_experiment(wish("mine"), project)
    assert state(project) == whole


def test_what_an_original_merges_stands_in_its_copy(project: Path) -> None:
    text = (project / PARAMS).read_text().replace("\n  toy:  # small", "\n  toy: &toy  # small")
    (project / PARAMS).write_text(text.rstrip("\n") + "\n  other:\n    <<: *toy\n    average: {last: 1}\n")
    params, lines = added(project, wish("mine", "other"))
    assert params.experiments["mine"] == params.experiments["other"]
    assert [line for line in lines if "<<" in line or line.startswith("    corpus:")] == ["    corpus: toy-words"]


def test_two_additions_stand_one_after_the_other(project: Path) -> None:
    added(project, wish("first", "tiny", "de", "en"))
    params, _ = added(project, wish("second", "first"))
    assert list(params.experiments)[-2:] == ["first", "second"]
    assert params.experiments["second"] == params.experiments["first"]
    assert (project / CLAIMS).read_text().index("# first") < (project / CLAIMS).read_text().index("# second")


@pytest.mark.parametrize(
    ("request_", "dataset", "languages"),
    [
        (wish("x", "tiny", "en", "fr"), "multi30k-fr", ("en", "fr")),
        (wish("x", "tiny-cased", target="cs"), "multi30k-cs", ("en", "cs")),
        (wish("x", "readme", "cs", "en"), "multi30k-cs", ("cs", "en")),
        (wish("x", "tiny", "de", "en"), "multi30k", ("de", "en")),
        (wish("x", "tiny", data="wmt14"), "wmt14", ("en", "de")),
        (wish("x", "tiny", data="toy"), "toy", ("en", "de")),
    ],
)
def test_other_languages_by_their_names(
    project: Path, request_: Wish, dataset: str, languages: tuple[str, str]
) -> None:
    params, _ = added(project, request_)
    old, new = (params.corpora[params.recipes[name].corpus] for name in (request_.of, "x"))
    assert (new.dataset, new.source, new.target) == (dataset, *languages)
    assert (new.tokenizer, new.source_marks, new.cleaning) == (old.tokenizer, old.source_marks, old.cleaning)
    assert params.recipes["x"] == params.recipes[request_.of].model_copy(update={"corpus": "x"})
    use("x", project / PARAMS, project / "workflow/tables")
    assert list(load_params(project / PARAMS).inputs.corpora) == ["x"]


def test_two_files_of_ones_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    params, _ = added(Path(), wish("mine", "toy", "en", "nl", texts=(Path("texts/my.en"), Path("texts/my.nl"))))
    dataset = params.datasets["mine"]
    assert dataset.kind == "texts"
    assert dataset.places == ("texts",)
    assert dataset.held_out is not None
    assert dataset.held_out.pairs == {"val": 2, "test": 2}
    assert {name: file.path for name, file in dataset.files.items()} == {"train.en": "my.en", "train.nl": "my.nl"}


def test_files_outside_the_project_are_named_whole(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    texts = tuple(Path(shutil.copy(project / f"texts/my.{language}", elsewhere)) for language in ("en", "nl"))
    params, _ = added(project, wish("mine", "toy", "en", "nl", texts=(texts[0], texts[1])))
    dataset = params.datasets["mine"]
    assert dataset.kind == "texts"
    assert dataset.places == (str(elsewhere),)


# --- the claim stub ---------------------------------------------------------------------------------------------------


def test_a_stub_claims_nothing_until_it_is_filled_in(project: Path) -> None:
    params, _ = added(project, wish("mine", "tiny-cased"))
    own = project / CLAIMS
    assert load_claims("mine", own=own, tables_dir=project / "workflow/tables") == ()
    head, stub = own.read_text().split("# mine\n")
    own.write_text(head + "".join(f"{line.removeprefix('# ')}\n" for line in stub.splitlines()))
    [claim] = load_claims("mine", own=own, tables_dir=project / "workflow/tables")
    assert isinstance(claim, ValueClaim)
    assert (claim.tables, claim.metric, claim.split) == ({"mine": "mine"}, "bleu_13a", "test_2016_flickr")
    splits = {name: params.datasets[params.corpora[it.corpus].dataset].splits for name, it in params.recipes.items()}
    check_claims([claim], splits)
    own.write_text(own.read_text().replace("mine-claim", "readme-parameters"))
    with pytest.raises(ValueError, match=r"claims\.yaml: claims with an id of claims\.yaml: readme-parameters"):
        load_claims("mine", own=own, tables_dir=project / "workflow/tables")


# --- what is refused --------------------------------------------------------------------------------------------------

MY_TEXTS = (Path("texts/my.en"), Path("texts/my.nl"))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (wish("tiny"), "there is an experiment named tiny in params.yaml already"),
        (wish("multi30k-bpe"), "there is a corpus named multi30k-bpe"),
        (wish("multi30k"), "there is a data set named multi30k"),
        (wish("demo"), r"workflow/tables/demo\.yaml exists already"),
        (wish("my.exp"), "'my.exp' cannot be a name: it begins with a letter"),
        (wish("../up"), "'../up' cannot be a name"),
        (wish("1st"), "'1st' cannot be a name"),
        (wish(""), "'' cannot be a name"),
        (wish("true"), "no word that YAML reads as something else"),
        (wish("Null"), "no word that YAML reads as something else"),
        (wish("n" * 101), "100 characters at most"),
        (wish("mine", "tinny"), r"--from: unknown experiment 'tinny' \(did you mean tiny\?\)"),
        (
            wish("mine", target="it"),
            r"no data set has both en and it in every split \(multi30k: de en; multi30k-val: de en; multi30k-fr: en",
        ),
        (wish("mine", target="fr", data="multi30k"), "multi30k has not both en and fr"),
        (wish("mine", data="multi31k"), r"--data: unknown data set 'multi31k' \(did you mean multi30k"),
        (wish("mine", target="en"), "source and target are both en"),
        (wish("mine", "ablate-greedy", target="fr"), "ablate-greedy has the weights of ablate-tiny, and its corpus"),
        (wish("mine", "tiny", "en", "zh", texts=MY_TEXTS), "corpora.mine.target: 'zh' is written without spaces"),
        (wish("mine", "tiny", "en", "n/l", texts=MY_TEXTS), "corpora.mine.target is 'n/l'"),
        (wish("mine", "tiny", "en", "nl", texts=(MY_TEXTS[0], Path("no"))), "no is no file"),
        (wish("mine", "tiny", "en", "nl", texts=(MY_TEXTS[0], Path(PARAMS))), "they are not parallel"),
        (wish("mine", "tiny", "en", "nl", "toy", texts=MY_TEXTS), "give either"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, request_: Wish, message: str
) -> None:
    monkeypatch.chdir(project)
    before = state(project)
    with pytest.raises(ValueError, match=message):
        add_experiment(request_)
    assert state(project) == before


def test_several_data_sets_that_fit_are_a_question(project: Path) -> None:
    added(project, wish("french", "tiny", target="fr"))
    with pytest.raises(ValueError, match="de and en are in multi30k, multi30k-val, wmt14, toy; choose one by --data"):
        add_experiment(wish("german", "french", "de", "en"), project)


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(OSError, match="folder"):
        write_together({tmp_path / "new": "new", tmp_path / "old": "new", tmp_path / "folder/below": "new"})
    assert state(tmp_path) == {"old": b"old", "folder": b"a file"}


def test_the_command(project: Path) -> None:
    texts = ("--src-text", "texts/my.en", "--tgt-text", "texts/my.nl")
    done = bleuprint(project, "new-experiment", "mine", "--from", "toy", "--src", "en", "--tgt", "nl", *texts)
    assert (done.returncode, done.stdout) == (0, "Next: python -m bleuprint use mine && dvc repro\n"), done.stderr
    assert load_table("mine", project / "workflow/tables").runs == ("mine-1",)
    assert YAML(typ="safe").load(project / PARAMS)["datasets"]["mine"]["places"] == ["texts"]
    for wrong in (["--src", "en", *texts], [*texts[:2], "--src", "en", "--tgt", "nl"]):
        done = bleuprint(project, "new-experiment", "other", "--from", "toy", *wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "error: --src-text and --tgt-text go together, with --src and --tgt: their languages\n"
