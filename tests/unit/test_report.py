import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bleuprint.params import Run
from bleuprint.report import (
    BEGIN,
    END,
    bleu_chart,
    code,
    escape,
    loss_chart,
    markdown_table,
    measured,
    readme_block,
    render_svg,
    update_readme,
    write_report,
)
from bleuprint.scoring import MetricName, Result, Score, write_json

RUNS = {
    name: Run(
        experiment=name[:-2], seed=int(name[-1]), dataset="text", corpus=f"{name[:-2]}-words", model="transformer"
    )
    for name in ("small-1", "other-1")
}
CLAIMS = """
claims:
  - {id: a, tables: [t], who: "A|B <b>", text: "*bold* _x_", value: 40.5, unit: BLEU, metric: bleu_lc_tok, split: day,
     source: "https://example.org/a_b", experiment: small, comparable: true, tolerance: 0.5, note: "See [this](that)."}
  - {id: b, tables: [t], who: C, text: t, value: 26.4, unit: legacy score, metric: legacy_score, split: val,
     source: s, experiment: null, comparable: false, tolerance: null, note: "Not BLEU."}
"""


def score(value: float) -> Score:
    return Score(score=value, low=value - 1.25, high=value + 1.25, signature="nrefs:1|tok:none")


def result(name: str, cased: bool, loss: float | None = 1.5) -> Result:
    names: tuple[MetricName, ...] = ("bleu_lc_tok", "bleu_13a_lc", "chrf", "bleu_13a")
    scores: dict[MetricName, Score] = {metric: score(40.0 + i) for i, metric in enumerate(names[: 4 if cased else 3])}
    return Result(
        run=name,
        experiment=name[:-2],
        seed=1,
        corpus=f"{name[:-2]}-words",
        parameters=2_647_040,
        steps=8000,
        epochs=7,
        validation_loss=loss,
        test_sets={"day": scores, "night": scores},
        data={},
        code={},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory with results, histories and claims of two runs."""
    for name in RUNS:
        write_json(tmp_path / f"{name}.json", result(name, cased=name == "other-1").model_dump())
        rows = ["epoch,step,train_loss,validation_loss,lr", "1,10,5.5,4.5,0.1", "2,20,,3.5,0.1", "3,30,4.0,nan,0.1"]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    return tmp_path


def report(project: Path, table: str = "t", out: str = "reports/t") -> str:
    results, histories = ({name: project / f"{name}.{ext}" for name in RUNS} for ext in ("json", "csv"))
    claims = project / "claims.yaml"
    write_report(table, "A *title*", RUNS, results=results, histories=histories, out=project / out, claims_file=claims)
    return (project / out / "results.md").read_text(encoding="utf-8")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_claims_stand_beside_measurements_with_verdicts(project: Path) -> None:
    text = report(project)
    rows = [cells(line) for line in text.splitlines() if "**" in line and line.startswith("|")]
    names = ["A\\|B \\<b\\>", "\\*bold\\* \\_x\\_", "`bleu_lc_tok`", "`day`"]
    assert rows[0] == [*names, "40.5", "40.00 [38.75, 41.25]", "**reproduced**"]
    assert rows[1] == ["C", "t", "`legacy_score`", "`val`", "26.4", "—", "**not comparable**"]
    assert "claimed − tolerance (0.5 points" in text
    assert "- 26.4 on `val`: Not BLEU. Source: s.\n" in text
    assert text.startswith("# A \\*title\\*\n")


def test_every_run_and_test_set_has_a_row(project: Path) -> None:
    lines = report(project).splitlines()
    rows = [cells(line) for line in lines if line.startswith("| `small-1`") or line.startswith("| `other-1`")]
    assert [(row[0], row[5]) for row in rows] == [
        ("`small-1`", "`day`"), ("`small-1`", "`night`"), ("`other-1`", "`day`"), ("`other-1`", "`night`"),
    ]  # fmt: skip
    assert rows[0][1:5] == ["`small-words`", "2,647,040", "8,000", "1.500"]
    assert rows[0][6:] == ["40.00 [38.75, 41.25]", "41.00 [39.75, 42.25]", "—", "42.00 [40.75, 43.25]"]
    assert rows[2][8] == "43.00 [41.75, 44.25]"


def test_all_tables_have_as_many_cells_as_their_header(project: Path) -> None:
    for block in report(project).split("\n\n"):
        if block.startswith("|"):
            assert len({len(cells(line)) for line in block.splitlines()}) == 1, block


def test_a_diverged_run_says_so(project: Path) -> None:
    write_json(project / "small-1.json", result("small-1", False, loss=None).model_dump())
    text = report(project)
    assert "| 8,000 | diverged | `day` |" in text
    assert "**diverged**" in text


def test_a_table_without_claims_says_so(project: Path) -> None:
    text = report(project, table="other")
    assert "has no claim for this table" in text
    assert "Verdict" not in text


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
    assert [str(name) for name in names] == ["figures/bleu.svg", "figures/loss.svg", "results.md"]
    for name in names:
        assert (project / "again" / name).read_bytes() == (project / "reports" / "t" / name).read_bytes(), name


def test_figures_are_whole_need_no_network_and_are_linked(project: Path) -> None:
    text = report(project)
    for name in ("loss", "bleu"):
        svg = (project / "reports" / "t" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        ElementTree.fromstring(svg)
        assert "small-1" in svg
        assert "<script" not in svg
        assert not re.search(r"href=\"(?!#)", svg)
        assert f"](figures/{name}.svg)" in text


def test_loss_figure_draws_a_line_per_run_and_kind_and_leaves_gaps_out(project: Path) -> None:
    report(project)
    svg = (project / "reports" / "t" / "figures" / "loss.svg").read_text(encoding="utf-8")
    assert len(re.findall(r'aria-roledescription="line mark"', svg)) == 4
    assert "loss of: training" in svg
    assert "NaN" not in svg
    many = [{"run": "a", "step": step, "loss of": "training", "loss": 1.0} for step in range(6000)]
    assert render_svg(loss_chart(many)).count("<svg") == 1, "more than altair's 5,000 rows"


def test_bleu_figure_ticks_the_claim_of_its_own_experiment(project: Path) -> None:
    from bleuprint.claims import load_claims

    results = [result(name, False) for name in RUNS]
    svg = render_svg(bleu_chart(results, load_claims("t", project / "claims.yaml")))
    assert len(re.findall(r'aria-roledescription="tick"', svg)) == 1
    assert len(re.findall(r'aria-roledescription="point"', svg)) == 4
    assert "claimed: 40.5" in svg


def test_seeds_are_averaged() -> None:
    assert measured([score(40.0), score(42.0), score(41.0)]) == "41.00 (sd 1.00, 3 seeds)"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("small-1.json", None, r"small-1\.json is missing; make it with: python -m bleuprint score small-1"),
        ("other-1.csv", None, r"other-1\.csv is missing; make it with: python -m bleuprint train other-1"),
        ("other-1.csv", "step,loss\n", r"other-1\.csv has no column train_loss, validation_loss"),
        ("other-1.csv", "", r"other-1\.csv has no column step, train_loss, validation_loss"),
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
    with pytest.raises(ValueError, match=r"small-1\.json holds other-1 \(corpus other-words\), not small-1"):
        report(project)


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
    assert "`small-1`" in text
    assert "](reports/t/results.md#metrics)" in text
    assert "## Figures" not in text
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
