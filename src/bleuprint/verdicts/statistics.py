"""Seeds as statistics: several runs of one experiment as a mean, its spread and its interval; one run as it is."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from bleuprint.metrics import MetricName, Score
from bleuprint.scoring import Result

CONFIDENCE = 0.95
LOWEST, HIGHEST = 0.0, 100.0  # of every score in METRICS, BLEU and chrF alike


class Summary(NamedTuple):
    """The mean over `n` seeds, their standard deviation (n - 1; None for one seed) and a 95 % interval.

    Of two seeds or more the interval is Student's for the mean over seeds: it says where the mean over all seeds is, on
    these sentences, and ends at 0 and 100 as scores do. Of one seed it is the bootstrap's: it says how far other
    sentences would move this run's score.
    """

    mean: float
    sd: float | None
    n: int
    low: float
    high: float


def by_experiment(results: Sequence[Result]) -> dict[str, tuple[Result, ...]]:
    """Return the results of each experiment, in their order."""
    names = dict.fromkeys(result.experiment for result in results)
    return {name: tuple(result for result in results if result.experiment == name) for name in names}


def refuse_mixtures(results: Sequence[Result]) -> None:
    """Raise ValueError where runs that would share a row come from different data or code, as their hashes say."""
    for runs in by_experiment(results).values():
        first = runs[0]
        for other in runs[1:]:
            differ = [
                f"{kind} ({', '.join(names)})"
                for kind, names in (
                    ("data", differing(first.data, other.data)),
                    ("code", differing(first.code, other.code)),
                )
                if names
            ]
            if differ:
                raise ValueError(
                    f"{first.run} and {other.run} are no row: they come from different {' and '.join(differ)}; bring "
                    "both up to date with `dvc repro` or `snakemake`"
                )


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names that two records of hashes do not agree on."""
    return sorted({name for name, _ in one.items() ^ other.items()})


def converged(results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the runs that count for a mean: those that did not diverge."""
    return tuple(result for result in results if result.stopped != "diverged")


def summarise_scores(results: Sequence[Result], test: str, metric: MetricName) -> Summary:
    """Return the scores of the runs of one experiment, one at least, on one test set, all of them, diverged or not."""
    return summarise([result.test_sets[test][metric] for result in results])


def summarise(scores: Sequence[Score]) -> Summary:
    """Return one score with its own interval, or the mean of several with Student's."""
    if len(scores) == 1:
        return Summary(scores[0].score, None, 1, scores[0].low, scores[0].high)
    values = [score.score for score in scores]
    mean, sd = fmean(values), stdev(values)
    half = t_quantile(len(values) - 1) * sd / math.sqrt(len(values))
    return Summary(mean, sd, len(values), max(mean - half, LOWEST), min(mean + half, HIGHEST))


def t_quantile(degrees: int) -> float:
    """Return what Student's t with so many degrees of freedom exceeds, up or down, in 5 of 100 cases: 4.303 for 2."""
    from scipy.special import stdtrit  # takes longer to import than all else: not for one seed

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
