"""Time the score stage: every metric of every test set of a decoded run, with its bootstrap intervals.

    python benchmarks/scoring.py [RUN] [--repeats 3]

The last line is the command as a user would run it, in a temporary project with an MLflow of its own. Bar: 10 s.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

from table import measure, print_table, spread
from tokenizing import ROOT, linked_project, start

from bleuprint.graph import Params, load_params
from bleuprint.metrics import METRICS, build_metric, metrics_of, score_corpus, text_of
from bleuprint.params import Corpus
from bleuprint.runs import RUNS
from bleuprint.scoring import read_decoded, score_test_set


def corpus_of(params: Params, run: str) -> Corpus:
    """Return the settings of a run's corpus."""
    return params.corpora[params.run_named(run).corpus]


def rows_of_metrics(params: Params, run: str, test: str, repeats: int) -> list[tuple[str, str]]:
    """Time each metric on one test set."""
    rows = []
    for name in metrics_of(corpus_of(params, run)):
        decoded = read_decoded(RUNS / run / "decode", test, METRICS[name].suffix)
        hypotheses, references = (text_of(name, lines) for lines in decoded)
        seconds = measure(partial(score_corpus, build_metric(name), hypotheses, references, params.scoring), repeats)
        rows.append((f"{name} of {test}, {len(references):,} lines", spread(seconds)))
    return rows


def row_of_test_sets(params: Params, run: str, tests: tuple[str, ...], repeats: int) -> tuple[str, str]:
    """Time the metrics that the run is scored by, on all test sets."""
    corpus = corpus_of(params, run)

    def score_all() -> None:
        for test in tests:
            score_test_set(RUNS / run / "decode", test, corpus, params.scoring)

    return f"metrics of {run}, {len(tests)} test sets", spread(measure(score_all, repeats))


def row_of_command(run: str, repeats: int) -> tuple[str, str]:
    """Time `bleuprint score RUN`; the first call, which makes MLflow's database, is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        project = linked_project(Path(folder), "data", "runs")
        seconds = measure(lambda: start(project, "-m", "bleuprint", "score", run), repeats)
    return f"bleuprint score {run}", spread(seconds)


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="tiny-1", metavar="RUN")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    params = load_params()
    tests = params.datasets[corpus_of(params, chosen.run).dataset].splits.tests
    rows = [
        *rows_of_metrics(params, chosen.run, tests[0], chosen.repeats),
        row_of_test_sets(params, chosen.run, tests, chosen.repeats),
        row_of_command(chosen.run, chosen.repeats),
    ]
    title = f"Scoring with {params.scoring.bootstrap_resamples:,} bootstrap resamples, seconds (bar: 10)"
    print_table(title, ("what", "measured"), rows)


if __name__ == "__main__":
    main()
