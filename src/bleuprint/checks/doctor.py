"""`doctor`: what is wrong with machine or project, one line a check, before a run is lost to it."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bleuprint.checks import machine_checks as machine
from bleuprint.checks import project_checks as project
from bleuprint.checks.findings import Finding
from bleuprint.graph import Params, load_params


def examine(root: Path, raw: Path) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each check and what it found, as soon as it is known.

    Without parameters that can be read, what depends on them is left out.
    """
    yield "python", machine.check_python()
    yield "code", machine.check_installation()
    yield "packages", machine.check_packages(root / "requirements.lock")
    params, finding = read_params(root)
    yield "params", finding
    yield "torch", machine.check_torch(params.machine.device if params else "auto")
    if params:
        yield "threads", machine.check_threads(params.machine.threads)
    yield "allocator", machine.check_allocator()
    yield "disk", machine.check_disk(list(dict.fromkeys([root.resolve(), Path(tempfile.gettempdir())])))
    yield "folders", project.check_folders(root)
    if params:
        yield "mirrors", project.check_mirrors(params, raw)
        yield "dvc", project.check_dvc(params, root)
    yield "mlflow", project.check_mlflow(root.resolve())
    yield "git", project.check_git(root)


def read_params(root: Path) -> tuple[Params | None, Finding]:
    """Return the parameters, None where they have mistakes, of which the first one is told."""
    try:
        params = load_params(root / "params.yaml")
    except ValueError as error:
        first, *others = str(error).splitlines()
        text = f"{first} (and {len(others)} more)" if others else first
        return None, Finding("problem", text, "mend it: the checks that need it are left out")
    return params, Finding("ok", f"table {params.table}, {len(params.runs)} runs")


def report(found: Iterator[tuple[str, Finding]], say: Callable[[str], None]) -> bool:
    """Say each finding in a line, and at the end how many there are; return whether there is no problem."""
    states = []
    for name, finding in found:
        advice = f" -> {finding.advice}" if finding.advice else ""
        say(f"{finding.state:8} {name:10} {finding.text}{advice}")
        states.append(finding.state)
    problems, warnings = states.count("problem"), states.count("warning")
    say(f"{problems} problem{'' if problems == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}")
    return not problems
