import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from texts import sentences, split_by_perl

from bleuprint.graph import Run
from bleuprint.metrics import METRICS, MetricName, metrics_of
from bleuprint.params import BpeTokenizer, Corpus, Scoring, Splits
from bleuprint.scoring import (
    LegacyScore,
    Result,
    count_parameters,
    read_decoded,
    read_result,
    score_forced,
    score_run,
    score_test_set,
    write_json,
)

QUICK = Scoring(bootstrap_resamples=50, bootstrap_seed=7)
SETTINGS = Run(
    experiment="small-greedy",
    seed=3,
    dataset="text",
    corpus="words",
    model="transformer",
    recipe="small",
    trained="small-3",
)
SPLITS = Splits(train="train", validation="val", tests=("day", "night"))
OPTIONS: dict[MetricName, list[str]] = {
    "bleu_lc_tok": ["-tok", "none"],
    "bleu_13a_lc": ["-lc"],
    "bleu_13a": [],
    "bleu_compound_split": ["-tok", "none", "--smooth-method", "none"],
    "chrf": ["-m", "chrf"],
}


# Validation, predicted word by word: with the averaged weights, and with those of the second and the tenth epoch.
FORCED = {
    "forced-ref": ["hunde", "katze"],
    "forced": ["hunde", "hunde"],
    "forced.00000004": ["katze", "hunde"],
    "forced.00000020": ["hunde", "<unk> katze hunde"],
}


SUMMARY = {"steps": 9, "epochs": 2, "source_tokens": 810, "target_tokens": 900, "flops": 1.5e9, "more": "ignored"}


def corpus(text: str) -> Corpus:
    tokenizer = BpeTokenizer.model_validate({"kind": "bpe", "text": text, "merges": 10, "min_frequency": 1})
    return Corpus(dataset="d", source="en", target="de", source_marks="end", cleaning=None, tokenizer=tokenizer)


CASED, LOWER_CASED = corpus("raw"), corpus("lc-tok")


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def decoded(directory: Path, count: int = 60) -> Path:
    """Write what the decode stage leaves for both test sets: one empty hypothesis, one line with odd separators."""
    directory.mkdir()
    references, hypotheses = sentences(count, 0.0), ["", *sentences(count, 0.15)[1:]]
    references[2] = hypotheses[2] = "Ein\u2028Hund am\x85Ufer\x0c und\x0b mehr"
    for test in SPLITS.tests:
        for side, lines in (("ref", references), ("hyp", hypotheses)):
            write_lines(directory / f"{test}.{side}.txt", lines)
            write_lines(directory / f"{test}.{side}.lc-tok.txt", [line.lower().replace(",", " ,") for line in lines])
    for name, words in FORCED.items():
        write_lines(directory / f"val.{name}.txt", words)
    return directory


def stage(root: Path, stopped: str = "max_steps", loss: float | None = 1.25) -> dict[str, Path]:
    """Write the files of the earlier stages below `root` and return their paths as `score_run` takes them."""
    save_file({"a": np.zeros((3, 4), np.float32), "b": np.zeros((), np.float32)}, root / "weights.safetensors")
    (root / "summary.json").write_text(json.dumps({**SUMMARY, "stopped": stopped, "validation_loss": loss}))
    rows = [f"{epoch},{2 * epoch},5.0,4.5,1e-05" for epoch in range(1, 11)]
    write_lines(root / "history.csv", ["epoch,step,train_loss,validation_loss,lr", *rows])
    names = {
        "weights": "weights.safetensors",
        "train_summary": "summary.json",
        "train_metrics": "metrics.jsonl",
        "train_history": "history.csv",
    }
    paths = {key: root / name for key, name in names.items()}
    return {**paths, "out": root / "results" / "r.json", "provenance_out": root / "results" / "r.provenance.json"}


