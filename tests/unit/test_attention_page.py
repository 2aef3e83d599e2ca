"""The page of `translate --attention`: complete for itself, with a map of every sentence, layer and head."""

import base64
import json
import re
from pathlib import Path

import pytest
from specs import SPEC
from test_export import make_run
from test_translating import DECODE

from bleuprint.tokenizers import load_tokenizer
from bleuprint.translation.attention_page import MOST_SENTENCES, write_attention_page


def test_a_page_of_ones_own_sentences(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC, "end")
    tokenizer, out = load_tokenizer(tmp_path / "corpus"), tmp_path / "maps.html"
    lines = ["word4 word9", "", "word5", *["word6"] * MOST_SENTENCES]
    write_attention_page("toy-1", run.model, tokenizer, "end", DECODE, lines, out)
    page = out.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page), "nothing is fetched"
    assert "in the sentences that were given" in page
    assert "terms" not in page.partition("<main>")[2].partition("<script")[0], "they are the user's own"
    data = re.search(r'id="attention-data">(.*?)</script>', page, re.DOTALL)
    assert data
    [found] = json.loads(data[1])
    assert (found["run"], found["layers"], found["heads"]) == ("toy-1", SPEC.n_layers, SPEC.n_heads)
    assert [sentence["line"] for sentence in found["sentences"]][:3] == [1, 3, 4]
    assert len(found["sentences"]) == MOST_SENTENCES
    first = found["sentences"][0]
    assert len(first["read"]) == 3, "two words and their end"
    cells = base64.b64decode(first["cross"])
    assert len(cells) == SPEC.n_layers * SPEC.n_heads * len(first["written"]) * len(first["read"])
    assert sum(cells[:3]) == pytest.approx(255, abs=2), "a row sums to 1"


def test_nothing_to_look_at(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC, "end")
    with pytest.raises(ValueError, match="no line has words to look at"):
        write_attention_page(
            "r", run.model, load_tokenizer(tmp_path / "corpus"), "end", DECODE, ["", " "], tmp_path / "x"
        )
