"""The suite's own record: the last figure of a name holds, sums are sums."""

from pathlib import Path

from reliability import Figure, append, read, render


def test_the_report_adds_up_the_last_figures(tmp_path: Path) -> None:
    path = tmp_path / "work/faults.jsonl"
    for figure in (
        Figure("kill", "train, in a step", 20, 19, 0, "a"),
        Figure("kill", "decode", 20, 18, 0, "b"),
        Figure("kill", "train, in a step", 20, 20, 0, "a"),
        Figure("input", "SGML", 1000, 1000, 123456, "c"),
    ):
        append(figure, path)
    text = render(read(path))
    assert "kills survived: 38 of 40\n" in text
    assert "faults noticed: 0 of 0\n" in text
    assert "1,000 of 1,000, 123,456 bytes in all" in text
    assert "| train, in a step | 20 | 20 | 0 | `a` |" in text
    assert "## Faults" not in text
