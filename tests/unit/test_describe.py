"""The counts of a model against the README's claims, and against its file."""

import json
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import torch
from specs import ROOT, bleuprint, variant

from bleuprint.estimates.describe import MAX_TYPES, count_parts, describe_model, vocabularies
from bleuprint.graph import load_params
from bleuprint.models import build_model

EXPERIMENTS = load_params(ROOT / "params.yaml").recipes
VOCABULARIES_OF_2019 = (5_893, 7_855)  # CLAIMS 1a
CLAIMED_FILE = 220_884_635  # bytes: the "215.7 MB" of the README (CLAIMS 1c)


@pytest.mark.parametrize(
    ("experiment", "types", "count"),
    [
        ("readme", (5_893, 7_855), 55_207_087),
        ("readme", (5_893, 7_853), 55_205_037),
        ("published", (5_893, 7_855), 50_479_279),
        ("published", (5_893, 7_853), 50_477_229),
        ("published", (7_855, 5_893), 49_472_773),  # DE-EN, which the README does not say (reference/evidence.yaml)
        ("log-1d076f1", (5_893, 7_855), 55_207_087),  # with the output projection, the first repair
    ],
)
def test_the_counts_that_the_readme_claims(experiment: str, types: tuple[int, int], count: int) -> None:
    """The README of today and the one of the curve; today's spaCy has two German words fewer than that of 2019."""
    assert sum(count_parts(EXPERIMENTS[experiment].model, *types).values()) == count


def test_the_table_of_a_model() -> None:
    """D 16, F 24: attention 4 (16 x 16 + 16), feed-forward 2 x 16 x 24 + 24 + 16, a norm 32."""
    attention, feed_forward, norm = 1_088, 808, 32
    encoder, decoder = 2 * (attention + feed_forward + 2 * norm), 2 * (2 * attention + feed_forward + 3 * norm)
    assert (encoder, decoder) == (3_920, 6_160)
    assert describe_model(variant({}), 1_100, 1_300).splitlines() == [
        "transformer, 1,100 source and 1,300 target types",
        "output                  20,800",
        "output_bias              1,300",
        "source_embedding        17,600",
        "target_embedding        20,800",
        "encoder                  3,920",
        "decoder                  6,160",
        "all                     70,580",
        "float32 values: 282,320 bytes = 276 KiB",
    ]


def test_a_tied_matrix_counts_once() -> None:
    tied = count_parts(variant({"tie_embeddings": "all", "output_bias": False}), 1_100, 1_100)
    assert tied == {"source_embedding": 17_600, "encoder": 3_920, "decoder": 6_160}


def test_the_size_that_the_readme_claims_is_that_of_a_legacy_save() -> None:
    """What torch.save wrote in 2019: the float32 values and some 200 bytes a tensor for its name, shape and place."""
    spec = EXPERIMENTS["readme"].model
    with torch.device("meta"):
        model = build_model(spec, *VOCABULARIES_OF_2019)
    with TemporaryFile() as file:
        torch.save(model.to_empty(device="cpu").state_dict(), file, _use_new_zipfile_serialization=False)
        size = file.tell()
    assert size == pytest.approx(CLAIMED_FILE, rel=1e-3)
    assert f"{size / 1024 / 1000:.1f}" == "215.7"  # thousands of KiB, which the README calls MB
    values = "float32 values: 220,828,348 bytes = 215,653 KiB"
    assert describe_model(spec, *VOCABULARIES_OF_2019).splitlines()[-1] == values
    assert 0 < size - 220_828_348 < 100_000


# --- vocabularies -----------------------------------------------------------------------------------------------------


def test_vocabularies_are_the_corpuss_unless_given(tmp_path: Path) -> None:
    missing = rf"{tmp_path}/manifest\.json is missing; .* tokenize {tmp_path.name}; or give both --src-vocab and"
    for given in ((None, None), (5, None), (None, 6)):
        with pytest.raises(ValueError, match=missing):
            vocabularies(tmp_path, *given)
    (tmp_path / "manifest.json").write_text(json.dumps({"vocabulary": {"source": 11, "target": 13}}))
    assert vocabularies(tmp_path, None, None) == (11, 13)
    assert vocabularies(tmp_path, 5, None) == (5, 13)
    assert vocabularies(tmp_path, None, 6) == (11, 6)
    assert vocabularies(tmp_path / "nowhere", 5, 6) == (5, 6)


@pytest.mark.parametrize("sizes", [("x", 13), (-4, 13), (11, 0), (11, True), (11, 2.5), (11, 10**20), (None, None)])
def test_a_manifest_with_other_than_numbers_of_types_is_named(tmp_path: Path, sizes: tuple[object, object]) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"vocabulary": dict(zip(("source", "target"), sizes, strict=True))})
    )
    message = rf"manifest\.json says {sizes[0]!r} source and {sizes[1]!r} target types, .* tokenize {tmp_path.name}$"
    with pytest.raises(ValueError, match=message):
        vocabularies(tmp_path, None, None)


@pytest.mark.parametrize("option", ["--src-vocab", "--tgt-vocab"])
def test_more_types_than_a_model_can_have_are_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    sizes = {"--src-vocab": "5893", "--tgt-vocab": "7855", option: "99999999999999999999"}
    done = bleuprint(tmp_path, "describe", "published-7", *(word for pair in sizes.items() for word in pair))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Invalid value for '{option}'" in done.stderr
    assert f"{MAX_TYPES}" in done.stderr, "the bound of describe.py"


def test_the_command_needs_no_corpus_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    done = bleuprint(tmp_path, "describe", "published-7", "--src-vocab", "5893", "--tgt-vocab", "7855")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == describe_model(EXPERIMENTS["published"].model, *VOCABULARIES_OF_2019) + "\n"
    assert "all                 50,479,279\n" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
    done = bleuprint(tmp_path, "describe", "tiny-1", "--src-vocab", "5", "--tgt-vocab", "6")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: tie_embeddings: all needs one vocabulary for both sides, not 5 source and 6 ")
