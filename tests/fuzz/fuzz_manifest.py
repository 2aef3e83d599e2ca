"""Fuzz what is read beside and in checkpoints: manifests, summaries, tokenizers, histories, weights."""

import json
import struct

import atheris
from harness import fuzz, scratch

with atheris.instrument_imports(include=["bleuprint"]):
    from bleuprint.checkpoint import load_weights
    from bleuprint.provenance import summarise_training
    from bleuprint.scoring import TrainSummary, count_parameters, read_epochs, read_result
    from bleuprint.strict import read_json, validate
    from bleuprint.tokenizers import load_tokenizer
    from bleuprint.training import vocabulary_sizes

CORPUS = scratch()


def safetensors(header: object, data: bytes) -> bytes:
    """Return a file of weights with this header."""
    packed = json.dumps(header).encode()
    return struct.pack("<Q", len(packed)) + packed + data


def read_weights(data: bytes) -> None:
    (CORPUS / "a.safetensors").write_bytes(data)
    count_parameters(CORPUS / "a.safetensors")
    load_weights(CORPUS / "a.safetensors")


def read_manifest(data: bytes) -> None:
    (CORPUS / "manifest.json").write_bytes(data)
    vocabulary_sizes(CORPUS)


def read_tokenizer(data: bytes) -> None:
    (CORPUS / "tokenizer.json").write_bytes(data)
    load_tokenizer(CORPUS).decode_tokens([0, 1, 2, 3])


def read_summary(data: bytes) -> None:
    path = CORPUS / "summary.json"
    path.write_bytes(data)
    validate(TrainSummary, read_json(path), path)


def read_score(data: bytes) -> None:
    (CORPUS / "result.json").write_bytes(data)
    read_result(CORPUS / "result.json")


def read_history(data: bytes) -> None:
    (CORPUS / "history.csv").write_bytes(data)
    read_epochs(CORPUS / "history.csv")


def read_metrics(data: bytes) -> None:
    (CORPUS / "metrics.jsonl").write_bytes(data)
    summarise_training(CORPUS / "metrics.jsonl")


READERS = (read_weights, read_manifest, read_tokenizer, read_summary, read_score, read_history, read_metrics)
SUMMARY = {
    "steps": 4,
    "epochs": 1,
    "stopped": "max_steps",
    "validation_loss": 1.5,
    "flops": 1e9,
    "source_tokens": 5,
    "target_tokens": 6,
}
TYPES = ["<unk>", "<pad>", "<sos>", "<eos>"]
WORDS = {"kind": "words", "lowercase": True, "min_frequency": 1, "source": "en", "target": "de"}
BPE = {"kind": "bpe", "text": "raw", "merges": 1, "source": "en", "target": "de"}
# The first byte says which reader gets the others.
SEEDS = (
    b"\0" + safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    b"\1" + json.dumps({"vocabulary": {"source": 5, "target": 6}}).encode(),
    b"\2" + json.dumps(WORDS | {"source_types": [*TYPES, "a"], "target_types": [*TYPES, "b"]}).encode(),
    b"\2" + json.dumps(BPE | {"types": [*TYPES, "a", "b", "ab"], "learned_merges": ["a b"]}).encode(),
    b"\2"
    + json.dumps({"kind": "basic", "source": "en", "target": "de", "source_types": [], "target_types": []}).encode(),
    b"\3" + json.dumps(SUMMARY).encode(),
    b"\4" + json.dumps({**SUMMARY, "run": "a-1", "test_sets": {}, "data": {}}).encode(),
    b"\5step,epoch,validation_loss\n5,1,2.5\n",
    b'\6{"step": 1, "seconds": 2.5, "tokens_per_second": 9}\n',
)


def read(data: bytes) -> None:
    if data:
        READERS[data[0] % len(READERS)](data[1:])


if __name__ == "__main__":
    fuzz("manifests, tokenizers, histories and weights", read, SEEDS)
