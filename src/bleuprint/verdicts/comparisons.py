"""Experiments beside a baseline: the difference in BLEU, its interval, and how easily chance alone would give it.

The test is a paired bootstrap (Koehn 2004): both systems are scored on the same resamples of the sentences, those of
`sacrebleu --paired-bs`. A sentence that is drawn brings its translations by all seeds: they are much alike, and no
sentences of their own. Of the resampled differences d*, sacreBLEU's p-value counts where |d*| - mean |d*| > |d|. This
is in effect one-sided, below 0.05 in 11 to 13 of 100 cases without any effect; so a two-sided one stands beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bleuprint.graph import Comparison
from bleuprint.metrics import METRICS, MetricName, bootstrap_seed, build_metric
from bleuprint.params import Scoring
from bleuprint.scoring import Result, read_decoded
from bleuprint.verdicts.statistics import Summary, by_experiment, converged, summarise_scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sacrebleu.metrics.base import Metric

METRIC: MetricName = "bleu_lc_tok"
TAILS = 40  # 1 / 40 of the resamples lie below a 95 % interval, as many above: as sacreBLEU counts them


class Texts(NamedTuple):
    """An experiment's translations of one test set, a list for each seed in the order of their numbers."""

    hypotheses: tuple[list[str], ...]
    references: list[str]


class Difference(NamedTuple):
    """An experiment less its baseline in BLEU, over the texts of all seeds; the bounds are those of 95 % of resamples.

    `p_value` is two-sided and of the same resamples. `sacrebleu_p_value` is that of the command, None of several seeds,
    which the command cannot resample by sentence, and where both wrote the same texts: its test is not made for that.
    """

    score: float
    low: float
    high: float
    p_value: float
    sacrebleu_p_value: float | None


class Row(NamedTuple):
    """An experiment on one test set, its runs in the order of their seeds.

    `scores` are of the runs that did not diverge, None where all did; `difference` is None for the baseline, and where
    a run on either side diverged.
    """

    experiment: str
    runs: tuple[Result, ...]
    test: str
    scores: Summary | None
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
    runs = {name: tuple(sorted(found, key=seed_of)) for name, found in by_experiment(results).items()}
    baseline, tests = runs[comparison.baseline], tuple(runs[comparison.baseline][0].test_sets)
    texts = {test: read_texts(baseline, test, decoded) for test in tests}
    rows = [row(comparison.baseline, baseline, test, None) for test in tests]
    for name in comparison.experiments:
        assert list(map(seed_of, runs[name])) == list(map(seed_of, baseline)), "Table has refused other seeds"
        check_tests(name, runs[name], comparison.baseline, tests)
        all_converged = converged((*baseline, *runs[name])) == (*baseline, *runs[name])
        for test in tests:
            own = read_texts(runs[name], test, decoded)
            check_references(name, own, comparison.baseline, texts[test], test)
            difference = measure(texts[test], own.hypotheses, scoring) if all_converged else None
            rows.append(row(name, runs[name], test, difference))
    return Compared(comparison.baseline, tuple(rows))


def seed_of(run: Result) -> int:
    """Return the number by which the runs of two experiments are paired."""
    return run.seed


def row(name: str, runs: tuple[Result, ...], test: str, difference: Difference | None) -> Row:
    """Return an experiment's row, with the mean over its seeds that did not diverge."""
    counted = converged(runs)
    return Row(name, runs, test, summarise_scores(counted, test, METRIC) if counted else None, difference)


# --- texts ------------------------------------------------------------------------------------------------------------


def read_texts(runs: Sequence[Result], test: str, decoded: Mapping[str, Path]) -> Texts:
    """Return the texts of an experiment's runs on a test set; ValueError names what is missing or differs."""
    pairs = [read_decoded(decoded[run.run], test, METRICS[METRIC].suffix) for run in runs]
    references = pairs[0][1]
    for run, (_, own) in zip(runs, pairs, strict=True):
        if own != references:
            raise ValueError(f"{run.run} and {runs[0].run} cannot be taken together: their references of {test} differ")
    return Texts(tuple(hypotheses for hypotheses, _ in pairs), references)


