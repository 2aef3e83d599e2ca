"""Texts as they should not be, through every stage in a small project: read, counted and named, or refused."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from bleuprint.checkpoint import average_run
from bleuprint.corpus import download
from bleuprint.datasets import MirroredDataset
from bleuprint.decoding import decode_run
from bleuprint.graph import Run
from bleuprint.inspection import check_lengths, inspect_ids, inspect_text
from bleuprint.lines import read_lines
from bleuprint.params import Corpus, Experiment, Machine, Scoring
from bleuprint.scoring import Result, score_run
from bleuprint.tokenizing import build_corpus
from bleuprint.training import Recipe, train_run
from reliability import Record

ROOT = Path(__file__).parents[3]
SPLITS = {"train": "train", "validation": "val", "tests": ["test"]}
ENGLISH = ["A man rides a bike .", "Two dogs run , and a cat sleeps .", "The woman doesn't smile .", "A dog ."]
GERMAN = [
    "Ein Mann fährt Rad .", "Zwei Hunde rennen , und eine Katze schläft .", "Die Frau lächelt nicht .", "Ein Hund ."
]  # fmt: skip
TEXTS = {
    "train.en": ENGLISH * 5,
    "train.de": GERMAN * 5,
    "val.en": ENGLISH[1:3],
    "val.de": GERMAN[1:3],
    "test.en": ["A man sleeps .", "Two cats run ."],
    "test.de": ["Ein Mann schläft .", "Zwei Katzen rennen ."],
}
EXPERIMENT: dict[str, Any] = {
    "corpus": "pets",
    "model": {
        "kind": "transformer", "norm": "pre", "d_model": 16, "d_ff": 16, "n_heads": 2, "n_layers": 1,
        "max_positions": 64, "tie_embeddings": "none", "scale_embeddings": True, "embedding_dropout": 0.1,
        "residual_dropout": 0.1, "attention_dropout": 0.0, "ffn_dropout": 0.0, "output_bias": False,
        "norm_eps": 1e-5, "init": "fairseq",
    },
    "train": {
        "precision": "fp32", "label_smoothing": 0.1, "regularizers": {"r_drop": 0.0, "bpe_dropout": 0.0},
        "batches": {"kind": "tokens", "max_tokens": 512, "batches_per_step": 1},
        "schedule": {"kind": "inverse_sqrt", "lr": 5e-3, "warmup_steps": 10},
        "optimizer": {
            "kind": "adam", "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0, "clip_norm": 1.0
        },
        "epoch_loss": "tokens", "max_steps": 2, "patience_epochs": 5, "keep_last": 1, "checkpoint_every_steps": 2,
        "log_every_steps": 2,
    },
    "average": {"last": 1},
    "decode": {
        "search": "beam", "beam": 2, "length_penalty": {"kind": "length", "alpha": 1.0}, "max_extra_tokens": 4,
        "max_batch_tokens": 128, "forced": "averaged",
    },
}  # fmt: skip
TOKENIZERS: dict[str, dict[str, Any]] = {
    "words": {"kind": "words", "lowercase": True, "min_frequency": 1},
    "bpe": {"kind": "bpe", "text": "lc-tok", "merges": 20, "min_frequency": 1},
    "raw": {"kind": "bpe", "text": "raw", "merges": 20, "min_frequency": 1},
    "basic": {"kind": "basic"},
}
MARK = "\ufeff".encode()


def packed(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


GOOD = {name: packed(lines) for name, lines in TEXTS.items()}


def pairs(split: str, english: list[str], german: list[str]) -> dict[str, bytes]:
    return {f"{split}.en": packed(english), f"{split}.de": packed(german)}


def added(english: str, german: str) -> dict[str, bytes]:
    """Return the train split with one more pair."""
    return {"train.en": GOOD["train.en"] + packed([english]), "train.de": GOOD["train.de"] + packed([german])}


class Project(NamedTuple):
    """Where the stages read and write."""

    root: Path
    corpus: Corpus

    def run(self, files: Mapping[str, bytes]) -> Result:
        """Run every stage, as the commands do."""
        root, corpus, experiment = self.root, self.corpus, Experiment.model_validate(EXPERIMENT)
        model, train, machine = experiment.model, experiment.train, Machine(device="cpu", threads=1)
        dataset = described(files)
        (root / "mirror").mkdir()
        for name, data in files.items():
            (root / "mirror" / name).write_bytes(data)
        download(dataset, root / "raw", root / "cache", [(root / "mirror").as_uri()])
        inspect_text(corpus, dataset.splits, root / "raw")
        build_corpus(corpus, dataset.splits, root / "raw", root / "corpus")
        inspect_ids(root / "corpus", dataset.splits)
        check_lengths(root / "corpus", dataset.splits, model.max_positions, train.batches)
        recipe = Recipe(1, model, train, machine, dataset.splits, root / "corpus", {})
        train_run(recipe, root / "work", root / "train", lambda step, metrics: None)
        average_run(root / "train/weights", 1, root / "average/weights.safetensors")
        decode_run(
            root / "corpus",
            root / "raw",
            root / "average/weights.safetensors",
            root / "train/weights",
            model,
            train.batches,
            experiment.decode,
            corpus,
            dataset.splits,
            machine,
            root / "decode",
        )
        return score_run(
            "pets-1",
            Run(
                experiment="pets",
                seed=1,
                dataset="pets",
                corpus="pets",
                model="transformer",
                recipe="pets",
                trained="pets-1",
            ),
            corpus,
            dataset.splits,
            Scoring(bootstrap_resamples=20, bootstrap_seed=1),
            weights=root / "average/weights.safetensors",
            train_summary=root / "train/summary.json",
            train_metrics=root / "train/metrics.jsonl",
            train_history=root / "train/history.csv",
            decode_dir=root / "decode",
            data_files={},
            code_files={},
            threads=1,
            out=root / "result.json",
            provenance_out=root / "provenance.json",
        )

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.root / "corpus/manifest.json").read_text())


def described(files: Mapping[str, bytes]) -> MirroredDataset:
    """Return the data set of these files."""
    listed = {name: {"path": name, "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    return MirroredDataset.model_validate({"kind": "mirrored", "mirrors": [], "splits": SPLITS, "files": listed})


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """Return a project with the tokenizer that the test names, spaCy's words where it names none."""
    name = getattr(request, "param", "words")
    marks = {"source": "en", "target": "de", "source_marks": "end", "cleaning": None}
    return Project(tmp_path, Corpus.model_validate({"dataset": "pets", **marks, "tokenizer": TOKENIZERS[name]}))


