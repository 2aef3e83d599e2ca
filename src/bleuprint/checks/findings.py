"""What a check of `doctor` finds: well, a warning or a problem, in a line, with what to do."""

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """`advice` is what to do; empty where all is well."""

    state: State
    text: str
    advice: str = ""


def worst(findings: list[Finding]) -> Finding:
    """Return several findings of one check as one: the state of the worst, and what is said of all that are as bad."""
    order = ("ok", "warning", "problem")
    state = max((found.state for found in findings), key=order.index)
    as_bad = [found for found in findings if found.state == state]
    texts, advice = (
        "; ".join(dict.fromkeys(filter(None, part))) for part in zip(*(it[1:] for it in as_bad), strict=True)
    )
    return Finding(state, texts, advice)
