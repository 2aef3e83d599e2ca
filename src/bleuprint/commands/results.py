"""Commands that tell what the committed results say, outside the graph."""

from pathlib import Path

from bleuprint.console import plain_errors
from bleuprint.runs import REPORTS


def readme() -> None:
    """Copy the table of reports/default into README.md.

    Example: python -m bleuprint readme
    """
    with plain_errors("starts again"):
        from bleuprint.report import update_readme

        update_readme(Path("README.md"), REPORTS / "default")


def deviations() -> None:
    """List every ASSUME and DEVIATES in reports/deviations.md.

    Example: python -m bleuprint deviations
    """
    with plain_errors("starts again"):
        from bleuprint.deviations import write_deviations

        write_deviations(Path(), REPORTS / "deviations.md")
