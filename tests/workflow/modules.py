"""Who imports whom in src/bleuprint, read from the source: imports inside functions and for type checkers count too."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/bleuprint"


def module_names() -> list[str]:
    """Return every module of the package by its path below it without .py: `cli`, `models/transformer`, `models`."""
    paths = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    return [path.removesuffix("/__init__") for path in paths if path != "__init__"]


def file_of(module: str) -> Path:
    """Return the file of a module."""
    path = PACKAGE / module
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports_of(module: str) -> set[str]:
    """Return the dotted names that a module imports; `from a.b import c` gives a.b.c if that is a module, else a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{module} has a relative import"
            dotted_names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(dotted if is_own(dotted) else node.module for dotted in dotted_names)
    return found


def is_own(dotted: str) -> bool:
    """Return whether a dotted name, such as bleuprint.models.dropout, is a module of the package."""
    return dotted.startswith("bleuprint.") and dotted.removeprefix("bleuprint.").replace(".", "/") in module_names()


def own_imports(module: str) -> set[str]:
    """Return the modules of the package that a module imports."""
    known = set(module_names())
    paths = {name.removeprefix("bleuprint.").replace(".", "/") for name in imports_of(module) if "bleuprint." in name}
    return paths & known - {module}


def foreign_imports(module: str) -> set[str]:
    """Return the top-level names of other packages that a module imports."""
    return {name.partition(".")[0] for name in imports_of(module)} - {"bleuprint"}


def all_behind(*modules: str) -> set[str]:
    """Return these modules and all of the package that they import, directly or not."""
    found: set[str] = set()
    waiting = set(modules)
    while waiting:
        module = waiting.pop()
        found.add(module)
        waiting |= own_imports(module) - found
    return found
