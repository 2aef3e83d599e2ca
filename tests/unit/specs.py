"""What tests share: a Transformer small enough to check by other means, and one way to start the command."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bleuprint.params import TransformerModel

ROOT = Path(__file__).parents[2]
SPEC = TransformerModel(
    kind="transformer",
    norm="post",
    d_model=16,
    d_ff=24,
    n_heads=4,
    n_layers=2,
    max_positions=100,
    tie_embeddings="none",
    scale_embeddings=True,
    embedding_dropout=0.0,
    residual_dropout=0.0,
    attention_dropout=0.0,
    ffn_dropout=0.0,
    output_bias=True,
    norm_eps=1e-5,
    init="fairseq",
)


def variant(changes: Mapping[str, object], spec: TransformerModel = SPEC) -> TransformerModel:
    """Return `spec` with some of its values changed, and checked again."""
    return TransformerModel.model_validate(spec.model_dump() | dict(changes))


def start(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with `words` in the directory `root`, on the package of this checkout, to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)


def bleuprint(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m bleuprint WORDS` in the directory `root` to its end."""
    return start(root, "-m", "bleuprint", *words, **environment)
