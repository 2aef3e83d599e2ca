import math
from collections.abc import Sequence

import pytest
from claimed import LOSS, claim, count_claim, curve_claim

from bleuprint.metrics import Score
from bleuprint.scoring import LegacyScore, Result, Tokens
from bleuprint.verdicts.claims import (
    CurveJudgement,
    Judgement,
    Outcome,
    allowed,
    identify,
    judge,
    judge_count,
    judge_curve,
)
from bleuprint.verdicts.curves import Epoch, Point
from bleuprint.verdicts.published import CountClaim, ValueClaim

LOGGED = {1: Point(7.0, 6.0, 2.0), 2: Point(6.0, 5.0, 3.0), 3: Point(5.0, 4.5, 4.0)}


def result(score: float = 40.0, experiment: str = "small", seed: int = 1, loss: float | None = 1.5) -> Result:
    """Return the result of a run; one without a validation loss has diverged."""
    scored = Score(score=score, low=score - 1, high=score + 1, signature="nrefs:1")
    return Result(
        run=f"{experiment}-{seed}",
        experiment=experiment,
        seed=seed,
        trained=f"{experiment}-{seed}",
        corpus="words",
        parameters=1,
        steps=30,
        epochs=3,
        stopped="max_steps" if loss else "diverged",
        validation_loss=loss,
        tokens=Tokens(source=300, target=400),
        flops=5e9,
        test_sets={"day": {"bleu_lc_tok": scored}},
        legacy_score=LegacyScore(split="val", score=12.0, epochs={1: 2.5}),
        data={},
        code={},
    )


def history(*losses: tuple[float, float]) -> list[Epoch]:
    return [Epoch(epoch, 10 * epoch, *pair) for epoch, pair in enumerate(losses, 1)]


def epochs(*steps: int, train_loss: float = 7.0) -> list[Epoch]:
    return [Epoch(epoch, step, train_loss, 6.0) for epoch, step in enumerate(steps, 1)]


def judged(claim: ValueClaim, results: Sequence[Result], train_loss: float = 3.0) -> Judgement:
    histories = {result.run: history((train_loss + 0.5, 2.0), (train_loss, 1.5)) for result in results}
    return judge(claim, "t", results, histories)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "verdict"),
    [(39.5, "reproduced"), (39.49, "not reproduced"), (40.0, "reproduced"), (70.0, "reproduced")],
)
def test_reproduced_from_the_claim_less_its_tolerance_on(score: float, verdict: str) -> None:
    assert judged(claim(), [result(score)]).verdict == verdict


def test_binary_fractions_do_not_decide() -> None:
    assert 41.02 - 40.42 > 0.6
    assert judged(claim(value=41.02, tolerance=0.6), [result(40.42)]).verdict == "reproduced"


def test_seeds_far_apart_allow_much() -> None:
    """The example of the rules' text."""
    assert round(allowed(claim(value=41.02, tolerance=0.6), [41.0, 20.0]), 1) == 29.7
    assert allowed(claim(tolerance=0.6), [41.0, 41.1]) == allowed(claim(tolerance=0.6), [20.0]) == 0.6


@pytest.mark.parametrize(("measured", "verdict"), [(3.1, "reproduced"), (3.11, "not reproduced"), (1.0, "reproduced")])
def test_a_loss_is_reproduced_up_to_the_claim_and_its_tolerance(measured: float, verdict: str) -> None:
    found = judged(claim(**LOSS), [result()], train_loss=measured)
    assert (found.verdict, found.measured) == (verdict, (measured,))  # the lowest epoch


def test_the_other_measures_come_from_the_result() -> None:
    loss = claim(**{**LOSS, "metric": "validation_loss", "split": "val"})
    legacy = claim(metric="legacy_score", unit="legacy score", split="val")
    assert judged(loss, [result(loss=2.9)]).measured == (2.9,)
    assert judged(legacy, [result()]).measured == (12.0,)


