import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from bleuprint.graph import Comparison, Run
from bleuprint.metrics import MetricName, Score
from bleuprint.params import Corpus, Scoring, Splits
from bleuprint.report import BEGIN, END, readme_block, update_readme, write_report
from bleuprint.reporting.figures import bleu_chart, loss_chart, render_svg, seed_losses
from bleuprint.reporting.forensics import shown
from bleuprint.reporting.markdown import code, escape, markdown_table
from bleuprint.scoring import LegacyScore, Result, Tokens, write_json
from bleuprint.verdicts.claims import CurveJudgement, Verdict, judge
from bleuprint.verdicts.curves import Epoch, mean_curve
from bleuprint.verdicts.published import CurveClaim, ValueClaim, load_claims

RUNS = {
    name: Run(
        experiment=name[:-2],
        seed=int(name[-1]),
        dataset="text",
        corpus=f"{name[:-2]}-words",
        model="transformer",
        recipe=name[:-2],
        trained=name,
    )
    for name in ("small-1", "other-1")
}
SECOND = {**RUNS, "small-2": RUNS["small-1"].model_copy(update={"seed": 2, "trained": "small-2"})}
SPLITS = {
    name: Splits(train="train", validation="val", tests=("day", "night")) for name in ("small", "other", "absent")
}
CLAIMS = """
claims:
  - {kind: value, id: a, tables: {t: small}, who: "A|B <b>", text: "*bold* _x_", value: 40.5, unit: BLEU,
     metric: bleu_lc_tok, split: day, source: "https://example.org/a_b", comparable: true, tolerance: 0.5, steps: 9000,
     parameters: 2647040, note: "See [this](that)."}
  - {kind: value, id: b, tables: {t: null}, who: C, text: t, value: 26.4, unit: legacy score, metric: legacy_score,
     split: val, source: s, comparable: false, tolerance: null, steps: null,
     parameters: null, note: "Not BLEU."}
  - {kind: value, id: c, tables: {t: other}, who: C, text: l, value: 3.2, unit: nats, metric: train_loss, split: train,
     source: s, comparable: true, tolerance: 0.1, steps: 9000, parameters: null, note: "Low."}
  - {kind: curve, id: d, tables: {t: small, curves: small}, who: C, text: first, file: log.csv, source: s,
     median_tolerance: 0.06, max_tolerance: 0.12, steps_per_epoch: 10, parameters: 7, note: "Of [it](there)."}
  - {kind: curve, id: e, tables: {t: other}, who: C, text: second, file: log.csv, source: s,
     median_tolerance: 0.06, max_tolerance: 0.12, steps_per_epoch: 10, parameters: null, note: "Counter-example."}
  - {kind: curve, id: f, tables: {t: absent, absent: absent}, who: C, text: third, file: log.csv, source: s,
     median_tolerance: 0.06, max_tolerance: 0.12, steps_per_epoch: 10, parameters: null, note: "Not run."}
"""
COUNTS = """
  - {kind: count, id: g, tables: {t: small}, who: C, text: size, value: 2649040, unit: parameters, metric: parameters,
     source: s, tolerance: 2050, parameters: 2649040, note: "Two types."}
  - {kind: count, id: h, tables: {t: other}, who: C, text: file, value: 10.5, unit: MB, metric: model_size,
     source: s, tolerance: 0.1, parameters: null, note: "Of KiB."}
"""
EVIDENCE = """
evidence:
  - {id: told, tables: [t], title: "The *history*", says: "It [says] so.", follows: "So it was.", logs: [],
     where: [{text: "a_ page", url: "https://example.org/__a"}, {text: rules, url: "#verdicts"}]}
  - {id: elsewhere, tables: [u], title: Other, says: Nothing., follows: None., logs: [], where: [{text: p, url: u}]}
  - {id: curves, tables: [t], title: Curves, says: "All were run.", follows: null, logs: [log.csv],
     where: [{text: p, url: u}]}
consequences:
  - {id: one, tables: [t], claim: a, log: log.csv, always: "In any case.", otherwise: "Nobody knows.", readings:
     [{experiments: [small], text: "The small."}, {experiments: [small, other], text: "One of two."}]}
"""
LOG = "epoch,train_loss,val_loss,legacy_score\n1,6.5,5.5,0.5\n2,5.5,5.0,1.5\n3,5.0,4.5,2.5\n"
REFERENCE = "ein hund rennt schnell über die grüne wiese"
HISTORIES = {"small-1": ((6.53, 5.52), (5.54, 5.01)), "small-2": ((6.57, 5.5), (5.5, 4.97)), "other-1": ((5.5, 4.5),)}


def score(value: float) -> Score:
    return Score(score=value, low=value - 1.25, high=value + 1.25, signature="nrefs:1|tok:none")


