"""Greedy and beam search over a cached decoder state; the model is anything with `start`, `step` and `select`.

Shapes: B sentences still open, S source, T target, V vocabulary, K beam, C = 2K candidates, N hypotheses kept (n_best).

Semantics (those of CTranslate2 with patience 1, read in its src/decoding.cc, and of fairseq unless said otherwise):
- A step ranks all K x V continuations of a sentence by the sum of their log-probabilities and looks at the best 2K. Of
  the first K, those that end in EOS are finished; the best K of the 2K that do not end in EOS live on.
- A finished hypothesis scores sum / penalty(length); the length counts the end symbol (CTranslate2: return_end_token).
- A sentence stops once K hypotheses are finished. With alpha 0 scores only fall, so it stops as soon as no live
  hypothesis can overtake the best one and N are finished; until then it goes on, even past K (CTranslate2).
- Greedy search is beam 1: the first candidate is the argmax, and its EOS stops the sentence.
- UNK may be produced; PAD and BOS may not. Their probability is not handed to the others, so scores stay the model's.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from bleuprint.params import LengthPenalty
from bleuprint.tokenizers import BOS, EOS, PAD

NEVER = float("-inf")  # score of a hypothesis that does not exist
GROUPS = 128  # of tokens, from which the best are picked


class DecoderState(Protocol):
    """What a model remembers of B sentences x K hypotheses: the encoded source and the target prefixes."""

    def select(self, sentences: Tensor, beams: Tensor) -> Self:
        """Keep `sentences` (B',); new hypothesis k of each continues former hypothesis beams[:, k] (B', K)."""


State = TypeVar("State", bound=DecoderState)


class Model(Protocol[State]):
    """A sequence-to-sequence model that decodes one position at a time."""

    def start(self, source: Tensor, beams: int) -> State:
        """Encode source (B, S), padded with PAD, for K = `beams` hypotheses a sentence."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read tokens (B, K); return logits (B, K, V) of the next position and the state after it."""


class Hypothesis(NamedTuple):
    """Target ids without BOS and EOS, and sum of log-probabilities (EOS included) / length penalty."""

    tokens: tuple[int, ...]
    score: float


class Candidates(NamedTuple):
    """The best C continuations of each sentence, best first."""

    sums: Tensor  # (B, C) sums of log-probabilities
    origins: Tensor  # (B, C) the hypothesis each one continues
    tokens: Tensor  # (B, C) with which token


class Beams(NamedTuple):
    """The search so far."""

    sentences: Tensor  # (B,) rows of the source batch that are still open
    limits: Tensor  # (B,) most tokens before the end symbol
    tokens: Tensor  # (B, K, T) live hypotheses: BOS, tokens so far, PAD
    sums: Tensor  # (B, K) their sums of log-probabilities
    best_tokens: Tensor  # (B, N, T) best finished hypotheses, best first: BOS, tokens, EOS, PAD
    best_scores: Tensor  # (B, N) their normalised scores
    finished: Tensor  # (B,) how many have been finished
    settled: Tensor  # (B,) bool: a first candidate was finished, so no live sum exceeds the best finished one


