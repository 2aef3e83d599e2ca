"""Several seeds are one row: mean, standard deviation, Student's interval; one seed stays what it is."""

import math
import random

import pytest

from bleuprint.metrics import Score
from bleuprint.scoring import LegacyScore, Result, Tokens
from bleuprint.verdicts.statistics import (
    Summary,
    by_experiment,
    refuse_mixtures,
    summarise,
    summarise_scores,
    t_quantile,
)


def score(value: float) -> Score:
    return Score(score=value, low=value - 1, high=value + 2, signature="nrefs:1")


def result(experiment: str, seed: int, value: float = 40.0) -> Result:
    return Result(
        run=f"{experiment}-{seed}",
        experiment=experiment,
        seed=seed,
        trained=f"{experiment}-{seed}",
        corpus="words",
        parameters=1,
        steps=1,
        epochs=1,
        stopped="max_steps",
        validation_loss=1.0,
        tokens=Tokens(source=1, target=1),
        flops=1.0,
        test_sets={"day": {"bleu_lc_tok": score(value)}, "night": {"bleu_lc_tok": score(value / 2)}},
        legacy_score=LegacyScore(split="val", score=1.0, epochs={}),
        data={},
        code={},
    )


def test_runs_of_an_experiment_come_together_in_their_order() -> None:
    results = [result("b", 2), result("a", 1), result("b", 1)]
    found = by_experiment(results)
    assert [(name, [run.seed for run in runs]) for name, runs in found.items()] == [("b", [2, 1]), ("a", [1])]


def test_one_seed_keeps_the_interval_of_its_bootstrap() -> None:
    assert summarise([score(41.0)]) == Summary(41.0, None, 1, 40.0, 43.0)


def test_three_seeds_by_hand() -> None:
    """40, 41, 42: mean 41, sd 1, t(2) 4.303 / sqrt 3."""
    found = summarise([score(40.0), score(42.0), score(41.0)])
    assert (found.mean, found.sd, found.n) == (41.0, 1.0, 3)
    assert found.low == pytest.approx(41 - 4.302653 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(41 + 4.302653 / math.sqrt(3), abs=1e-5)


def test_no_interval_leaves_the_scores_that_there_are() -> None:
    """Two seeds have t(1) 12.7: without the ends 0 and 100 the bounds were -12.6 and 114.6."""
    assert summarise([score(0.0), score(2.0)]).low == 0.0
    assert summarise([score(99.0), score(100.0)]).high == 100.0


def test_the_metric_and_the_test_set_that_are_asked_for() -> None:
    runs = [result("a", 1, 40.0), result("a", 2, 44.0)]
    found = summarise_scores(runs, "night", "bleu_lc_tok")
    assert (found.mean, found.n) == (21.0, 2)
    assert found.sd == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042)])
def test_students_quantiles_are_those_of_any_table(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_the_interval_covers_the_mean_in_95_of_100_experiments() -> None:
    draw = random.Random(7)
    found = [summarise([score(draw.gauss(40, 0.3)) for _ in range(3)]) for _ in range(2000)]
    assert 0.935 < sum(summary.low <= 40 <= summary.high for summary in found) / len(found) < 0.965


@pytest.mark.parametrize(
    ("kind", "of_both"), [("data", "corpus"), ("code", "training.py")], ids=["other-data", "other-code"]
)
def test_runs_of_other_data_or_code_do_not_share_a_row(kind: str, of_both: str) -> None:
    """Other experiments may have other data and code: they have rows of their own."""
    runs = [result("a", seed).model_copy(update={kind: {of_both: "1", "raw": "0"}}) for seed in (1, 2)]
    other = result("b", 1).model_copy(update={kind: {of_both: "2"}})
    refuse_mixtures([*runs, other])
    runs[1] = runs[1].model_copy(update={kind: {of_both: "2", "raw": "0"}})
    with pytest.raises(ValueError, match=rf"^a-1 and a-2 are no row: they come from different {kind} \({of_both}\);"):
        refuse_mixtures([*runs, other])
