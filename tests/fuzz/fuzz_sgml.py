"""Fuzz the reader of WMT's test sets, which look like SGML."""

import io

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["bleuprint"]):
    from bleuprint.archives import segments_of
    from bleuprint.corpus import lines_of

SEEDS = (
    b'<srcset setid="t"><doc docid="a">\n<seg id="1"> A &amp; b &lt;c&gt; </seg>\n</doc></srcset>\n',
    b'<DOC genre="x" docid=\'a\'><SEG id="1">a</SEG><seg id="2">b</seg >\n</DOC>',
    "<seg id='1'>zw\u00f6lf\u2028\u00a0\ufeff</seg>\n".encode(),
)


def read(data: bytes) -> None:
    for document, number, text in segments_of(lines_of(io.BytesIO(data), "a.sgm"), "a.sgm"):
        assert text == " ".join(text.split()), "a segment is one line"
        assert "\n" not in document + number


if __name__ == "__main__":
    fuzz("SGML of test sets", read, SEEDS)