def check_tests(name: str, runs: Sequence[Result], baseline: str, tests: Sequence[str]) -> None:
    """Raise ValueError unless an experiment has the baseline's test sets."""
    own = tuple(runs[0].test_sets)
    if own != tuple(tests):
        raise ValueError(
            f"{name} cannot be compared with {baseline}: test sets {', '.join(own)} and {', '.join(tests)}"
        )


def check_references(name: str, own: Texts, baseline: str, other: Texts, test: str) -> None:
    """Raise ValueError unless both experiments were to translate the same sentences."""
    if own.references != other.references:
        raise ValueError(
            f"{name} cannot be compared with {baseline}: their references of {test} differ, "
            "as those of another direction or data set do"
        )


# --- the test ---------------------------------------------------------------------------------------------------------


def measure(baseline: Texts, hypotheses: Sequence[list[str]], scoring: Scoring) -> Difference:
    """Return how hypotheses, a list for each seed, do beside the baseline's of as many seeds."""
    import numpy as np

    metric, references = build_metric(METRIC), baseline.references
    statistics = [sentence_statistics(metric, texts, references) for texts in (baseline.hypotheses, hypotheses)]
    first, second = (metric._aggregate_and_compute(found.tolist()).score for found in statistics)
    differences = np.sort(resample(metric, statistics, scoring))
    tail = len(differences) // TAILS
    one_seed = len(hypotheses) == 1 and hypotheses[0] != baseline.hypotheses[0]
    sacrebleu_p_value = ask_sacrebleu(metric, baseline, hypotheses[0], scoring) if one_seed else None
    low, high = float(differences[tail]), float(differences[-1 - tail])
    return Difference(second - first, low, high, two_sided(differences), sacrebleu_p_value)


def sentence_statistics(metric: "Metric", texts: Sequence[list[str]], references: list[str]) -> "NDArray[np.int64]":
    """Return BLEU's counts of each sentence (sentences, counts), summed over its translations by all seeds."""
    import numpy as np

    return np.sum([metric._extract_corpus_statistics(seed, [references]) for seed in texts], axis=0, dtype=np.int64)


def resample(metric: "Metric", statistics: Sequence["NDArray[np.int64]"], scoring: Scoring) -> "NDArray[np.float64]":
    """Return the system's score less the baseline's in each resample of the sentences.

    PairedTest draws the same ones, counts in float32 too, and keeps them to itself: it tells each system's own interval
    alone, which says nothing about a difference.
    """
    import numpy as np

    lines = len(statistics[0])
    draws = np.random.default_rng(scoring.bootstrap_seed).choice(lines, size=(scoring.bootstrap_resamples, lines))
    counts = [found.astype("float32") for found in statistics]
    scores = [[metric._compute_score_from_stats(found[draw].sum(0)).score for found in counts] for draw in draws]
    return np.array([second - first for first, second in scores], dtype=np.float64)


def two_sided(differences: "NDArray[np.float64]") -> float:
    """Return twice the smaller share of differences on either side of 0, at most 1; no difference is on both sides.

    One more is counted on top and below, as sacreBLEU does: so few resamples cannot say that p is 0.
    """
    fewer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (fewer + 1) / (len(differences) + 1))


def ask_sacrebleu(metric: "Metric", baseline: Texts, hypotheses: list[str], scoring: Scoring) -> float:
    """Return the p-value of `sacrebleu --paired-bs` for the texts of one seed on each side."""
    from sacrebleu.significance import PairedTest
    from sacrebleu.significance import Result as Tested

    systems: list[tuple[str, Sequence[str]]] = [("baseline", baseline.hypotheses[0]), ("system", hypotheses)]
    with bootstrap_seed(scoring.bootstrap_seed):
        found = PairedTest(
            systems, {METRIC: metric}, [baseline.references], test_type="bs", n_samples=scoring.bootstrap_resamples
        )()[1]
    _, second = (item for items in found.values() for item in items if isinstance(item, Tested))
    assert second.p_value is not None, "the second system is tested"
    return second.p_value
