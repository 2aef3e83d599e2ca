"""A comparison is on sacreBLEU's resamples, of sentences with all their seeds, and refuses what cannot be compared."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_statistics import result

from bleuprint.graph import Comparison, Table
from bleuprint.params import Scoring
from bleuprint.strict import validate
from bleuprint.verdicts.comparisons import Compared, Difference, Texts, compare, measure

SCORING = Scoring(bootstrap_resamples=200, bootstrap_seed=12345)
WORDS = [
    "ein",
    "hund",
    "rennt",
    "schnell",
    "über",
    "die",
    "grüne",
    "wiese",
    "eine",
    "frau",
    "sieht",
    "ihm",
    "dabei",
    "zu",
]


def sentences(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(6, 14))) for _ in range(count)]


def damaged(lines: Sequence[str], share: float, seed: int) -> list[str]:
    """Return lines with a share of their words replaced."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else word for word in s.split()) for s in lines]


REFERENCES = sentences(120)
WORSE, BETTER = damaged(REFERENCES, 0.3, 2), damaged(REFERENCES, 0.15, 3)


def write_texts(directory: Path, hypotheses: Sequence[str], references: Sequence[str] = REFERENCES) -> Path:
    """Write what decoding leaves of the test sets day and night."""
    directory.mkdir(parents=True)
    for test in ("day", "night"):
        for kind, lines in (("hyp", hypotheses), ("ref", references)):
            (directory / f"{test}.{kind}.lc-tok.txt").write_text("".join(f"{line}\n" for line in lines))
    return directory


def compared(root: Path, *texts: Sequence[str], seeds: int = 1) -> Compared:
    """Return the comparison of experiments a, b, … with these texts, the same ones for each seed; a is the baseline."""
    names = "abc"[: len(texts)]
    runs = [result(name, seed, 40.0 + seed) for name in names for seed in range(1, seeds + 1)]
    decoded = {run.run: write_texts(root / run.run, texts[names.index(run.experiment)]) for run in runs}
    return compare(Comparison(baseline="a", experiments=tuple(names[1:])), runs, decoded, SCORING)


