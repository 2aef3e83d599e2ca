"""The tables of runs in results.md: a row for each experiment, one for each run, and comparisons with a baseline."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from bleuprint.metrics import METRICS
from bleuprint.reporting.markdown import ABSENT, code, markdown_table
from bleuprint.scoring import Result
from bleuprint.verdicts.comparisons import METRIC, Compared, Row
from bleuprint.verdicts.statistics import Summary, by_experiment, converged, summarise_scores

HEADER = (
    "Run", "Corpus", "Parameters", "Updates", "Validation loss", code("legacy_score"), "Test set", *map(code, METRICS),
)  # fmt: skip
NUMBERS = (2, 3, 4, 5, *range(7, len(HEADER)))  # the columns of HEADER that are set flush right
SECONDS_PER_HOUR = 3600


# --- experiments ------------------------------------------------------------------------------------------------------


def render_runs(results: Sequence[Result], directions: Mapping[str, str]) -> str:
    """Return the table of results, one row per experiment and test set: the mean over its seeds, or its one run.

    `directions` says of each corpus from which language into which it is, e.g. "en → de".
    """
    groups = by_experiment(results).values()
    rows = [experiment_row(runs, test, directions) for runs in groups for test in runs[0].test_sets]
    notes = [
        "Scores with 95 % bootstrap intervals; `bleu_13a` only where the corpus is cased, `bleu_compound_split` only "
        "where it is also English-German; `legacy_score` is not BLEU; `chrf` counts capitals: it tells runs apart "
        "only where both write them, or neither does. "
        "[What each column measures, with sacreBLEU's signatures](results.md#metrics).",
        *([SEVERAL_SEEDS] if any(len(runs) > 1 for runs in groups) else []),
        *weights_of_others(results),
    ]
    return "\n\n".join((markdown_table(HEADER, rows, numbers=NUMBERS), *notes))


SEVERAL_SEEDS = (
    "A row of several seeds has their mean, their standard deviation (sd) and Student's 95 % interval of that mean: "
    "where the mean over ever more seeds would be, on the same sentences. The bootstrap's interval of one run is "
    "another thing: how far other sentences would move its score. "
    "A run that diverged is counted, and is in no mean. [The single runs](results.md#single-runs)."
)


def experiment_row(runs: Sequence[Result], test: str, directions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the row of an experiment's runs on a test set."""
    if len(runs) == 1:
        return run_row(runs[0], test, directions)
    parameters = ", ".join(dict.fromkeys(f"{run.parameters:,}" for run in runs))
    counted = converged(runs)
    losses = [run.validation_loss for run in counted if run.validation_loss is not None]
    legacy = with_sd([run.legacy_score.score for run in counted], 2)
    cells = (
        with_interval(summarise_scores(counted, test, name)) if counted and name in runs[0].test_sets[test] else ABSENT
        for name in METRICS
    )
    return (
        f"{code(runs[0].experiment)}, {len(runs)} seeds",
        corpus_cell(runs[0], directions),
        parameters,
        updates_of(runs),
        with_sd(losses, 3),
        f"{legacy} ({code(runs[0].legacy_score.split)})",
        code(test),
        *cells,
    )


def updates_of(runs: Sequence[Result]) -> str:
    """Return "7,076" or "7,015 to 7,198", and how many runs diverged."""
    fewest, most = min(run.steps for run in runs), max(run.steps for run in runs)
    return (f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}") + how_many_diverged(runs)


def how_many_diverged(runs: Sequence[Result]) -> str:
    """Return " (1 diverged)", nothing where none did."""
    diverged = len(runs) - len(converged(runs))
    return f" ({diverged} diverged)" if diverged else ""


def weights_of_others(results: Sequence[Result]) -> list[str]:
    """Return a sentence that names the runs with another one's weights, none where there are no such runs."""
    others = [f"{code(run.run)} those of {code(run.trained)}" for run in results if run.trained != run.run]
    return [f"Weights of another run, averaged and decoded in another way: {'; '.join(others)}."] if others else []