# --- what is read, and what is told of it -----------------------------------------------------------------------------

READ: dict[str, tuple[dict[str, bytes], str | None]] = {
    "nothing odd": ({}, None),
    "empty pairs in train": (added("", ""), None),
    "one side empty in train": (added("A dog .", " "), None),
    "an empty side in a test": (
        pairs("test", ["A man .", ""], ["", "Ein Mann ."]),
        "test: 2 pairs have an empty side; ",
    ),
    "a test of white space": (
        pairs("test", [" ", "A man ."], ["Ein", "\t"]),
        "test: 2 pairs have an empty side; no line",
    ),
    "CR LF": ({"train.en": GOOD["train.en"].replace(b"\n", b"\r\n")}, "20 lines ended in CR LF, the CR is stripped"),
    "CR alone": (
        {name: GOOD[name].replace(b"\n", b"\r", 1) for name in ("test.en", "test.de")},
        "test: 1 pairs hold control characters, the first is U+000D in line 1; ",
    ),
    "byte order marks": (
        {name: MARK + data for name, data in GOOD.items()},
        "test.de begins with a byte order mark, which is left out",
    ),
    "NUL": (
        added("A m\0n .", "Ein M\0nn ."),
        "train: 1 pairs hold control characters, the first is U+0000 in line 21; ",
    ),
    "U+2028": (
        pairs("test", ["A\u2028man .", "Two \x85 cats ."], ["Ein\u2028Mann .", "Zwei\x0bKatzen ."]),
        "test: 2 pairs hold control characters, the first is U+2028 in line 1; ",
    ),
    "bidirectional marks": (pairs("test", ["A \u202eman ."], ["Ein \u2066Mann ."]), None),
    "unknown words alone": (
        pairs("test", ["qwertz zuiop", "A man"], ["Hund", "Ein"]),
        "test: 1 of 2 source sentences are unknown words alone",
    ),
    "names of special symbols": (added("<unk> <pad> <sos> <eos>", "<eos> \u2581 \u2047"), None),
    "one sentence in each split": (
        {
            **pairs("train", ["A dog ."], ["Ein Hund ."]),
            **pairs("val", ["A cat ."], ["Eine Katze ."]),
            **pairs("test", ["A dog"], ["Hund"]),
        },
        None,
    ),
    "a word of 100,000 characters": (added("x" * 100_000, "y" * 100_000), None),
    "test pairs that stand in train": (
        pairs("test", [ENGLISH[0], ENGLISH[1], "A cat ."], [GERMAN[0], "Anders .", "Eine Katze ."]),
        "test: 2 of 3 source sentences stand in train too, 1 with the same translation",
    ),
}