def test_the_interval_does_not_soften_the_rule() -> None:
    assert judged(claim(), [result(39.4)]).verdict == "not reproduced"  # 40.0 lies within 38.4 to 40.4


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((39.5, 39.5), "reproduced"),  # no spread: the tolerance is enough
        ((39.4, 39.4), "not reproduced"),
        ((38.0, 40.9), "reproduced"),  # 39.45 + 2 x 2.05
        ((38.9, 39.1), "not reproduced"),  # 39.0 + 2 x 0.14
    ],
)
def test_two_standard_deviations_of_several_seeds_reach_the_claim(scores: tuple[float, ...], verdict: str) -> None:
    results = [result(score, seed=seed) for seed, score in enumerate(scores)]
    found = judged(claim(), [*results, result(90.0, experiment="other")])
    assert found.verdict == verdict
    assert [run.seed for run in found.runs] == [0, 1]


@pytest.mark.parametrize(("steps", "verdict"), [(None, "not reproduced"), (30, "not reproduced"), (31, "prefix only")])
def test_fewer_updates_than_claimed_say_nothing_yet(steps: int | None, verdict: str) -> None:
    assert judged(claim(steps=steps), [result(1.0)]).verdict == verdict
    assert judged(claim(steps=steps), [result(40.0)]).verdict == "reproduced"


def test_a_claim_without_a_run_is_not_run() -> None:
    assert judged(claim(), [result(50.0, experiment="other")]).verdict == "not run"
    assert (
        judged(claim(tables={"t": None}, tolerance=None, metric="bleu_compound_split"), [result(50.0)]).verdict
        == "not run"
    )


def test_another_metric_is_not_comparable() -> None:
    assert judged(claim(tables={"t": None}, comparable=False), [result(50.0)]).verdict == "not comparable"


@pytest.mark.parametrize("changes", [{}, LOSS, {**LOSS, "metric": "validation_loss", "split": "val"}])
def test_one_run_that_diverged_decides_whatever_was_measured_before(changes: dict[str, object]) -> None:
    results = [result(50.0, seed=1, loss=1.0), result(50.0, seed=2, loss=None)]
    assert judged(claim(**changes), results[:1]).verdict == "reproduced"
    found = judged(claim(**changes), results)
    assert (found.verdict, found.measured, [run.seed for run in found.runs]) == ("diverged", (), [1, 2])


