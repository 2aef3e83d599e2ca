"""The metrics of a decoded run, each with its definition, and sacreBLEU, which counts all of them.

Score, signature and 95 % interval are those that the `sacrebleu` command prints with `--confidence` for the same two
files in runs/{run}/decode; for bleu_compound_split those files go through compound_split.py's chain first.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from bleuprint.compound_split import PAIR, compound_split
from bleuprint.params import Corpus, Scoring
from bleuprint.strict import Strict

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.chrf import CHRFScore

MetricName = Literal["bleu_lc_tok", "bleu_13a_lc", "bleu_13a", "bleu_compound_split", "chrf"]
DECIMALS = 6  # of a stored score: stable bytes, and rounded to two digits it still is what the command prints


class Score(Strict):
    """A corpus score, 0 to 100, with the bounds of its 95 % bootstrap interval and sacreBLEU's signature."""

    score: float
    low: float
    high: float
    signature: str


class MetricFacts(NamedTuple):
    """The files that a metric reads, {test}.hyp.{suffix} and {test}.ref.{suffix}, and what its number means."""

    suffix: str
    unit: str
    definition: str


METRICS: dict[MetricName, MetricFacts] = {
    "bleu_lc_tok": MetricFacts(
        "lc-tok.txt",
        "BLEU",
        "BLEU on the official tokens: lower-cased, normalised, tokenised and escaped by Moses' rules, no tokenizer of "
        "sacreBLEU's own. A system with other tokens is detokenised and put through that chain first.",
    ),
    "bleu_13a_lc": MetricFacts("txt", "BLEU", "BLEU on detokenised text, tokenizer 13a, lower-cased on both sides."),
    "bleu_13a": MetricFacts("txt", "BLEU", "BLEU on detokenised text, tokenizer 13a, cased: cased systems alone."),
    "bleu_compound_split": MetricFacts(
        "txt",
        "BLEU",
        "The paper's BLEU, multi-bleu.perl's: on cased text, tokenised and escaped by Moses' rules, compounds split at "
        "hyphens (a-b is three tokens), without smoothing. Cased systems from English to German alone.",
    ),
    "chrf": MetricFacts(
        "txt",
        "chrF",
        "chrF2 on detokenised text, cased: a lower-cased system loses every capital letter of the reference.",
    ),
}


# --- which metrics, on which text -------------------------------------------------------------------------------------


def metrics_of(corpus: Corpus) -> list[MetricName]:
    """Return the metrics of a corpus's test sets: the cased ones of cased hypotheses, the paper's of its direction."""
    names: list[MetricName] = list(get_args(MetricName))
    if not corpus.cased:
        names.remove("bleu_13a")
    if not corpus.cased or (corpus.source, corpus.target) != PAIR:
        names.remove("bleu_compound_split")
    return names


def text_of(name: MetricName, lines: Sequence[str]) -> list[str]:
    """Return the text that sacreBLEU is given for the lines of a metric's file."""
    return compound_split(lines) if name == "bleu_compound_split" else list(lines)


# --- sacreBLEU --------------------------------------------------------------------------------------------------------


def build_metric(name: MetricName) -> "Metric":
    """Return sacreBLEU's metric; behind each stands what the command's options are."""
    from sacrebleu.metrics import BLEU, CHRF  # pulls in numpy: not for `--help`

    match name:  # force: the text is tokenised on purpose, no warning
        case "bleu_lc_tok":
            return BLEU(tokenize="none", force=True)  # -tok none
        case "bleu_13a_lc":
            return BLEU(tokenize="13a", lowercase=True)  # -lc
        case "bleu_13a":
            return BLEU(tokenize="13a")
        case "bleu_compound_split":
            return BLEU(tokenize="none", smooth_method="none", force=True)  # -tok none --smooth-method none
        case "chrf":
            return with_even_scores(CHRF())  # -m chrf


def with_even_scores(metric: Any) -> "Metric":
    """Let chrF score a resample without any common character as a float32 too, as it scores the others.

    It gives a plain 0.0, and the mean of both kinds is a TypeError (sacreBLEU 2.6.0): a test set with hardly anything
    right could not be scored. The mean of all others stays sacreBLEU's to the digit.
    """
    compute = metric._compute_score_from_stats

    def even(counts: Any) -> "CHRFScore":
        score = compute(counts)
        if not isinstance(counts, list):  # of a resample
            score.score = counts.dtype.type(score.score)
        return score

    metric._compute_score_from_stats = even
    return metric


def score_corpus(metric: "Metric", hypotheses: list[str], references: list[str], scoring: Scoring) -> Score:
    """Return the corpus score with sacreBLEU's interval: mean of the resamples +- half the width of their central 95 %.

    The statistics of the sentences are counted once and resampled `bootstrap_resamples` times. The interval is centred
    on the resamples' mean, not on the score; it is cut off at 0 and 100.
    """
    with bootstrap_seed(scoring.bootstrap_seed):
        score = metric.corpus_score(hypotheses, [references], n_bootstrap=scoring.bootstrap_resamples)
    signature = str(metric.get_signature())
    shown = json.loads(score.format(width=DECIMALS, signature=signature, is_json=True))
    if "confidence_mean" not in shown:  # sacreBLEU leaves the interval out where every resample scores 0
        return Score(score=shown["score"], low=0.0, high=0.0, signature=signature)
    mean, half = shown["confidence_mean"], shown["confidence_var"]
    low, high = max(0.0, round(mean - half, DECIMALS)), min(100.0, round(mean + half, DECIMALS))
    return Score(score=shown["score"], low=low, high=high, signature=signature)


@contextmanager
def bootstrap_seed(seed: int) -> Iterator[None]:
    """Set sacreBLEU's seed, which it reads from the environment alone, and put the environment back."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
