"""The report's figures as SVG: losses by update, BLEU with intervals and claims, differences, published curves."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bleuprint.scoring import Result
from bleuprint.verdicts.claims import CurveJudgement, Histories, Judgement
from bleuprint.verdicts.comparisons import METRIC, Compared
from bleuprint.verdicts.curves import Epoch, finite_epochs
from bleuprint.verdicts.published import ValueClaim
from bleuprint.verdicts.statistics import by_experiment, converged, summarise_scores

if TYPE_CHECKING:
    import altair

WIDTH, HEIGHT, RUN_HEIGHT = 560, 280, 22  # pixels: of the figures, of the losses, of one run in a panel of BLEU
LOG_HEIGHT = 220  # pixels: of one published curve
EPOCH_TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
CLAIMED = "logged"
COLOURS = ("#000000", "#e45756", "#4c78a8", "#54a24b", "#f58518", "#b279a2", "#9d755d", "#72b7b2", "#eeca3b", "#bab0ac")
LOSSES = {"training": "train_loss", "validation": "validation_loss"}
LABELS = {"labelFlush": False, "labelSeparation": 8}  # of every axis, in pixels: numbers at its end stay apart
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first one travels with vl-convert: same widths anywhere


def loss_rows(run: str, history: Sequence[Epoch]) -> list[dict[str, Any]]:
    """Return {"run", "step", "loss of", "loss"}; no row for a loss that is not finite, where a run diverged."""
    return [
        {"run": run, "step": row.step, "loss of": kind, "loss": getattr(row, column)}
        for kind, column in LOSSES.items()
        for row in history
        if math.isfinite(getattr(row, column))
    ]


def dashes() -> "altair.StrokeDash":
    """Return the dashes of every figure of losses: training dashed, validation solid."""
    import altair as alt

    scale = alt.Scale(domain=list(LOSSES), range=[[4, 3], [1, 0]])
    return alt.StrokeDash("loss of:N", scale=scale, legend=alt.Legend(symbolType="stroke"))


def loss_chart(rows: Sequence[Mapping[str, Any]]) -> "altair.LayerChart":
    """Return loss by update: one colour per run, training dashed, validation solid; a ring where no line can be."""
    import altair as alt

    lines = (
        alt.Chart()
        .mark_line()
        .encode(
            x=alt.X("step:Q", title="update"),
            y=alt.Y("loss:Q", title="loss (nats per target token)", scale=alt.Scale(zero=False)),
            color=alt.Color("run:N", sort=None, legend=alt.Legend(symbolType="stroke")),
            strokeDash=dashes(),
        )
    )
    rings = (
        lines.mark_point(size=70, opacity=1)
        .transform_joinaggregate(epochs="count()", groupby=["run", "loss of"])
        .transform_filter("datum.epochs == 1")
    )
    return alt.LayerChart(data=alt.InlineData(values=list(rows)), layer=[lines, rings], width=WIDTH, height=HEIGHT)


def bleu_chart(results: Sequence[Result], judgements: Sequence[Judgement]) -> "altair.FacetChart":
    """Return `bleu_lc_tok` with intervals, a panel per test set; a black tick is what is claimed for the experiment.

    A row is an experiment: its one run, or the mean over its seeds with each of them as a ring.
    """
    import altair as alt

    groups = list(by_experiment(results).values())
    rows = [row for runs in groups for row in bleu_rows(runs, judgements)]
    base = alt.Chart().encode(y=alt.Y("run:N", title=None, sort=None))
    score = alt.X("score:Q", title=f"BLEU, official tokens ({METRIC}); tick: claimed", scale=alt.Scale(zero=False))
    colour = alt.Color("run:N", legend=None, sort=None)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=score, color=colour),
        base.mark_point(filled=False, size=30, opacity=1).encode(x="seed score:Q", color=colour),
        base.mark_tick(thickness=2, color="black").encode(x="claimed:Q"),
        data=alt.InlineData(values=rows),
    ).properties(width=WIDTH, height=RUN_HEIGHT * len(groups))
    return layers.facet(row=alt.Row("test set:N", title=None, sort=None, header=alt.Header(labelOrient="top")))


def bleu_rows(runs: Sequence[Result], judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """Return {"run", "test set", "score", "low", "high"} per test set of an experiment's runs.

    And "claimed" where there is a claim; and of several seeds {"run", "test set", "seed score"} for each. A run that
    diverged is in no mean and is no ring; the name says so. One that stands alone keeps its score.
    """
    experiment, tests = runs[0].experiment, list(runs[0].test_sets)
    claimed = {
        judgement.claim.split: judgement.claim.value
        for judgement in judgements
        if isinstance(judgement.claim, ValueClaim)
        and (judgement.experiment, judgement.claim.metric) == (experiment, METRIC)
    }
    name = bar_name(runs)
    counted = runs if len(runs) == 1 else converged(runs)
    summaries = {test: summarise_scores(counted, test, METRIC) for test in tests if counted}
    rows: list[dict[str, Any]] = [
        {
            "run": name,
            "test set": test,
            **({"score": found.mean, "low": found.low, "high": found.high} if (found := summaries.get(test)) else {}),
            **({"claimed": claimed[test]} if test in claimed else {}),
        }
        for test in tests
    ]
    seeds = counted if len(runs) > 1 else ()
    return rows + [
        {"run": name, "test set": test, "seed score": run.test_sets[test][METRIC].score}
        for test in tests
        for run in seeds
    ]


def bar_name(runs: Sequence[Result]) -> str:
    """Return "tiny-1", "tiny-1 (diverged)", "tiny, 3 seeds" or "tiny, 3 seeds (1 diverged)"."""
    diverged = len(runs) - len(converged(runs))
    if len(runs) == 1:
        return f"{runs[0].run} (diverged)" if diverged else runs[0].run
    return f"{runs[0].experiment}, {len(runs)} seeds" + (f" ({diverged} diverged)" if diverged else "")


def difference_chart(compared: Sequence[Compared]) -> "altair.FacetChart":
    """Return each experiment's difference from its baseline with its interval, a panel per test set, a line at none."""
    import altair as alt

    rows = [row for comparison in compared for row in difference_rows(comparison)]
    base = alt.Chart().encode(y=alt.Y("experiment:N", title=None, sort=None, axis=alt.Axis(labelLimit=0)))
    difference = alt.X("difference:Q", title=f"difference in BLEU, official tokens ({METRIC})")
    layers = alt.layer(
        base.mark_rule(color="gray", strokeDash=[2, 2]).encode(x=alt.datum(0), y=alt.Y()),
        base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1, color="black").encode(x=difference),
        data=alt.InlineData(values=rows),
    ).properties(width=WIDTH, height=RUN_HEIGHT * len({row["experiment"] for row in rows}))
    return layers.facet(row=alt.Row("test set:N", title=None, sort=None, header=alt.Header(labelOrient="top")))