@pytest.mark.parametrize(
    ("steps", "measured"),
    [
        ((10, 11), 4.0),  # the second epoch was cut off after its first update
        ((10, 19), 4.0),
        ((10, 20), 2.0),
        ((10, 21), 2.0),  # batches of so many tokens
        ((10,), 4.0),  # a single epoch counts, whole or not
    ],
)
def test_a_training_loss_is_that_of_a_whole_epoch(steps: tuple[int, ...], measured: float) -> None:
    losses = dict(zip(range(1, 3), (4.0, 2.0), strict=True))
    rows = [Epoch(epoch, step, losses[epoch], 6.0) for epoch, step in enumerate(steps, 1)]
    assert judge(claim(**LOSS), "t", [result()], {"small-1": rows}).measured == (measured,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "night"}, "claim c is about night; run small-1 was scored on: day"),
        ({"metric": "bleu_13a"}, "claim c is in bleu_13a; run small-1 was scored in: bleu_lc_tok"),
        (
            {"metric": "legacy_score", "unit": "legacy score"},
            "claim c is about day; run small-1 was scored on: val",
        ),
    ],
)
def test_a_claim_that_the_run_cannot_answer_is_an_error(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged(claim(**changes), [result(50.0)])


# --- counts -----------------------------------------------------------------------------------------------------------


def counted(parameters: int, claim: CountClaim, loss: float | None = 1.5) -> Judgement:
    run = result(loss=loss).model_copy(update={"parameters": parameters, "steps": 1})
    return judge_count(claim, "t", [run, result(experiment="other")])


@pytest.mark.parametrize(
    ("parameters", "verdict"),
    [(979, "not reproduced"), (980, "reproduced"), (1020, "reproduced"), (1021, "not reproduced")],
)
def test_a_count_is_reproduced_within_its_tolerance_on_both_sides(parameters: int, verdict: str) -> None:
    found = counted(parameters, count_claim())
    assert (found.verdict, found.measured, [run.run for run in found.runs]) == (verdict, (parameters,), ["small-1"])


def test_a_count_is_answered_after_one_update_and_by_a_run_that_diverged() -> None:
    assert counted(1000, count_claim(), loss=None).verdict == "reproduced"
    assert counted(2000, count_claim(), loss=None).verdict == "not reproduced"
    assert judge_count(count_claim(), "t", [result(experiment="other")]).verdict == "not run"


def test_a_size_is_that_of_float32_values_in_thousands_of_kib() -> None:
    """The README's two, with the vocabularies of 2019 and with those of today, two German types less."""
    for claimed, then, now in ((215.7, 55_207_087, 55_205_037), (197.2, 50_479_279, 50_477_229)):
        size = count_claim(metric="model_size", unit="MB", value=claimed, tolerance=0.1)
        for parameters in (then, now):
            found = counted(parameters, size)
            assert found.verdict == "reproduced"
            assert found.measured[0] == pytest.approx(parameters * 4 / 1_024_000)
        assert counted(then + 50_000, size).verdict == "not reproduced"


# --- curves -----------------------------------------------------------------------------------------------------------


def judged_curve(*losses: tuple[float, float], **changes: float) -> CurveJudgement:
    return judge_curve(curve_claim(**changes), LOGGED, "t", [result()], {"small-1": history(*losses)})


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([(7.05, 6.0), (6.0, 5.1), (5.0, 4.5)], "reproduced"),
        ([(7.05, 6.0), (6.0, 5.1)], "prefix only"),
        ([(7.0, 6.0), (6.0, 5.0), (5.0, 4.5), (0.0, 0.0)], "reproduced"),  # nothing was logged of the fourth
        ([(7.0, 6.0), (6.0, 5.13)], "not reproduced"),  # one difference over the maximum
        ([(7.07, 6.07), (6.0, 5.07)], "not reproduced"),  # a median of 0.07
        ([], "not run"),
    ],
)
def test_a_curve_agrees_by_median_and_maximum(losses: list[tuple[float, float]], verdict: str) -> None:
    assert judged_curve(*losses).verdict == verdict


def test_the_curve_of_several_seeds_is_their_mean() -> None:
    histories = {"small-1": history((7.2, 6.2), (6.3, 5.3)), "small-2": history((6.8, 5.8)), "other-1": history((1, 1))}
    results = [result(seed=1), result(seed=2), result(experiment="other")]
    found = judge_curve(curve_claim(), LOGGED, "t", results, histories)
    assert (found.verdict, len(found.runs)) == ("prefix only", 2)
    assert list(found.measured) == [1]
    assert found.measured[1] == pytest.approx(Point(7.0, 6.0, 2.5))


def test_differences_on_the_bounds_are_within_them() -> None:
    assert 6.12 - 6.0 > 0.12
    assert judged_curve((7.0, 6.12)).verdict == "prefix only"
    assert judged_curve((7.0, 6.12 + 1e-8)).verdict == "not reproduced"
    histories = {"small-1": history((7.24, 6.0)), "small-2": history((7.0 - 0.24, 6.0))}
    found = judge_curve(curve_claim(), LOGGED, "t", [result(), result(seed=2)], histories)
    assert found.verdict == "prefix only"
    assert found.widest == pytest.approx(0.24)


def test_seeds_on_two_sides_of_a_curve_do_not_make_up_for_each_other() -> None:
    histories = {"small-1": history((8.0, 7.0), (9.0, 9.0)), "small-2": history((6.0, 5.0))}
    found = judge_curve(curve_claim(), LOGGED, "t", [result(), result(seed=2)], histories)
    assert found.distance == (1, 0.0, 0.0)
    assert found.widest == 1.0, "over the epoch that both have"
    assert found.verdict == "not reproduced"


