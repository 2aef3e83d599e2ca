"""The report's page from a small table; tests/browser shows pages to a real browser."""

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bleuprint.graph import load_params
from bleuprint.metrics import MetricName, Score
from bleuprint.params import Scoring
from bleuprint.report import write_report
from bleuprint.reporting.hypertext import inline, to_html, visible
from bleuprint.reporting.lengths import FEWEST, group_of, labels, score_by_length
from bleuprint.reporting.licences import load_licences
from bleuprint.reporting.page import Inputs, read_attention, renamed, unusual_names, write_page
from bleuprint.reporting.run_facts import Speed
from bleuprint.reporting.samples import BEST, EVEN, WORST, choose
from bleuprint.scoring import LegacyScore, Result, Tokens, write_json

PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")
RUN = "toy-1"
HOSTILE = '</script><script>alert(1)</script> "quoted" & <b>bold</b> \u202eright to left\u202c bell\x07 {{ 7 * 7 }}'
CLAIM = """
claims:
  - {kind: value, id: a, tables: {demo: toy}, who: "A|B <i>", text: "*x*", value: 40.5, unit: BLEU, metric: bleu_lc_tok,
     split: test, source: "https://example.org/", comparable: true, tolerance: 0.5, steps: 9, parameters: null,
     note: "<b>Note</b>."}
"""
PROVENANCE = {
    "run": RUN,
    "git": {"commit": "c0ffee", "dirty": False},
    "machine": {"cpu": "A CPU", "cores": 2, "gpus": None, "memory_bytes": 8 * 10**9, "system": "Linux"},
    "threads": 2,
    "python": "3.11",
    "versions": {"torch": "2", "mlflow": None},
    "training": {"seconds": 7200.0, "tokens_per_second": 1234.5, "processes": [1, 2]},
}


ATTENTION: dict[str, object] = {
    "run": RUN, "test": "test", "layers": 1, "heads": 1, "why_not": None,
    "sentences": [{"line": 7, "read": ["\u202e<i>", "<eos>"], "before": ["<sos>"], "written": ["x"], "cut": True,
                   "encoder": "AAAAAA==", "decoder": "/w==", "cross": "f4A="}],
}  # fmt: skip


def result() -> Result:
    names: tuple[MetricName, ...] = ("bleu_lc_tok", "bleu_13a_lc", "chrf")
    scores = {name: Score(score=40.0, low=39.0, high=41.0, signature=f"nrefs:1|of:{name}") for name in names}
    return Result(
        run=RUN, experiment="toy", seed=1, trained=RUN, corpus="toy-words", parameters=1234, steps=20, epochs=2,
        stopped="max_steps", validation_loss=5.0, tokens=Tokens(source=1, target=2), flops=3e9,
        test_sets={"test": scores}, legacy_score=LegacyScore(split="val", score=1.0, epochs={}),
        data={"raw": "d" * 64}, code={"search.py": "e" * 64},
    )  # fmt: skip