def with_sd(values: Sequence[float], digits: int) -> str:
    """Return "1.690 (sd 0.012)" for several values, "1.690" for one, a dash for none."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}" if values else ABSENT
    return f"{fmean(values):.{digits}f} (sd {stdev(values):.{digits}f})"


def with_interval(summary: Summary) -> str:
    """Return "41.02 [39.80, 42.31]" for one run, "41.02 (sd 0.21) [40.50, 41.54]" for several."""
    return f"{mean_and_sd(summary)} [{summary.low:.2f}, {summary.high:.2f}]"


def mean_and_sd(summary: Summary) -> str:
    """Return "41.02" for one run, "41.02 (sd 0.21)" for several."""
    return f"{summary.mean:.2f}" + ("" if summary.sd is None else f" (sd {summary.sd:.2f})")


# --- single runs ------------------------------------------------------------------------------------------------------


def render_single_runs(results: Sequence[Result], directions: Mapping[str, str]) -> str | None:
    """Return the table of the runs that share a row above, None where each has one of its own."""
    several = [run for runs in by_experiment(results).values() if len(runs) > 1 for run in runs]
    if not several:
        return None
    rows = [run_row(run, test, directions) for run in several for test in run.test_sets]
    return f"{markdown_table(HEADER, rows, numbers=NUMBERS)}\n\nScores with 95 % bootstrap intervals."


def run_row(result: Result, test: str, directions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the row of one run on a test set."""
    loss = ABSENT if result.validation_loss is None else f"{result.validation_loss:.3f}"
    legacy = f"{result.legacy_score.score:.2f} ({code(result.legacy_score.split)})"
    cells = (
        with_interval(summarise_scores([result], test, name)) if name in result.test_sets[test] else ABSENT
        for name in METRICS
    )
    steps = f"{result.steps:,}{' (diverged)' if result.stopped == 'diverged' else ''}"
    numbers = (f"{result.parameters:,}", steps, loss, legacy)
    return (code(result.run), corpus_cell(result, directions), *numbers, code(test), *cells)


def corpus_cell(result: Result, directions: Mapping[str, str]) -> str:
    """Return a run's corpus with its languages."""
    return f"{code(result.corpus)}, {directions[result.corpus]}"


# --- comparisons ------------------------------------------------------------------------------------------------------


def render_comparisons(compared: Sequence[Compared], seconds: Mapping[str, float | None], resamples: int) -> str:
    """Return a table for each comparison and how to read them; `seconds` of training, of each run."""
    tables = [render_comparison(comparison, seconds) for comparison in compared]
    count = sum(row.difference is not None for comparison in compared for row in comparison.rows)
    return "\n\n".join((*tables, how_to_read(count, resamples)))


def render_comparison(compared: Compared, seconds: Mapping[str, float | None]) -> str:
    """Return one comparison: the baseline's scores, then each experiment's with their difference."""
    header = (
        "Experiment", "Seeds", "Test set", code(METRIC), "Difference", "95 % interval", "p, two-sided",
        "p of sacreBLEU", "Training hours", "FLOPs",
    )  # fmt: skip
    rows = [comparison_row(row, seconds) for row in compared.rows]
    title = f"### Beside {code(compared.baseline)}"
    runs = [run for row in compared.rows if row.test == compared.rows[0].test for run in row.runs]
    table = markdown_table(header, rows, numbers=(3, 4, 5, 6, 7, 8, 9))
    return "\n\n".join((title, table, *weights_of_others(runs)))


def comparison_row(row: Row, seconds: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return an experiment on one test set."""
    mean = ABSENT if row.scores is None else mean_and_sd(row.scores)
    differs = (ABSENT,) * 4
    if row.difference is not None:
        score, low, high, p_value, theirs = row.difference
        shown = ABSENT if theirs is None else f"{theirs:.3f}"
        differs = (f"{score:+.2f}", f"[{low:+.2f}, {high:+.2f}]", f"{p_value:.3f}", shown)
    return (
        code(row.experiment),
        ", ".join(str(run.seed) for run in row.runs) + how_many_diverged(row.runs),
        code(row.test),
        mean,
        *differs,
        hours([seconds[run.run] for run in row.runs]),
        f"{fmean(run.flops for run in row.runs):.2e}",
    )


def hours(seconds: Sequence[float | None]) -> str:
    """Return the mean in hours, a dash where one is not known."""
    known = [value for value in seconds if value is not None]
    return f"{fmean(known) / SECONDS_PER_HOUR:.2f}" if len(known) == len(seconds) else ABSENT


def how_to_read(count: int, resamples: int) -> str:
    """Return what a difference, its interval and its p-value say and do not say."""
    return f"""- *Difference*: {code(METRIC)} of the texts of all seeds together, less that of the baseline's.
  The score before it is the mean over seeds. *95 % interval*: of the difference in {resamples:,} resamples of the
  sentences, the same for both. Of several seeds, a sentence that is drawn brings its translations by all of them.
- A difference is called significant only where its interval excludes 0.
- *p, two-sided*: twice the share of those resamples whose difference is on one side of 0, or 0: of the side with fewer,
  at most 1. One resample more is counted than there are.
- *p of sacreBLEU*: what `sacrebleu --paired-bs` prints, so that anyone can check it, for one seed on each side; a dash
  also where both texts are the same. It is the share of resamples in which the size of the difference is above the mean
  of these sizes by more than the size of the difference measured. That is in effect one-sided: without any effect it is
  below 0.05 in 11 to 13 of 100 comparisons, not in 5.
- Differences tested here: {count}. None is corrected for the others: of twenty without any effect, one has an interval
  that excludes 0.
- No difference is told where a run on either side diverged, and such a run is in no mean.
- All of this is about sentences. It does not say what other seeds would give: with one seed, a difference between two
  trainings may be one between their seeds.
- *Training hours*, by the clock on the machine that the run's provenance names, and *FLOPs* are those of one run, the
  mean over seeds. Weights that several runs have cost this once."""
