"""Experiments beside a baseline: the difference in BLEU, its interval, and how easily chance alone would give it.

The test is sacreBLEU's paired bootstrap (Koehn 2004; `sacrebleu --paired-bs`): both systems are scored on the same
resamples of the sentences. The translations of all seeds stand one after the other, the baseline's beside the
experiment's seed by seed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bleuprint.params import Comparison, Scoring
from bleuprint.scoring import METRICS, MetricName, Result, bootstrap_seed, build_metric, read_decoded
from bleuprint.statistics import Summary, by_experiment, summarise_scores

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRIC: MetricName = "bleu_lc_tok"
TAILS = 40  # 1 / 40 of the resamples lie below a 95 % interval, as many above: as sacreBLEU counts them


class Texts(NamedTuple):
    """The translations of all seeds of an experiment on one test set, one after the other, and as many references."""

    hypotheses: list[str]
    references: list[str]


class Difference(NamedTuple):
    """An experiment less its baseline in BLEU, over the texts of all seeds; the bounds are those of 95 % of resamples.

    `p_value` is None where both wrote the same texts: sacreBLEU's test is not made for that.
    """

    score: float
    low: float
    high: float
    p_value: float | None


class Row(NamedTuple):
    """An experiment on one test set; `difference` is None for the baseline."""

    experiment: str
    runs: tuple[Result, ...]
    test: str
    scores: Summary
    difference: Difference | None


class Compared(NamedTuple):
    """A comparison with its rows, the baseline's first, the others as they were declared."""

    baseline: str
    rows: tuple[Row, ...]


def compare(
    comparison: Comparison, results: Sequence[Result], decoded: Mapping[str, Path], scoring: Scoring
) -> Compared:
    """Return a comparison made; `decoded` is the directory of each run's texts.

    ValueError where the texts are missing or the experiments do not translate the same sentences.
    """
    if scoring.bootstrap_seed == 0:
        raise ValueError("scoring.bootstrap_seed is 0, which sacreBLEU's paired test takes for no seed; give another")
    runs = by_experiment(results)
    baseline, tests = runs[comparison.baseline], tuple(runs[comparison.baseline][0].test_sets)
    texts = {test: join_texts(baseline, test, decoded) for test in tests}
    rows = [row(comparison.baseline, baseline, test, None) for test in tests]
    for name in comparison.experiments:
        check_tests(name, runs[name], comparison.baseline, tests)
        for test in tests:
            own = join_texts(runs[name], test, decoded)
            check_references(name, own, comparison.baseline, texts[test], test)
            rows.append(row(name, runs[name], test, measure(texts[test], own.hypotheses, scoring)))
    return Compared(comparison.baseline, tuple(rows))


def row(name: str, runs: tuple[Result, ...], test: str, difference: Difference | None) -> Row:
    """Return an experiment's row, with the mean over its seeds."""
    return Row(name, runs, test, summarise_scores(runs, test, METRIC), difference)


# --- texts ------------------------------------------------------------------------------------------------------------


def join_texts(runs: Sequence[Result], test: str, decoded: Mapping[str, Path]) -> Texts:
    """Return the texts of runs on a test set, one run after the other; ValueError names a file that is missing."""
    pairs = [read_decoded(decoded[run.run], test, METRICS[METRIC].suffix) for run in runs]
    return Texts([line for pair in pairs for line in pair[0]], [line for pair in pairs for line in pair[1]])


def check_tests(name: str, runs: Sequence[Result], baseline: str, tests: Sequence[str]) -> None:
    """Raise ValueError unless an experiment has the baseline's test sets."""
    own = tuple(runs[0].test_sets)
    if own != tuple(tests):
        raise ValueError(
            f"{name} cannot be compared with {baseline}: test sets {', '.join(own)} and {', '.join(tests)}"
        )


def check_references(name: str, own: Texts, baseline: str, other: Texts, test: str) -> None:
    """Raise ValueError unless both experiments were to translate the same sentences, as often."""
    if own.references != other.references:
        raise ValueError(
            f"{name} cannot be compared with {baseline}: their references of {test} differ, "
            "as those of another direction or data set do"
        )


# --- the test ---------------------------------------------------------------------------------------------------------


def measure(baseline: Texts, hypotheses: list[str], scoring: Scoring) -> Difference:
    """Return how hypotheses do beside the baseline's, by sacreBLEU's paired bootstrap."""
    from sacrebleu.significance import PairedTest
    from sacrebleu.significance import Result as Tested

    metric = build_metric(METRIC)
    systems: list[tuple[str, Sequence[str]]] = [("baseline", baseline.hypotheses), ("system", hypotheses)]
    with bootstrap_seed(scoring.bootstrap_seed):
        found = PairedTest(
            systems, {METRIC: metric}, [baseline.references], test_type="bs", n_samples=scoring.bootstrap_resamples
        )()[1]
    first, second = (item for items in found.values() for item in items if isinstance(item, Tested))
    low, high = interval(metric, baseline, hypotheses, scoring)
    p_value = None if hypotheses == baseline.hypotheses else second.p_value
    return Difference(second.score - first.score, low, high, p_value)


def interval(metric: "Metric", baseline: Texts, hypotheses: list[str], scoring: Scoring) -> tuple[float, float]:
    """Return the bounds of the central 95 % of the differences in the resamples that PairedTest makes.

    It keeps those to itself and tells each system's own interval alone, which says nothing about a difference.
    """
    import numpy as np

    systems = (baseline.hypotheses, hypotheses)
    statistics = [
        np.array(metric._extract_corpus_statistics(texts, [baseline.references]), dtype="float32") for texts in systems
    ]
    lines = len(baseline.references)
    draws = np.random.default_rng(scoring.bootstrap_seed).choice(lines, size=(scoring.bootstrap_resamples, lines))
    scores = np.array(
        [[metric._compute_score_from_stats(found[draw].sum(0)).score for found in statistics] for draw in draws]
    )
    differences = np.sort(scores[:, 1] - scores[:, 0])
    tail = len(differences) // TAILS
    return float(differences[tail]), float(differences[-1 - tail])