def build(
    place: Path, hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str], claims: str = CLAIM
) -> str:
    """Write a table's inputs, make its page and return it."""
    write_json(place / "toy-1.json", result().model_dump())
    write_json(place / "toy-1.provenance.json", PROVENANCE)
    (place / "history.csv").write_text("epoch,step,train_loss,validation_loss,lr\n1,10,6.5,5.5,0.1\n2,20,5.5,5.0,0.1\n")
    (place / "claims.yaml").write_text(claims)
    (place / "deviations.json").write_text(json.dumps({"ASSUME": {"<u>a</u>": ["params.yaml"]}, "DEVIATES": {}}))
    write_json(place / "attention.json", ATTENTION)
    for folder in ("raw", "decoded"):
        (place / folder).mkdir(exist_ok=True)
    for name, lines in {"raw/test.en": sources, "raw/test.de": references}.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines))
    for kind, lines in (("hyp", hypotheses), ("ref", references)):
        for suffix in ("txt", "lc-tok.txt"):
            (place / f"decoded/test.{kind}.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    runs, splits = {RUN: PARAMS.run_named(RUN)}, PARAMS.datasets["toy"].splits
    decoded, provenances = {RUN: place / "decoded"}, {RUN: place / "toy-1.provenance.json"}
    reported = write_report(
        "demo", "A <title>\u202e", runs, (), Scoring(bootstrap_resamples=10, bootstrap_seed=1),
        corpora=PARAMS.corpora, splits={"toy": splits}, results={RUN: place / "toy-1.json"}, provenances=provenances,
        histories={RUN: place / "history.csv"}, decoded=decoded, out=place / "report",
        claims_file=place / "claims.yaml",
    )  # fmt: skip
    inputs = Inputs(
        runs, {RUN: PARAMS.recipes["toy"]}, PARAMS.corpora, {"toy": splits}, {"toy": place / "raw"}, decoded,
        provenances, {RUN: place / "attention.json"}, place / "deviations.json",
    )  # fmt: skip
    write_page("demo", reported, inputs, place / "report/report.html")
    return (place / "report/report.html").read_text()


TEXTS = [f"ein hund rennt {number} mal über die grüne wiese" for number in range(40)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("page"), [HOSTILE, *TEXTS[1:]], TEXTS, [HOSTILE, *TEXTS[1:]])


class Elements(HTMLParser):
    """What is in a page: its elements with their attributes, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = tag if tag in ("script", "style") else self.inside

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        self.text += "" if self.inside else data


def test_texts_are_shown_and_never_obeyed(page: str) -> None:
    elements = Elements(page)
    assert "alert(1)" not in "".join(re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL))
    assert not [tag for tag, _ in elements.found if tag in ("b", "u", "i", "img", "iframe", "link")]
    assert '</script><script>alert(1)</script> "quoted" & <b>bold</b>' in elements.text
    assert "⟨U+202E⟩right to left⟨U+202C⟩ bell⟨U+0007⟩ {{ 7 * 7 }}" in elements.text
    assert "\u202e" not in page
    assert "\x07" not in page
    assert "A|B <i>: *x*" in elements.text
    assert elements.text.count("A <title>⟨U+202E⟩") == 2, "in the tab and above the page"


def test_nothing_is_fetched(page: str) -> None:
    elements = Elements(page)
    assert not [attributes for _, attributes in elements.found if "src" in attributes or "srcset" in attributes]
    policy = next(a["content"] for tag, a in elements.found if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "unsafe-eval" not in policy


def test_claims_come_first_and_each_run_has_its_section(page: str) -> None:
    heads = re.findall(r"<h2>(.*?)</h2>", page.partition('id="settings"')[0])
    assert heads[:3] == ["Claims and verdicts", "Losses", "BLEU"]
    assert heads[-6:] == ["Runs", "Scores", "Verdicts", "Trainings", "Metrics", "Deviations"]
    text = " ".join(Elements(page).text.split())
    assert "reproduced A|B <i>: *x* 40.5 (bleu_lc_tok, test) 40.00 [39.00, 41.00]" in text
    for told in (
        "A CPU, 2 cores", "2.00 hours", "1,234 source and target tokens a second, without padding (median)",
        "8.0 GB in the machine",
        "5.000 nats per target token", "c0ffee", "d" * 64, "e" * 64, "torch 2",
        "dvc repro score@toy-1", "snakemake --cores 2 results/toy-1.json", "nrefs:1|of:chrf", "kind: transformer",
        "<u>a</u>", "made by src/bleuprint/toy.py",
    ):  # fmt: skip
        assert told.lower() in text.lower(), told
    section = page.partition(f'id="run-{RUN}"')[2].partition("Hashes of commit")[0]
    assert all(f"nrefs:1|of:{name}" in section for name in ("bleu_lc_tok", "bleu_13a_lc", "chrf"))


def test_links_within_the_page_lead_somewhere(page: str) -> None:
    elements = Elements(page)
    targets = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    links = [str(a["href"]) for tag, a in elements.found if tag == "a"]
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= targets
    assert not [link for link in links if "results.md" in link]


def test_the_data_set_of_the_samples_is_named_and_linked(page: str) -> None:
    licence = load_licences()["toy"]
    section = page.partition('<section id="samples">')[2].partition("</section>")[0]
    assert (licence.title, licence.url) in [
        (text, url) for url, text in re.findall(r'<a href="(.*?)">(.*?)</a>', section)
    ]


def test_a_sample_says_what_it_was_chosen_for(page: str) -> None:
    text = " ".join(Elements(page).text.split())
    assert re.findall(r"Line (\d+) of 40 worst by chrF", text)[0] == "1", "all others are their references"


def test_the_same_inputs_give_the_same_bytes(page: str, tmp_path: Path) -> None:
    assert build(tmp_path, [HOSTILE, *TEXTS[1:]], TEXTS, [HOSTILE, *TEXTS[1:]]) == page


def test_references_of_other_sentences_are_refused(tmp_path: Path) -> None:
    build(tmp_path, TEXTS, TEXTS, TEXTS)
    (tmp_path / "raw/test.de").write_text("".join(f"{line}.\n" for line in TEXTS))
    with pytest.raises(ValueError, match="are of other sentences; decode toy-1 again"):
        build_again(tmp_path)


def build_again(place: Path) -> None:
    from bleuprint.reporting.samples import choose_samples

    choose_samples(
        {RUN: PARAMS.run_named(RUN)},
        PARAMS.corpora,
        {"toy": PARAMS.datasets["toy"].splits},
        {"toy": place / "raw"},
        {RUN: place / "decoded"},
    )


def test_a_page_without_claims_promises_none(tmp_path: Path) -> None:
    found = build(tmp_path, TEXTS, TEXTS, TEXTS, claims="claims: []")
    assert "<title>A &lt;title&gt;⟨U+202E⟩: measured</title>" in found
    text = " ".join(Elements(found).text.split())
    assert "What was measured here; no published number is compared with it." in text
    assert "What others published" not in text


def test_a_card_leaves_out_what_is_not_there_and_the_bleu_of_a_count(tmp_path: Path) -> None:
    count = """claims:
  - {kind: count, id: a, tables: {demo: toy}, who: A, text: t, value: 1234, unit: parameters, metric: parameters,
     source: "https://example.org/", tolerance: 1, parameters: 1234, note: N.}
"""
    found = build(tmp_path, TEXTS, TEXTS, TEXTS, claims=count)
    assert found.count('class="no-card" data-label="sacreBLEU, measured (signatures)"') == 1
    assert re.search(r'data-label="bleu_lc_tok"><span>40.00', found)
    assert re.search(r'data-label="bleu_13a" class="no-card"><span>—</span>', found)


# --- directions -------------------------------------------------------------------------------------------------------


def test_runs_of_the_rarer_direction_say_it_in_the_charts_of_scores() -> None:
    runs = [result(), *(result().model_copy(update={"run": f"b-{n}", "experiment": "b", "seed": n}) for n in (1, 2))]
    assert unusual_names(runs, {"toy-words": "en → de"}) == ("en → de", {})
    runs = [*runs, result().model_copy(update={"run": "c-1", "experiment": "c", "corpus": "turned"})]
    usual, others = unusual_names(runs, {"toy-words": "en → de", "turned": "de → en"})
    assert (usual, others) == ("en → de", {"c-1": "c-1 (de → en)"})
    spec = {"datasets": {"d": [{"run": "c-1", "BLEU": 1.0}, {"run": RUN, "BLEU": 2.0}]}}
    assert [row["run"] for row in renamed(spec, others)["datasets"]["d"]] == ["c-1 (de → en)", RUN]


# --- attention --------------------------------------------------------------------------------------------------------


def test_the_maps_are_in_the_page_their_tokens_shown(page: str) -> None:
    data = re.search(r'id="attention-data">(.*?)</script>', page)
    assert data is not None
    assert "<" not in data[1]
    [found] = json.loads(data[1])
    assert (found["run"], found["layers"], found["heads"]) == (RUN, 1, 1)
    assert found["sentences"][0]["read"] == ["⟨U+202E⟩<i>", "<eos>"]


def test_a_run_without_maps_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sentences, why, told in (([], "it has <none>", "it has <none>"), ([], None, "no sentence of test is short")):
        monkeypatch.setitem(ATTENTION, "sentences", sentences)
        monkeypatch.setitem(ATTENTION, "why_not", why)
        text = Elements(build(tmp_path, TEXTS, TEXTS, TEXTS)).text
        assert f"toy-1 has no maps: {told}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("run", "message"), [("other-1", "is of other-1, not of toy-1"), (None, "is missing; make it with")]
)
def test_attention_that_is_missing_or_of_another_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str | None, message: str
) -> None:
    build(tmp_path, TEXTS, TEXTS, TEXTS)
    if run is None:
        (tmp_path / "attention.json").unlink()
    else:
        write_json(tmp_path / "attention.json", ATTENTION | {"run": run})
    inputs = Inputs({RUN: PARAMS.run_named(RUN)}, {}, {}, {}, {}, {}, {}, {RUN: tmp_path / "attention.json"}, tmp_path)
    with pytest.raises(ValueError, match=f"{message}.*python -m bleuprint attend toy-1"):
        read_attention(inputs, next(iter(inputs.runs)))


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_fifth_are_the_best_a_fifth_the_worst_the_others_at_even_distances() -> None:
    means = [float(number) for number in range(100)]
    found = choose(means, 10)
    assert [index for index, why in found.items() if why == BEST] == [99, 98]
    assert [index for index, why in found.items() if why == WORST] == [0, 1]
    assert [index for index, why in found.items() if why == EVEN] == [10, 26, 42, 58, 74, 90]


@pytest.mark.parametrize("lines", [1, 2, 3, 9, 10, 11])
def test_of_few_sentences_each_is_shown_once(lines: int) -> None:
    assert len(choose([50.0] * lines, 10)) == min(lines, 10)


def test_equal_scores_are_ranked_by_the_file() -> None:
    assert choose([1.0] * 20, 5) == choose([1.0] * 20, 5)
    assert choose([1.0] * 20, 5)[0] == BEST


# --- lengths ----------------------------------------------------------------------------------------------------------


def test_every_length_has_one_group() -> None:
    assert [group_of(tokens) for tokens in (0, 1, 7, 8, 10, 11, 39, 40, 999)] == [0, 0, 0, 1, 1, 2, 5, 6, 6]
    assert labels()[0] == "1–7"
    assert labels()[-1] == "40 and more"


def test_a_group_is_scored_as_sacrebleu_scores_its_sentences_alone() -> None:
    from sacrebleu import corpus_bleu

    short, long = "ein hund rennt schnell", "ein hund rennt schnell über die grüne wiese dort"
    references = [short, long] * FEWEST
    hypotheses = [short, long.replace("grüne", "rote")] * FEWEST
    groups = score_by_length(hypotheses, references)
    assert [(group.label, group.sentences) for group in groups] == [("1–7", FEWEST), ("8–10", FEWEST)]
    assert groups[0].score == pytest.approx(100)
    alone = corpus_bleu(hypotheses[1::2], [references[1::2]], tokenize="none", force=True)
    assert groups[1].score == pytest.approx(alone.score)


def test_a_group_of_few_sentences_is_left_out() -> None:
    texts = ["ein hund rennt"] * (FEWEST - 1)
    assert score_by_length(texts, texts) == []


# --- text -------------------------------------------------------------------------------------------------------------


def test_of_html_in_markdown_a_line_break_alone_is_let_through() -> None:
    html = to_html("| a `x` | b |\n| --- | ---: |\n| 1<br>2 | <script>x</script> |")
    assert '<td data-label="a x"><span>1<br>2</span></td>' in html
    assert "<script>" not in html
    assert to_html("<script>x</script>\n") == "&lt;script&gt;x&lt;/script&gt;\n"
    assert inline("`a\\|b` \\*c\\*") == "<code>a|b</code> *c*"


def test_joiners_stay_and_what_turns_text_round_is_shown() -> None:
    assert visible("می\u200cخواهم & co") == "می\u200cخواهم &amp; co"
    assert visible("a\u2066b") == "a<span class=unseen>⟨U+2066⟩</span>b"


def test_every_data_set_here_has_its_terms() -> None:
    assert set(load_licences()) == set(PARAMS.datasets)


def test_a_table_without_claims_has_no_notes() -> None:
    assert to_html("") == ""


def test_a_provenance_may_tell_more_of_a_training_than_the_page_shows() -> None:
    assert Speed.model_validate({"seconds": 1.5, "tokens_per_second": None, "processes": 2}).seconds == 1.5
