"""results/{run}.attention.json: where a model looked, as the stage `attend` leaves it and the page draws it.

Weights are bytes, 255 for 1, in base64: of each kind an array (layers, heads, rows, columns). Rows are what was read or
written, columns what was looked at.
"""

from bleuprint.strict import Count, Strict


class Sentence(Strict):
    """A sentence of the test set by its line, from 1, and the model's own translation of it.

    `read` are the source's tokens with their marks, `written` the first target tokens, and `before` those that the
    decoder read for them, from BOS on. The kinds: `encoder` (read, read), `decoder` (written, before), `cross`
    (written, read).
    """

    line: Count
    read: tuple[str, ...]
    before: tuple[str, ...]
    written: tuple[str, ...]
    cut: bool
    encoder: str
    decoder: str
    cross: str


class Attention(Strict):
    """The attention of a run on a few sentences; `why_not` where its model's weights are none in this sense."""

    run: str
    test: str
    layers: Count
    heads: Count
    sentences: tuple[Sentence, ...]
    why_not: str | None