@torch.inference_mode()
def search(
    model: Model[State], source: Tensor, beam: int, penalty: LengthPenalty, max_extra_tokens: int, n_best: int
) -> list[list[Hypothesis]]:
    """Return at most n_best hypotheses for each row of source (B, S), best first, at least one.

    It is empty, with a score of NEVER, where no translation has a finite probability: training has diverged. ValueError
    where n_best exceeds the beam.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam {beam}")
    beams = start_beams(source, beam, max_extra_tokens, n_best)
    nearest_limit = int(beams.limits.min())
    state = model.start(source, beam)
    results: list[list[Hypothesis]] = [[] for _ in range(source.size(0))]
    for length in range(1, beams.tokens.size(2)):
        logits, state = model.step(beams.tokens[:, :, length - 1], state)
        log_probs = allowed_log_probs(logits, must_end=beams.limits < length if nearest_limit < length else None)
        beams, origins = advance(beams, log_probs, length, penalty)
        done = is_done(beams, beam, n_best, penalty)
        for row, hypotheses in closed(beams, done):
            results[row] = hypotheses
        if bool(done.all()):
            break
        still = (~done).nonzero().squeeze(1)  # (B',)
        beams = Beams(*(field[still] for field in beams))
        state = state.select(still, origins[still])
    return results


def start_beams(source: Tensor, beam: int, max_extra_tokens: int, n_best: int) -> Beams:
    """Return one hypothesis a sentence, BOS alone; the other K - 1 do not exist yet."""
    size, device = source.size(0), source.device
    limits = length_limits(source, max_extra_tokens)
    width = int(limits.max()) + 2  # BOS, the tokens, EOS
    tokens = torch.full((size, beam, width), PAD, device=device)
    tokens[:, :, 0] = BOS
    sums = torch.full((size, beam), NEVER, device=device)
    sums[:, 0] = 0.0
    return Beams(
        sentences=torch.arange(size, device=device),
        limits=limits,
        tokens=tokens,
        sums=sums,
        best_tokens=torch.full((size, n_best, width), PAD, device=device),
        best_scores=torch.full((size, n_best), NEVER, device=device),
        finished=torch.zeros(size, dtype=torch.long, device=device),
        settled=torch.zeros(size, dtype=torch.bool, device=device),
    )


def length_limits(source: Tensor, max_extra_tokens: int) -> Tensor:
    """Return for each row of source (B, S) how many tokens may come before its end symbol (B,).

    At the limit the end symbol is forced, and its log-probability counts like any other's (as in fairseq).
    """
    # ASSUME: "input length + 50" (Vaswani et al. 2017, section 6.1) counts no marks, so source_marks does not matter.
    # DEVIATES: CTranslate2 cuts a hypothesis at the limit and scores it without an end symbol.
    marks = (source == PAD) | (source == BOS) | (source == EOS)
    return (~marks).sum(dim=1) + max_extra_tokens


def allowed_log_probs(logits: Tensor, must_end: Tensor | None) -> Tensor:
    """Return log-probabilities (B, K, V) of logits; -inf for PAD, BOS and, where must_end (B,), all but EOS."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    log_probs[:, :, PAD] = NEVER
    log_probs[:, :, BOS] = NEVER
    if must_end is not None:
        end = log_probs[:, :, EOS].clone()  # (B, K)
        log_probs.masked_fill_(must_end[:, None, None], NEVER)
        log_probs[:, :, EOS] = end
    return log_probs


def advance(beams: Beams, log_probs: Tensor, length: int, penalty: LengthPenalty) -> tuple[Beams, Tensor]:
    """Continue every hypothesis by its `length`-th token, given log_probs (B, K, V).

    Return the new search state and, for each live hypothesis, the one it continues (B, K).
    """
    width = beams.sums.size(1)
    candidates = best_candidates(beams.sums, log_probs, 2 * width)
    tokens = gather_beams(beams.tokens, candidates.origins)  # (B, C, T)
    tokens[:, :, length] = candidates.tokens
    exists = candidates.sums.isfinite()
    ends = (candidates.tokens == EOS) & exists
    lives = (candidates.tokens != EOS) & exists

    new_scores = candidates.sums / penalty_divisor(length, penalty)
    new_scores = new_scores.masked_fill(~ends, NEVER)[:, :width]
    best_scores, best = torch.cat([beams.best_scores, new_scores], dim=1).topk(beams.best_scores.size(1))
    best_tokens = gather_beams(torch.cat([beams.best_tokens, tokens[:, :width]], dim=1), best)

    sums, kept = candidates.sums.masked_fill(~lives, NEVER).topk(width)
    return beams._replace(
        tokens=gather_beams(tokens, kept),
        sums=sums,
        best_tokens=best_tokens,
        best_scores=best_scores,
        finished=beams.finished + ends[:, :width].sum(dim=1),
        settled=beams.settled | ends[:, 0],
    ), candidates.origins.gather(1, kept)


