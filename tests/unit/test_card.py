"""A model card is one that the Hub's own library reads, and says of a run what its result says."""

import re
from pathlib import Path
from typing import cast

import pytest
from huggingface_hub import ModelCard, ModelCardData
from specs import ROOT, bleuprint

from bleuprint.cli import COMMANDS
from bleuprint.graph import load_params
from bleuprint.reporting.card import (
    CARDS_FILE,
    UNKNOWN,
    CardFacts,
    Subject,
    limitations,
    load_facts,
    metadata,
    render_card,
)
from bleuprint.reporting.licences import load_licences
from bleuprint.reporting.run_facts import RunProvenance
from bleuprint.scoring import read_result
from bleuprint.strict import read_json, validate

RUNS = sorted(path.stem for path in (ROOT / "results").glob("*-1.json"))
SECTIONS = [
    "Intended use",
    "Training data",
    "Training procedure",
    "Evaluation",
    "Limitations",
    "How to get started",
    "Citation",
]


def subject(run: str) -> Subject:
    params = load_params(ROOT / "params.yaml")
    spec = params.run_named(run)
    provenance = ROOT / f"results/{run}.provenance.json"
    return Subject(
        spec,
        read_result(ROOT / f"results/{run}.json"),
        validate(RunProvenance, read_json(provenance), provenance),
        params.recipes[spec.experiment],
        params.corpora[spec.corpus],
        load_facts(spec.dataset),
        load_licences()[spec.dataset],
    )


@pytest.mark.parametrize("run", RUNS)
def test_the_hubs_library_reads_every_score(run: str) -> None:
    made = subject(run)
    data = cast("ModelCardData", ModelCard(render_card(made)).data)  # ValueError where the metadata are not the Hub's
    assert (data.language, data.license) == ([made.corpus.source, made.corpus.target], "other")
    assert (data.datasets, data.pipeline_tag) == (["bentrevett/multi30k"], "translation")
    assert data.eval_results is not None
    found = {(one.dataset_split, one.metric_name, one.metric_value) for one in data.eval_results}
    assert found == {
        (test, f"{'chrF' if name == 'chrf' else 'BLEU'} ({name})", round(score.score, 2))
        for test, scores in made.result.test_sets.items()
        for name, score in scores.items()
    }
    signatures = {(one.metric_args or {})["signature"] for one in data.eval_results}
    assert signatures == {s.signature for scores in made.result.test_sets.values() for s in scores.values()}
    assert {one.metric_type for one in data.eval_results} == {"bleu", "chrf"} == set(data.metrics or ())


def test_every_section_is_there_and_its_commands_exist() -> None:
    text = ModelCard(render_card(subject("tiny-1"))).text
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    commands = {command.__name__ for command in COMMANDS}
    named = set(re.findall(r"python -m bleuprint (\w+)", text))
    assert named
    assert named <= commands
    assert text.count("```") % 2 == 0
    assert "for non-commercial research and education. bleuprint's code" in text
    assert "sentences shown" not in text
    assert "None" not in text


def test_every_parameter_is_there() -> None:
    made = subject("tiny-1")
    text = render_card(made)
    assert f"max_steps: {made.recipe.train.max_steps}\n" in text
    assert f"  beam: {made.recipe.decode.beam}\n" in text
    assert f"| Updates | {made.result.steps:,} in" in text


def test_a_model_that_does_not_translate_says_so_first() -> None:
    assert limitations(subject("readme-1"))[0].startswith("Its BLEU is at most 0.")
    assert "it does not translate" not in " ".join(limitations(subject("tiny-1")))


def test_a_run_that_diverged_says_so() -> None:
    made = subject("tiny-1")
    diverged = made.result.model_copy(update={"stopped": "diverged", "validation_loss": None})
    text = render_card(made._replace(result=diverged))
    assert "Its training diverged" in text
    assert "Its training diverged" not in render_card(made)


def test_a_cased_run_has_no_lost_capitals() -> None:
    assert any("lower-case" in one for one in limitations(subject("tiny-1")))
    assert not any("lower-case" in one for one in limitations(subject("tiny-cased-1")))


def test_a_data_set_of_the_users_own_names_no_licence() -> None:
    assert load_facts("my-own") == UNKNOWN
    made = subject("tiny-1")._replace(facts=UNKNOWN, licence=None)
    text = render_card(made)
    assert "license: other\nlicense_name: unknown\n" in text
    assert "datasets:" not in text.partition("model-index")[0]
    assert "has to say on what terms its data may be used" in text


def test_a_free_data_set_has_a_licence_without_a_name() -> None:
    made = subject("tiny-1")._replace(facts=load_facts("toy"), licence=load_licences()["toy"])
    text = metadata(made)
    assert "license: apache-2.0\n" in text
    assert "license_name" not in text
    assert "license_link" not in text


def test_every_licensed_data_set_has_facts() -> None:
    assert [name for name in load_licences() if load_facts(name) == UNKNOWN] == []


def test_a_licence_that_is_other_needs_a_name() -> None:
    with pytest.raises(ValueError, match="license is other and license_name None: other alone has a name"):
        CardFacts(hub=None, license="other", license_name=None, domain="d", citation=None)
    assert CARDS_FILE.is_file()


def test_the_command_writes_the_card(tmp_path: Path) -> None:
    out = tmp_path / "README.md"
    done = bleuprint(ROOT, "card", "tiny-1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_text() == render_card(subject("tiny-1"))
    missing = bleuprint(ROOT, "card", "tiny-99")
    assert missing.returncode == 1
    assert missing.stderr == "error: results/tiny-99.json is missing; make it with: python -m bleuprint score tiny-99\n"
