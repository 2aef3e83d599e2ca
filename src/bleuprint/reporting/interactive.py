"""The report's charts for its page: Vega-Lite that a reader can hover over and zoom, and words for who does not see it.

Their data are those of figures.py's charts. Names are given here: altair's own count up in a process.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bleuprint.scoring import Result
from bleuprint.verdicts.comparisons import METRIC

# By a wheel with Ctrl (what a pinch on a trackpad is) and by the mouse alone: page and finger scroll as ever.
ZOOM = {
    "type": "interval",
    "zoom": "wheel![event.ctrlKey]",
    "translate": "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!",
}
NUMBER, LOSS, WHOLE = ".2f", ".3f", ",d"
UNITS = {"loss": "loss (nats)"}  # of fields that have one


class Shown(NamedTuple):
    """How a figure behaves on the page: fields to show over a mark, with a format for numbers, and axes that zoom."""

    title: str
    caption: str
    fields: Mapping[str, str | None]
    zoomed: tuple[str, ...]


FIGURES = {
    "curves": Shown(
        "Curves",
        "Training and validation loss by epoch, a panel per published log: the log in the colour of the text, each "
        "rerun in a colour of its own.",
        {"log": None, "curve": None, "loss of": None, "epoch": WHOLE, "loss": LOSS},
        ("x", "y"),
    ),
    "loss": Shown(
        "Losses",
        "Training loss (dashed, with dropout) and validation loss by update, one colour per training; a ring where "
        "a training has one epoch alone.",
        {"run": None, "loss of": None, "step": WHOLE, "loss": LOSS},
        ("x", "y"),
    ),
    "bleu": Shown(
        "BLEU",
        "BLEU on the official tokens with 95 % intervals, a panel per test set; rings: single seeds; ticks: claimed.",
        {"run": None, "test set": None, "score": NUMBER, "low": NUMBER, "high": NUMBER, "claimed": NUMBER,
         "seed score": NUMBER},
        ("x",),
    ),
    "ablation": Shown(
        "Differences",
        "Difference in BLEU from the baseline with 95 % intervals, a panel per test set; line: no difference.",
        {"experiment": None, "test set": None, "difference": "+.2f", "low": "+.2f", "high": "+.2f"},
        ("x",),
    ),
    "lengths": Shown(
        "BLEU by sentence length",
        "BLEU of the sentences whose reference has so many official tokens, a panel per test set; groups of fewer than "
        "ten sentences are left out.",
        {"run": None, "test set": None, "tokens": None, "sentences": WHOLE, "BLEU": NUMBER},
        (),
    ),
}  # fmt: skip


def interactive(chart: Any, shown: Shown, words: str) -> dict[str, Any]:
    """Return a chart's Vega-Lite with what is shown over each mark, and zoom where axes are named for it.

    `words` are for who does not see it: Vega gives them to the browser.
    """
    spec: dict[str, Any] = chart.to_dict() | {"description": words}
    for key in ("$schema", "config"):
        spec.pop(key, None)
    inner: dict[str, Any] = spec["spec"] if is_faceted(chart) else spec
    if "layer" not in inner:
        inner["layer"] = [{"mark": inner.pop("mark"), "encoding": inner.pop("encoding")}]
    inner["layer"] += [points_on(layer) for layer in inner["layer"] if is_bare_line(layer["mark"])]
    present = {field for rows in spec["datasets"].values() for row in rows for field in row}
    for layer in inner["layer"]:
        layer["encoding"]["tooltip"] = [
            tooltip(field, number) for field, number in shown.fields.items() if field in present
        ]
    if shown.zoomed:
        select = {**ZOOM, "encodings": list(shown.zoomed)}
        inner["layer"][0]["params"] = [{"name": "zoom", "bind": "scales", "select": select}]
    return spec


def is_faceted(chart: Any) -> bool:
    """Return whether a chart is a panel for each value of a field."""
    import altair as alt

    return isinstance(chart, alt.FacetChart)


def is_bare_line(mark: str | Mapping[str, Any]) -> bool:
    """Return whether a mark is a line without points."""
    return mark == "line" or (isinstance(mark, Mapping) and mark["type"] == "line" and "point" not in mark)


def points_on(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line's points as a layer that nobody sees, for a pointer to find; its legend is the line's."""
    places = {axis: layer["encoding"][axis] for axis in ("x", "y")}
    return {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 0}, "encoding": places}


def tooltip(field: str, number: str | None) -> dict[str, str]:
    """Return how a field is shown: a number by its format, else as text."""
    if number is None:
        return {"field": field, "type": "nominal"}
    return {"field": field, "type": "quantitative", "format": number, "title": UNITS.get(field, field)}


def describe(name: str, results: Sequence[Result]) -> str:
    """Return a figure in words: what it shows, and its main numbers where the runs' results have them."""
    said = FIGURES[name].caption
    if name == "loss":
        losses = [f"{run.run} {run.validation_loss:.3f}" for run in results if run.validation_loss is not None]
        return f"{said} Lowest validation loss: {', '.join(losses) or 'none'}."
    if name in ("bleu", "lengths"):
        test = next(iter(results[0].test_sets))
        scores = [f"{run.run} {run.test_sets[test][METRIC].score:.2f}" for run in results if test in run.test_sets]
        return f"{said} BLEU on {test}: {', '.join(scores)}."
    return f"{said} The numbers stand in a table further down."
