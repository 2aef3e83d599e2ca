"""GitHub's Markdown: tables, and text that shows as it is."""

import re
from collections.abc import Sequence

ABSENT = "—"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a GitHub table of ready-made cells; columns whose index is in `numbers` are set flush right."""
    assert all(len(row) == len(header) for row in rows), header
    rule = ["---:" if column in numbers else "---" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def escape(text: str) -> str:
    """Return text that GitHub Markdown shows as it is, in a table cell too; white space becomes single blanks."""
    marked = re.sub(r"([\\`*{}\[\]<>|#&~$!])", r"\\\1", visible(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", marked)  # an underscore within a word is no markup


def code(text: str) -> str:
    """Return text as inline code in a table cell: only the bar needs an escape there, and backquotes another fence."""
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{visible(text)}{space}{fence}".replace("|", "\\|")


def visible(text: str) -> str:
    """Return text on one line, in which characters that show nothing, or turn others round, are named: ⟨U+202E⟩."""
    line = " ".join(text.split())
    return "".join(character if character.isprintable() else f"⟨U+{ord(character):04X}⟩" for character in line)
