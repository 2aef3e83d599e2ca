"""The committed numbers follow from the committed texts, and one that does not is named.

The first test is about this checkout: where it fails, results/, reports/ or README.md are behind one another.
"""

import re
import shutil
from pathlib import Path

import pytest
from specs import ROOT, bleuprint, start

from bleuprint.graph import load_params, load_table
from bleuprint.inputs import Places
from bleuprint.verify import Checked, check_readme, check_run, compare_lines, prepare, summary

RUN = "tiny-1"
TELL = """
import sys
from bleuprint.cli import main
try:
    main()
finally:
    print(sorted({"torch", "dvc", "mlflow"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fresh clone has of the results: no data, no runs."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("params.yaml", "README.md"):
        shutil.copy(ROOT / name, root)
    for name in ("results", "reports", "workflow/tables"):
        shutil.copytree(ROOT / name, root / name)
    return root


@pytest.fixture(scope="module")
def verified(checkout: Path, multi30k_mirror: str) -> tuple[Path, str]:
    """Return a checkout after `verify default`, which made the data below work/, and what it said."""
    done = start(checkout, "-c", TELL, "verify", "default", BLEUPRINT_MIRROR=multi30k_mirror)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout, done.stdout + done.stderr


@pytest.fixture
def flawed(verified: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy, free to change, of a verified checkout, and stand in it."""
    shutil.copytree(verified[0], tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def places() -> Places:
    none = Path("none")
    return Places(Path("results"), Path("reports"), Path("README.md"), none, none, none, none, Path("work/verify"))


def check(run: str) -> Checked:
    params = load_params()
    return check_run(prepare(run, params.run_named(run), params, places()), params, places())[0]


def replace_word(path: Path, line: int, word: int, new: str) -> str:
    """Put a word in the place of another one, and return that one."""
    lines = path.read_text().split("\n")
    words = lines[line].split(" ")
    old, words[word] = words[word], new
    lines[line] = " ".join(words)
    path.write_text("\n".join(lines))
    return old


def test_a_fresh_clone_agrees_without_training(verified: tuple[Path, str]) -> None:
    root, said = verified
    assert re.search(r"^1,\d\d\d numbers of 10 files agree$", said, re.MULTILINE)
    assert "data/raw/multi30k is not there: making work/verify/raw/multi30k" in said
    assert said.endswith("[]\n"), "neither torch nor DVC nor MLflow was imported"
    assert not (root / "runs").exists()
    assert not (root / "data").exists()


def test_one_word_of_a_translation_is_named(flawed: Path) -> None:
    replace_word(flawed / f"results/{RUN}/test_2016_flickr.hyp.lc-tok.txt", 4, 1, "elefant")
    wrong = check(RUN).wrong
    file = re.escape(f"results/{RUN}.json: test_sets.test_2016_flickr.bleu_lc_tok")
    assert all(re.fullmatch(rf"{file}\.(score|low|high) is [\d.]+, counted again [\d.]+", line) for line in wrong)
    assert any(".score is" in line for line in wrong)


def test_one_word_of_the_teacher_forced_text_is_named(flawed: Path) -> None:
    replace_word(flawed / f"results/{RUN}/val.forced.txt", 4, 1, "elefant")
    (line,) = check(RUN).wrong
    assert re.fullmatch(rf"results/{RUN}\.json: legacy_score\.score is [\d.]+, counted again [\d.]+", line)


def test_another_loss_is_named(flawed: Path) -> None:
    history = flawed / f"results/{RUN}/history.csv"
    rows = history.read_text().splitlines()
    losses = [float(row.split(",")[3]) for row in rows[1:]]
    lowest = 1 + losses.index(min(losses))
    cells = rows[lowest].split(",")
    rows[lowest] = ",".join([*cells[:3], "1.5", *cells[4:]])
    history.write_text("\n".join(rows) + "\n")
    (line,) = check(RUN).wrong
    assert re.fullmatch(rf"results/{RUN}\.json: validation_loss is [\d.]+, counted again 1\.5", line)


def test_a_text_that_is_missing_is_named(flawed: Path) -> None:
    (flawed / f"results/{RUN}/test_2017_mscoco.hyp.txt").unlink()
    gone = f"results/{RUN}/test_2017_mscoco.hyp.txt is missing; it is committed: restore it with: "
    assert check(RUN) == Checked(Path(f"results/{RUN}.json"), 0, (f"{gone}git restore results/{RUN}",))


def test_a_result_that_is_missing_ends_in_1_and_the_report_is_not_compared(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout, tmp_path / "copy", ignore=shutil.ignore_patterns("work"))
    for path in (tmp_path / "copy/results").glob("*.json"):
        path.unlink()
    done = bleuprint(tmp_path / "copy", "verify", "forensics")
    assert done.returncode == 1
    *lines, last = done.stdout.splitlines()
    assert lines[0] == "results/published-1.json is missing; make it with: python -m bleuprint score published-1"
    assert lines[-1] == "reports/forensics/results.md was not compared: not all of its runs could be scored"
    files = 1 + len(load_table("forensics", ROOT / "workflow/tables").runs)
    assert last == f"{files} of what was compared in {files} files (0 numbers) is not as it should be"


# --- tables in Markdown -----------------------------------------------------------------------------------------------


def test_one_digit_of_the_readme_is_named(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout / "reports", tmp_path / "reports")
    text = (checkout / "README.md").read_text()
    assert check_readme(checkout / "README.md", checkout / "reports/default").wrong == ()
    lines = text.split("\n")
    row = next(i for i, line in enumerate(lines) if line.startswith("| LividWo/Revisit-MMT"))
    right = lines[row].split("|")[3].strip()
    flipped = right.replace(right[0], str(int(right[0]) - 1), 1)
    lines[row] = lines[row].replace(f"| {right} |", f"| {flipped} |", 1)
    (tmp_path / "README.md").write_text("\n".join(lines))
    (line,) = check_readme(tmp_path / "README.md", tmp_path / "reports/default").wrong
    report = tmp_path / "reports/default/results.md"
    assert line.startswith(f"{tmp_path / 'README.md'}, line {row + 1}, LividWo/Revisit-MMT, ")
    assert line.endswith(f", column Same metric, measured: {flipped}, {report} has {right}")


def test_one_digit_anywhere_in_a_report_is_named(flawed: Path) -> None:
    """Also where nothing of README's table stands: here, in the table of trainings."""
    path = flawed / "reports/forensics/results.md"
    text = path.read_text()
    path.write_text(text.replace("| `readme-1` | `max_steps` | 4 | 908 |", "| `readme-1` | `max_steps` | 5 | 908 |"))
    assert path.read_text() != text
    done = bleuprint(flawed, "verify", "forensics")
    assert done.returncode == 1
    assert "`readme-1`, column Epochs: 5, counted again 4" in done.stdout


TABLE = (
    "\n| Run | BLEU |\n| --- | --- |\n| `a-1` | 40.77 [39.08, 42.30] |\n\nOf 1,065 epochs, by `bleu_13a`, 2 are run.\n"
)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("39.08", "39.80", "r.md, line 9, `a-1`, column BLEU: 40.77 [39.80, 42.30], again 40.77 [39.08, 42.30]"),
        ("1,065", "1,066", "r.md, line 11: 'Of 1,066 epochs,', again 'Of 1,065 epochs,'"),
        ("2 are run", "2 were run", "r.md, line 11: '2 were run.', again '2 are run.'"),
        (" | BLEU |", " |", "r.md, line 7: '| Run |', again '| Run | BLEU |'"),
        ("2 are run.\n", "2 are run.", "r.md, line 12: the table has another number of lines than expected"),
    ],
)
def test_what_differs_in_a_table_is_named_by_row_and_column(old: str, new: str, line: str) -> None:
    assert compare_lines(Path("r.md"), 5, TABLE, TABLE, "again") == Checked(Path("r.md"), 5, ())
    assert compare_lines(Path("r.md"), 5, TABLE.replace(old, new, 1), TABLE, "again").wrong == (line,)


def test_the_summary_counts_numbers_and_files() -> None:
    good, bad = Checked(Path("a"), 1000, ()), Checked(Path("b"), 5, ("b: 1, again 2",))
    assert summary([good, good]) == "2,000 numbers of 2 files agree"
    assert summary([good, bad]) == "1 of what was compared in 2 files (1,005 numbers) is not as it should be"
