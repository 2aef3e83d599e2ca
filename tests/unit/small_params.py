"""params.yaml with a few of its experiments: it is read several times a test, by a YAML reader that is no quick one."""

import re
from pathlib import Path

from bleuprint.tables import use

ROOT = Path(__file__).parents[2]
KEPT = ("toy", "tiny", "tiny-cased", "readme", "preln", "paper", "ablate-tiny", "ablate-greedy")


def write_small_params(root: Path) -> Path:
    """Write root/params.yaml, with the toy table active, comments and all; return it."""
    head, begin, experiments = (ROOT / "params.yaml").read_text().partition("\nexperiments:\n")
    assert begin
    blocks = re.split(r"(?m)^(?=  [A-Za-z])", experiments)
    kept = [block for block in blocks if block.strip().partition(":")[0] in KEPT]
    assert len(kept) == len(KEPT)
    path = root / "params.yaml"
    path.write_text(head + begin + "".join(kept))
    use("demo", path, ROOT / "workflow/tables")
    return path
