"""The command that translates what a user has."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import typer

from bleuprint.commands.arguments import (
    AttentionOut,
    BeamSize,
    Interactive,
    NBest,
    OutPath,
    RunName,
    TextFiles,
    TranslationEngine,
    WithScores,
)
from bleuprint.console import plain_errors, wrote
from bleuprint.runs import CORPORA, RUNS

if TYPE_CHECKING:
    from bleuprint.translation.translating import Translator

logger = logging.getLogger(__name__)


def translate(
    run: RunName,
    files: TextFiles = None,
    out: OutPath = None,
    interactive: Interactive = False,
    nbest: NBest = 1,
    beam: BeamSize = None,
    scores: WithScores = False,
    engine: TranslationEngine = "auto",
    attention: AttentionOut = None,
) -> None:
    """Translate raw text with a trained run, line by line.

    From FILE into FILE.RUN.LANGUAGE beside it, or into --out; without a file from stdin to stdout. As many lines come
    out as go in, and an empty one stays empty. The model of `export` is used where there is one of these weights.

    --nbest writes Moses' lists: sentence ||| text ||| score, sentences from 0.

    Example: python -m bleuprint translate tiny-1 news.en --out news.de --beam 10

    Or: echo "A man rides a bike." | python -m bleuprint translate tiny-1
    """
    with plain_errors("starts again"):
        files = files or []
        check_options(files, out, interactive, attention)
        from bleuprint.process import prepare

        prepare()
        from bleuprint.translation.translating import (
            Form,
            converse,
            outputs_of,
            translate_file,
            translate_stream,
            warm_up,
        )

        translator, target = open_translator(run, nbest, beam, engine)
        form = Form(nbest, scores)
        outputs = outputs_of(files, out, run, target)
        stdin: BinaryIO = sys.stdin.buffer
        if attention:
            check_page(attention, [*files, *outputs])
            stdin = BytesIO(files[0].read_bytes() if files else stdin.read())
            draw_attention(run, stdin, str(files[0]) if files else "stdin", beam, attention)
            stdin.seek(0)
        if interactive:
            warm_up(translator)
            converse(translator, form, input_with_history(), sys.stdout)
        elif files:
            for path, output in zip(files, outputs, strict=True):
                translate_file(translator, path, output, form)
                wrote(output)
        else:
            if sys.stdin.isatty() and not attention:
                typer.echo("reading from the terminal until Ctrl-D; --interactive answers each line", err=True)
            print_lines(translate_stream(translator, stdin, "stdin", form))


def check_options(files: Sequence[Path], out: str | None, interactive: bool, attention: Path | None) -> None:
    """Raise ValueError where options do not go together."""
    if interactive and (files or out):
        raise ValueError("--interactive reads from the terminal: it goes without files and --out")
    if attention and (interactive or len(files) > 1):
        raise ValueError("--attention draws one text: one FILE, or stdin")
    if out and not files:
        raise ValueError("--out says where the translation of a file goes: name the file, or redirect stdout")


def open_translator(
    run: str, nbest: int, beam: int | None, engine: Literal["auto", "torch", "ctranslate2"]
) -> tuple["Translator", str]:
    """Return a run as a translator, and its target language; say on stderr by which engine.

    ValueError where the run is unknown or not trained, or CTranslate2 is asked for and cannot stand for it.
    """
    import torch

    from bleuprint.decoding import load_model
    from bleuprint.device import find_device
    from bleuprint.graph import load_params
    from bleuprint.tokenizers import load_tokenizer
    from bleuprint.translation.exported import ctranslate2_engine, quantization_of, reason_against
    from bleuprint.translation.translating import Translator, most_tokens_of, torch_engine, with_beam

    params = load_params()
    spec = params.run_named(run)
    recipe, corpus = params.recipes[spec.experiment], params.corpora[spec.corpus]
    decode = with_beam(recipe.decode, beam, nbest)
    weights, exported = RUNS / run / "average/weights.safetensors", RUNS / run / "ctranslate2"
    if not weights.is_file():
        raise ValueError(f"{weights} does not exist; make it with: dvc repro average@{run}")
    tokenizer = load_tokenizer(CORPORA / spec.corpus)
    reason = reason_against(exported, CORPORA / spec.corpus, weights, decode)
    if engine == "ctranslate2" and reason:
        raise ValueError(f"{reason}; make it with: python -m bleuprint export {run} --to ctranslate2")
    if engine == "torch" or reason:
        if engine == "auto" and exported.exists():
            logger.warning("%s: not used", reason)
        logger.info("translating by torch")
        torch.set_num_threads(params.machine.threads)
        model = load_model(weights, recipe.model, tokenizer.vocabulary).to(find_device(params.machine))
        found = torch_engine(model, decode, corpus.source_marks, nbest)
    else:
        quantization = quantization_of(exported)
        logger.info(
            "translating by CTranslate2, %s%s", exported, "" if quantization == "none" else f" ({quantization})"
        )
        found = ctranslate2_engine(exported, tokenizer, decode, params.machine, nbest)
    return Translator(run, tokenizer, found, most_tokens_of(recipe.model.max_positions, decode)), corpus.target


def check_page(page: Path, texts: Iterable[Path]) -> None:
    """Raise ValueError where a page would take the place of a text that is read or written."""
    if page.resolve() in {text.resolve() for text in texts}:
        raise ValueError(f"--attention {page} is a text of this command too: name another file for the page")


def draw_attention(run: str, text: BinaryIO, label: str, beam: int | None, out: Path) -> None:
    """Write the page of attention maps of a text's first sentences; ValueError as write_attention_page."""
    from bleuprint.decoding import load_model
    from bleuprint.device import find_device
    from bleuprint.graph import load_params
    from bleuprint.tokenizers import load_tokenizer
    from bleuprint.translation.attention_page import write_attention_page
    from bleuprint.translation.translating import read_sentences, with_beam

    params = load_params()
    spec = params.run_named(run)
    recipe, marks = params.recipes[spec.experiment], params.corpora[spec.corpus].source_marks
    tokenizer = load_tokenizer(CORPORA / spec.corpus)
    model = load_model(RUNS / run / "average/weights.safetensors", recipe.model, tokenizer.vocabulary)
    model, decode = model.to(find_device(params.machine)), with_beam(recipe.decode, beam, 1)
    write_attention_page(run, model, tokenizer, marks, decode, list(read_sentences(text, label)), out)
    wrote(out)


def input_with_history() -> Callable[[str], str]:
    """Return what asks for a line: on a terminal with the keys that a shell has, and never into a redirected stdout."""
    if not sys.stdin.isatty():
        return lambda question: input()
    if not sys.stdout.isatty():
        return ask_on_stderr
    import readline  # noqa: F401  input() takes its keys and history from it

    return input


def ask_on_stderr(question: str) -> str:
    """Return a line of stdin, asked for on stderr."""
    typer.echo(question, err=True, nl=False)
    return input()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as UTF-8, whatever the terminal's locale."""
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()
