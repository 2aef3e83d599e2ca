"""What README.md says is so: its table is the committed report's, and the files that it names exist."""

import re
from pathlib import Path

from bleuprint.report import update_readme

ROOT = Path(__file__).parents[2]


def test_the_table_is_the_committed_reports(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    copy = tmp_path / "README.md"
    copy.write_text(text)
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    update_readme(copy, tmp_path / "reports/default")
    assert copy.read_text() == text, "README.md is behind reports/default: python -m bleuprint readme"


def test_files_that_are_named_exist() -> None:
    text = (ROOT / "README.md").read_text()
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    tree = text.partition("## Where things are")[2]
    modules, there = (
        set(re.findall(r"\b([a-z_]+\.py)\b", tree)),
        {p.name for p in (ROOT / "src/bleuprint").rglob("*.py")},
    )
    assert "training.py" in modules
    assert modules <= there
    assert [name for name in linked if not (ROOT / name).exists()] == []