def measure_one(baseline: list[str], hypotheses: list[str], scoring: Scoring = SCORING) -> Difference:
    """Return the difference of one seed on each side."""
    return measure(Texts((baseline,), REFERENCES), [hypotheses], scoring)


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_difference_and_p_value_are_those_of_the_sacrebleu_command(tmp_path: Path) -> None:
    found = measure_one(WORSE, BETTER)
    files = {name: tmp_path / name for name in ("ref", "worse", "better")}
    for path, lines in zip(files.values(), (REFERENCES, WORSE, BETTER), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    words = [files["ref"], "-i", files["worse"], files["better"], "-tok", "none", "--paired-bs"]
    options = ["--paired-bs-n", str(SCORING.bootstrap_resamples), "-w", "6", "-f", "json"]
    command = [sys.executable, "-m", "sacrebleu", *map(str, words), *options]
    first, second = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found.score == pytest.approx(second["BLEU"]["score"] - first["BLEU"]["score"], abs=2e-6)
    assert found.sacrebleu_p_value == pytest.approx(second["BLEU"]["p_value"], abs=1e-6)


def test_the_interval_is_of_the_resamples_that_sacrebleu_tests_with() -> None:
    """Its mean difference and its p-value come out of the same draws."""
    import numpy as np
    from sacrebleu.metrics import BLEU

    draws = np.random.default_rng(12345).choice(len(REFERENCES), size=(200, len(REFERENCES)))
    scores = [
        [BLEU(tokenize="none", force=True).corpus_score([t[i] for i in d], [[REFERENCES[i] for i in d]]).score
         for t in (WORSE, BETTER)]
        for d in draws
    ]  # fmt: skip
    differences = sorted(b - a for a, b in scores)
    found = measure_one(WORSE, BETTER)
    assert found.low == pytest.approx(differences[5])
    assert found.high == pytest.approx(differences[-6])
    stray = [abs(d) - np.mean(np.abs(differences)) for d in differences]
    assert found.sacrebleu_p_value == (sum(s > found.score for s in stray) + 1) / 201
    assert found.p_value == 2 * (sum(d <= 0 for d in differences) + 1) / 201


def test_a_clear_difference_and_none() -> None:
    clear = measure_one(WORSE, BETTER)
    assert 0 < clear.low < clear.score < clear.high
    assert clear.p_value < 0.05
    back = measure_one(BETTER, WORSE)
    assert (back.score, back.low, back.high) == (-clear.score, -clear.high, -clear.low)
    small = measure_one(WORSE, damaged(REFERENCES, 0.3, 4))
    assert small.low < 0 < small.high
    assert small.p_value > 0.05


def test_the_same_texts_have_no_p_value_of_sacrebleu() -> None:
    """sacreBLEU would say 1 / 201: it counts differences greater than none, and there are none."""
    assert measure_one(WORSE, WORSE) == (0.0, 0.0, 0.0, 1.0, None)


def test_another_seed_of_the_bootstrap_gives_another_interval() -> None:
    other = SCORING.model_copy(update={"bootstrap_seed": 1})
    first, second = (measure_one(WORSE, BETTER, scoring) for scoring in (SCORING, other))
    assert first.score == second.score
    assert (first.low, first.high) != (second.low, second.high)


def test_rows_stand_as_declared_the_baseline_first(tmp_path: Path) -> None:
    found = compared(tmp_path, WORSE, WORSE, BETTER)
    assert found.baseline == "a"
    assert [(row.experiment, row.test) for row in found.rows] == [
        (name, test) for name in "abc" for test in ("day", "night")
    ]
    assert [row.difference is None for row in found.rows] == [True, True, *[False] * 4]
    assert found.rows[0].scores is not None
    assert found.rows[0].scores.mean == 41.0


def test_without_any_effect_p_is_below_0_05_as_often_as_it_says() -> None:
    """300 pairs of equally bad systems: ours in about 5 of 100, as the interval; sacreBLEU's in twice as many.

    600 gave 0.053, 0.065 and 0.125; two standard deviations of 300 are 0.025 at 0.05.
    """
    scoring, found = Scoring(bootstrap_resamples=100, bootstrap_seed=12345), []
    for trial in range(300):
        references = sentences(60, seed=1000 + trial)
        first, second = (damaged(references, 0.3, 3 * trial + side) for side in (1, 2))
        found.append(measure(Texts((first,), references), [second], scoring))
    below = sum(one.p_value < 0.05 for one in found) / len(found)
    theirs = sum(one.sacrebleu_p_value is not None and one.sacrebleu_p_value < 0.05 for one in found) / len(found)
    assert below < 0.075
    assert theirs > 0.09
    assert 0.02 < sum(not one.low <= 0 <= one.high for one in found) / len(found) < 0.09


def test_copies_of_a_sentence_by_other_seeds_are_no_other_sentences(tmp_path: Path) -> None:
    """Three times the same texts say no more than once: same difference, same interval, same p."""
    one, three = (compared(tmp_path / str(n), WORSE, BETTER, seeds=n).rows[-1] for n in (1, 3))
    assert one.difference is not None
    assert three.difference is not None
    assert three.difference[:4] == pytest.approx(one.difference[:4], abs=1e-4)  # counts in float32
    assert one.difference.sacrebleu_p_value is not None
    assert three.difference.sacrebleu_p_value is None
    assert one.scores is not None
    assert three.scores is not None
    assert (one.scores.n, three.scores.n, three.scores.mean) == (1, 3, 21.0)


def test_the_difference_of_several_seeds_is_that_of_all_their_texts() -> None:
    from sacrebleu.metrics import BLEU

    other = damaged(REFERENCES, 0.15, 5)
    found = measure(Texts((WORSE, WORSE), REFERENCES), [BETTER, other], SCORING)
    first, second = (
        BLEU(tokenize="none", force=True).corpus_score(texts, [REFERENCES * 2]).score
        for texts in (WORSE * 2, BETTER + other)
    )
    assert found.score == second - first


def test_seeds_are_paired_by_their_number(tmp_path: Path) -> None:
    runs = [result(name, seed) for name, seed in (("a", 1), ("a", 2), ("b", 2), ("b", 1))]
    decoded = {run.run: write_texts(tmp_path / run.run, WORSE) for run in runs}
    found = compare(Comparison(baseline="a", experiments=("b",)), runs, decoded, SCORING)
    assert [[run.run for run in row.runs] for row in found.rows[::2]] == [["a-1", "a-2"], ["b-1", "b-2"]]


@pytest.mark.parametrize("bad", ["a", "b"])
def test_no_difference_where_a_side_has_a_run_that_diverged(tmp_path: Path, bad: str) -> None:
    runs = [result(name, seed, 40.0 + seed) for name in "ab" for seed in (1, 2)]
    gone = {"stopped": "diverged", "validation_loss": None}
    runs = [run.model_copy(update=gone) if run.run == f"{bad}-2" else run for run in runs]
    decoded = {run.run: write_texts(tmp_path / run.run, WORSE) for run in runs}
    found = compare(Comparison(baseline="a", experiments=("b",)), runs, decoded, SCORING)
    assert [row.difference for row in found.rows] == [None] * 4
    means = {row.experiment: row.scores.mean for row in found.rows if row.test == "day" and row.scores}
    assert means == {"a": 41.5, "b": 41.5, bad: 41.0}


# --- what cannot be compared ------------------------------------------------------------------------------------------


def test_other_references_are_refused(tmp_path: Path) -> None:
    runs = [result("a", 1), result("b", 1)]
    decoded = {
        "a-1": write_texts(tmp_path / "a", WORSE),
        "b-1": write_texts(tmp_path / "b", BETTER, sentences(len(BETTER), seed=9)),
    }
    with pytest.raises(ValueError, match=r"b cannot be compared with a: their references of day differ, as those of"):
        compare(Comparison(baseline="a", experiments=("b",)), runs, decoded, SCORING)


def test_seeds_of_other_references_are_refused(tmp_path: Path) -> None:
    runs = [result(name, seed) for name in "ab" for seed in (1, 2)]
    references = {"a-2": sentences(len(WORSE), seed=9)}
    decoded = {run.run: write_texts(tmp_path / run.run, WORSE, references.get(run.run, REFERENCES)) for run in runs}
    with pytest.raises(ValueError, match="a-2 and a-1 cannot be taken together: their references of day differ"):
        compare(Comparison(baseline="a", experiments=("b",)), runs, decoded, SCORING)


def test_other_test_sets_are_refused(tmp_path: Path) -> None:
    other = result("b", 1).model_copy(update={"test_sets": {"dusk": result("b", 1).test_sets["day"]}})
    decoded = {run: write_texts(tmp_path / run, WORSE) for run in ("a-1", "b-1")}
    with pytest.raises(ValueError, match="b cannot be compared with a: test sets dusk and day, night"):
        compare(Comparison(baseline="a", experiments=("b",)), [result("a", 1), other], decoded, SCORING)


def test_missing_texts_are_named(tmp_path: Path) -> None:
    decoded = {"a-1": write_texts(tmp_path / "a-1", WORSE), "b-1": tmp_path / "b-1"}
    with pytest.raises(ValueError, match=r"b-1/day\.hyp\.lc-tok\.txt is missing: decode the run first"):
        compare(Comparison(baseline="a", experiments=("b",)), [result("a", 1), result("b", 1)], decoded, SCORING)


def test_a_seed_that_sacrebleu_takes_for_none_is_refused(tmp_path: Path) -> None:
    scoring = SCORING.model_copy(update={"bootstrap_seed": 0})
    with pytest.raises(ValueError, match="bootstrap_seed is 0, which"):
        compare(Comparison(baseline="a", experiments=("b",)), [result("a", 1), result("b", 1)], {}, scoring)


RUNS = ["a-1", "a-2", "b-1", "b-2", "c-2", "c-1", "d-1"]


@pytest.mark.parametrize(
    ("comparison", "message"),
    [
        ({"baseline": "x", "experiments": ["b"]},
         r"comparisons\.0: 'x' has no run in this table; experiments with runs: a, b, c, d"),
        ({"baseline": "a", "experiments": ["b", "b-1"]},
         r"comparisons\.0: 'b-1' has no run in this table; experiments with runs: a, b, c, d"),
        ({"baseline": "a", "experiments": ["d"]},
         r"comparisons\.0: d has seed 1 and a seed 1, 2; compared are the same seeds"),
        ({"baseline": "a", "experiments": ["a"]}, r"comparisons\.0: a stands there twice"),
        ({"baseline": "a", "experiments": ["b", "b"]}, r"comparisons\.0: b stands there twice"),
        ({"baseline": "a", "experiments": []}, r"comparisons\.0\.experiments is \[\]: the list should have at least 1"),
        ({"baseline": "a", "experiment": ["b"]},
         r"comparisons\.0\.experiment is not a known key \(did you mean experiments\?\); valid in comparisons\.0: "),
    ],
)  # fmt: skip
def test_a_table_that_compares_what_cannot_be_compared_is_refused(comparison: dict, message: str) -> None:
    table = {"title": "t", "runs": RUNS, "comparisons": [comparison]}
    with pytest.raises(ValueError, match=rf"t\.yaml: {message}"):
        validate(Table, table, Path("t.yaml"))


def test_a_table_that_names_something_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"t\.yaml: runs: a-1 stands there twice"):
        validate(Table, {"title": "t", "runs": ["a-1", "b-1", "a-1"]}, Path("t.yaml"))
    twice = [{"baseline": "a", "experiments": ["b"]}, {"baseline": "a", "experiments": ["c", "b"]}]
    with pytest.raises(ValueError, match=r"t\.yaml: comparisons\.1: b is compared with a twice"):
        validate(Table, {"title": "t", "runs": RUNS, "comparisons": twice}, Path("t.yaml"))


def test_a_table_may_name_seeds_in_any_order() -> None:
    table = {"title": "t", "runs": RUNS, "comparisons": [{"baseline": "a", "experiments": ["c"]}]}
    assert validate(Table, table, Path("t.yaml")).comparisons[0].experiments == ("c",)


def test_a_table_may_compare_or_not() -> None:
    table = {"title": "t", "runs": RUNS}
    assert validate(Table, table, Path("t.yaml")).comparisons == ()
    declared = {**table, "comparisons": [{"baseline": "a", "experiments": ["b"]}]}
    assert validate(Table, declared, Path("t.yaml")).comparisons == (Comparison(baseline="a", experiments=("b",)),)
