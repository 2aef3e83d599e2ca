"""Score settings of averaging and decoding on the validation split, to choose them before any test set is looked at.

    python benchmarks/choose_decoding.py tiny-1 --weights runs/tiny-1/train/weights --last 5,10,20 --alpha 0.6,1.0

Prints BLEU on the official lower-cased tokens (sacreBLEU, tokenize none), one line a setting. Lower-cased BPE only.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from sacrebleu.metrics import BLEU

from bleuprint.batching import open_ids
from bleuprint.checkpoint import average, load_into
from bleuprint.decoding import translate
from bleuprint.graph import load_params
from bleuprint.lines import read_pairs
from bleuprint.models import build_model
from bleuprint.params import Decode, LengthPenalty
from bleuprint.tokenizers import load_tokenizer, official_chain


def numbers(text: str) -> list[float]:
    """Return "5,10" as [5.0, 10.0]."""
    return [float(part) for part in text.split(",")]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--weights", type=Path, help="folder with step-*.safetensors; the run's by default")
    parser.add_argument("--last", type=numbers, default=[10.0])
    parser.add_argument("--beam", type=numbers, default=[5.0])
    parser.add_argument("--alpha", type=numbers, default=[1.0])
    return parser.parse_args()


@torch.no_grad()
def main() -> None:
    """Print one line per setting."""
    chosen, params = arguments(), load_params()
    run = params.run_named(chosen.run)
    experiment, corpus = params.recipes[run.experiment], params.corpora[run.corpus]
    split = params.datasets[corpus.dataset].splits.validation
    directory = Path("data/corpora") / run.corpus
    tokenizer, sources = load_tokenizer(directory), open_ids(directory, f"{split}.source")
    if tokenizer.target_text != "lc-tok":
        sys.exit(f"{run.corpus} writes {tokenizer.target_text}, not the official lower-cased tokens")
    targets = read_pairs(Path("data/raw") / corpus.dataset, split, corpus.source, corpus.target)[1]
    references = [official_chain(targets, corpus.target)]
    model = build_model(experiment.model, tokenizer.vocabulary["source"], tokenizer.vocabulary["target"]).eval()
    torch.set_num_threads(params.machine.threads)
    files = sorted((chosen.weights or Path("runs") / chosen.run / "train/weights").glob("step-*.safetensors"))
    for last in map(int, chosen.last):
        load_into(model, average(files[-last:]), files[-1])
        for beam in map(int, chosen.beam):
            for alpha in chosen.alpha:
                penalty = LengthPenalty(kind="length", alpha=alpha)
                settings = {"search": "beam", "beam": beam, "length_penalty": penalty}
                decode = Decode.model_validate(experiment.decode.model_dump() | settings)
                began = time.perf_counter()
                hypotheses = [tokenizer.decode_tokens(ids) for ids in translate(model, sources, decode, split)]
                score = BLEU(tokenize="none", force=True).corpus_score(hypotheses, references)
                setting = f"last {last:2d} beam {beam:2d} alpha {alpha:.2f}"
                print(f"{setting}  {score.format(width=2)}  {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
