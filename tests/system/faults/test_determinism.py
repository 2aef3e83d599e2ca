"""The same training twice, in processes of their own, has the same bits; with one thread, and with two."""

import subprocess
import sys
from pathlib import Path

import pytest

from reliability import Record

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests/unit'}", "PATH": "/usr/bin:/bin"}
# Large enough that torch shares the work between its threads.
TRAIN = """
import sys
from pathlib import Path
from bleuprint.process import prepare
prepare()  # as the command does: threads that wait do not spin
from bleuprint.params import Machine
from copy_task import recipe_for, run, write_corpus

root, threads = Path(sys.argv[1]), int(sys.argv[2])
root.mkdir()
write_corpus(root / "corpus", {"train": 600, "val": 60})
batches = {"kind": "tokens", "max_tokens": 2000, "batches_per_step": 1}
recipe = recipe_for(root / "corpus", {"batches": batches, "max_steps": 4}, {"d_model": 64, "d_ff": 1024})
run(recipe._replace(machine=Machine(device="cpu", threads=threads)), root)
"""


def trained(root: Path, threads: int) -> dict[str, bytes]:
    """Train in a process of its own and return what must be the same in every repetition."""
    subprocess.run([sys.executable, "-c", TRAIN, str(root), str(threads)], env=ENVIRONMENT, check=True)
    files = [*(root / "out/weights").iterdir(), root / "out/history.csv", root / "out/summary.json"]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_training_twice_has_the_same_bits(tmp_path: Path, record: Record, threads: int) -> None:
    first, second = (trained(tmp_path / name, threads) for name in ("first", "second"))
    assert len(first) == 6
    assert first == second
    record("fault", f"a training repeated with {threads} thread{'s' if threads > 1 else ''}: the same bits", 1, 1)
