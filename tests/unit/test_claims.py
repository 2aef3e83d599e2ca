import json
from pathlib import Path

import pytest

from bleuprint.claims import CLAIMS_FILE, Claim, judge, load_claims
from bleuprint.params import load_params, load_table, read_yaml, validate
from bleuprint.scoring import Result, Score

PUBLISHED = {
    "id": "c",
    "tables": ["t"],
    "who": "Somebody",
    "text": "a number",
    "value": 40.0,
    "unit": "BLEU",
    "metric": "bleu_lc_tok",
    "split": "day",
    "source": "a page",
    "experiment": "small",
    "comparable": True,
    "tolerance": 0.5,
    "note": "a note",
}


def claim(**changes: object) -> Claim:
    return validate(Claim, {**PUBLISHED, **changes}, Path("claims.yaml"))


def result(score: float, experiment: str = "small", seed: int = 1, loss: float | None = 1.5) -> Result:
    scored = Score(score=score, low=score - 1, high=score + 1, signature="nrefs:1")
    return Result(
        run=f"{experiment}-{seed}",
        experiment=experiment,
        seed=seed,
        corpus="words",
        parameters=1,
        steps=1,
        epochs=1,
        validation_loss=loss,
        test_sets={"day": {"bleu_lc_tok": scored}},
        data={},
        code={},
    )


@pytest.mark.parametrize(
    ("score", "verdict"),
    [(39.5, "reproduced"), (39.49, "not reproduced"), (40.0, "reproduced"), (70.0, "reproduced")],
)
def test_reproduced_from_the_claim_less_its_tolerance_on(score: float, verdict: str) -> None:
    assert judge(claim(), [result(score)]).verdict == verdict


def test_the_interval_does_not_soften_the_rule() -> None:
    assert judge(claim(), [result(39.4)]).verdict == "not reproduced"  # 40.0 lies within 38.4 to 40.4


def test_the_mean_over_seeds_is_judged() -> None:
    judged = judge(claim(), [result(38.0, seed=1), result(41.2, seed=2), result(90.0, experiment="other")])
    assert judged.verdict == "reproduced"
    assert [score.score for score in judged.scores] == [38.0, 41.2]
    assert judge(claim(), [result(38.0, seed=1), result(40.9, seed=2)]).verdict == "not reproduced"


def test_a_claim_without_a_run_is_not_run() -> None:
    assert judge(claim(), [result(50.0, experiment="other")]).verdict == "not run"
    assert judge(claim(experiment=None, tolerance=None, metric="multi_bleu"), [result(50.0)]).verdict == "not run"


def test_another_metric_is_not_comparable() -> None:
    legacy = {"metric": "legacy_score", "unit": "legacy score", "experiment": None, "comparable": False}
    assert judge(claim(**legacy), [result(50.0)]).verdict == "not comparable"


def test_a_run_without_a_finite_loss_has_diverged() -> None:
    assert judge(claim(), [result(50.0, seed=1), result(50.0, seed=2, loss=None)]).verdict == "diverged"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "night"}, "claim c is about night; run small-1 was scored on: day"),
        ({"metric": "bleu_13a"}, "claim c is in bleu_13a; run small-1 was scored in: bleu_lc_tok"),
    ],
)
def test_a_claim_that_the_run_cannot_answer_is_an_error(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge(claim(**changes), [result(50.0)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "chrF"}, r"claims\.yaml: claim c: bleu_lc_tok is in BLEU, not in 'chrF'"),
        ({"metric": "legacy_score", "experiment": None}, "legacy_score is in legacy score, not in 'BLEU'"),
        ({"metric": "bleu"}, "claim c: unknown metric 'bleu'; valid: bleu_lc_tok, "),
        ({"metric": "multi_bleu"}, "claim c: multi_bleu is not measured; measured: bleu_lc_tok, "),
        ({"tolerance": None}, "claim c: compared with experiment small but without a tolerance"),
        ({"comparable": False}, "claim c: not comparable, yet compared with experiment small"),
        ({"tolerance": -1.0}, "tolerance is -1.0"),
        ({"colour": "red"}, "colour is not a known key"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claim(**changes)


def test_two_claims_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "claims.yaml").write_text(json.dumps({"claims": [PUBLISHED, PUBLISHED]}))  # JSON is YAML
    with pytest.raises(ValueError, match=r"claims\.yaml: claims with the same id: c"):
        load_claims("t", tmp_path / "claims.yaml")


def test_the_published_numbers() -> None:
    values = {c.id: (c.value, c.metric, c.split, c.experiment) for c in load_claims("default")}
    assert values == {
        "readme-original-paper": (25.8, "multi_bleu", "newstest2013", None),
        "readme-my-implementation": (26.4, "legacy_score", "val", None),
        "revisit-mmt-2016-flickr": (41.02, "bleu_lc_tok", "test_2016_flickr", "tiny"),
        "revisit-mmt-2017-flickr": (33.36, "bleu_lc_tok", "test_2017_flickr", "tiny"),
        "revisit-mmt-2017-mscoco": (29.88, "bleu_lc_tok", "test_2017_mscoco", "tiny"),
    }
    assert [judge(c, []).verdict for c in load_claims("default")][:2] == ["not run", "not comparable"]


def test_claims_name_experiments_tables_and_test_sets_that_exist() -> None:
    root = Path(__file__).parents[2]
    params = load_params(root / "params.yaml")
    for entry in read_yaml(CLAIMS_FILE)["claims"]:
        for table in entry["tables"]:
            load_table(table, root / "workflow" / "tables")
        if entry["experiment"] is not None:
            corpus = params.corpora[params.experiments[entry["experiment"]].corpus]
            assert entry["split"] in params.datasets[corpus.dataset].splits.tests
    assert load_claims("demo") == ()