def result(name: str, cased: bool, loss: float | None = 1.5) -> Result:
    """Return the result of a run; one without a validation loss has diverged."""
    names: tuple[MetricName, ...] = ("bleu_lc_tok", "bleu_13a_lc", "chrf", "bleu_13a", "bleu_compound_split")
    scores: dict[MetricName, Score] = {
        metric: score(40.0 + i) for i, metric in enumerate(names if cased else names[:3])
    }
    return Result(
        run=name,
        experiment=name[:-2],
        seed=int(name[-1]),
        trained=name,
        corpus=f"{name[:-2]}-words",
        parameters=2_647_040,
        steps=10 * len(HISTORIES[name]),
        epochs=len(HISTORIES[name]),
        stopped="patience" if loss else "diverged",
        validation_loss=loss,
        tokens=Tokens(source=12_345, target=23_456),
        flops=3.21e15,
        test_sets={"day": scores, "night": scores},
        legacy_score=LegacyScore(split="val", score=12.345, epochs={1: 0.75}),
        data={},
        code={},
    )


CORPUS = Corpus.model_validate(
    {
        **{"dataset": "d", "source": "en", "target": "de", "source_marks": "end", "cleaning": None},
        "tokenizer": {"kind": "basic"},
    }
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory with results and histories of three runs, claims and a published curve."""
    for name, losses in HISTORIES.items():
        write_json(tmp_path / f"{name}.json", result(name, cased=name == "other-1").model_dump())
        rows = [f"{epoch},{10 * epoch},{train},{val},0.1" for epoch, (train, val) in enumerate(losses, 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["epoch,step,train_loss,validation_loss,lr", *rows]) + "\n")
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    (tmp_path / "evidence.yaml").write_text(EVIDENCE)
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "tables").mkdir()
    for table in ("t", "u", "curves", "absent"):
        (tmp_path / f"tables/{table}.yaml").touch()
    return tmp_path


def report(
    project: Path,
    table: str = "t",
    out: str = "reports/t",
    runs: Mapping[str, Run] = RUNS,
    comparisons: Sequence[Comparison] = (),
) -> str:
    write_report(
        table,
        "A *title*",
        runs,
        comparisons,
        Scoring(bootstrap_resamples=100, bootstrap_seed=12345),
        corpora={run.corpus: CORPUS for run in runs.values()},
        splits=SPLITS,
        results={name: project / f"{name}.json" for name in runs},
        provenances={name: project / f"{name}.provenance.json" for name in runs},
        histories={name: project / f"{run.trained}.csv" for name, run in runs.items()},
        decoded={name: project / f"{name}.texts" for name in runs},
        out=project / out,
        claims_file=project / "claims.yaml",
        evidence_file=project / "evidence.yaml",
        curves_dir=project,
        tables_dir=project / "tables",
    )
    return (project / out / "results.md").read_text(encoding="utf-8")


def decode(project: Path, run: str, *hypotheses: str, hours: float | None = 1.5) -> None:
    """Write what decoding leaves of both test sets, the reference being 40 times one sentence, and a provenance."""
    (project / f"{run}.texts").mkdir()
    for test in ("day", "night"):
        for kind, lines in (("hyp", hypotheses), ("ref", [REFERENCE])):
            (project / f"{run}.texts/{test}.{kind}.lc-tok.txt").write_text("\n".join(lines * (40 // len(lines))) + "\n")
    training = {"seconds": None if hours is None else 3600 * hours}
    machine = {"cpu": "X", "cores": 2, "gpus": None}
    write_json(project / f"{run}.provenance.json", {"run": run, "machine": machine, "training": training})


def diverge(project: Path) -> None:
    """Let the run small-1 end in its second epoch, at a loss that is not finite."""
    write_json(project / "small-1.json", result("small-1", False, loss=None).model_dump())
    rows = ["epoch,step,train_loss,validation_loss,lr", "1,10,6.53,5.52,0.1", "2,20,nan,nan,0.1"]
    (project / "small-1.csv").write_text("\n".join(rows) + "\n")


def table_below(text: str, start: str) -> list[list[str]]:
    """Return the rows of the first table whose header begins with `start`."""
    block = next(block for block in text.split("\n\n") if block.startswith(f"| {start}"))
    return [cells(line) for line in block.splitlines()[2:]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_claims_stand_beside_measurements_with_verdicts(project: Path) -> None:
    text = report(project)
    assert text.startswith("# A \\*title\\*\n")
    bleu, size = "40.00 (`bleu_lc_tok`, `day`)", "2,647,040"
    assert table_below(text, "Claim |") == [
        ["A\\|B \\<b\\>: \\*bold\\* \\_x\\_", "40.5 (`bleu_lc_tok`, `day`)", "40.00 [38.75, 41.25]", bleu,
         f"{size} / {size}", "1", "20 of 9,000", "**reproduced**"],
        ["C: t", "26.4 (`legacy_score`, `val`)", "—", "—", "— / —", "—", "— of —", "**not comparable**"],
        ["C: l", "3.2 (`train_loss`, `train`)", "5.500", bleu, f"— / {size}", "1", "10 of 9,000", "**prefix only**"],
        ["C: first", "curve of 3 epochs (training and validation loss)",
         "median difference 0.025 nats, largest 0.040; epochs: 2", bleu, f"7 / {size}", "1", "20 of 30",
         "**prefix only**"],
        ["C: second", "curve of 3 epochs (training and validation loss)",
         "median difference 1.000 nats, largest 1.000; epochs: 1", bleu, f"— / {size}", "1", "10 of 30",
         "**not reproduced**"],
        ["C: third", "curve of 3 epochs (training and validation loss)", "—", "—", "— / —", "—", "— of 30",
         "**not run**"],
    ]  # fmt: skip
    assert "- 26.4 (`legacy_score`, `val`): Not BLEU. Source: s.\n" in text
    assert "- Curve `log.csv` beside `small`: Of \\[it\\](there). Source: s.\n" in text


def test_counts_stand_beside_claims_without_a_split_or_updates(project: Path) -> None:
    (project / "claims.yaml").write_text(CLAIMS + COUNTS)
    write_json(project / "small-2.json", result("small-2", cased=False).model_dump())
    text = report(project, runs=SECOND)
    bleu, size = "40.00 (`bleu_lc_tok`, `day`)", "2,647,040"
    assert table_below(text, "Claim |")[-2:] == [
        ["C: size", "2,649,040 (`parameters`)", size, bleu, f"2,649,040 / {size}", "1, 2", "20 of —", "**reproduced**"],
        ["C: file", "10.5 (`model_size`)", "10.34", bleu, f"— / {size}", "1", "10 of —", "**not reproduced**"],
    ]
    assert "- 2,649,040 (`parameters`) beside `small`: Two types. Source: s.\n" in text
    assert "(here: 0.1 MB, 2,050 parameters)" in text
    assert {"`parameters`", "`model_size`"} <= {row[0] for row in table_below(text, "Metric")}


def test_bleu_beside_a_claim_is_of_its_own_test_set(project: Path) -> None:
    (project / "claims.yaml").write_text(CLAIMS.replace("split: day", "split: night"))
    assert table_below(report(project), "Claim |")[0][3] == "40.00 (`bleu_lc_tok`, `night`)"


def test_the_rules_are_stated_with_their_numbers(project: Path) -> None:
    rules = report(project).partition("## Verdicts")[2].partition("## ")[0]
    assert "0.1 nats, 0.5 BLEU)" in rules
    assert "at most 0.06 and 0.12 nats" in rules
    assert "twice that (0.24 nats)" in rules
    assert "(in this table:\n  1)" in rules
    assert "0.6 BLEU was fixed before every run" in rules
    assert all(f"*{verdict}*" in rules for verdict in get_args(Verdict))


def test_curves_stand_beside_each_other_by_epoch(project: Path) -> None:
    text = report(project).partition("## Curves")[2].partition("## Metrics")[0]
    assert table_below(text, "Log") == [
        ["`log.csv`", "`small`", "1", "2 of 3", "0.025 (≤ 0.06)", "0.040 (≤ 0.12)", "**prefix only**"],
        ["`log.csv`", "`other`", "1", "1 of 3", "1.000 (≤ 0.06)", "1.000 (≤ 0.12)", "**not reproduced**"],
        ["`log.csv`", "`absent`", "—", "— of 3", "—", "—", "**not run**"],
    ]
    assert (
        "\n- `log.csv`: **open**; accepted so far: `small` (median 0.025, largest 0.040; 2 of 3 epochs); "
        "rejected: `other` (median 1.000, largest 1.000; 1 of 3 epochs); not run: `absent`.\n"
    ) in text
    assert table_below(text.partition("### `log.csv` beside `small`")[2], "Epoch") == [
        ["1", "6.500 / 5.500", "6.530 / 5.520", "+0.030 / +0.020", "0.50 / 0.75"],
        ["2", "5.500 / 5.000", "5.540 / 5.010", "+0.040 / +0.010", "1.50 / —"],
    ]
    assert "Validation loss of 6.0 / 5.5 / 5.0 reached after epoch: 1 / 1 / 2 as logged, 1 / 2 / — as measured." in text
    assert "beside `absent`" not in text


def test_a_candidate_without_a_distance_is_not_the_nearest(project: Path) -> None:
    """`other`, far off, is rejected as `small` is, which has diverged."""
    diverge(project)
    rejected = "`other` (median 1.000, largest 1.000; 1 of 3 epochs), `small` (diverged)"
    assert f"`log.csv`: **open**; rejected: {rejected}; not run: `absent`.\n" in report(project)


def known(text: str) -> list[str]:
    """Return the paragraphs of the section on how we know."""
    return text.partition("## How we know\n\n")[2].partition("\n\n## ")[0].split("\n\n")


def test_the_chain_of_evidence_is_printed_with_its_places(project: Path) -> None:
    first, title, *_ = known(report(project))
    assert first.splitlines() == [
        "1. **The \\*history\\*.** It \\[says\\] so. *What follows:* So it was. "
        "*Where to look:* [a\\_ page](https://example.org/__a); [rules](#verdicts).",
        "2. **Curves.** All were run. *What follows:* logs by outcome: open 1; "
        "[logs, candidates and distances](#curves). *Where to look:* [p](u).",
    ]
    assert title == "### What follows for 40.5 (`bleu_lc_tok`, `day`)"
    assert "How we know" not in report(project, table="other")


def test_what_follows_is_printed_without_evidence_too(project: Path) -> None:
    _, consequences = EVIDENCE.split("consequences:")
    (project / "evidence.yaml").write_text(f"evidence: []\nconsequences:{consequences}")
    first, second, *_ = known(report(project))
    assert (first, second) == ("### What follows for 40.5 (`bleu_lc_tok`, `day`)", "In any case.")


SMALL = "`small` (median 0.025, largest 0.040; 2 of 3 epochs)"
OTHER = "`other` (median 1.000, largest 1.000; 1 of 3 epochs)"
EXACT = "`other` (median 0.000, largest 0.000; 1 of 3 epochs)"
ENDED = "`small` (diverged)"
NOT_RUN = "not run: `absent`"
ONLY = "the only accepted candidate of 2"


@pytest.mark.parametrize(
    ("absent", "losses", "drawn"),
    [
        (True, "5.5,4.5", f"**open**; accepted so far: {SMALL}; rejected: {OTHER}; {NOT_RUN}. So far: The small."),
        (False, "5.5,4.5", f"**identified**: {SMALL}, {ONLY}; rejected: {OTHER}. The small."),
        (False, "6.5,5.5", f"**more than one candidate accepted**: {EXACT}, {SMALL}. One of two."),
        (False, None, f"**identified**: {EXACT}, {ONLY}; rejected: {ENDED}. One of two."),
    ],
)  # fmt: skip
def test_what_follows_for_a_claim_comes_from_the_runs(
    project: Path, absent: bool, losses: str | None, drawn: str
) -> None:
    """Other losses, other text: nothing of it is written in evidence.yaml."""
    if not absent:
        (project / "claims.yaml").write_text(CLAIMS[: CLAIMS.index("  - {kind: curve, id: f")])
    if losses is None:
        diverge(project)
    rows = ["epoch,step,train_loss,validation_loss,lr", f"1,10,{losses or '6.5,5.5'},0.1"]
    (project / "other-1.csv").write_text("\n".join(rows) + "\n")
    *_, always, rerun, who = known(report(project))
    assert always == "In any case."
    assert rerun.startswith("Beside `small`: " + ("— after" if losses is None else "40.00 [38.75, 41.25] after 20 of"))
    assert who == f"Who drew `log.csv`: {drawn}"


def test_where_no_candidate_is_accepted_nobody_knows(project: Path) -> None:
    (project / "claims.yaml").write_text(CLAIMS[: CLAIMS.index("  - {kind: curve, id: f")])
    diverge(project)
    assert known(report(project))[-1] == (
        f"Who drew `log.csv`: **none of these**; rejected: {OTHER}, {ENDED}. Nobody knows."
    )


def test_one_seed_too_far_off_is_shown_with_its_bound(project: Path) -> None:
    write_json(project / "small-2.json", result("small-2", cased=False).model_dump())
    rows = ["epoch,step,train_loss,validation_loss,lr", "1,10,6.75,5.48,0.1", "2,20,5.5,5.0,0.1"]
    (project / "small-2.csv").write_text("\n".join(rows) + "\n")
    (project / "small-1.csv").write_text("\n".join(rows).replace("6.75,5.48", "6.25,5.52") + "\n")
    first = table_below(report(project, runs=SECOND).partition("## Curves")[2], "Log")[0]
    assert first[2:] == [
        "1, 2", "2 of 3", "0.000 (≤ 0.06)", "0.000 (≤ 0.12); one seed 0.250 (≤ 0.24)", "**not reproduced**"
    ]  # fmt: skip


def test_long_curves_are_printed_at_few_epochs() -> None:
    assert shown(range(1, 13)) == list(range(1, 13))
    assert shown(range(1, 71)) == [1, 2, 3, 5, 10, 20, 50, 70]


def test_seeds_are_averaged(project: Path) -> None:
    other = result("small-2", cased=False)
    other.test_sets["day"]["bleu_lc_tok"] = score(42.0)
    write_json(project / "small-2.json", other.model_dump())
    text = report(project, runs=SECOND)
    first, *_, fourth, _, _ = table_below(text, "Claim |")
    assert first[2:4] == ["41.00 (sd 1.41, 2 seeds)", "41.00 (`bleu_lc_tok`, `day`)"]
    assert first[5] == fourth[5] == "1, 2"
    assert first[7] == "**reproduced** (allowed: 2.83)"
    assert ", **reproduced** (allowed: 2.83)." in "".join(known(text))
    assert fourth[7] == "**prefix only**", "a curve"
    assert table_below(report(project), "Claim |")[0][7] == "**reproduced**", "a single seed"
    assert "| 1 | 6.500 / 5.500 | 6.550 / 5.510 |" in text


def test_seeds_share_a_row_and_stand_alone_further_down(project: Path) -> None:
    assert "Single runs" not in report(project)
    other = result("small-2", cased=False)
    other.test_sets["day"]["bleu_lc_tok"] = score(42.0)
    write_json(project / "small-2.json", other.model_dump())
    text = report(project, runs=SECOND)
    first, *_, last = table_below(text, "Run")
    assert (first[0], last[0]) == ("`small`, 2 seeds", "`other-1`")
    assert first[7] == "41.00 (sd 1.41) [28.29, 53.71]"
    assert "Student's 95 % interval" in text.partition("## Verdicts")[0]
    single = table_below(text.partition("## Single runs")[2], "Run")
    assert [row[0] for row in single] == ["`small-1`", "`small-1`", "`small-2`", "`small-2`"]
    assert single[2][7] == "42.00 [40.75, 43.25]"
    svg = (project / "reports/t/figures/bleu.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'aria-roledescription="point"', svg)) == 2 * (2 + 2), "means of both, and two rings"


def test_a_seed_that_diverged_is_in_no_mean_of_a_drawn_curve(project: Path) -> None:
    runs = (result("small-1", cased=False), result("small-2", cased=False, loss=None))
    histories = {
        run: [Epoch(epoch, 10 * epoch, *losses) for epoch, losses in enumerate(HISTORIES[run], 1)]
        for run in ("small-1", "small-2")
    }
    measured = mean_curve([histories[run.run] for run in runs], [{}, {}])
    claim = next(
        claim
        for claim in load_claims("t", project / "claims.yaml", tables_dir=project / "tables")
        if isinstance(claim, CurveClaim)
    )
    judgement = CurveJudgement(claim, "small", runs, {}, measured, None, None, "diverged")
    drawn = dict(seed_losses(judgement, "train_loss", histories))
    assert [(drawn[1][key]) for key in ("loss", "low", "high", "seeds")] == [6.53, 6.53, 6.53, 1]
    alone = dict(seed_losses(judgement._replace(runs=runs[1:]), "train_loss", histories))
    assert alone[1]["high"] == 6.57


# --- weights of another run, comparisons ------------------------------------------------------------------------------

GREEDY = {"small-greedy-1": RUNS["small-1"].model_copy(update={"experiment": "small-greedy"})}


def test_a_training_of_several_runs_stands_and_is_drawn_once(project: Path) -> None:
    again = result("small-1", cased=False).model_copy(update={"run": "small-greedy-1", "experiment": "small-greedy"})
    write_json(project / "small-greedy-1.json", again.model_dump())
    text = report(project, table="other", out="reports/t", runs=RUNS | GREEDY)
    assert [row[0] for row in table_below(text, "Run")][-2:] == ["`small-greedy-1`"] * 2
    assert "decoded in another way: `small-greedy-1` those of `small-1`." in text.partition("## Trainings")[0]
    assert [row[0] for row in table_below(text.partition("## Trainings")[2], "Run")] == ["`small-1`", "`other-1`"]
    svg = (project / "reports/t/figures/loss.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'aria-roledescription="line mark"', svg)) == 4
    assert "small-greedy" not in svg


def test_comparisons_have_a_section_and_a_figure_only_where_they_are_declared(project: Path) -> None:
    decode(project, "small-1", "ein hund rennt", REFERENCE, hours=0.25)
    decode(project, "other-1", "ein hund rennt schnell über die wiese", REFERENCE)
    comparisons = [Comparison(baseline="small", experiments=("other",))]
    text = report(project, comparisons=comparisons)
    section = text.partition("## Comparisons")[2].partition("\n## ")[0]
    rows = table_below(section, "Experiment")
    assert [row[:4] for row in rows] == [
        ["`small`", "1", "`day`", "40.00"], ["`small`", "1", "`night`", "40.00"],
        ["`other`", "1", "`day`", "40.00"], ["`other`", "1", "`night`", "40.00"],
    ]  # fmt: skip
    assert [row[4:8] for row in rows[:2]] == [["—"] * 4] * 2
    assert rows[2][4].startswith("+")
    assert re.fullmatch(r"\[\+\d+\.\d\d, \+\d+\.\d\d\]", rows[2][5])
    assert rows[2][6:8] == ["0.020", "0.010"], "2 / 101, 1 / 101"
    assert [row[8:] for row in rows[1:3]] == [["0.25", "3.21e+15"], ["1.50", "3.21e+15"]]
    assert "Differences tested here: 2." in section
    svg = (project / "reports/t/figures/ablation.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    assert len(re.findall(r'aria-roledescription="point"', svg)) == 2
    assert "other − small" in svg
    assert "](figures/ablation.svg)" in text
    assert "Comparisons" not in report(project)
    assert not (project / "reports/t/figures/ablation.svg").exists(), "of the report before"


def test_a_training_time_that_is_not_known_is_a_dash(project: Path) -> None:
    decode(project, "small-1", REFERENCE)
    decode(project, "other-1", REFERENCE, hours=None)
    text = report(project, comparisons=[Comparison(baseline="other", experiments=("small",))])
    first, _, third, _ = table_below(text.partition("## Comparisons")[2], "Experiment")
    assert (first[8], third[8]) == ("—", "1.50")
    assert third[4:8] == ["+0.00", "[+0.00, +0.00]", "1.000", "—"], "the same texts"


def test_no_difference_is_told_or_drawn_where_a_run_diverged(project: Path) -> None:
    decode(project, "small-1", "ein hund rennt", REFERENCE)
    decode(project, "other-1", "ein hund rennt schnell über die wiese", REFERENCE)
    diverge(project)
    text = report(project, comparisons=[Comparison(baseline="small", experiments=("other",))])
    section = text.partition("## Comparisons")[2].partition("\n## ")[0]
    rows = table_below(section, "Experiment")
    assert sorted(row[1] for row in rows) == ["1", "1", "1 (1 diverged)", "1 (1 diverged)"]
    assert [row[3] for row in rows if "diverged" in row[1]] == ["—", "—"]
    assert [row[4:8] for row in rows] == [["—"] * 4] * 4
    assert "Differences tested here: 0." in section
    assert not (project / "reports/t/figures/ablation.svg").exists()


def test_every_run_and_test_set_has_a_row(project: Path) -> None:
    rows = table_below(report(project), "Run")
    assert [(row[0], row[6]) for row in rows] == [
        ("`small-1`", "`day`"), ("`small-1`", "`night`"), ("`other-1`", "`day`"), ("`other-1`", "`night`"),
    ]  # fmt: skip
    assert rows[0][1:6] == ["`small-words`, en → de", "2,647,040", "20", "1.500", "12.35 (`val`)"]
    assert rows[0][7:] == ["40.00 [38.75, 41.25]", "41.00 [39.75, 42.25]", "—", "—", "42.00 [40.75, 43.25]"]
    assert rows[2][9:11] == ["43.00 [41.75, 44.25]", "44.00 [42.75, 45.25]"]


def test_a_score_that_is_not_bleu_is_not_called_so(project: Path) -> None:
    text = report(project)
    metrics = {row[0]: row for row in table_below(text, "Metric")}
    assert metrics["`bleu_lc_tok`"][2] == "`nrefs:1\\|tok:none`"
    assert metrics["`legacy_score`"][2] == "—"
    assert "`legacy_score` is not BLEU" in text


def test_all_tables_have_as_many_cells_as_their_header(project: Path) -> None:
    for block in report(project).split("\n\n"):
        if block.startswith("|"):
            assert len({len(cells(line)) for line in block.splitlines()}) == 1, block


def test_a_run_that_diverged_says_so_and_is_drawn_up_to_there(project: Path) -> None:
    diverge(project)
    text = report(project)
    assert "| 20 (diverged) | — | 12.35 (`val`) | `day` |" in text
    first, *_, curve, _, _ = table_below(text, "Claim |")
    assert (first[2], first[5:]) == ("—", ["1", "20 of 9,000", "**diverged**"])
    assert (curve[2], curve[5:]) == ("—", ["1", "20 of 30", "**diverged**"])
    assert table_below(text.partition("### `log.csv` beside `small`")[2], "Epoch")[-1][0] == "1", "the whole one"
    assert table_below(text.partition("## Trainings")[2], "Run")[0][1] == "`diverged`"
    for name in ("loss", "curves"):
        assert "NaN" not in (project / "reports/t/figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_a_run_that_diverged_in_its_first_epoch_is_reported(project: Path) -> None:
    diverge(project)
    ended = result("small-1", False, loss=None).model_copy(update={"steps": 3, "epochs": 1})
    write_json(project / "small-1.json", ended.model_dump())
    (project / "small-1.csv").write_text("epoch,step,train_loss,validation_loss,lr\n1,3,inf,nan,0.1\n")
    text = report(project, runs={"small-1": RUNS["small-1"]})
    assert "curves.svg" not in text
    assert "| 3 (diverged) | — |" in text
    assert "rejected: `small` (diverged); not run: `other`, `absent`" in text
    write_json(project / "small-2.json", result("small-2", cased=False).model_dump())
    assert "1, 2 | — of 3" in report(project, runs=SECOND)
    svg = (project / "reports/t/figures/curves.svg").read_text(encoding="utf-8")
    assert 'aria-roledescription="area mark"' not in svg, "a band of one seed"


def test_trainings_say_why_they_ended_and_what_they_cost(project: Path) -> None:
    rows = table_below(report(project).partition("## Trainings")[2], "Run")
    assert rows == [
        ["`small-1`", "`patience`", "2", "20", "12,345", "23,456", "3.21e+15"],
        ["`other-1`", "`patience`", "1", "10", "12,345", "23,456", "3.21e+15"],
    ]


def test_a_table_without_claims_says_so(project: Path) -> None:
    text = report(project, table="other")
    assert "has no claim for this table" in text
    assert "Verdict" not in text
    assert "## Curves" not in text


def test_the_same_inputs_give_the_same_bytes_in_another_process(project: Path) -> None:
    report(project)
    program = f"from test_report import *; report(Path({str(project)!r}), out='again')"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": os.pathsep.join(["src", str(Path(__file__).parent)]),
    }
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=root)
    names = sorted(path.relative_to(project / "again") for path in (project / "again").rglob("*.*"))
    assert [str(name) for name in names] == [
        "figures/bleu.svg", "figures/curves.svg", "figures/loss.svg", "results.md",
    ]  # fmt: skip
    for name in names:
        assert (project / "again" / name).read_bytes() == (project / "reports" / "t" / name).read_bytes(), name


def test_figures_are_whole_need_no_network_and_are_linked(project: Path) -> None:
    text = report(project)
    for name in ("loss", "bleu", "curves"):
        svg = (project / "reports" / "t" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        ElementTree.fromstring(svg)
        assert ("small" if name == "curves" else "small-1") in svg
        assert "<script" not in svg
        assert not re.search(r"href=\"(?!#)", svg)
        assert f"](figures/{name}.svg)" in text


def test_loss_figure_draws_a_line_per_run_and_kind_and_leaves_gaps_out(project: Path) -> None:
    diverge(project)
    report(project, table="other", out="reports/t")
    svg = (project / "reports" / "t" / "figures" / "loss.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'aria-roledescription="line mark"', svg)) == 4
    assert "loss of: training" in svg
    assert "NaN" not in svg
    many = [{"run": "a", "step": step, "loss of": "training", "loss": 1.0} for step in range(6000)]
    assert render_svg(loss_chart(many)).count("<svg") == 1, "more than altair's 5,000 rows"


def test_a_training_of_one_epoch_is_a_ring_for_each_of_its_losses() -> None:
    rows = [
        {"run": run, "step": step, "loss of": kind, "loss": 1.0}
        for kind in ("training", "validation")
        for run, step in (("a", 1), ("a", 2), ("b", 1))
    ]
    svg = render_svg(loss_chart(rows))
    rings = re.findall(r'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="point"', svg)
    assert [("run: b" in ring, "update: 1" in ring) for ring in rings] == [(True, True)] * 2
    assert 'roledescription="point"' not in render_svg(loss_chart(rows[:2]))


def test_bleu_figure_ticks_the_claim_of_its_own_experiment(project: Path) -> None:
    results = [result(name, False) for name in RUNS]
    first = next(
        claim
        for claim in load_claims("t", project / "claims.yaml", tables_dir=project / "tables")
        if isinstance(claim, ValueClaim)
    )
    svg = render_svg(bleu_chart(results, [judge(first, "t", results, {"small-1": []})]))
    assert len(re.findall(r'aria-roledescription="tick"', svg)) == 1
    assert len(re.findall(r'aria-roledescription="point"', svg)) == 4
    assert "claimed: 40.5" in svg


def test_curve_figure_draws_log_and_reruns_with_a_band_over_seeds(project: Path) -> None:
    def marks(kind: str) -> int:
        svg = (project / "reports" / "t" / "figures" / "curves.svg").read_text(encoding="utf-8")
        return len(re.findall(f'aria-roledescription="{kind}"', svg))

    report(project)
    assert marks("line mark") == 6, "training and validation of the log, of small and of other"
    assert marks("point") == 6, "of two epochs of small and one of other; the log has none"
    assert marks("area mark") == 0
    report(project, runs=SECOND)
    assert (marks("line mark"), marks("area mark")) == (6, 2)


def test_curve_figure_is_there_only_where_a_published_curve_was_rerun(project: Path) -> None:
    figure = project / "reports" / "t" / "figures" / "curves.svg"
    assert "curves.svg" in report(project)
    assert figure.is_file()
    assert "curves.svg" not in report(project, table="absent")
    assert not figure.exists(), "of the report before"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("small-1.json", None, r"small-1\.json is missing; make it with: python -m bleuprint score small-1"),
        ("other-1.csv", None, r"other-1\.csv is missing; make it with: python -m bleuprint train other-1"),
        ("other-1.csv", "step,loss\n", r"other-1\.csv has no column epoch, train_loss, validation_loss"),
        ("other-1.csv", "epoch,step,train_loss,validation_loss,lr\n4\n", r"other-1\.csv is damaged; .* train other-1"),
        ("other-1.csv", "epoch,step,train_loss,validation_loss,lr\n", r"other-1\.csv has no epoch; .* train other-1"),
        ("other-1.csv", "", r"other-1\.csv has no column epoch, step, train_loss, validation_loss"),
        ("log.csv", None, r"claim d: .*log\.csv is missing; there are: other-1\.csv, small-1\.csv, small-2\.csv"),
        ("evidence.yaml", EVIDENCE.replace("claim: a", "claim: z"), r"evidence one: unknown claim 'z'; valid: a, b, c"),
        (
            "evidence.yaml",
            EVIDENCE.replace("tables: [u]", "tables: [v]"),
            r"evidence\.yaml: evidence elsewhere: unknown table 'v'; valid: absent, curves, t, u",
        ),
        ("claims.yaml", CLAIMS.replace("absent: absent", "absent: smal"), r"claim f: unknown experiment 'smal'"),
    ],
)
def test_inputs_that_are_missing_or_malformed_are_named(
    project: Path, name: str, text: str | None, message: str
) -> None:
    if text is None:
        (project / name).unlink()
    else:
        (project / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        report(project)
    assert not (project / "reports").exists()


def test_the_result_of_another_run_is_refused(project: Path) -> None:
    (project / "small-1.json").write_bytes((project / "other-1.json").read_bytes())
    message = (
        r"small-1\.json holds other-1 \(corpus other-words, weights of other-1\), "
        r"not small-1 \(corpus small-words, weights of small-1\)"
    )
    with pytest.raises(ValueError, match=message):
        report(project)


def test_the_result_of_other_weights_is_refused(project: Path) -> None:
    other = result("small-1", cased=False).model_copy(update={"trained": "other-1"})
    write_json(project / "small-1.json", other.model_dump())
    with pytest.raises(ValueError, match=r"weights of other-1\), not small-1 \(corpus small-words, weights of small-1"):
        report(project)


@pytest.mark.parametrize("of_the_result", [{"steps": 11}, {"epochs": 2}])
def test_the_history_of_another_training_is_refused(project: Path, of_the_result: dict[str, int]) -> None:
    other = result("other-1", cased=True).model_copy(update=of_the_result)
    write_json(project / "other-1.json", other.model_dump())
    message = (
        r"other-1\.csv ends after 10 updates in epoch 1, the result of other-1 after "
        rf"{other.steps} in epoch {other.epochs}: they are of two trainings; .* score other-1"
    )
    with pytest.raises(ValueError, match=message):
        report(project)
    assert not (project / "reports").exists()


def test_readme_gets_the_tables_with_links_that_lead_into_the_report(project: Path) -> None:
    report(project)
    readme = project / "README.md"
    readme.write_text(f"before\r\n{BEGIN}stale words{END}\nafter ß\n", encoding="utf-8", newline="")
    update_readme(readme, project / "reports" / "t")
    text = readme.read_bytes().decode()
    assert text.startswith(f"before\r\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter ß\n")
    assert "stale words" not in text
    assert "**reproduced**" in text
    assert "](reports/t/results.md#metrics)" in text
    assert "`small-1`" not in text, "the scores of each run stand in results.md alone"
    update_readme(readme, project / "reports" / "t")
    assert readme.read_bytes().decode() == text, "a second time changes nothing"


def test_absolute_links_of_the_block_stay(tmp_path: Path) -> None:
    links = "![a](figures/a.svg) [b](https://x.org/) [c](#d) [e](/f) [g](mailto:h)"
    (tmp_path / "results.md").write_text(f"{BEGIN}{links}{END}")
    assert readme_block(tmp_path, tmp_path.parent) == links.replace("(figures", f"({tmp_path.name}/figures")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", r"README\.md has the marker .*begin --> 0 times instead of once"),
        (f"{BEGIN}{BEGIN}{END}", r"begin --> 2 times instead of once"),
        (f"{BEGIN}", r"end --> 0 times instead of once"),
        (f"{END}{BEGIN}", r"end --> before .*begin -->"),
    ],
)
def test_a_readme_without_one_pair_of_markers_is_refused_and_kept(project: Path, text: str, message: str) -> None:
    report(project)
    (project / "README.md").write_text(text)
    with pytest.raises(ValueError, match=message):
        update_readme(project / "README.md", project / "reports" / "t")
    assert (project / "README.md").read_text() == text


def test_markdown_shows_names_as_they_are() -> None:
    assert escape("a_b <i>\n *c* | `d` [e](f) _g_ \\ &amp; $x$") == (
        "a_b \\<i\\> \\*c\\* \\| \\`d\\` \\[e\\](f) \\_g\\_ \\\\ \\&amp; \\$x\\$"
    )
    assert code("a|b") == "`a\\|b`"
    assert code("a`b") == "`` a`b ``"
    assert markdown_table(("a", "b"), [("1", "2")], numbers=(1,)) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