def test_a_seed_without_a_whole_epoch_does_not_hide_the_others() -> None:
    histories = {"small-1": history((7.0, 6.0)), "small-2": [Epoch(1, 4, 9.0, 9.0)]}
    found = judge_curve(curve_claim(), LOGGED, "t", [result(), result(seed=2)], histories)
    assert (found.verdict, [run.seed for run in found.runs]) == ("prefix only", [1])
    assert found.measured == {1: Point(7.0, 6.0, 2.5)}
    none = judge_curve(curve_claim(), LOGGED, "t", [result(seed=2)], histories)
    assert (none.verdict, none.runs) == ("not run", ())


@pytest.mark.parametrize(("rows", "measured"), [(1, []), (2, [1]), (3, [1, 2])])
def test_a_curve_whose_run_diverged_has_no_distance(rows: int, measured: list[int]) -> None:
    """Its last epoch is no epoch, whether it was cut off by the loss or ended with it."""
    for step in (10 * rows, 10 * rows - 3):
        losses = [*epochs(*range(10, 10 * rows, 10)), Epoch(rows, step, math.inf, math.nan)]
        found = judge_curve(curve_claim(), LOGGED, "t", [result(loss=None)], {"small-1": losses})
        assert (found.verdict, found.distance, found.widest) == ("diverged", None, None)
        assert (list(found.measured), [run.seed for run in found.runs]) == (measured, [1])


def test_one_seed_that_diverged_decides_over_a_curve() -> None:
    histories = {"small-1": history((7.0, 6.0)), "small-2": [Epoch(1, 10, math.nan, math.nan)]}
    assert judge_curve(curve_claim(), LOGGED, "t", [result()], histories).verdict == "prefix only"
    found = judge_curve(curve_claim(), LOGGED, "t", [result(), result(seed=2, loss=None)], histories)
    assert (found.verdict, [run.seed for run in found.runs]) == ("diverged", [1, 2])
    assert found.measured == {1: Point(7.0, 6.0, 2.5)}, "of the seed that has it"


def test_a_table_compares_a_claim_with_its_own_experiment() -> None:
    tables = {"t": "small", "full": "small-full"}
    results, histories = [result(), result(experiment="small-full")], {"small-1": history((7.0, 6.0))}
    histories["small-full-1"] = history((7.0, 6.0), (6.0, 5.0), (5.0, 4.5))
    curves = {table: judge_curve(curve_claim(tables=tables), LOGGED, table, results, histories) for table in tables}
    assert {t: (found.experiment, found.verdict) for t, found in curves.items()} == {
        "t": ("small", "prefix only"),
        "full": ("small-full", "reproduced"),
    }
    values = {table: judge(claim(tables=tables), table, results, histories) for table in tables}
    assert {t: [run.run for run in found.runs] for t, found in values.items()} == {
        "t": ["small-1"],
        "full": ["small-full-1"],
    }


def test_no_run_of_the_experiment_is_not_run() -> None:
    found = judge_curve(curve_claim(), LOGGED, "t", [result(experiment="other")], {"other-1": history((1, 1))})
    assert (found.verdict, found.runs, found.measured, found.distance) == ("not run", (), {}, None)