@pytest.mark.parametrize(("files", "told"), READ.values(), ids=READ.keys())
def test_odd_texts_are_read_counted_and_named(
    project: Project, files: dict[str, bytes], told: str | None, caplog: pytest.LogCaptureFixture, record: Record
) -> None:
    files = GOOD | files
    with caplog.at_level("WARNING"):
        result = project.run(files)
    messages = [message for message in caplog.messages if not message.startswith("val: ")]
    expected = len(files) if told and "byte order" in told else bool(told)
    assert len(messages) == expected, messages
    assert not told or any(told in message for message in messages)
    lines = [
        read_lines(project.root / f"decode/test.{kind}.txt") for kind in ("hyp", "ref", "hyp.lc-tok", "ref.lc-tok")
    ]
    assert {len(found) for found in lines} == {files["test.en"].count(b"\n")}, "no line is lost or split"
    assert all(0 <= score.low <= score.high <= 100 for score in result.test_sets["test"].values())
    record("input", f"odd text, {names(READ, files)}", 1, 1, sum(map(len, files.values())))


def names(cases: Mapping[str, tuple[dict[str, bytes], Any]], files: Mapping[str, bytes]) -> str:
    """Return the name of the case that these files are."""
    return next(name for name, (changes, _) in cases.items() if GOOD | changes == files)


@pytest.mark.parametrize("project", ["bpe", "raw", "basic"], indirect=True)
def test_other_tokenizers_read_the_oddest_text_too(project: Project, record: Record) -> None:
    """The hypotheses have hardly a character of the references: sacreBLEU alone could not score some of them."""
    files = GOOD | pairs("test", ["<pad>\0", "A\u2028\u202e man", "zuiop", ""], ["<eos>", "\u2581", "Ein\x85", "Q"])
    result = project.run(files)
    assert len(read_lines(project.root / "decode/test.hyp.txt")) == 4
    assert result.test_sets["test"]["chrf"].low >= 0
    record("input", f"oddest text, {project.corpus.tokenizer.kind}", 1, 1, sum(map(len, files.values())))


def test_pairs_without_text_are_dropped_from_train_and_counted(project: Project) -> None:
    project.run(GOOD | {**added("A dog .", " "), **pairs("val", ["A man .", ""], ["Ein Mann .", "Ein Hund ."])})
    found = project.manifest
    assert (found["pairs"], found["dropped"]) == (
        {"train": 20, "val": 1, "test": 2},
        {"train": {"empty": 1}, "val": {"empty": 1}, "test": {"empty": 0}},
    )