def run_stage(root: Path, paths: dict[str, Path]) -> Result:
    return score_run(
        "small-greedy-3",
        SETTINGS,
        CASED,
        SPLITS,
        QUICK,
        weights=paths["weights"],
        train_summary=paths["train_summary"],
        train_metrics=paths["train_metrics"],
        train_history=paths["train_history"],
        decode_dir=root / "decode",
        data_files={"raw": root / "summary.json"},
        code_files={},
        threads=2,
        out=paths["out"],
        provenance_out=paths["provenance_out"],
    )


def split_by_commands(path: Path) -> Path:
    """Write a file's text through the commands that compound_split.py names, sacremoses for Moses' own tokenizer."""
    command = [sys.executable, "-c", "from sacremoses.cli import cli; cli()", "-q", "-l", "de", "tokenize"]
    tokens = subprocess.run(command, input=path.read_bytes(), capture_output=True, check=True).stdout
    path.with_suffix(".split").write_bytes(split_by_perl(tokens))
    return path.with_suffix(".split")


@pytest.mark.parametrize("name", METRICS)
def test_score_and_interval_are_those_of_the_sacrebleu_command(name: MetricName, tmp_path: Path) -> None:
    directory = decoded(tmp_path / "decode")
    files = [directory / f"day.{side}.{METRICS[name].suffix}" for side in ("ref", "hyp")]
    if name == "bleu_compound_split":
        files = [split_by_commands(path) for path in files]
    command = [sys.executable, "-m", "sacrebleu", str(files[0]), "-i", str(files[1]), "-w", "6", *OPTIONS[name]]
    confidence = ["--confidence", "--confidence-n", "50"]
    environment = {**os.environ, "SACREBLEU_SEED": "7"}
    printed = subprocess.run(command + confidence, capture_output=True, text=True, check=True, env=environment)
    said = json.loads(printed.stdout)

    score = score_test_set(directory, "day", CASED, QUICK)[name]

    assert score.score == said["score"]
    assert 20 < score.score < 95, "too easy a text shows nothing"
    assert score.signature == "|".join(
        f"{key}:{said[key]}" for key in said if key in {part.split(":")[0] for part in score.signature.split("|")}
    )
    assert score.low == pytest.approx(said["confidence_mean"] - said["confidence_var"], abs=2e-6)
    assert score.high == pytest.approx(said["confidence_mean"] + said["confidence_var"], abs=2e-6)