def test_a_last_epoch_that_was_cut_off_is_left_out() -> None:
    cut_off = [*history((7.0, 6.0)), Epoch(2, 17, 0.0, 0.0)]
    found = judge_curve(curve_claim(), LOGGED, "t", [result()], {"small-1": cut_off})
    assert found.distance is not None
    assert (found.verdict, found.distance.epochs) == ("prefix only", 1)
    alone = judge_curve(curve_claim(), LOGGED, "t", [result()], {"small-1": [Epoch(1, 7, 7.0, 6.0)]})
    assert alone.verdict == "not run"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((228,), "228 updates were made after epoch 1, not 227, 227 an epoch"),
        ((226, 454), "226 updates were made after epoch 1, not 227"),  # the end of the second does not mend the first
        ((228, 454), "228 updates were made after epoch 1, not 227"),
        ((227, 300, 681), "300 updates were made after epoch 2, not 454"),
        ((227, 455), "455 updates were made after epoch 2, not 454"),
    ],
)
def test_epochs_of_another_length_are_an_error(steps: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"claim c, run small-1: {message}"):
        judge_curve(curve_claim(steps_per_epoch=227), LOGGED, "t", [result()], {"small-1": epochs(*steps)})


@pytest.mark.parametrize(("steps", "verdict"), [((226,), "not run"), ((227, 453), "prefix only")])
def test_only_a_last_epoch_is_cut_off(steps: tuple[int, ...], verdict: str) -> None:
    found = judge_curve(curve_claim(steps_per_epoch=227), LOGGED, "t", [result()], {"small-1": epochs(*steps)})
    assert (found.verdict, list(found.measured)) == (verdict, list(range(1, len(steps))))


# --- candidates -------------------------------------------------------------------------------------------------------

NEAR, NEARER, FAR = (7.05, 6.05), (7.01, 6.01), (7.5, 6.5)


def candidates(**losses: tuple[float, float] | None) -> list[CurveJudgement]:
    """Return the verdicts on experiments with one epoch each; None: not run."""
    found = []
    for name, pair in losses.items():
        results = [result(experiment=name)] if pair else []
        histories = {f"{name}-1": history(pair)} if pair else {}
        found.append(judge_curve(curve_claim(tables={"t": name}), LOGGED, "t", results, histories))
    return found


@pytest.mark.parametrize(
    ("losses", "outcome", "accepted", "rejected", "not_run"),
    [
        ({"a": NEAR, "b": FAR}, "identified", ["a"], ["b"], []),
        ({"a": FAR, "b": (8.0, 8.0)}, "none of these", [], ["a", "b"], []),
        ({"a": NEAR, "b": NEARER, "c": FAR}, "more than one accepted", ["b", "a"], ["c"], []),
        ({"a": NEAR, "b": FAR, "c": None}, "open", ["a"], ["b"], ["c"]),
        ({"a": FAR, "b": None}, "open", [], ["a"], ["b"]),
        ({"a": NEAR, "b": NEARER, "c": None}, "more than one accepted", ["b", "a"], [], ["c"]),
        ({"a": NEAR}, "accepted", ["a"], [], []),
        ({"a": FAR}, "rejected", [], ["a"], []),
        ({"a": None}, "open", [], [], ["a"]),
    ],
)
def test_who_drew_a_log_follows_from_the_verdicts_on_its_candidates(
    losses: dict[str, tuple[float, float] | None],
    outcome: Outcome,
    accepted: list[str],
    rejected: list[str],
    not_run: list[str],
) -> None:
    found = identify("a.csv", candidates(**losses))
    groups = [[one.experiment for one in group] for group in (found.accepted, found.rejected, found.not_run)]
    assert (found.outcome, groups) == (outcome, [accepted, rejected, not_run])


def test_a_candidate_that_diverged_is_rejected_and_the_last() -> None:
    ended = judge_curve(
        curve_claim(tables={"t": "a"}),
        LOGGED,
        "t",
        [result(experiment="a", loss=None)],
        {"a-1": [*history((7.0, 6.0)), Epoch(2, 15, math.nan, math.nan)]},
    )
    found = identify("a.csv", [ended, *candidates(b=FAR)])
    assert (found.outcome, [one.experiment for one in found.rejected]) == ("none of these", ["b", "a"])


def test_candidates_for_another_log_are_left_out() -> None:
    other = judge_curve(curve_claim(file="b.csv", tables={"t": "b"}), LOGGED, "t", [], {})
    assert identify("a.csv", [*candidates(a=NEAR), other]).outcome == "accepted"
