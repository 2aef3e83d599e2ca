"""`translate --attention`: the attention of every layer and head on a user's own sentences, as one page for itself."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from bleuprint.attention import NO_WEIGHTS, attend_sentence
from bleuprint.decoding import spec_of
from bleuprint.files import write_text
from bleuprint.params import Decode, HyunwoongkoModel
from bleuprint.reporting.page import environment, shown_sentence
from bleuprint.segmentation import segment_lines
from bleuprint.tokenizers import Learned, Marks
from bleuprint.tokenizing import mark
from bleuprint.translation.translating import ids_of

MOST_SENTENCES = 20  # of which a page stays small
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<title>Attention of {{ run }}</title>
<style>
{% include "style.css" %}
</style>
</head>
<body>
<main>
<h1>{{ run }}</h1>
{% include "attention.html" %}
</main>
<script>
{% include "attention.js" %}
</script>
</body>
</html>
"""


def write_attention_page(
    run: str, model: nn.Module, tokenizer: Learned, marks: Marks, decode: Decode, lines: Sequence[str], out: Path
) -> None:
    """Write a page with the attention on the first MOST_SENTENCES lines that have words, while they are translated.

    ValueError where the model's weights say nothing of that sort, or no line has words.
    """
    if isinstance(spec_of(model), HyunwoongkoModel):
        raise ValueError(f"{run} has no attention to show: {NO_WEIGHTS}")
    words = segment_lines(tokenizer, lines, tokenizer.source)
    sentences = tokenizer.encode_words("source", words)
    rows = [row for row, ids in enumerate(sentences) if ids][:MOST_SENTENCES]
    if not rows:
        raise ValueError("no line has words to look at")
    sources = ids_of(mark(sentences, marks))
    found = [shown_sentence(attend_sentence(model, tokenizer, sources, row, decode)) for row in rows]
    params = spec_of(model)
    maps = [{"run": run, "layers": params.n_layers, "heads": params.n_heads, "sentences": found}]
    page = environment().from_string(PAGE).render(run=run, maps=maps, no_maps=[], where="the sentences that were given")
    write_text(out.resolve(), page)  # a link stays one
