"""Where a key of a YAML or JSON file, a claim or a function stands: file and line, for a reader to go there."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def place_of(name: str, package: Path) -> str:
    """Return file:line of a function that is named as module.function or package.module.function."""
    *modules, function = name.split(".")
    path = package.joinpath(*modules).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return f"{shown_path(path)}:{node.lineno}"
    raise AssertionError(f"{path} has no function {function}")


def shown_path(path: Path) -> str:
    """Return a path of the package as seen from the project's root."""
    parts = path.parts
    return Path(*parts[parts.index("bleuprint") - 1 :]).as_posix() if "bleuprint" in parts else str(path)


def line_of_claim(path: Path, name: str) -> int:
    """Return the line of a file of claims in which a claim has its id."""
    (_, claims), *_ = YAML(typ="safe", pure=True).compose(path.read_text(encoding="utf-8")).value
    pairs = (pair for claim in claims.value for pair in claim.value)
    return 1 + next(key.start_mark.line for key, value in pairs if (key.value, value.value) == ("id", name))


def line_of(path: Path, keys: Sequence[str]) -> int:
    """Return the line of a YAML or JSON file in which a key stands."""
    return span_of(path, keys)[0]


def span_of(path: Path, keys: Sequence[str]) -> tuple[int, int]:
    """Return the first and the last line of a key with its value in a YAML or JSON file."""
    node = YAML(typ="safe", pure=True).compose(path.read_text(encoding="utf-8"))
    first = last = 0
    for key in keys:
        pair = next(pair for pair in node.value if pair[0].value == key)
        first, node = pair[0].start_mark.line + 1, pair[1]
        last = max(first, last_line(node))
    return first, last


def last_line(node: Any) -> int:
    """Return the line in which a value ends: a block's own end lies behind the comments that follow it."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        item = node.value[-1]
        return last_line(item[1] if isinstance(item, tuple) else item)
    return int(node.end_mark.line) + 1
