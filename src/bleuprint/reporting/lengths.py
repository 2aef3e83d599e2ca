"""BLEU by sentence length: the sentences of a test set in groups of their references' official tokens."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bleuprint.metrics import METRICS, build_metric
from bleuprint.scoring import Result, read_decoded
from bleuprint.verdicts.comparisons import METRIC

if TYPE_CHECKING:
    import altair

# Fixed before anything was drawn: a caption has 12 tokens as a rule, a sentence of the news 25.
STARTS = (1, 8, 11, 14, 18, 25, 40)
FEWEST = 10  # sentences: BLEU of fewer says nothing
WIDTH, HEIGHT = 560, 200  # pixels, of one test set's panel


class Group(NamedTuple):
    """The sentences of one length: BLEU of them together."""

    label: str
    sentences: int
    score: float


def group_of(tokens: int) -> int:
    """Return the number of the group of sentences with so many tokens; an empty one is with the shortest."""
    return sum(tokens >= start for start in STARTS[1:])


def labels() -> list[str]:
    """Return "1-7", "8-10", …, "40 and more"."""
    return [*(f"{low}–{high - 1}" for low, high in pairwise(STARTS)), f"{STARTS[-1]} and more"]


def score_by_length(hypotheses: Sequence[str], references: Sequence[str]) -> list[Group]:
    """Return BLEU of each group with FEWEST sentences or more; lines of official tokens, set apart by blanks."""
    metric = build_metric(METRIC)
    counts = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    lengths = [group_of(len(reference.split())) for reference in references]
    groups = []
    for number, label in enumerate(labels()):
        own = [count for count, length in zip(counts, lengths, strict=True) if length == number]
        if len(own) >= FEWEST:
            groups.append(Group(label, len(own), metric._aggregate_and_compute(own).score))
    return groups


def length_rows(results: Sequence[Result], decoded: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Return {"run", "test set", "tokens", "sentences", "BLEU"} of each run, test set and group.

    `decoded` is the directory of each run's texts; ValueError where they are missing.
    """
    return [
        {"run": result.run, "test set": test, "tokens": group.label, "sentences": group.sentences, "BLEU": group.score}
        for result in results
        for test in result.test_sets
        for group in score_by_length(*read_decoded(decoded[result.run], test, METRICS[METRIC].suffix))
    ]


def length_chart(rows: Sequence[Mapping[str, Any]]) -> "altair.FacetChart":
    """Return BLEU by the reference's length: one colour per run, a panel per test set."""
    import altair as alt

    present = {row["tokens"] for row in rows}
    lines = (
        alt.Chart(width=WIDTH, height=HEIGHT)
        .mark_line(point=alt.OverlayMarkDef(filled=True, size=40))
        .encode(
            x=alt.X(
                "tokens:O",
                sort=[label for label in labels() if label in present],
                title="tokens of the reference",
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y("BLEU:Q", title=f"BLEU ({METRIC})"),
            color=alt.Color("run:N", sort=None),
        )
    )
    layers = alt.layer(lines, data=alt.InlineData(values=list(rows)))
    return layers.facet(row=alt.Row("test set:N", title=None, sort=None, header=alt.Header(labelOrient="top")))
