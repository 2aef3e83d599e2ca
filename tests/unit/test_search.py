"""Search against argmax, exhaustive enumeration and plain loops, on a small recurrent model with real state."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from bleuprint.params import LengthPenalty
from bleuprint.search import GROUPS, NEVER, Hypothesis, best_candidates, length_limits, penalty_divisor, search
from bleuprint.tokenizers import BOS, EOS, PAD, UNK

V = 8  # UNK, PAD, BOS, EOS and 4 words
WORDS = range(4, V)
CONTINUE = (UNK, *WORDS)
NONE = LengthPenalty(kind="length", alpha=0.0)
LENGTH = LengthPenalty(kind="length", alpha=1.0)
GNMT = LengthPenalty(kind="gnmt", alpha=0.6)
PENALTIES = [NONE, LENGTH, GNMT]


class Hidden(NamedTuple):
    """State of the recurrent model: memory (B, D) of the source, hidden (B, K, D)."""

    memory: Tensor
    hidden: Tensor

    def select(self, sentences: Tensor, beams: Tensor) -> "Hidden":
        return Hidden(self.memory[sentences], self.hidden[sentences[:, None], beams])


class Recurrent:
    """h' = tanh(h R + E[token] + mean of E[source]), logits = h' O; random weights, padding ignored."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.recurrence, self.embedding, self.output = (
            torch.randn(shape, generator=generator) for shape in ((5, 5), (V, 5), (5, V))
        )
        self.sizes: list[int] = []  # sentences in each step

    def start(self, source: Tensor, beams: int) -> Hidden:
        real = (source != PAD)[:, :, None]
        memory = (self.embedding[source] * real).sum(1) / real.sum(1)
        return Hidden(memory, torch.zeros(source.size(0), beams, 5))

    def step(self, tokens: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        self.sizes.append(tokens.size(0))
        hidden = torch.tanh(state.hidden @ self.recurrence + self.embedding[tokens] + state.memory[:, None])
        return hidden @ self.output, state._replace(hidden=hidden)

    def log_probs(self, source: list[int], prefix: tuple[int, ...]) -> list[float]:
        """Log-probabilities after BOS and prefix, computed from the beginning."""
        state = self.start(torch.tensor([source]), 1)
        for token in (BOS, *prefix):
            logits, state = self.step(torch.tensor([[token]]), state)
        return torch.log_softmax(logits[0, 0], dim=-1).tolist()


class Scripted:
    """After t tokens every hypothesis gets the probabilities script[source word][t], whatever it holds."""

    def __init__(self, *scripts: list[dict[int, float]]) -> None:
        self.scripts = scripts
        self.sizes: list[int] = []

    def start(self, source: Tensor, beams: int) -> "Clock":
        return Clock(source[:, 0] - 4, 0)

    def step(self, tokens: Tensor, state: "Clock") -> tuple[Tensor, "Clock"]:
        self.sizes.append(tokens.size(0))
        logits = torch.full((*tokens.shape, V), -math.inf)
        for row, script in enumerate(state.scripts.tolist()):
            for token, probability in self.scripts[script][state.time].items():
                logits[row, :, token] = math.log(probability)
        return logits, state._replace(time=state.time + 1)


class Clock(NamedTuple):
    scripts: Tensor  # (B,)
    time: int

    def select(self, sentences: Tensor, beams: Tensor) -> "Clock":
        return self._replace(scripts=self.scripts[sentences])


def batch(*rows: list[int]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


SOURCE = batch([4, EOS], [5, 6, 7, EOS], [7, 7, EOS], [BOS, 4, 5, 6, 7, EOS])


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_beam_1_is_greedy(seed: int) -> None:
    model = Recurrent(seed)
    for row, [hypothesis] in zip(SOURCE.tolist(), search(model, SOURCE, 1, NONE, 3, 1), strict=True):
        prefix: tuple[int, ...] = ()
        limit = sum(token in WORDS for token in row) + 3
        while len(prefix) < limit:
            log_probs = model.log_probs(row, prefix)
            best = max((EOS, *CONTINUE), key=log_probs.__getitem__)
            if best == EOS:
                break
            prefix += (best,)
        assert hypothesis.tokens == prefix


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_beam_as_wide_as_the_space_is_exhaustive_search(penalty: LengthPenalty) -> None:
    model, row = Recurrent(11), [5, EOS]
    sequences = [tokens for n in range(4) for tokens in itertools.product(CONTINUE, repeat=n)]  # at most 1 + 2 tokens
    hypotheses = []
    for tokens in sequences:
        total = sum(model.log_probs(row, tokens[:n])[token] for n, token in enumerate((*tokens, EOS)))
        hypotheses.append(Hypothesis(tokens, total / penalty_divisor(len(tokens) + 1, penalty)))
    hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
    [found] = search(model, torch.tensor([row]), 160, penalty, 2, len(sequences))
    assert len(sequences) == 156
    assert_same(found, hypotheses)


def plain_search(
    model: Recurrent, row: list[int], beam: int, penalty: LengthPenalty, extra: int, n_best: int
) -> list[Hypothesis]:
    """The semantics of search.py as loops over one sentence, without cache."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    limit, settled = sum(token in WORDS for token in row) + extra, False
    while live:
        length = len(live[0][1]) + 1
        allowed = (EOS, *CONTINUE) if length <= limit else (EOS,)
        candidates = []
        for total, tokens in live:
            log_probs = model.log_probs(row, tokens)
            candidates += [(total + log_probs[token], (*tokens, token)) for token in allowed]
        candidates = sorted(candidates, reverse=True)[: 2 * beam]
        settled |= candidates[0][1][-1] == EOS
        ended = [(total, tokens) for total, tokens in candidates[:beam] if tokens[-1] == EOS]
        finished += [Hypothesis(tokens[:-1], total / penalty_divisor(length, penalty)) for total, tokens in ended]
        if (settled and len(finished) >= n_best) if penalty.alpha == 0 else len(finished) >= beam:
            break
        live = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beam]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n_best]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize(("beam", "n_best"), [(2, 1), (3, 3), (4, 2)])
def test_equals_plain_loops_over_one_sentence(beam: int, n_best: int, penalty: LengthPenalty) -> None:
    for seed in range(4):
        model = Recurrent(seed)
        for row, found in zip(SOURCE.tolist(), search(model, SOURCE, beam, penalty, 4, n_best), strict=True):
            assert_same(found, plain_search(model, row, beam, penalty, 4, n_best))


def test_a_sentence_does_not_depend_on_its_batch() -> None:
    model = Recurrent(3)
    together = search(model, SOURCE, 4, LENGTH, 5, 4)
    reversed_together = search(model, SOURCE.flip(0), 4, LENGTH, 5, 4)[::-1]
    for row, found, other in zip(SOURCE, together, reversed_together, strict=True):
        [alone] = search(model, row[row != PAD][None], 4, LENGTH, 5, 4)
        assert_same(found, alone)
        assert_same(other, alone)


def test_n_best_is_sorted_and_unique() -> None:
    for seed, penalty in itertools.product(range(5), PENALTIES):
        for hypotheses in search(Recurrent(seed), SOURCE, 6, penalty, 4, 6):
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses) > 1


def test_marks_are_never_produced_and_the_unknown_word_may_be() -> None:
    model = Scripted([{PAD: 0.3, BOS: 0.3, UNK: 0.2, EOS: 0.1, 4: 0.1}, {PAD: 0.4, EOS: 0.35, 4: 0.25}, {EOS: 1.0}])
    [[best]] = search(model, torch.tensor([[4]]), 1, NONE, 4, 1)
    assert best.tokens == (UNK,)
    assert best.score == pytest.approx(math.log(0.2 * 0.35))  # not renormalised over the allowed tokens


def test_limit_counts_words_and_forces_the_end_with_its_own_probability() -> None:
    assert length_limits(SOURCE, 50).tolist() == [51, 53, 52, 54]
    model = Scripted(*[[{4: 0.6, 5: 0.3, EOS: 0.1}] * 7] * 4)
    found = search(model, batch([4, EOS], [5, 4, 4, EOS]), 2, LENGTH, 3, 2)
    for limit, hypotheses in zip((4, 6), found, strict=True):
        assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [limit, limit]
        assert hypotheses[0].tokens == (4,) * limit
        assert hypotheses[0].score == pytest.approx((limit * math.log(0.6) + math.log(0.1)) / (limit + 1), abs=1e-5)


def test_finished_sentences_leave_the_batch() -> None:
    word, end = {4: 0.9, EOS: 0.1}, {4: 0.1, EOS: 0.9}
    model = Scripted([end] * 9, [word, word, word, end], [word, end])
    found = search(model, torch.tensor([[4], [5], [6]]), 1, NONE, 7, 1)
    assert [len(best.tokens) for [best] in found] == [0, 3, 1]
    assert model.sizes == [3, 2, 1, 1]


@pytest.mark.parametrize(
    ("penalty", "expected", "score"),
    [  # P(EOS) = 0.4; P(word) P(EOS) = 0.6 x 0.5 = 0.3
        (LengthPenalty(kind="length", alpha=0.0), (), math.log(0.4)),
        (LengthPenalty(kind="length", alpha=1.0), (4,), math.log(0.3) / 2),
        (LengthPenalty(kind="gnmt", alpha=1.0), (), math.log(0.4)),  # log 0.3 / (7/6) is -1.032, log 0.4 is -0.916
        (LengthPenalty(kind="gnmt", alpha=3.0), (4,), math.log(0.3) / (7 / 6) ** 3),
    ],
    ids=str,
)
def test_length_penalty_by_hand(penalty: LengthPenalty, expected: tuple[int, ...], score: float) -> None:
    model = Scripted([{EOS: 0.4, 4: 0.6}, {EOS: 0.5, 4: 0.5}, {EOS: 1.0}])
    [[best]] = search(model, torch.tensor([[4]]), 2, penalty, 1, 1)
    assert best.tokens == expected
    assert best.score == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("penalty", "n_best", "steps"),
    [(LENGTH, 1, 3), (NONE, 1, 1), (NONE, 2, 2), (NONE, 3, 3)],
    ids=str,
)
def test_a_sentence_stops_at_k_finished_or_with_alpha_0_when_nothing_can_overtake(
    penalty: LengthPenalty, n_best: int, steps: int
) -> None:
    # One hypothesis ends at every step; only the first is the best candidate of its step.
    model = Scripted([{EOS: 0.6, 4: 0.4}] + [{EOS: 0.4, 4: 0.6}] * 8)
    [found] = search(model, torch.tensor([[4]]), 3, penalty, 7, n_best)
    assert len(model.sizes) == steps
    assert len(found) == n_best


def test_refuses_more_hypotheses_than_the_beam_holds() -> None:
    with pytest.raises(ValueError, match="n_best 3 is not between 1 and the beam 2"):
        search(Recurrent(0), SOURCE, 2, NONE, 3, 3)


@pytest.mark.parametrize("beam", [1, 2])
def test_a_diverged_model_translates_nothing(beam: int) -> None:
    model = Recurrent(0)
    model.output[:] = math.nan
    assert search(model, SOURCE, beam, NONE, 3, 1) == [[Hypothesis((), NEVER)]] * len(SOURCE)


@pytest.mark.parametrize("vocabulary", [8, GROUPS, GROUPS + 1, 2 * GROUPS - 1, 300])
@pytest.mark.parametrize("width", [1, 5])
def test_candidates_are_those_of_a_sort_of_all(vocabulary: int, width: int) -> None:
    random = torch.Generator().manual_seed(vocabulary + width)
    sums = torch.randn(40, width, generator=random)
    sums[::3, 1:] = NEVER
    log_probs = torch.randn(40, width, vocabulary, generator=random)
    log_probs[:, :, [PAD, BOS]] = NEVER
    log_probs[0] = NEVER
    found = best_candidates(sums, log_probs, 2 * width)
    best_sums, flat = (sums[:, :, None] + log_probs).flatten(1).topk(2 * width)
    assert torch.equal(found.sums, best_sums)
    real = best_sums.isfinite()
    assert torch.equal((found.origins * vocabulary + found.tokens)[real], flat[real])
