"""What README.md and docs/ say is so: the table is the committed report's, and all that they name exists."""

import re
from pathlib import Path

import pytest

from bleuprint.report import update_readme

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST_README = 180  # lines, of which the generated table has about 55: it is to be read at one sitting


def test_the_table_is_the_committed_reports(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    copy = tmp_path / "README.md"
    copy.write_text(text)
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    update_readme(copy, tmp_path / "reports/default")
    assert copy.read_text() == text, "README.md is behind reports/default: python -m bleuprint readme"


def test_what_each_choice_costs_is_what_the_report_says() -> None:
    """The differences on the first test set, typed by hand into docs/, are those of every experiment compared."""
    report = (ROOT / "reports/ablation/results.md").read_text()
    row = r"^\| `(ablate-[\w-]+)` \| [^|]+ \| `test_2016_flickr` \| [^|]+ \| ([-+][\d.]+) \| (\[.+?\]) \|"
    measured = {name: f"{change} {interval}" for name, change, interval in re.findall(row, report, flags=re.MULTILINE)}
    typed = re.findall(
        r"^\|[^|]+\| `(ablate-[\w-]+)` \| (.+) \|$",
        (ROOT / "docs/the-table-explained.md").read_text(),
        flags=re.MULTILINE,
    )
    assert measured
    assert dict(typed) == measured


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README, "put it into docs/"


def anchors(page: Path) -> set[str]:
    """Return what a link to a Markdown page may have behind its #, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, a heading that is not there"


def test_every_page_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if page.parent.name == "docs" and f"](docs/{page.name})" not in text] == []


def test_the_list_of_files_names_every_module() -> None:
    tree = (ROOT / "docs/where-things-are.md").read_text()
    modules = set(re.findall(r"\b([a-z_]+\.py)\b", tree))
    there = {path.name for path in (ROOT / "src/bleuprint").rglob("*.py")}
    assert "training.py" in modules
    assert modules <= there
