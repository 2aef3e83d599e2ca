"""What `explain` says of a number is so: lines hold what they are said to hold, and its commands give the number."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from specs import ROOT, bleuprint

from bleuprint.graph import load_params, load_table
from bleuprint.inputs import make_dataset
from bleuprint.metrics import METRICS
from bleuprint.reporting.explain import (
    COUNTED_BY,
    SACREBLEU_OPTIONS,
    Sources,
    all_claims,
    find_claim,
    judgements_of,
    sacrebleu_commands,
)
from bleuprint.runs import PACKAGE
from bleuprint.scoring import read_result
from bleuprint.verdicts.published import CURVES_DIR, MEASURES, ValueClaim
from bleuprint.verdicts.reckoning import arithmetic

SOURCES = Sources(Path("results"), PACKAGE, CURVES_DIR, Path("data/raw"))
DEFAULT = [name for name, claim in all_claims().items() if "default" in claim.tables]


@pytest.fixture(autouse=True)
def stand_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@cache
def account(name: str) -> str:
    done = bleuprint(ROOT, "explain", name)
    assert done.returncode == 0, done.stderr
    return done.stdout


def line_at(place: str) -> str:
    path, _, number = place.rpartition(":")
    return (ROOT / path).read_text().split("\n")[int(number) - 1]


@pytest.mark.parametrize(
    "name",
    ["revisit-mmt-2016-flickr", "readme-my-implementation", "readme-train-loss", "readme-model-size", "log-1a4aecf"],
)
def test_every_line_that_is_named_holds_what_is_said_of_it(name: str) -> None:
    text = account(name)
    claim = re.search(r"id +(\S+) \((\S+)\)", text)
    assert claim is not None
    assert line_at(claim[2]).strip() == f"- id: {name}"
    code = re.findall(r"^  (src/\S+:\d+)  (\w+)$", text, re.MULTILINE)
    assert len(code) >= 3
    assert [place for place, function in code if f"def {function}(" not in line_at(place)] == []
    rule = re.search(r"\((src/bleuprint/verdicts/claims\.py:\d+)\)$", text, re.MULTILINE)
    assert rule is not None
    assert line_at(rule[1]).startswith("def ")
    for place, value in re.findall(r"result +(\S+:\d+),.*: (\S+)$", text, re.MULTILINE):
        assert value in line_at(place)
    for number, line in re.findall(r"^  params\.yaml:(\d+) +(.*)$", text, re.MULTILINE):
        assert line_at(f"params.yaml:{number}").strip() == line.strip()


def test_the_parameters_are_those_of_the_run() -> None:
    text = account("revisit-mmt-2016-flickr")
    for key in ("  tiny:", "max_steps:", "length_penalty:", "  multi30k-bpe:", "merges:", "scoring:", "threads:"):
        assert re.search(rf"^  params\.yaml:\d+ .*{key}", text, re.MULTILINE), key
    assert "  toy:" not in text
    assert "tiny-cased" not in text


def test_a_number_of_the_table_names_its_row() -> None:
    assert account("26.4") == account("readme-my-implementation")
    measured = read_result(ROOT / "results/readme-1.json").parameters
    assert account(f"{measured:,}") == account("readme-parameters")


def test_an_unknown_claim_is_answered_with_all_of_them() -> None:
    done = bleuprint(ROOT, "explain", "revisit-mmt")
    assert done.returncode == 1
    assert re.match(
        r"error: unknown claim 'revisit-mmt' .*valid: readme-original-paper, .*, revisit-mmt-2017-mscoco", done.stderr
    )


def test_a_number_of_no_row_is_told_from_an_unknown_id() -> None:
    with pytest.raises(ValueError, match=r"no row of the active table claims or measured 1,234\.5; .*: readme-"):
        find_claim("1,234.5", [])


def test_a_number_of_several_rows_is_answered_with_their_ids() -> None:
    runs = {run: load_params().run_named(run) for run in load_table("default").runs}
    judged = judgements_of([all_claims()["readme-my-implementation"]], "default", runs, SOURCES)
    (judgement, _), *_ = judged.values()
    with pytest.raises(ValueError, match=r"26\.4 stands in several rows; .*: readme-my-implementation, readme-my-impl"):
        find_claim("26.4", [judgement, judgement])


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_the_arithmetic_is_that_of_the_verdict() -> None:
    """Every claim of the table: its verdict follows from the signs that are printed."""
    runs = {run: load_params().run_named(run) for run in load_table("default").runs}
    claims = [all_claims()[name] for name in DEFAULT]
    for judgement, _ in judgements_of(claims, "default", runs, SOURCES).values():
        text = "\n".join(arithmetic(judgement))
        within = not re.search(r" > ", text)
        if judgement.verdict == "not run":
            assert text == f"this table has no run of {judgement.experiment}"
        elif within:
            assert judgement.verdict in ("reproduced", "prefix only"), text
        else:
            shorter = re.search(r"updates: [\d,]+ < ", text) is not None
            assert judgement.verdict == ("prefix only" if shorter else "not reproduced"), text


# --- the commands -----------------------------------------------------------------------------------------------------


def test_every_measure_has_its_code_and_its_options() -> None:
    assert set(SACREBLEU_OPTIONS) == set(METRICS)
    assert {*MEASURES, "parameters", "model_size", "curve"} == set(COUNTED_BY)


@pytest.fixture(scope="module")
def data(multi30k_mirror: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with data/raw/multi30k and the committed results."""
    root = tmp_path_factory.mktemp("data")
    spec = load_params(ROOT / "params.yaml").datasets["multi30k"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLEUPRINT_MIRROR", multi30k_mirror)
        make_dataset(spec, root / "data/raw/multi30k", root / "work/downloads", root / "work/none.yaml")
    shutil.copytree(ROOT / "results", root / "results")
    return root


@pytest.mark.parametrize("metric", METRICS)
def test_the_printed_command_gives_the_number(data: Path, metric: str) -> None:
    params = load_params()
    quick = params.model_copy(update={"scoring": params.scoring.model_copy(update={"bootstrap_resamples": 10})})
    claim = cast("ValueClaim", all_claims()["revisit-mmt-2016-flickr"]).model_copy(update={"metric": metric})
    result = read_result(ROOT / "results/tiny-cased-1.json")
    commands = sacrebleu_commands(claim, result, quick, SOURCES)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", "\n".join(commands)], cwd=data, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    scores = {str(name): score for name, score in result.test_sets["test_2016_flickr"].items()}
    assert json.loads(done.stdout)["score"] == scores[metric].score


def test_a_run_without_history_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    (tmp_path / "results/tiny-1/history.csv").unlink()
    sources = SOURCES._replace(results=tmp_path / "results")
    runs = {"tiny-1": load_params().run_named("tiny-1")}
    with pytest.raises(ValueError, match=r"tiny-1/history\.csv is missing"):
        judgements_of([all_claims()["revisit-mmt-2016-flickr"]], "default", runs, sources)


def test_a_claim_of_the_projects_own_is_explained_from_its_own_file(tmp_path: Path) -> None:
    for name in ("params.yaml", "workflow", "results"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    mine = """
  - {tables: {default: tiny}, who: me, text: mine, kind: value, value: 39.0, unit: BLEU, metric: bleu_lc_tok,
     split: test_2016_flickr, tolerance: 0.6, comparable: true, parameters: null, steps: null, source: s, note: n,
     id: my-claim}
"""
    with (tmp_path / "workflow/claims.yaml").open("a") as claims:
        claims.write(mine)
    done = bleuprint(tmp_path, "explain", "39")
    assert done.returncode == 0, done.stderr
    claim = re.search(r"id +my-claim \((workflow/claims\.yaml):(\d+)\)", done.stdout)
    assert claim is not None
    assert (tmp_path / claim[1]).read_text().split("\n")[int(claim[2]) - 1].strip() == "id: my-claim}"
    assert "Verdict in the table default: reproduced" in done.stdout