def difference_rows(compared: Compared) -> list[dict[str, Any]]:
    """Return {"experiment", "test set", "difference", "low", "high"} of each experiment and test set."""
    return [
        {
            "experiment": f"{row.experiment} − {compared.baseline}",
            "test set": row.test,
            "difference": row.difference.score,
            "low": row.difference.low,
            "high": row.difference.high,
        }
        for row in compared.rows
        if row.difference is not None
    ]


def curve_chart(judgements: Sequence[CurveJudgement], histories: Histories) -> "altair.FacetChart":
    """Return loss by epoch, a panel per published log: the log in black, the mean of each rerun's seeds in a colour.

    A band reaches from the lowest to the highest of several seeds. Epochs stand on a log scale, so that a short rerun
    of a long curve can be seen.
    """
    import altair as alt

    names = [CLAIMED, *dict.fromkeys(judgement.experiment for judgement in judgements)]
    colours = alt.Scale(domain=names, range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])
    base = alt.Chart().encode(
        x=alt.X(
            "epoch:Q", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(values=list(EPOCH_TICKS), format="d")
        ),
        y=alt.Y("loss:Q", title="loss (nats per target token)", scale=alt.Scale(zero=False)),
        color=alt.Color("curve:N", scale=colours, legend=alt.Legend(symbolType="stroke", symbolOpacity=1)),
    )
    layers = alt.layer(
        base.mark_area(opacity=0.2)
        .encode(y="low:Q", y2="high:Q", detail="loss of:N")
        .transform_filter("datum.seeds > 1"),
        base.mark_line(strokeWidth=1.5).encode(strokeDash=dashes()),
        base.mark_point(filled=True, size=25, opacity=1).encode(detail="loss of:N").transform_filter("datum.seeds > 0"),
        data=alt.InlineData(values=list(curve_rows(judgements, histories))),
    ).properties(width=WIDTH, height=LOG_HEIGHT)
    logs = list(dict.fromkeys(judgement.claim.file for judgement in judgements))
    row = alt.Row("log:N", title=None, sort=logs, header=alt.Header(labelOrient="top"))
    return layers.facet(row=row).resolve_scale(x="independent", y="independent")


def curve_rows(judgements: Sequence[CurveJudgement], histories: Histories) -> Iterable[dict[str, Any]]:
    """Yield {"log", "curve", "loss of", "epoch", "loss", "seeds"} rows, each log once, and "low", "high" of seeds."""
    logs = {judgement.claim.file: judgement.claimed for judgement in judgements}
    for kind, column in LOSSES.items():
        for log, curve in logs.items():
            for epoch, point in curve.items():
                loss = {"loss": getattr(point, column), "seeds": 0}
                yield {"log": log, "curve": CLAIMED, "loss of": kind, "epoch": epoch, **loss}
        for judgement in judgements:
            for epoch, loss in seed_losses(judgement, column, histories):
                names = {"log": judgement.claim.file, "curve": judgement.experiment, "loss of": kind}
                yield {**names, "epoch": epoch, **loss}


def seed_losses(
    judgement: CurveJudgement, column: str, histories: Histories
) -> Iterable[tuple[int, dict[str, float | int]]]:
    """Yield each epoch that is measured, with the mean, the lowest and the highest of the seeds' losses.

    A seed that diverged is left out; where all did, their losses before that are drawn.
    """
    runs = converged(judgement.runs) or judgement.runs
    for epoch, point in judgement.measured.items():
        rows = [row for run in runs for row in finite_epochs(histories[run.run]) if row.epoch == epoch]
        losses = [getattr(row, column) for row in rows]
        if losses:
            mean = getattr(point, column) if len(runs) == len(judgement.runs) else fmean(losses)
            yield epoch, {"loss": mean, "low": min(losses), "high": max(losses), "seeds": len(losses)}


def render_svg(chart: "altair.LayerChart | altair.FacetChart") -> str:
    """Return the chart as SVG, drawn offline by vl-convert: the same chart gives the same text."""
    image = io.StringIO()
    chart.configure(font=FONT, background="white").configure_axis(**LABELS).save(image, format="svg")
    return image.getvalue()
