import json
from pathlib import Path

import pytest

from bleuprint.reporting.deviations import Deviation, collect, find, write_deviations

ROOT = Path(__file__).parents[2]
TEXT = '''rate: 0.1  # ASSUME: nobody said
# not below it
# DEVIATES: two lines
# of one comment
code: 1
"""Do it.

ASSUME: the end of
a docstring."""
# ASSUME: first
# ASSUME: second

# A fact. ASSUME: behind it, and
# below it
code: 1
"""Do it. DEVIATES: from there
and from here.

Else.
"""
'''


def test_sentences_with_the_lines_that_go_on_with_them() -> None:
    assert list(find(TEXT, "f")) == [
        Deviation("ASSUME", "nobody said", "f", 1),
        Deviation("DEVIATES", "two lines of one comment", "f", 3),
        Deviation("ASSUME", "the end of a docstring.", "f", 8),
        Deviation("ASSUME", "first", "f", 10),
        Deviation("ASSUME", "second", "f", 11),
        Deviation("ASSUME", "behind it, and below it", "f", 13),
        Deviation("DEVIATES", "from there and from here.", "f", 16),
    ]


def test_a_sentence_in_two_places_stands_once_with_links(tmp_path: Path) -> None:
    (tmp_path / "src/bleuprint/models").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text("a: 1  # DEVIATES: x|y\nb: 2  # DEVIATES: x|y\n")
    (tmp_path / "src/bleuprint/models/m.py").write_text("\n# ASSUME: z\n")
    write_deviations(tmp_path, tmp_path / "reports/deviations.md")
    lines = (tmp_path / "reports/deviations.md").read_text().splitlines()
    assert "| z | [`src/bleuprint/models/m.py:2`](../src/bleuprint/models/m.py#L2) |" in lines
    register = json.loads((tmp_path / "reports/deviations.json").read_text())
    assert register == {"ASSUME": {"z": ["src/bleuprint/models/m.py"]}, "DEVIATES": {"x|y": ["params.yaml"]}}
    assert "| x\\|y | [`params.yaml:1`](../params.yaml#L1)<br>[`params.yaml:2`](../params.yaml#L2) |" in lines


def test_elsewhere_than_at_the_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"params\.yaml does not exist; run from the project's root"):
        collect(tmp_path)


@pytest.mark.parametrize("name", ["params.yaml", "src/bleuprint/m.py"])
def test_a_file_in_another_encoding_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "src/bleuprint").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text("a: 1\n")
    (tmp_path / name).write_bytes("# ASSUME: ü".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{name} is not UTF-8: "):
        collect(tmp_path)


def test_the_committed_register_is_up_to_date(tmp_path: Path) -> None:
    for name in ("params.yaml", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_deviations(tmp_path, tmp_path / "reports/deviations.md")
    for name in ("reports/deviations.md", "reports/deviations.json"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), (
            "it is behind: python -m bleuprint deviations"
        )
