"""How fast beam search is: against the same search without a cache, and against CTranslate2 on the same threads.

    python benchmarks/decoding.py [RUN] [--rounds 2] [--repeats 3] [--every 10]

Translates test_2016_flickr with the run's averaged weights, the beam and the token budget of params.yaml, and batches
sorted by length. Ours and CTranslate2 run in processes of their own, in turn; loading and segmentation are not timed.
The uncached search sees one sentence in ten, and its ratio is to ours on these same sentences. BLEU is on the official
lower-cased tokens (sacreBLEU, tokenize none).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from table import print_table, ratio, spread

from bleuprint.graph import load_params
from bleuprint.params import Corpus, Decode, Experiment, TransformerModel
from bleuprint.process import prepare

SPLIT = "test_2016_flickr"
# What issue 3 asks for.
BARS = "bars: uncached >= 5x, CTranslate2 fp32 at most 2.5x as fast, >= 99 % equal, BLEU within 0.1, int8 loses < 0.3"


class Task(NamedTuple):
    """What all forms translate, and how."""

    run: str
    experiment: Experiment
    corpus: Corpus
    threads: int

    @property
    def corpus_dir(self) -> Path:
        return Path("data/corpora") / self.experiment.corpus

    @property
    def weights(self) -> Path:
        return Path("runs") / self.run / "average/weights.safetensors"


def main() -> None:
    """Read the command line; without --form, start a process for each form and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="tiny-1")
    parser.add_argument("--rounds", type=int, default=2, help="how often each process is started")
    parser.add_argument("--repeats", type=int, default=3, help="how often each form runs in its process")
    parser.add_argument("--every", type=int, default=10, help="the uncached search translates one sentence in so many")
    parser.add_argument("--max-batch-tokens", type=int, help="for all forms, instead of what params.yaml says")
    parser.add_argument("--form", choices=["ours", "ctranslate2"], help=argparse.SUPPRESS)
    parser.add_argument("--models", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    task = task_of(chosen.run, chosen.max_batch_tokens)
    if chosen.form == "ours":
        prepare()  # as the decode stage does
        print(json.dumps(run_ours(task, chosen.repeats, chosen.every)))
    elif chosen.form == "ctranslate2":
        print(json.dumps(run_ctranslate2(task, chosen.repeats, chosen.models)))
    else:
        compare(task, chosen.rounds, chosen.every)


def task_of(run: str, max_batch_tokens: int | None) -> Task:
    """Return a run's task; the program ends where CTranslate2 cannot search as the run does."""
    params = load_params()
    spec = params.run_named(run)
    experiment = params.recipes[spec.experiment]
    if experiment.decode.length_penalty.kind != "length":
        sys.exit(f"{run}: CTranslate2 has no length penalty but `length`")
    if max_batch_tokens:
        decode = experiment.decode.model_copy(update={"max_batch_tokens": max_batch_tokens})
        experiment = experiment.model_copy(update={"decode": decode})
    return Task(run, experiment, params.corpora[spec.corpus], params.machine.threads)


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(task: Task, rounds: int, every: int) -> None:
    """Export the run, run both processes in turn and print their table."""
    seconds: dict[str, list[float]] = {}
    hypotheses: dict[str, list[list[int]]] = {}
    with tempfile.TemporaryDirectory() as models:
        export_both(task, Path(models))
        for _ in range(rounds):
            for form in ("ours", "ctranslate2"):
                command = [sys.executable, *sys.argv, "--form", form, "--models", models]
                found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
                for name, times in found["seconds"].items():
                    seconds[name] = [*seconds[name], *times] if name in seconds else times
                hypotheses |= found["hypotheses"]
    rows = [row_of(task, name, seconds, hypotheses) for name in hypotheses]
    decode, fp32 = task.experiment.decode, ratio(seconds["ctranslate2 fp32"], seconds["ours"])
    setting = f"beam {decode.beam}, {task.threads} threads, {decode.max_batch_tokens} tokens a batch"
    notes = [
        f"CTranslate2 fp32 is {fp32} as fast as ours. The part is one sentence in {every}, compared with ours on it.",
        "Again: no cache, every step runs the decoder over the whole prefix, or the model over source and prefix.",
        BARS,
    ]
    header = ["form", "seconds", "sentences/s", "time / ours", "equal to ours", "BLEU"]
    print_table(f"Decoding, {task.run}, {SPLIT}, {setting}", header, rows, notes)


def row_of(task: Task, name: str, seconds: dict[str, list[float]], hypotheses: dict[str, list[list[int]]]) -> list[str]:
    """Return a form's row; a form that saw a part of the sentences has no BLEU."""
    is_part = name.endswith(", part")
    ours, ids = "ours, part" if is_part else "ours", hypotheses[name]
    rate = len(ids) / statistics.median(seconds[name])
    equal = sum(a == b for a, b in zip(ids, hypotheses[ours], strict=True)) / len(ids)
    score = "" if is_part else f"{bleu(task, ids):.2f}"
    return [name, spread(seconds[name]), f"{rate:,.0f}", ratio(seconds[ours], seconds[name]), f"{equal:.1%}", score]


def export_both(task: Task, out: Path) -> None:
    """Write the run's model for CTranslate2 in both precisions."""
    from bleuprint.translation.export import export_run

    assert isinstance(task.experiment.model, TransformerModel), "CTranslate2 has no other"
    arguments = (task.corpus_dir, task.weights, task.experiment.model, task.corpus.source_marks)
    export_run(*arguments, "none", out / "none")
    export_run(*arguments, "int8", out / "int8")


def bleu(task: Task, hypotheses: list[list[int]]) -> float:
    """Return BLEU on the official lower-cased tokens."""
    from sacrebleu.metrics import BLEU

    from bleuprint.decoding import official_hypotheses, official_references
    from bleuprint.lines import read_pairs
    from bleuprint.tokenizers import load_tokenizer

    raw, tokenizer = Path("data/raw") / task.corpus.dataset, load_tokenizer(task.corpus_dir)
    targets = read_pairs(raw, SPLIT, task.corpus.source, task.corpus.target)[1]
    references = official_references(raw, SPLIT, task.corpus.target, targets)
    tokens = official_hypotheses(tokenizer, hypotheses, [tokenizer.decode(ids) for ids in hypotheses])
    return BLEU(tokenize="none", force=True).corpus_score(tokens, [references]).score


def timed(function: Callable[[], Any], repeats: int, warm_up: bool = True) -> tuple[list[float], Any]:
    """Return the seconds of `repeats` calls and what the last one returned."""
    found, seconds = function() if warm_up else None, []
    for _ in range(repeats):
        began = time.perf_counter()
        found = function()
        seconds.append(time.perf_counter() - began)
    return seconds, found


# --- ours -------------------------------------------------------------------------------------------------------------


def run_ours(task: Task, repeats: int, every: int) -> dict[str, Any]:
    """Return seconds and hypotheses of the decode stage's search, and seconds with and without cache on a part."""
    import torch

    from bleuprint.batching import open_ids
    from bleuprint.decoding import load_model, translate
    from bleuprint.tokenizers import load_tokenizer

    torch.set_num_threads(task.threads)
    model = load_model(task.weights, task.experiment.model, load_tokenizer(task.corpus_dir).vocabulary)
    sources, decode = open_ids(task.corpus_dir, f"{SPLIT}.source"), task.experiment.decode
    part = one_in(sources, every)
    measured: dict[str, Any] = {"seconds": {}, "hypotheses": {}}
    for name, form, ids, times in (
        ("ours", model, sources, repeats),
        ("ours, part", model, part, repeats),
        ("decoder again, part", without_cache(model, run_decoder_again), part, 1),
        ("model again, part", without_cache(model, run_model_again), part, 1),
    ):
        found = timed(partial(translate, form, ids, decode, SPLIT), times, warm_up=form is model)
        measured["seconds"][name], measured["hypotheses"][name] = found
    return measured


def one_in(sources: Any, every: int) -> Any:
    """Return every n-th sentence of some Ids."""
    import numpy as np

    rows = range(0, len(sources.lengths), every)
    sentences = [sources.flat[sources.offsets[row] : sources.offsets[row + 1]] for row in rows]
    return type(sources)(np.concatenate(sentences), np.cumsum([0, *map(len, sentences)]))


def without_cache(model: Any, again: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a model whose `step` has the logits from `again`, given the model, the source and the whole prefixes."""
    import torch
    from torch import Tensor, nn

    class Prefixes(NamedTuple):
        source: tuple[Tensor, ...]  # what `again` needs of it, (B, ...)
        tokens: Tensor  # (B, K, t)

        def select(self, sentences: Tensor, beams: Tensor) -> "Prefixes":
            return Prefixes(tuple(x[sentences] for x in self.source), self.tokens[sentences[:, None], beams])

    class Uncached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def start(self, source: Tensor, beams: int) -> Prefixes:
            return Prefixes((source, *model.encode(source)), source.new_empty(len(source), beams, 0))

        def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
            prefixes = torch.cat([state.tokens, tokens[:, :, None]], dim=2)
            repeated = [x.repeat_interleave(tokens.size(1), 0) for x in state.source]
            logits = again(model, repeated, prefixes.flatten(0, 1))  # (B*K, V)
            return logits.view(*tokens.shape, -1), Prefixes(state.source, prefixes)

    return Uncached()


def run_decoder_again(model: Any, source: Any, prefixes: Any) -> Any:
    """Return the logits after prefixes (N, t), (N, V): the source is not encoded again, one position is projected."""
    import torch

    _, memory, source_pad = source
    future = torch.ones(prefixes.size(1), prefixes.size(1), dtype=torch.bool).triu(1)
    x = model.embed(model.target_embedding, prefixes)
    for layer in model.decoder_layers:
        x = layer(x, memory, future, source_pad)
    return model.project(model.decoder_norm(x[:, -1]))


def run_model_again(model: Any, source: Any, prefixes: Any) -> Any:
    """Return the same by a plain call of the model: the last of the logits of all positions."""
    return model.project(model(source[0], prefixes))[:, -1]


# --- CTranslate2 ------------------------------------------------------------------------------------------------------


def run_ctranslate2(task: Task, repeats: int, models: Path) -> dict[str, Any]:
    """Return seconds and hypotheses of CTranslate2 in fp32 and int8; it sorts and fills its batches itself."""
    import ctranslate2

    sources, types = source_tokens(task, models / "none"), read_types(models / "none", "target")
    id_of = {token: i for i, token in enumerate(types)}
    measured: dict[str, Any] = {"seconds": {}, "hypotheses": {}}
    for name, folder, compute_type in (("fp32", "none", "float32"), ("int8", "int8", "int8")):
        translator = ctranslate2.Translator(
            str(models / folder), compute_type=compute_type, inter_threads=1, intra_threads=task.threads
        )
        seconds, results = timed(partial(translate_all, translator, sources, task.experiment.decode), repeats)
        tokens = [without_marks(result.hypotheses[0]) for result in results]
        measured["seconds"][f"ctranslate2 {name}"] = seconds
        measured["hypotheses"][f"ctranslate2 {name}"] = [[id_of[token] for token in line] for line in tokens]
    return measured


def translate_all(translator: Any, sources: list[list[str]], decode: Decode) -> Any:
    """Search as search.py does; at the limit, which no good model reaches, CTranslate2 cuts."""
    return translator.translate_batch(
        sources,
        beam_size=decode.beam,
        length_penalty=decode.length_penalty.alpha,
        return_end_token=True,
        max_input_length=0,  # none
        min_decoding_length=0,
        max_decoding_length=max(map(len, sources)) + decode.max_extra_tokens,
        max_batch_size=decode.max_batch_tokens // decode.beam,
        batch_type="tokens",
    )


def source_tokens(task: Task, model: Path) -> list[list[str]]:
    """Return the source types of each sentence; CTranslate2 adds their marks."""
    import numpy as np

    types = read_types(model, "source")
    ids, offsets = (np.load(task.corpus_dir / f"{SPLIT}.source.{part}.npy") for part in ("ids", "offsets"))
    return [without_marks([types[i] for i in ids[begin:end]]) for begin, end in pairwise(offsets)]


def without_marks(tokens: list[str]) -> list[str]:
    """Return tokens without those of begin and end."""
    return [token for token in tokens if token not in ("<sos>", "<eos>")]


def read_types(model: Path, side: str) -> list[str]:
    """Return a side's types by id; there is one file where both sides share them."""
    shared = model / "shared_vocabulary.json"
    path = shared if shared.exists() else model / f"{side}_vocabulary.json"
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
