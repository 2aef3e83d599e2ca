"""Time `bleuprint tokenize` on one core and on two, and compare the bytes that they write.

    python benchmarks/tokenizing.py [CORPUS ...] [--repeats 3]

The command runs as a user would run it, in a temporary project whose data/raw is ours. Linux alone: cores are taken
away by sched_setaffinity, which `tokenizers` and we respect alike. Bar: 30 s on 2 cores.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from table import measure, print_table, ratio, spread

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ("multi30k-words", "multi30k-bpe", "multi30k-cased-bpe")


def linked_project(root: Path, *names: str) -> Path:
    """Make a project below `root` with a copy of our params.yaml, and with links to our folders `names`."""
    shutil.copy(ROOT / "params.yaml", root)
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(ROOT / name)
    return root


def start(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS` in a project, with the package that stands here."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )


def tokenize_seconds(project: Path, corpus: str, cores: set[int], repeats: int) -> list[float]:
    """Return the seconds of `bleuprint tokenize CORPUS` on these cores alone; a child inherits them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return measure(lambda: start(project, "-m", "bleuprint", "tokenize", corpus), repeats)
    finally:
        os.sched_setaffinity(0, before)


def same_bytes(left: Path, right: Path) -> bool:
    """Say whether two folders hold the same files."""
    names = sorted(path.name for path in left.iterdir())
    if names != sorted(path.name for path in right.iterdir()):
        return False
    return filecmp.cmpfiles(left, right, names, shallow=False)[0] == names


def row(corpus: str, cores: list[int], repeats: int) -> tuple[str, ...]:
    """Measure one corpus and return its line of the table."""
    seconds, written = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 2):
            (root := Path(folder, str(count))).mkdir()
            project = linked_project(root, "data/raw")
            seconds[count] = tokenize_seconds(project, corpus, set(cores[:count]), repeats)
            written[count] = project / "data/corpora" / corpus
        same = same_bytes(written[1], written[2])
    return corpus, spread(seconds[1]), spread(seconds[2]), ratio(seconds[2], seconds[1]), "yes" if same else "NO"


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", default=CORPORA, metavar="CORPUS")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed to compare them with one")
    rows = [row(corpus, cores, chosen.repeats) for corpus in chosen.corpora]
    print_table("Tokenizing Multi30K, seconds", ("corpus", "1 core", "2 cores", "ratio", "same bytes"), rows)


if __name__ == "__main__":
    main()