def best_candidates(sums: Tensor, log_probs: Tensor, count: int) -> Candidates:
    """Return the best C = `count` continuations of hypotheses with sums (B, K) by log_probs (B, K, V).

    They lie in the C groups of tokens whose best member is best (G groups a hypothesis, R members each), so that only
    these are sorted: a maximum takes a fifteenth of the time of `topk`.
    """
    vocabulary = log_probs.size(2)
    maxima = sums[:, :, None] + group_maxima(log_probs)  # (B, K, G)
    groups = maxima.size(2)
    chosen = maxima.flatten(1).topk(min(count, maxima[0].numel())).indices  # (B, C)
    origins, first = chosen // groups, chosen % groups
    members = torch.arange(0, vocabulary, groups, device=sums.device)  # (R,) distances from a group's first token
    tokens = first[:, :, None] + members  # (B, C, R); beyond the vocabulary where the last is missing
    flat = (origins[:, :, None] * vocabulary + tokens.clamp(max=vocabulary - 1)).flatten(1)
    totals = sums.gather(1, origins)[:, :, None] + log_probs.flatten(1).gather(1, flat).view_as(tokens)
    totals = totals.masked_fill(tokens >= vocabulary, NEVER)
    best_sums, best = totals.flatten(1).topk(count)
    best_flat = flat.gather(1, best)
    return Candidates(best_sums, best_flat // vocabulary, best_flat % vocabulary)


def group_maxima(log_probs: Tensor) -> Tensor:
    """Return the largest of each group of log_probs (B, K, V), (B, K, G); token t belongs to group t mod G."""
    groups = min(GROUPS, log_probs.size(2))
    rows = log_probs.size(2) // groups
    whole, rest = log_probs.split([rows * groups, log_probs.size(2) - rows * groups], dim=2)
    maxima = whole.unflatten(2, (rows, groups)).amax(2)
    started = maxima[:, :, : rest.size(2)]  # groups with one member more
    torch.maximum(started, rest, out=started)
    return maxima


def gather_beams(values: Tensor, beams: Tensor) -> Tensor:
    """Return values (B, K, T) at the beams (B, K') of each sentence, (B, K', T)."""
    return values.gather(1, beams[:, :, None].expand(-1, -1, values.size(2)))


def penalty_divisor(length: int, penalty: LengthPenalty) -> float:
    """Return what divides a sum of log-probabilities; `length` counts the end symbol (gnmt: Wu et al. 2016, eq. 14)."""
    base = (5 + length) / 6 if penalty.kind == "gnmt" else length
    return base**penalty.alpha


def is_done(beams: Beams, width: int, n_best: int, penalty: LengthPenalty) -> Tensor:
    """Return which sentences stop (B,); those at their limit have no live hypothesis left."""
    nothing_lives = ~beams.sums.isfinite().any(dim=1)
    if penalty.alpha == 0:
        return nothing_lives | (beams.settled & (beams.finished >= n_best))
    return nothing_lives | (beams.finished >= width)


def closed(beams: Beams, done: Tensor) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield (row of the source batch, its hypotheses) for each sentence that is done (B,)."""
    for index in done.nonzero().squeeze(1).tolist():
        hypotheses = [
            Hypothesis(without_marks(tokens), score)
            for tokens, score in zip(beams.best_tokens[index].tolist(), beams.best_scores[index].tolist(), strict=True)
            if score != NEVER
        ]
        yield int(beams.sentences[index]), hypotheses or [Hypothesis((), NEVER)]


def without_marks(tokens: list[int]) -> tuple[int, ...]:
    """Return the tokens between BOS and EOS."""
    return tuple(tokens[1 : tokens.index(EOS)])
