"""Runs beside a first one: sacreBLEU's own numbers, from texts wherever they are, and refusals in one sentence."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from specs import ROOT, start
from test_comparisons import BETTER, REFERENCES, SCORING, WORSE, sentences

from bleuprint.graph import Params, load_params
from bleuprint.inputs import Places
from bleuprint.verdicts import significance
from bleuprint.verdicts.significance import (
    Outcome,
    Texts,
    changes,
    check_comparable,
    extremes,
    fair_metrics,
    paired_tests,
    read_texts,
    render_sentences,
    render_tests,
)

TRIALS = 300


@pytest.fixture
def params() -> Params:
    return load_params(ROOT / "params.yaml")


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "AR_TRIALS", TRIALS)


# --- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_trials")
def test_both_p_values_are_those_of_the_sacrebleu_command(tmp_path: Path) -> None:
    third = [*WORSE[:116], *BETTER[116:]]  # so near that the two tests give different p-values
    rows = paired_tests("bleu_lc_tok", Texts(("a", "b", "c"), (WORSE, BETTER, third), REFERENCES), SCORING)
    files = {name: tmp_path / name for name in ("ref", "a", "b", "c")}
    for path, lines in zip(files.values(), (REFERENCES, WORSE, BETTER, third), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    words = [sys.executable, "-m", "sacrebleu", *map(str, (files["ref"], "-i", *list(files.values())[1:]))]
    options = ["-tok", "none", "-w", "6", "-f", "json"]
    for column, kind, samples in ((3, "bs", SCORING.bootstrap_resamples), (4, "ar", TRIALS)):
        command = [*words, *options, f"--paired-{kind}", f"--paired-{kind}-n", str(samples)]
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for row, theirs in zip(rows, said, strict=True):
            assert row.score == pytest.approx(theirs["BLEU"]["score"], abs=2e-6)
            assert row[column] == (pytest.approx(theirs["BLEU"]["p_value"], abs=1e-6) if row.run != "a" else None)
    assert rows[1].difference == pytest.approx(rows[1].score - rows[0].score)


@pytest.mark.usefixtures("few_trials")
def test_the_same_texts_have_no_p_value() -> None:
    rows = paired_tests("bleu_lc_tok", Texts(("a", "b"), (WORSE, list(WORSE)), REFERENCES), SCORING)
    assert rows[1] == Outcome("b", rows[0].score, 0.0, None, None)
    assert "+0.00       same texts    same texts" in render_tests("day", {"bleu_lc_tok": rows}, 120)


def test_a_table_of_text() -> None:
    rows = [Outcome("a-1", 40.0, None, None, None), Outcome("b-1", 38.5, -1.5, 0.0123, 0.02345)]
    assert render_tests("day", {"chrf": rows}, 1000).split("\n") == [
        "day, 1,000 sentences",
        "metric  run  score  difference  p, bootstrap  p, randomisation",
        "chrf    a-1  40.00",
        "        b-1  38.50  -1.50       0.0123        0.0234",
    ]


# --- sentences --------------------------------------------------------------------------------------------------------


def test_gains_and_losses_are_those_of_single_sentences() -> None:
    references = ["Ein Hund rennt.", "Eine Katze schläft.", "Zwei Männer lachen.", "Sie singt."]
    old = ["ein hund rennt.", "eine katze schläft.", "ein mann weint.", "sie singt."]
    new = ["ein hund sitzt.", "ein vogel fliegt.", "zwei männer lachen.", "Sie singt."]
    found = changes(old, new, references)
    assert [change.line for change in found] == [2, 1, 4, 3]
    assert [change.line for change in extremes(found, 1)] == [3, 2]
    assert [change.line for change in extremes(found, 9)] == [3, 2, 1], "capitals alone are no change"
    text = render_sentences(Texts(("a-1", "b-1"), (old, new), references), 1, ["S1", "S2", "S3", "S4"], 1)
    assert text.split("\n")[1:6] == [
        f"  line 3: {found[-1].gain:+.1f} ({found[-1].before:.1f} to 100.0)",
        "    source     S3",
        "    reference  Zwei Männer lachen.",
        "    a-1        ein mann weint.",
        "    b-1        zwei männer lachen.",
    ]


def test_no_difference_is_said() -> None:
    texts = Texts(("a-1", "b-1"), (REFERENCES, REFERENCES), REFERENCES)
    assert render_sentences(texts, 1, REFERENCES, 3) == "b-1 beside a-1: no sentence differs in chrF"


# --- what may be compared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["tiny-1", "toy-1"], r"tiny-1 translates multi30k from en to de, toy-1 toy from en to de; only runs that"),
        (["tiny-1", "paper-1", "log-c1c22a3-1"], r"log-c1c22a3-1 multi30k from de to en; only"),
        (["tiny-1"], r"compare takes two runs or more"),
        (["tiny-1", "paper-1", "tiny-1"], r"tiny-1 stands there twice"),
        (["tiny-1", "papper-1"], r"unknown run 'papper-1'"),
    ],
)
def test_what_cannot_be_compared_is_refused(params: Params, runs: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_comparable(runs, params)


def test_chrf_is_not_told_of_a_cased_run_beside_a_lower_cased_one(params: Params) -> None:
    assert fair_metrics(["tiny-1", "paper-1"], params) == ["bleu_lc_tok", "chrf"]
    assert fair_metrics(["tiny-1", "tiny-cased-1"], params) == ["bleu_lc_tok"]


def test_the_references_must_be_the_same(params: Params, tmp_path: Path) -> None:
    none = Path("none")
    places = Places(tmp_path, none, none, none, none, none, none, none)
    for run, lines in (("tiny-1", REFERENCES), ("paper-1", sentences(120, seed=9))):
        (tmp_path / run / "decode").mkdir(parents=True)
        for side, text in (("hyp", REFERENCES), ("ref", lines)):
            (tmp_path / run / f"decode/test_2016_flickr.{side}.txt").write_text("".join(f"{line}\n" for line in text))
    with pytest.raises(ValueError, match="tiny-1 and paper-1 cannot be compared: their references of test_2016_flickr"):
        read_texts(["tiny-1", "paper-1"], "test_2016_flickr", "txt", params, places, tmp_path)
    with pytest.raises(ValueError, match=r"preln-1 has no translations, neither in \S+ nor in \S+/preln-1"):
        read_texts(["tiny-1", "preln-1"], "test_2016_flickr", "txt", params, places, tmp_path)


QUICKLY = """
from bleuprint import cli
from bleuprint.verdicts import significance

significance.AR_TRIALS = 50
cli.main()
"""


def test_committed_runs_are_compared_without_training(multi30k_mirror: str, tmp_path: Path) -> None:
    """From what a fresh clone has; the scores are those of their results."""
    text = (ROOT / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(re.sub(r"bootstrap_resamples: \d+", "bootstrap_resamples: 20", text))
    shutil.copytree(ROOT / "results", tmp_path / "results")
    words = ("compare", "paper-1", "tiny-1", "--sentences", "1")
    done = start(tmp_path, "-c", QUICKLY, *words, BLEUPRINT_MIRROR=multi30k_mirror)
    assert done.returncode == 0, done.stderr
    for run in ("paper-1", "tiny-1"):
        result = json.loads((ROOT / f"results/{run}.json").read_text())
        for test, scores in result["test_sets"].items():
            block = done.stdout.partition(f"{test}, ")[2].partition("sentences that gain")[0]
            assert all(f"{scores[name]['score']:.2f}" in block for name in ("bleu_lc_tok", "chrf"))
    assert done.stdout.count("\n    source ") == 6
    assert not (tmp_path / "runs").exists()
