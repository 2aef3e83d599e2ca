"""What MLflow keeps of a result for human eyes: its file, and the first translations of each test set as a text."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bleuprint.lines import iterate_lines

SENTENCES = 10  # the captions of a data set may be shown, not passed on


def files_to_show(
    result: Path, raw: Path, decode_dir: Path, tests: Sequence[str], source: str, target: str
) -> dict[str, str]:
    """Return what MLflow keeps of a result, by names: its file, and a text for each test set.

    `source` and `target` are languages. OSError where a file is missing.
    """
    texts = {f"translations/{test}.txt": sample_translations(raw, decode_dir, test, source, target) for test in tests}
    return {f"results/{result.name}": result.read_text(encoding="utf-8"), **texts}


def sample_translations(raw: Path, decode_dir: Path, split: str, source: str, target: str) -> str:
    """Return source, reference and hypothesis of the first sentences of a test set, three lines each.

    `source` and `target` are languages. OSError where a file is missing.
    """
    files = {
        f"source ({source})": raw / f"{split}.{source}",
        f"reference ({target})": decode_dir / f"{split}.ref.txt",
        f"hypothesis ({target})": decode_dir / f"{split}.hyp.txt",
    }
    columns = [list(islice(iterate_lines(path), SENTENCES)) for path in files.values()]
    width = max(len(name) for name in files)
    parts = [
        "\n".join(f"{name:{width}}  {line}" for name, line in zip(files, sentence, strict=True))
        for sentence in zip(*columns, strict=True)
    ]
    return f"{split}, the first {len(parts)} sentences of {raw.name}\n\n" + "\n\n".join(parts) + "\n"
