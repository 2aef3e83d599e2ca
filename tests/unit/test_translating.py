"""Translating text: lines in and out, forms of output, both engines, on a small untrained model."""

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from specs import SPEC
from test_export import Run, make_run

from bleuprint.checkpoint import save_weights, weights_of
from bleuprint.commands.translation import check_page
from bleuprint.params import Decode, LengthPenalty, Machine
from bleuprint.search import Hypothesis
from bleuprint.tokenizers import BOS, EOS, PAD, LearnedWords, load_tokenizer
from bleuprint.translation.exported import ctranslate2_engine, reason_against
from bleuprint.translation.translating import (
    Form,
    Translation,
    Translator,
    converse,
    most_tokens_of,
    outputs_of,
    torch_engine,
    translate_file,
    translate_lines,
    translate_stream,
    with_beam,
    written,
)

DECODE = Decode(
    search="beam",
    beam=3,
    length_penalty=LengthPenalty(kind="length", alpha=1.0),
    max_extra_tokens=8,
    max_batch_tokens=64,
    forced="averaged",
)
BEST = Form(1, False)
LINES = ["word4 word9", "", "word5", "   ", "word7 word8 word6 word5", "unheard word4", "word5"]


def upper_case(sentences: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
    """Return the ids of each sentence as they are, and the first one alone: an engine that says what it was given."""
    return [[Hypothesis(tuple(ids), -0.5), Hypothesis(tuple(ids[:1]), -1.0)] for ids in sentences]


@pytest.fixture
def copier() -> Translator:
    types = ("<unk>", "<pad>", "<sos>", "<eos>", "one", "two", "three", ".")
    words = LearnedWords(
        kind="words", lowercase=True, min_frequency=1, source="en", target="de", source_types=types, target_types=types
    )
    return Translator("run-1", words, upper_case, most_tokens=4)


def stream(translator: Translator, data: bytes, form: Form = BEST) -> list[str]:
    return list(translate_stream(translator, io.BytesIO(data), "in", form))


# --- lines ------------------------------------------------------------------------------------------------------------


def test_as_many_lines_come_out_as_go_in(copier: Translator) -> None:
    data = "\ufeffOne two.\r\n\n \nthree\u2028one\nthree".encode()
    found = stream(copier, data)
    assert found[:3] + found[4:] == ["one two.", "", "", "three"]
    assert found[3].startswith("three")
    assert stream(copier, b"") == []
    assert stream(copier, b"\n") == [""]
    assert stream(copier, b"one") == ["one"]


def test_more_lines_than_are_read_at_once(copier: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bleuprint.translation.translating.LINES_AT_ONCE", 2)
    assert stream(copier, b"one\ntwo\nthree\none\ntwo\n") == ["one", "two", "three", "one", "two"]
    found = stream(copier, b"one\ntwo\nthree\n", Form(2, False))
    assert [line.partition(" ")[0] for line in found] == ["0", "0", "1", "1", "2", "2"]
    with pytest.raises(ValueError, match="in, line 3 has 5 tokens"):
        stream(copier, b"one\ntwo\none two three one two\n")


def test_what_is_not_utf8_is_told_by_its_line(copier: Translator) -> None:
    with pytest.raises(ValueError, match="in, line 2 is not UTF-8: byte 0xff, invalid start byte"):
        stream(copier, b"one\ntw\xffo\n")


def test_a_sentence_too_long_is_told_by_its_line_before_any_is_translated(copier: Translator) -> None:
    assert stream(copier, b"one two three .\n") == ["one two three."]
    message = "in, line 2 has 5 tokens, and run-1 has positions for 4 at most: split it into sentences"
    with pytest.raises(ValueError, match=message):
        stream(copier, b"one\none two three . .\n")


def test_forms(copier: Translator) -> None:
    assert stream(copier, b"one two\n\n", Form(1, True)) == ["-0.5000\tone two", "0.0000\t"]
    assert stream(copier, b"\none two\n", Form(2, False)) == [
        "0 |||  ||| 0.0000", "1 ||| one two ||| -0.5000", "1 ||| one ||| -1.0000"
    ]  # fmt: skip
    assert list(written([[Translation("a", -1.0)]], Form(5, True))) == ["0 ||| a ||| -1.0000"], "fewer than asked for"


# --- files ------------------------------------------------------------------------------------------------------------


def test_where_translations_go(tmp_path: Path) -> None:
    first, second = tmp_path / "a.en", tmp_path / "b/a.en"
    assert outputs_of([first, second], None, "run-1", "de") == [
        tmp_path / "a.en.run-1.de", tmp_path / "b/a.en.run-1.de"
    ]  # fmt: skip
    assert outputs_of([first], f"{tmp_path}/new", "run-1", "de") == [tmp_path / "new"]
    assert outputs_of([first], f"{tmp_path}/new/", "run-1", "de") == [tmp_path / "new/a.en.run-1.de"]
    assert outputs_of([first], str(tmp_path), "run-1", "de") == [tmp_path / "a.en.run-1.de"]
    assert outputs_of([first, tmp_path / "c"], f"{tmp_path}/new", "run-1", "de")[1] == tmp_path / "new/c.run-1.de"
    with pytest.raises(ValueError, match="is what is to be translated"):
        outputs_of([first], str(first), "run-1", "de")
    with pytest.raises(ValueError, match="would be written for two files"):
        outputs_of([first, second], f"{tmp_path}/new", "run-1", "de")
    with pytest.raises(ValueError, match="is a folder: name the files in it"):
        outputs_of([tmp_path], None, "run-1", "de")


def test_a_page_takes_the_place_of_no_text(tmp_path: Path) -> None:
    check_page(tmp_path / "page.html", [tmp_path / "a.en", tmp_path / "a.de"])
    with pytest.raises(ValueError, match=r"a\.en is a text of this command too: name another file for the page"):
        check_page(tmp_path / "b/../a.en", [tmp_path / "a.en"])


def test_a_file_appears_whole_or_not_at_all(copier: Translator, tmp_path: Path) -> None:
    (source := tmp_path / "in").write_bytes(b"one\ntwo\n")
    translate_file(copier, source, tmp_path / "out/new", BEST)
    assert (tmp_path / "out/new").read_bytes() == b"one\ntwo\n"
    source.write_bytes(b"three\n\xff\n")
    with pytest.raises(ValueError, match="line 2 is not UTF-8"):
        translate_file(copier, source, tmp_path / "out/new", BEST)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
    assert (tmp_path / "out/new").read_bytes() == b"one\ntwo\n"


def test_a_conversation_goes_on_after_a_mistake(copier: Translator, capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["one two", "one two three one two", "", "two"])

    def ask(question: str) -> str:
        assert question == "en> "
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    out = io.StringIO()
    converse(copier, BEST, ask, out)
    assert out.getvalue() == "one two\n\ntwo\n"
    assert capsys.readouterr().err == (
        "that, line 1 has 5 tokens, and run-1 has positions for 4 at most: split it into sentences\n"
    )


# --- engines ----------------------------------------------------------------------------------------------------------


def test_the_longest_sentence_is_one_that_the_model_can_read_and_write(tmp_path: Path) -> None:
    """At the limit nothing fails; without the check, one token more does."""
    run = make_run(tmp_path, SPEC, "both")
    most = most_tokens_of(SPEC.max_positions, DECODE)
    engine = torch_engine(never_ending(run.model), DECODE, "both", 1)
    [[found]] = engine([[5] * most])
    assert len(found.tokens) == most + DECODE.max_extra_tokens
    with pytest.raises(ValueError, match="longer than max_positions"):
        engine([[5] * (most + 1)])


def never_ending(model: Any) -> Any:
    with torch.no_grad():
        model.output_bias[EOS] = -1e4
    return model


def without_marks(run: Run) -> Run:
    """Let a model give PAD and BOS no probability, which CTranslate2 would give to the others."""
    with torch.no_grad():
        assert run.model.output_bias is not None
        run.model.output_bias[[PAD, BOS]] = -1e4
    save_weights(weights_of(run.model), run.weights)
    return run


def test_both_engines_say_the_same(tmp_path: Path) -> None:
    run, decode = without_marks(make_run(tmp_path, SPEC, "end")), DECODE.model_copy(update={"max_extra_tokens": 60})
    run.export()
    tokenizer, machine = load_tokenizer(tmp_path / "corpus"), Machine(device="cpu", threads=1)
    engines = (
        torch_engine(run.model, decode, "end", 2),
        ctranslate2_engine(run.out, tokenizer, decode, machine, 2),
    )
    random = Random(7)
    lines = [*LINES, *(" ".join(f"word{random.randrange(4, 12)}" for _ in range(1 + i % 9)) for i in range(40))]
    ours, theirs = (translate_lines(Translator("r", tokenizer, it, 90), lines, "in") for it in engines)
    limits = [len(line.split()) + decode.max_extra_tokens for line in lines]
    ended = [row for row, limit in enumerate(limits) if all(len(it.text.split()) < limit for it in ours[row])]
    for row in ended:  # of what does not end the two have not the same idea (search.length_limits)
        assert [text for text, _ in ours[row]] == [text for text, _ in theirs[row]]
        assert [score for _, score in ours[row]] == pytest.approx([score for _, score in theirs[row]], abs=1e-4)
    assert len({ours[row][0].text for row in ended}) > 3, "a model that says one thing proves nothing"
    assert ours[1] == ours[3] == theirs[3] == [Translation("", 0.0)]
    assert ours[2][0].text == ours[6][0].text


def test_an_export_of_other_weights_is_not_used(tmp_path: Path) -> None:
    run = make_run(tmp_path, SPEC)
    arguments = run.out, tmp_path / "corpus", run.weights
    assert reason_against(*arguments, DECODE) == f"there is no model in {run.out}"
    run.export()
    assert reason_against(*arguments, DECODE) is None
    gnmt = DECODE.model_copy(update={"length_penalty": LengthPenalty(kind="gnmt", alpha=0.6)})
    assert reason_against(*arguments, gnmt) == "CTranslate2 has no length penalty of kind gnmt"
    no_penalty = DECODE.model_copy(update={"length_penalty": LengthPenalty(kind="gnmt", alpha=0.0)})
    assert reason_against(*arguments, no_penalty) is None
    other = f"{run.out} was not made from {run.weights} as it is now"
    path = tmp_path / "corpus/tokenizer.json"
    path.write_text(path.read_text() + " ")
    assert reason_against(*arguments, DECODE) == other
    (run.out / "made_from.json").unlink()
    assert reason_against(*arguments, DECODE) == other


def test_the_beam_is_as_wide_as_the_list_is_long() -> None:
    assert with_beam(DECODE, None, 3) == DECODE
    assert with_beam(DECODE, 7, 7).beam == 7
    assert (with_beam(DECODE, 1, 1).search, with_beam(DECODE, 1, 1).beam) == ("greedy", 1)
    with pytest.raises(ValueError, match="--nbest 4 needs a beam as wide, and it is 3: add --beam 4"):
        with_beam(DECODE, None, 4)
