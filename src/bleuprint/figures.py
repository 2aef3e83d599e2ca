"""The report's figures as SVG: losses by update, BLEU with its intervals and what is claimed."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bleuprint.claims import Claim
from bleuprint.scoring import Result

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT, RUN_HEIGHT = 560, 280, 22  # pixels: of the figures, of the losses, of one run in a panel of BLEU
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first one travels with vl-convert: same widths anywhere


def loss_chart(rows: Sequence[Mapping[str, Any]]) -> "altair.Chart":
    """Return loss by update: one colour per run, training dashed, validation solid."""
    import altair as alt

    dashes = alt.Scale(domain=["training", "validation"], range=[[4, 3], [1, 0]])
    return (
        alt.Chart(alt.InlineData(values=list(rows)), width=WIDTH, height=HEIGHT)
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="update"),
            y=alt.Y("loss:Q", title="loss (nats per target token)", scale=alt.Scale(zero=False)),
            color=alt.Color("run:N", sort=None),
            strokeDash=alt.StrokeDash("loss of:N", scale=dashes),
        )
    )


def bleu_chart(results: Sequence[Result], claims: Sequence[Claim]) -> "altair.FacetChart":
    """Return `bleu_lc_tok` with intervals, a panel per test set; a black tick is what is claimed for the experiment."""
    import altair as alt

    rows = [row for result in results for row in bleu_rows(result, claims)]
    base = alt.Chart().encode(y=alt.Y("run:N", title=None, sort=None))
    score = alt.X("score:Q", title="BLEU, official tokens (bleu_lc_tok); tick: claimed", scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", color=alt.Color("run:N", legend=None)),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=score, color=alt.Color("run:N", legend=None)),
        base.mark_tick(thickness=2, color="black").encode(x="claimed:Q"),
        data=alt.InlineData(values=rows),
    ).properties(width=WIDTH, height=RUN_HEIGHT * len(results))
    return layers.facet(row=alt.Row("test set:N", title=None, sort=None, header=alt.Header(labelOrient="top")))


def bleu_rows(result: Result, claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Return {"run", "test set", "score", "low", "high"} per test set, and "claimed" where there is a claim."""
    claimed = {
        claim.split: claim.value
        for claim in claims
        if claim.experiment == result.experiment and claim.metric == "bleu_lc_tok"
    }
    return [
        {
            "run": result.run,
            "test set": test,
            **scores["bleu_lc_tok"].model_dump(include={"score", "low", "high"}),
            **({"claimed": claimed[test]} if test in claimed else {}),
        }
        for test, scores in result.test_sets.items()
    ]


def render_svg(chart: "altair.Chart | altair.FacetChart") -> str:
    """Return the chart as SVG, drawn offline by vl-convert: the same chart gives the same text."""
    image = io.StringIO()
    chart.configure(font=FONT, background="white").save(image, format="svg")
    return image.getvalue()
