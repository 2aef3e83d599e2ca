"""What a shell offers after TAB: names from params.yaml and workflow/tables, none where they cannot be read.

By the lines of the file, without a YAML reader: a shell waits for it at every TAB.
"""

import re
from pathlib import Path

PARAMS = Path("params.yaml")
TABLES = Path("workflow/tables")


def datasets(incomplete: str) -> list[str]:
    """Return the data sets that begin so."""
    return beginning(incomplete, keys_of("datasets"))


def corpora(incomplete: str) -> list[str]:
    """Return the corpora that begin so."""
    return beginning(incomplete, keys_of("corpora"))


def experiments(incomplete: str) -> list[str]:
    """Return the experiments that begin so."""
    return beginning(incomplete, keys_of("experiments"))


def runs(incomplete: str) -> list[str]:
    """Return the runs that begin so: those of the active table, then each experiment with seed 1."""
    return beginning(incomplete, [*keys_of("runs"), *(f"{name}-1" for name in keys_of("experiments"))])


def tables(incomplete: str) -> list[str]:
    """Return the tables that begin so."""
    return beginning(incomplete, sorted(path.stem for path in TABLES.glob("*.yaml")))


def beginning(incomplete: str, names: list[str]) -> list[str]:
    """Return the names that begin with what is typed, each once."""
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def keys_of(section: str) -> list[str]:
    """Return the keys of a top-level section of params.yaml, which it has in lines of their own."""
    try:
        text = PARAMS.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    found = re.search(rf"^{section}:.*\n((?:(?: .*|#.*)?\n)*)", text, flags=re.MULTILINE)
    return re.findall(r"^  ([\w-]+):", found[1], flags=re.MULTILINE) if found else []
