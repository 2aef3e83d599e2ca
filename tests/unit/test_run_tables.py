"""What a row of several seeds says."""

import pytest
from test_statistics import result

from bleuprint.metrics import METRICS
from bleuprint.reporting.figures import bleu_rows
from bleuprint.reporting.run_tables import experiment_row, hours, render_runs, updates_of, weights_of_others
from bleuprint.scoring import Result

DIRECTIONS = {"words": "de → en"}


def diverged(run: Result) -> Result:
    return run.model_copy(update={"stopped": "diverged", "validation_loss": None})


def test_a_row_of_seeds_has_the_mean_of_each_column() -> None:
    runs = [result("a", seed, value) for seed, value in ((1, 40.0), (2, 42.0))]
    runs[1] = runs[1].model_copy(
        update={"steps": 1200, "parameters": 2, "validation_loss": 2.0, "legacy_score": runs[1].legacy_score}
    )
    row = experiment_row(runs, "day", DIRECTIONS)
    assert row[:7] == (
        "`a`, 2 seeds",
        "`words`, de → en",
        "1, 2",
        "1 to 1,200",
        "1.500 (sd 0.707)",
        "1.00 (sd 0.00) (`val`)",
        "`day`",
    )
    assert row[7:] == ("41.00 (sd 1.41) [28.29, 53.71]", *["—"] * (len(METRICS) - 1))


def test_a_seed_that_diverged_is_counted_and_is_in_no_mean() -> None:
    runs = [result("a", 1, 40.0), diverged(result("a", 2, 1.0)), result("a", 3, 42.0)]
    row = experiment_row(runs, "day", DIRECTIONS)
    assert row[:1] + row[3:6] == ("`a`, 3 seeds", "1 (1 diverged)", "1.000 (sd 0.000)", "1.00 (sd 0.00) (`val`)")
    assert row[7] == "41.00 (sd 1.41) [28.29, 53.71]"
    assert experiment_row(runs[:2], "day", DIRECTIONS)[4:8] == (
        "1.000",
        "1.00 (`val`)",
        "`day`",
        "40.00 [39.00, 42.00]",
    )
    assert experiment_row([runs[1], diverged(runs[0])], "day", DIRECTIONS)[3:8] == (
        "1 (2 diverged)",
        "—",
        "— (`val`)",
        "`day`",
        "—",
    )


def test_the_figure_draws_no_seed_that_diverged_and_says_so() -> None:
    runs = [result("a", 1, 40.0), diverged(result("a", 2, 1.0)), result("a", 3, 42.0)]
    mean, _, *rings = bleu_rows(runs, ())
    assert mean["run"] == "a, 3 seeds (1 diverged)"
    assert mean["score"] == 41.0
    assert [row["seed score"] for row in rings] == [40.0, 42.0, 20.0, 21.0]
    assert bleu_rows([diverged(run) for run in runs], ()) == [
        {"run": "a, 3 seeds (3 diverged)", "test set": test} for test in ("day", "night")
    ]
    assert [row["run"] for row in bleu_rows(runs[1:2], ())] == ["a-2 (diverged)"] * 2


def test_all_seeds_of_one_length_have_one_number() -> None:
    assert updates_of([result("a", 1), result("a", 2)]) == "1"


def test_what_an_interval_is_of_is_said_where_there_are_several_seeds() -> None:
    one, two = (render_runs([result("a", seed) for seed in seeds], DIRECTIONS) for seeds in ((1,), (1, 2)))
    assert "Scores with 95 % bootstrap intervals" in one
    assert "Student" not in one
    assert "Student's 95 % interval of that mean" in two


def test_weights_of_others_are_named() -> None:
    greedy = result("greedy", 1).model_copy(update={"trained": "a-1"})
    assert weights_of_others([result("a", 1)]) == []
    assert weights_of_others([result("a", 1), greedy])[0].endswith(": `greedy-1` those of `a-1`.")


@pytest.mark.parametrize(("seconds", "text"), [([3600.0, 7200.0], "1.50"), ([3600.0, None], "—"), ([None], "—")])
def test_hours(seconds: list[float | None], text: str) -> None:
    assert hours(seconds) == text