def test_the_plain_command_prints_the_stored_number(tmp_path: Path) -> None:
    directory = decoded(tmp_path / "decode")
    files = [str(directory / f"day.{side}.lc-tok.txt") for side in ("ref", "hyp")]
    command = [sys.executable, "-m", "sacrebleu", files[0], "-i", files[1], "-tok", "none", "-b", "-w", "2"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == f"{score_test_set(directory, 'day', LOWER_CASED, QUICK)['bleu_lc_tok'].score:.2f}"


def test_cased_bleu_only_for_a_cased_corpus(tmp_path: Path) -> None:
    directory = decoded(tmp_path / "decode")
    cased = {"bleu_13a", "bleu_compound_split"}
    assert set(score_test_set(directory, "day", CASED, QUICK)) == set(METRICS)
    assert set(score_test_set(directory, "day", LOWER_CASED, QUICK)) == set(METRICS) - cased


def test_the_papers_bleu_only_from_english_to_german() -> None:
    backwards = CASED.model_copy(update={"source": "de", "target": "en"})
    assert metrics_of(CASED) == list(METRICS)
    assert metrics_of(backwards) == [name for name in METRICS if name != "bleu_compound_split"]


def test_missing_unpaired_and_empty_files_are_named(tmp_path: Path) -> None:
    directory = decoded(tmp_path / "decode")
    hypotheses, references = directory / "day.hyp.txt", directory / "day.ref.txt"
    write_lines(hypotheses, ["eins", "zwei"])
    with pytest.raises(ValueError, match=r"day\.hyp\.txt has 2 lines and .*day\.ref\.txt has 60"):
        read_decoded(directory, "day", "txt")
    write_lines(references, [])
    write_lines(hypotheses, [])
    with pytest.raises(ValueError, match=r"day\.hyp\.txt and .*day\.ref\.txt are empty"):
        read_decoded(directory, "day", "txt")
    references.unlink()
    with pytest.raises(ValueError, match=r"day\.ref\.txt is missing"):
        read_decoded(directory, "day", "txt")


def test_parameters_are_counted_from_the_header(tmp_path: Path) -> None:
    assert count_parameters(stage(tmp_path)["weights"]) == 13
    (tmp_path / "weights.safetensors").write_bytes(b"not tensors")
    with pytest.raises(ValueError, match=r"weights\.safetensors is not a safetensors file"):
        count_parameters(tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match=r"gone\.safetensors is missing"):
        count_parameters(tmp_path / "gone.safetensors")


def test_stage_writes_the_contract_and_the_same_bytes_again(tmp_path: Path) -> None:
    decoded(tmp_path / "decode")
    paths = stage(tmp_path)
    result = run_stage(tmp_path, paths)
    text = paths["out"].read_bytes()
    paths["out"].unlink()
    run_stage(tmp_path, paths)

    assert paths["out"].read_bytes() == text
    assert read_result(paths["out"]) == result
    data = json.loads(text)
    assert list(data) == [
        "code", "corpus", "data", "epochs", "experiment", "flops", "legacy_score", "parameters", "run", "seed", "steps",
        "stopped", "test_sets", "tokens", "trained", "validation_loss",
    ]  # fmt: skip
    assert text.endswith(b"\n}\n")
    assert (data["run"], data["seed"], data["parameters"], data["steps"]) == ("small-greedy-3", 3, 13, 9)
    assert (data["experiment"], data["trained"]) == ("small-greedy", "small-3")
    assert (data["stopped"], data["validation_loss"]) == ("max_steps", 1.25)
    assert (data["tokens"], data["flops"]) == ({"source": 810, "target": 900}, 1.5e9)
    assert set(data["test_sets"]["night"]["chrf"]) == {"score", "low", "high", "signature"}
    assert len(data["data"]["raw"]) == 64
    assert data["legacy_score"] == {"split": "val", "score": 50.0, "epochs": {"2": 0.0, "10": 100.0}}
    assert {path.name for path in paths["out"].parent.iterdir()} == {"r.json", "r.provenance.json"}


def test_the_legacy_score_is_rounded_and_has_epochs_only_where_they_were_forced(tmp_path: Path) -> None:
    directory, paths = decoded(tmp_path / "decode"), stage(tmp_path)
    for path in directory.glob("val.forced.0*"):
        path.unlink()
    write_lines(directory / "val.forced.txt", ["hunden", "katze"])
    found = score_forced(directory, "val", paths["train_history"])
    first = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25  # hunden/hunde
    assert found == LegacyScore(split="val", score=round((first + 100) / 2, 6), epochs={})


def test_forced_text_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    directory, paths = decoded(tmp_path / "decode"), stage(tmp_path)
    history, reference = paths["train_history"], directory / "val.forced-ref.txt"
    write_lines(directory / "val.forced.00000021.txt", FORCED["forced"])
    with pytest.raises(ValueError, match=r"history\.csv has no epoch that ends where .*forced\.00000021\.txt was made"):
        score_forced(directory, "val", history)
    write_lines(reference, ["hunde"])
    (directory / "val.forced.00000021.txt").unlink()
    with pytest.raises(ValueError, match=r"forced\.00000004\.txt has 2 lines and .*forced-ref\.txt has 1"):
        score_forced(directory, "val", history)
    reference.unlink()
    with pytest.raises(ValueError, match=r"forced-ref\.txt is missing: decode the run first"):
        score_forced(directory, "val", history)
    write_lines(history, ["epoch,step", "1,"])
    with pytest.raises(ValueError, match=r"history\.csv is damaged"):
        score_forced(directory, "val", history)
    history.unlink()
    with pytest.raises(ValueError, match=r"history\.csv is missing"):
        score_forced(directory, "val", history)


@pytest.mark.parametrize("step", ["4", "000000004", "last", "0000000x", "00000004.old"])
def test_forced_text_with_another_name_is_refused(tmp_path: Path, step: str) -> None:
    directory, paths = decoded(tmp_path / "decode"), stage(tmp_path)
    write_lines(directory / f"val.forced.{step}.txt", FORCED["forced"])
    with pytest.raises(ValueError, match=rf"val\.forced\.{step}\.txt is not named val\.forced\., eight digits, \.txt"):
        score_forced(directory, "val", paths["train_history"])


def test_a_run_that_diverged_is_scored_and_has_no_validation_loss(tmp_path: Path) -> None:
    decoded(tmp_path / "decode")
    paths = stage(tmp_path, stopped="diverged", loss=None)
    write_lines(
        paths["train_history"], ["epoch,step,train_loss,validation_loss,lr", "1,4,nan,nan,0.1", "2,20,nan,nan,1"]
    )
    result = run_stage(tmp_path, paths)
    assert (result.stopped, result.validation_loss) == ("diverged", None)
    assert read_result(paths["out"]) == result


@pytest.mark.parametrize(
    ("stopped", "loss", "message"),
    [
        (
            "diverged",
            1.25,
            "stopped is 'diverged' and validation_loss is 1.25: a run that diverged has none, every other",
        ),
        (
            "patience",
            None,
            "stopped is 'patience' and validation_loss is None: a run that diverged has none, every other",
        ),
        ("max_steps", float("nan"), "validation_loss is nan: it should be a finite number"),
        ("bored", 1.25, "stopped is 'bored'; valid: max_steps, patience, diverged"),
    ],
)
def test_a_summary_that_contradicts_itself_is_refused(
    tmp_path: Path, stopped: str, loss: float | None, message: str
) -> None:
    decoded(tmp_path / "decode")
    with pytest.raises(ValueError, match=rf"summary\.json: {message}"):
        run_stage(tmp_path, stage(tmp_path, stopped, loss))


def test_a_failing_stage_leaves_nothing(tmp_path: Path) -> None:
    decoded(tmp_path / "decode")
    paths = stage(tmp_path)
    (tmp_path / "decode" / "night.hyp.txt").unlink()
    with pytest.raises(ValueError, match=r"night\.hyp\.txt is missing"):
        run_stage(tmp_path, paths)
    paths["train_summary"].write_text('{"steps": 9}')
    with pytest.raises(ValueError, match=r"summary\.json: epochs is missing"):
        run_stage(tmp_path, paths)
    assert not paths["out"].parent.exists()


def test_a_write_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "r.json", {"b": 1, "a": "ß"})
    assert (tmp_path / "r.json").read_text(encoding="utf-8") == '{\n  "a": "ß",\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "r.json", {"a": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        write_json(tmp_path / "r.json", {"a": "\ud800"})
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert "ß" in (tmp_path / "r.json").read_text(encoding="utf-8")


def test_results_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for text, message in (
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"run": "a"}', "experiment is missing"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_result(path)


def test_a_thousand_resamples_of_a_thousand_sentences_take_seconds(tmp_path: Path) -> None:
    directory = decoded(tmp_path / "decode", count=1000)
    start = time.process_time()
    score_test_set(directory, "day", CASED, Scoring(bootstrap_resamples=1000, bootstrap_seed=12345))
    assert time.process_time() - start < 5  # measured: 1.1 s


def test_reading_and_reporting_import_nothing_heavy() -> None:
    heavy = "{'torch', 'spacy', 'sacrebleu', 'mlflow', 'pandas', 'altair', 'safetensors'}"
    code = (
        f"import sys, bleuprint.report, bleuprint.scoring, bleuprint.verdicts.claims; print({heavy} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "set()"
