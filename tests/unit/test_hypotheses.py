"""Texts that are kept in results/ give back what decoding wrote, byte by byte, and hold no reference."""

import shutil
from pathlib import Path

import pytest
from test_decoding import DECODE, GERMAN, PUBLISHED, SPLITS, STEPS, TEST_GERMAN, Project, bpe, words, write  # noqa: F401

from bleuprint.hypotheses import keep_texts, rebuild_decoded, rows_of

Finished = tuple[Project, Path, Path]


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(params=["words", "bpe", "official tokens", "epochs"])
def finished(request: pytest.FixtureRequest) -> Finished:
    """Return a project, its decoded texts, and its training's history."""
    kind = request.param
    project: Project = request.getfixturevalue("bpe" if kind == "bpe" else "words")
    if kind == "official tokens":
        write(project.raw / "test.lc.norm.tok.de", [f"amtlich {line}" for line in range(5)])
    history = project.root / "history.csv"
    write(history, ["epoch,step,train_loss,validation_loss", "1,7,5.0,4.0", "2,14,4.0,3.0"])
    if kind != "epochs":
        return project, project.run(), history
    project.draw(project.weights, PUBLISHED, 1)
    for seed, step in enumerate(STEPS):
        project.draw(project.epoch_weights / f"step-{step}.safetensors", PUBLISHED, seed)
    return project, project.run(DECODE.model_copy(update={"forced": "epochs"}), PUBLISHED), history


def kept(finished: Finished) -> Path:
    project, decoded, history = finished
    keep_texts(decoded, history, project.corpus_dir, SPLITS, project.root / "kept")
    return project.root / "kept"


def rebuilt(project: Project) -> Path:
    out = project.root / "rebuilt"
    rebuild_decoded(project.root / "kept", project.raw, project.corpus_dir, project.corpus, SPLITS, out)
    return out


def test_decoding_can_be_rebuilt_from_what_is_kept_and_the_data(finished: Finished) -> None:
    project, decoded, history = finished
    directory = kept(finished)
    assert (directory / "history.csv").read_bytes() == history.read_bytes()
    before = bytes_of(decoded)
    shutil.rmtree(decoded)
    assert bytes_of(rebuilt(project)) == before


def test_no_reference_is_kept(finished: Finished) -> None:
    texts = "".join(path.read_text() for path in kept(finished).iterdir()).split("\n")
    assert not {*GERMAN, *TEST_GERMAN} & set(texts)
    assert not [name for name in bytes_of(kept(finished)) if "ref" in name]


def test_rows_are_a_permutation_also_where_sentences_repeat() -> None:
    assert rows_of(["b", "a", "b"], ["a", "b", "b"]) == [1, 0, 2]
    assert rows_of(["b", "a"], ["a", "b", "b"]) is None
    assert rows_of(["b", "b", "b"], ["a", "b", "b"]) is None


def test_texts_of_another_corpus_are_refused(words: Project) -> None:  # noqa: F811
    decoded, history = words.run(), words.root / "history.csv"
    write(history, [])
    write(decoded / "val.forced-ref.txt", [*GERMAN[:3], "Etwas anderes ."])
    with pytest.raises(ValueError, match=r"forced-ref\.txt does not have the pairs of .*corpus: decode the run again"):
        keep_texts(decoded, history, words.corpus_dir, SPLITS, words.root / "kept")
    assert not (words.root / "kept").exists()


@pytest.mark.parametrize("name", ["test.hyp.lc-tok.txt", "val.forced.txt", "val.forced-rows.txt", "history.csv"])
def test_a_text_that_is_gone_is_named(words: Project, name: str) -> None:  # noqa: F811
    write(words.root / "history.csv", [])
    keep_texts(words.run(), words.root / "history.csv", words.corpus_dir, SPLITS, words.root / "kept")
    (words.root / "kept" / name).unlink()
    with pytest.raises(ValueError, match=rf"kept/{name} is missing; it is committed"):
        rebuilt(words)


def test_rows_of_another_corpus_are_named(words: Project) -> None:  # noqa: F811
    write(words.root / "history.csv", [])
    keep_texts(words.run(), words.root / "history.csv", words.corpus_dir, SPLITS, words.root / "kept")
    write(words.root / "kept/val.forced-rows.txt", ["0", "1", "2", "2"])
    with pytest.raises(ValueError, match=r"forced-rows\.txt does not have the 4 pairs of \S+, each once"):
        rebuilt(words)