def test_a_byte_order_mark_is_no_part_of_the_first_word(project: Project) -> None:
    project.run({name: MARK + data for name, data in GOOD.items()})
    assert {name: (project.root / "raw" / name).read_bytes() for name in GOOD} == GOOD


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "an empty train split": (
        pairs("train", [], []),
        r"raw: no pair of split 'train' has text on both sides and is clean$",
    ),
    "an empty validation split": (pairs("val", [], []), r"raw: no pair of split 'val' has text on both sides$"),
    "validation without text": (
        pairs("val", ["A", ""], ["", "B"]),
        r"raw: no pair of split 'val' has text on both sides$",
    ),
    "an empty test split": (pairs("test", [], []), r"raw: split 'test' is empty$"),
    "references without text": (
        pairs("test", ["A", "B"], ["", " "]),
        r"test\.ref\.lc-tok\.txt holds no text: there is nothing",
    ),
    "a side that is shorter": (
        {"val.en": packed(["A"])},
        r"split 'val' must have equal line counts.*val\.en 1, val\.de 2$",
    ),
    "UTF-16": ({"train.en": GOOD["train.en"].decode().encode("utf-16")}, r"train\.en, line 1 is not UTF-8: byte 0xff"),
    "Latin-1": (
        {"train.de": GOOD["train.de"].decode().encode("latin-1")},
        r"train\.de, line 1 is not UTF-8: byte 0xe4",
    ),
    "half a surrogate pair": ({"val.de": b"\xed\xa0\x80\nx\n"}, r"val\.de, line 1 is not UTF-8: byte 0xed"),
    "no text": ({"val.de": b"\0" * (1 << 21)}, r"val\.de, line 1 has more than 1,048,576 bytes: this is no text$"),
    "100,000 words in train": (
        added("dog " * 25_000, "Hund " * 25_000),
        r"pair 21 of split 'train' has 25,001 source tokens, more than model\.max_positions 64; 1 of 21 have; raise it",
    ),
    "too long a target in validation": (
        pairs("val", ["A man", "A dog"], ["Ein", "Hund " * 64]),
        r"pair 2 of split 'val' has 65 target tokens, more than model\.max_positions 64; 1 of 2 have",
    ),
    "a test sentence beyond the positions": (
        pairs("test", ["A man", "dog " * 64, "dog " * 70], ["Ein", "Hund", "Hund"]),
        r"pair 2 of split 'test' has 65 source tokens, more than model\.max_positions 64; 2 of 3 have",
    ),
}


@pytest.mark.parametrize(("files", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_texts_that_nothing_can_be_made_of_are_refused(
    project: Project, files: dict[str, bytes], message: str, record: Record
) -> None:
    files = GOOD | files
    with pytest.raises(ValueError, match=message) as caught:
        project.run(files)
    assert "\n" not in str(caught.value)
    assert not (project.root / "result.json").exists()
    if "nothing" not in message:
        assert not (project.root / "work").exists(), "before the first update"
    record("input", f"bad text, {names(REFUSED, files)}", 1, 1, sum(map(len, files.values())))


def test_a_pair_that_no_batch_can_hold_is_named_before_training(project: Project) -> None:
    dataset = described(GOOD)
    test_splits = dataset.splits
    (project.root / "raw").mkdir()
    for name, data in GOOD.items():
        (project.root / "raw" / name).write_bytes(data)
    build_corpus(project.corpus, test_splits, project.root / "raw", project.root / "corpus")
    batches = Experiment.model_validate(EXPERIMENT).train.batches.model_copy(update={"max_tokens": 8})
    with pytest.raises(
        ValueError, match=r"pair 2 of split 'train' has 10 padded tokens, more than train\.batches\.max_t"
    ):
        check_lengths(project.root / "corpus", test_splits, 64, batches)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_the_commands_tell_and_refuse_the_same(tmp_path: Path) -> None:
    sys.path.append(str(ROOT / "tests/unit"))
    from specs import bleuprint

    yaml = YAML(typ="safe", pure=True)
    params = yaml.load(ROOT / "params.yaml")
    files = GOOD | pairs("test", [ENGLISH[0], "dog " * 70], [GERMAN[0], "Hund"])
    params["datasets"]["pets"] = {**described(files).model_dump(mode="json"), "mirrors": [tmp_path.as_uri()]}
    params["corpora"]["pets"] = {
        **{"dataset": "pets", "source": "en", "target": "de", "source_marks": "end", "cleaning": None},
        "tokenizer": TOKENIZERS["words"],
    }
    params["experiments"]["pets"] = EXPERIMENT
    with (tmp_path / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert bleuprint(tmp_path, "download", "pets").returncode == 0
    done = bleuprint(tmp_path, "tokenize", "pets")
    assert done.returncode == 0, done.stderr
    assert "test: 1 of 2 source sentences stand in train too, 1 with the same translation\n" in done.stderr
    shutil.rmtree(tmp_path / "work")
    done = bleuprint(tmp_path, "train", "pets-1")
    assert done.returncode == 1
    assert re.search(
        r"^error: data/corpora/pets: pair 2 of split 'test' has 71 source tokens, more than", done.stderr, re.M
    )
    assert not (tmp_path / "work/train").exists()
