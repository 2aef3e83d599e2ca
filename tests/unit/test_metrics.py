import math
import os

import pytest
from texts import sentences

from bleuprint.metrics import METRICS, build_metric, score_corpus, text_of
from bleuprint.params import Scoring

QUICK = Scoring(bootstrap_resamples=50, bootstrap_seed=7)


def test_lower_casing_counts_in_13a_lc_alone() -> None:
    references = sentences(40, 0.0)
    hypotheses = [line.lower() for line in references]
    scores: dict[str, float] = {
        name: score_corpus(build_metric(name), hypotheses, references, QUICK).score for name in METRICS
    }
    assert scores["bleu_13a_lc"] == 100
    assert max(scores["bleu_lc_tok"], scores["bleu_13a"], scores["chrf"]) < 90


def test_interval_follows_the_seed_and_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    texts = sentences(60, 0.15), sentences(60, 0.0)
    first, again, other = (
        score_corpus(build_metric("bleu_13a"), *texts, Scoring(bootstrap_resamples=50, bootstrap_seed=seed))
        for seed in (7, 7, 8)
    )
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)
    assert first.low < first.score < first.high
    assert "seed:7|" in first.signature
    assert os.environ["SACREBLEU_SEED"] == "99"


def test_bounds_stay_within_0_and_100() -> None:
    nothing = score_corpus(build_metric("bleu_13a"), ["", ""], ["Ein Hund .", "Eine Katze ."], QUICK)
    assert (nothing.score, nothing.low, nothing.high) == (0, 0, 0)
    right, wrong = "Der graue Hund läuft am Ufer .", "Nein"
    rare = score_corpus(build_metric("bleu_13a"), [right] + [""] * 9, [right] + [wrong] * 9, QUICK)
    assert 0 <= rare.low <= rare.high <= 100


# The reference is `Ein rotes T ##AT##-##AT## Shirt hier .`, 7 tokens. By hand: matching n-grams, n = 1 to 4; tokens.
@pytest.mark.parametrize(
    ("hypothesis", "matches", "length"),
    [
        ("Ein rotes T-Shirt hier.", (7, 6, 5, 4), 7),
        ("Ein blaues T-Shirt hier.", (6, 4, 3, 2), 7),  # without the split 4 words of 5, 2 of 4 pairs, 1 of 3, 0 of 2
        ("Ein rotes Hemd hier.", (4, 2, 0, 0), 5),  # no trigram: 0, as multi-bleu.perl says
        ("Ein rotes T-Shirt", (5, 4, 3, 2), 5),  # two tokens short
        ("ein rotes T-Shirt hier.", (6, 5, 4, 3), 7),  # cased
    ],
)
def test_the_papers_bleu_by_hand(hypothesis: str, matches: tuple[int, ...], length: int) -> None:
    precisions = [match / (length - n) for n, match in enumerate(matches)]
    expected = 100 * math.exp(min(0, 1 - 7 / length)) * math.prod(precisions) ** 0.25
    ours, reference = (text_of("bleu_compound_split", [line]) for line in (hypothesis, "Ein rotes T-Shirt hier."))
    score = score_corpus(build_metric("bleu_compound_split"), ours, reference, QUICK).score
    assert score == pytest.approx(expected, abs=1e-6)


def test_resamples_without_a_common_character_are_averaged_with_the_others() -> None:
    """Of sacreBLEU's chrF alone: 0.0 and float32, whose mean is a TypeError."""
    found = score_corpus(build_metric("chrf"), ["qqq", "Ein Hund ."], ["zzz", "Ein Hund ."], QUICK)
    assert 0 <= found.low < found.score < found.high <= 100
