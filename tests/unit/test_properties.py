"""What holds for any input: of tokenizers, batches of translation, search and scores."""

from collections import Counter
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from test_search import PENALTIES, SOURCE, Recurrent, plain_search
from texts import sentences

from bleuprint.decoding import plan_batches
from bleuprint.learning import learn
from bleuprint.metrics import METRICS, MetricName, build_metric, score_corpus, text_of
from bleuprint.params import Corpus, LengthPenalty, Scoring
from bleuprint.search import length_limits, search
from bleuprint.segmentation import segment_lines
from bleuprint.tokenizers import BOS, EOS, PAD, SPECIALS, UNK, Learned

LETTERS = "abcdefßé⇒'&|"
QUICK = Scoring(bootstrap_resamples=20, bootstrap_seed=1)


@cache
def learned(kind: str) -> Learned:
    """Return a tokenizer that has seen every one of LETTERS."""
    settings = {
        "raw": {"kind": "bpe", "text": "raw", "merges": 5, "min_frequency": 1},
        "words": {"kind": "words", "lowercase": False, "min_frequency": 1},
        "basic": {"kind": "basic"},
    }[kind]
    languages = {"dataset": "d", "source": "en", "target": "de", "source_marks": "end", "cleaning": None}
    corpus = Corpus.model_validate({**languages, "tokenizer": settings})
    words = [
        word for line in segment_lines(corpus.tokenizer, [f"abc abd {' '.join(LETTERS)}"] * 3, "de") for word in line
    ]
    return learn(corpus, Counter(words), Counter(words))


# --- tokenizers -------------------------------------------------------------------------------------------------------


@given(st.text(alphabet=f"{LETTERS} \t", max_size=60))
def test_bpe_there_and_back_is_the_text_with_single_spaces(text: str) -> None:
    tokenizer = learned("raw")
    ids = tokenizer.encode_target(text)
    assert UNK not in ids
    assert tokenizer.decode(ids) == " ".join(text.split())
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == " ".join(text.split()), "marks are no text"


@given(text=st.text(max_size=80), kind=st.sampled_from(["raw", "words", "basic"]))
def test_any_text_has_ids_and_no_text_spells_a_mark(text: str, kind: str) -> None:
    tokenizer = learned(kind)
    for line in (text, f"{text} {' '.join(SPECIALS)}"):
        ids = tokenizer.encode_source(line)
        assert not {PAD, BOS, EOS} & set(ids)
        assert all(0 <= i < tokenizer.vocabulary["source"] for i in ids)
        assert "\n" not in tokenizer.decode_tokens(ids)


# --- batches of translation -------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 5), st.integers(1, 200), st.booleans())
def test_batches_hold_each_row_once_and_no_more_tokens_than_allowed(
    lengths: list[int], beam: int, most: int, mixed: bool
) -> None:
    sizes = dict(enumerate(lengths))
    found = plan_batches(sizes, beam, most, mixed)
    assert sorted(row for rows in found for row in rows) == list(sizes)
    for rows in found:
        assert len(rows) == 1 or len(rows) * max(sizes[row] for row in rows) * beam <= most
        assert mixed or len({sizes[row] for row in rows}) == 1


# --- search -----------------------------------------------------------------------------------------------------------

SEARCHES = given(
    seed=st.integers(0, 10_000), beam=st.integers(1, 4), extra=st.integers(0, 4), penalty=st.sampled_from(PENALTIES)
)


@settings(max_examples=25)
@SEARCHES
def test_search_finds_what_plain_loops_find(seed: int, beam: int, extra: int, penalty: LengthPenalty) -> None:
    """With beam 1 these loops are greedy search."""
    model = Recurrent(seed)
    for row, found in zip(SOURCE.tolist(), search(model, SOURCE, beam, penalty, extra, beam), strict=True):
        expected = plain_search(model, row, beam, penalty, extra, beam)
        assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in expected]


@settings(max_examples=50)
@SEARCHES
def test_hypotheses_are_sorted_and_within_the_limit(seed: int, beam: int, extra: int, penalty: LengthPenalty) -> None:
    limits = length_limits(SOURCE, extra).tolist()
    for limit, found in zip(limits, search(Recurrent(seed), SOURCE, beam, penalty, extra, beam), strict=True):
        scores = [hypothesis.score for hypothesis in found]
        assert 1 <= len(found) <= beam
        assert scores == sorted(scores, reverse=True)
        assert all(len(hypothesis.tokens) <= limit for hypothesis in found)
        assert not {PAD, BOS, EOS} & {token for hypothesis in found for token in hypothesis.tokens}


def test_a_wider_beam_finds_something_else() -> None:
    """Else the two tests above would prove little."""
    found = [[search(Recurrent(seed), SOURCE, beam, PENALTIES[1], 3, 1) for beam in (1, 4)] for seed in range(10)]
    assert any(greedy != wide for greedy, wide in found)


# --- scores -----------------------------------------------------------------------------------------------------------

LINES = st.lists(st.sampled_from(sentences(12, 0.0)), min_size=1, max_size=12)
METRIC = st.sampled_from(list(METRICS))


def score(name: MetricName, hypotheses: list[str], references: list[str]) -> tuple[float, float, float]:
    """Return score and interval of one metric."""
    found = score_corpus(build_metric(name), text_of(name, hypotheses), text_of(name, references), QUICK)
    return found.low, found.score, found.high


@settings(max_examples=20)
@given(lines=LINES, name=METRIC)
def test_references_themselves_score_100(lines: list[str], name: MetricName) -> None:
    assert [round(value, 4) for value in score(name, lines, lines)] == [100.0] * 3


@settings(max_examples=20)
@given(lines=LINES, name=METRIC, data=st.data())
def test_the_order_of_sentences_changes_no_score(lines: list[str], name: MetricName, data: st.DataObject) -> None:
    hypotheses = [line[: len(line) // 2] if i % 2 else line for i, line in enumerate(lines)]
    order = data.draw(st.permutations(range(len(lines))))
    shuffled = [hypotheses[i] for i in order], [lines[i] for i in order]
    assert score(name, hypotheses, lines)[1] == score(name, *shuffled)[1]


@settings(max_examples=20)
@given(hypotheses=st.lists(st.text(max_size=20), min_size=1, max_size=8), name=METRIC)
def test_anything_can_be_scored(hypotheses: list[str], name: MetricName) -> None:
    """Where hardly a character is right too: of such a test set sacreBLEU alone makes a TypeError."""
    hypotheses = [line.replace("\n", " ").replace("\r", " ") for line in hypotheses]
    low, value, high = score(name, hypotheses, sentences(len(hypotheses), 0.0))
    assert 0 <= low <= high <= 100
    assert 0 <= value <= 100


@settings(max_examples=10)
@given(count=st.integers(40, 80), drop=st.floats(0.05, 0.5), name=METRIC)
def test_the_interval_of_a_larger_test_set_holds_its_score(count: int, drop: float, name: MetricName) -> None:
    low, value, high = score(name, sentences(count, drop), sentences(count, 0.0))
    assert low <= value <= high
