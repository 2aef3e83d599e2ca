"""Data sets of parallel text files: in folders and on the web, with files for every split or with held-out pairs."""

import gzip
import hashlib
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bleuprint import texts
from bleuprint.datasets import HeldOut, Splits, TextsDataset
from bleuprint.graph import load_params
from bleuprint.lines import read_lines, read_pairs

ROOT = Path(__file__).parents[2]
SPLITS = {"train": "train", "validation": "val", "tests": ["test"]}
HELD_OUT = {"seed": 1, "pairs": {"val": 20, "test": 30}}


def spec(files: dict[str, Path], held_out: dict | None, places: list[str], **sha256: str | None) -> TextsDataset:
    """Return a data set of files: each with its own sha256, unless another or none is given."""
    return TextsDataset.model_validate(
        {
            "kind": "texts",
            "places": places,
            "splits": SPLITS,
            "held_out": held_out,
            "files": {
                name: {"path": path.name, "sha256": sha256[name] if name in sha256 else sha256_of(path)}
                for name, path in files.items()
            },
        }
    )


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def two_files(folder: Path, pairs: int = 200) -> dict[str, Path]:
    """Write two parallel files, one of them packed, and return them by the names that they are to have."""
    folder.mkdir(exist_ok=True)
    source, target = folder / "all.cs", folder / "all.pt.gz"
    source.write_text("".join(f"věta {i}\n" for i in range(pairs)), encoding="utf-8")
    target.write_bytes(gzip.compress("".join(f"frase {i}\n" for i in range(pairs)).encode()))
    return {"train.cs": source, "train.pt": target}


def make(root: Path, dataset: TextsDataset) -> Path:
    places = texts.places_in_order(dataset, {})
    texts.download(dataset, root / "raw", root / "cache", root / "checksums.yaml", places)
    return root / "raw"


def test_held_out_pairs_are_pairs_and_every_pair_is_in_one_split(tmp_path: Path) -> None:
    raw = make(tmp_path, spec(two_files(tmp_path / "in"), HELD_OUT, [str(tmp_path / "in")]))
    pairs = {split: list(zip(*read_pairs(raw, split, "cs", "pt"), strict=True)) for split in ("train", "val", "test")}
    assert {split: len(found) for split, found in pairs.items()} == {"train": 150, "val": 20, "test": 30}
    assert sorted(chain.from_iterable(pairs.values())) == sorted((f"věta {i}", f"frase {i}") for i in range(200))
    manifest = json.loads((raw / "manifest.json").read_text())["files"]
    assert {name: item["sha256"] for name, item in manifest.items()} == {
        path.name: sha256_of(path) for path in raw.iterdir() if path.name != "manifest.json"
    }


def test_the_seed_decides_which_pairs_and_nothing_else_does(tmp_path: Path) -> None:
    files = two_files(tmp_path / "in")
    drawn = []
    for index, seed in enumerate((1, 1, 2)):
        (root := tmp_path / str(index)).mkdir()
        raw = make(root, spec(files, {**HELD_OUT, "seed": seed}, [str(tmp_path / "in")]))
        drawn.append(read_lines(raw / "test.cs"))
    assert drawn[0] == drawn[1] != drawn[2]
    # Fixed here: another release of Python must draw the same.
    splits = Splits(train="train", validation="val", tests=("test",))
    rows = texts.draw_rows(12, HeldOut(seed=1, pairs={"val": 2, "test": 3}), splits)
    by_hash = sorted(range(12), key=lambda row: hashlib.sha256(f"1 {row}".encode()).digest())
    assert rows == {"val": sorted(by_hash[:2]), "test": sorted(by_hash[2:5])}


def test_what_repeats_a_held_out_side_is_not_trained_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every second pair has a translation that the next one has too: told, where one of the two is held out."""
    folder = tmp_path / "in"
    files = two_files(folder)
    files["train.pt"].write_bytes(gzip.compress("".join(f"frase {i // 2}\n" for i in range(200)).encode()))
    with caplog.at_level("INFO"):
        raw = make(tmp_path, spec(files, HELD_OUT, [str(folder)]))
    source, target = read_pairs(raw, "train", "cs", "pt")
    held = {split: set(read_lines(raw / f"{split}.pt")) for split in ("val", "test")}
    assert not (held["val"] | held["test"]) & set(target)
    assert len(source) == 2 * len(set(target)) > 0, "both of a pair of pairs, or none"
    assert f"train: {len(source)} of 200 pairs; {150 - len(source)} left out that repeat one held out" in caplog.text


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    dataset = spec(files := two_files(tmp_path / "in"), HELD_OUT, [str(tmp_path / "in")])
    files["train.cs"].write_text("něco jiného\n" * 200, encoding="utf-8")
    with pytest.raises(ValueError, match=r"train\.cs could not be downloaded: .*all\.cs: sha256 is .*, expected"):
        make(tmp_path, dataset)
    assert not (tmp_path / "raw").exists()


def test_a_sha256_that_nobody_gave_is_recorded_and_then_holds(tmp_path: Path) -> None:
    files, places = two_files(tmp_path / "in"), [str(tmp_path / "in")]
    dataset = spec(files, HELD_OUT, places, **{"train.cs": None})
    make(tmp_path, dataset)
    assert f'train.cs: "{sha256_of(files["train.cs"])}"' in (tmp_path / "checksums.yaml").read_text()
    assert "train.pt" not in (tmp_path / "checksums.yaml").read_text()
    files["train.cs"].write_text("".join(f"jiná {i}\n" for i in range(200)), encoding="utf-8")
    (tmp_path / "cache/train.cs").unlink()
    with pytest.raises(ValueError, match=r"the first download had .*delete its line in .*checksums\.yaml"):
        make(tmp_path, dataset)
    (tmp_path / "checksums.yaml").unlink()
    assert read_lines(make(tmp_path, dataset) / "val.cs")[0].startswith("jiná")


def test_an_old_copy_is_not_taken_for_a_file_without_a_checksum(tmp_path: Path) -> None:
    files = two_files(tmp_path / "in")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/train.cs").write_text("stará\n" * 200, encoding="utf-8")
    raw = make(tmp_path, spec(files, HELD_OUT, [str(tmp_path / "in")], **{"train.cs": None}))
    assert "stará" not in read_lines(raw / "train.cs")


def test_files_for_every_split(tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    files = {}
    for split, count in (("train", 5), ("val", 2), ("test", 3)):
        for language in ("cs", "pt"):
            files[f"{split}.{language}"] = folder / f"{split}.{language}"
            files[f"{split}.{language}"].write_text("".join(f"{split} {i}\r\n" for i in range(count)))
    raw = make(tmp_path, spec(files, None, [str(folder)]))
    assert read_lines(raw / "test.pt") == ["test 0", "test 1", "test 2"]
    (folder / "val.pt").write_text("ein\n")
    with pytest.raises(ValueError, match=r"files of split 'val' must have equal line counts, .*val\.cs 2, val\.pt 1"):
        make(tmp_path, spec(files, None, [str(folder)]))


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        ({"seed": 1, "pairs": {"val": 100, "test": 100}}, "held_out takes 200 pairs of 200: none is left to train on"),
        ({"seed": 1, "pairs": {"val": 1}}, "held_out.pairs must name exactly the splits val, test"),
        (None, "the files of split 'val' must have equal line counts, but there is no file"),
    ],
)
def test_too_little_is_refused(tmp_path: Path, held_out: Any, message: str) -> None:
    with pytest.raises((ValueError, ValidationError), match=message):
        make(tmp_path, spec(two_files(tmp_path / "in"), held_out, [str(tmp_path / "in")]))
    assert not (tmp_path / "raw").exists()


def test_unequal_files_are_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    files = two_files(tmp_path / "in")
    with files["train.cs"].open("a", encoding="utf-8") as source:
        source.write("navíc\n")
    with pytest.raises(ValueError, match=r"equal line counts, but there is train\.cs 201, train\.pt 200"):
        make(tmp_path, spec(files, HELD_OUT, [str(tmp_path / "in")]))


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = two_files(tmp_path / "in")
    mirror = {"BLEUPRINT_MIRROR": "file:///mirror"}
    own = spec(files, HELD_OUT, ["in", "/else"])
    assert texts.places_in_order(own, mirror) == [(tmp_path / "in").as_uri(), "file:///else"], "nobody mirrors these"
    web = spec(files, HELD_OUT, ["https://example.org/texts"])
    assert texts.places_in_order(web, mirror) == ["file:///mirror", "https://example.org/texts"]
    with pytest.raises(ValidationError, match="neither a folder nor a URL"):
        spec(files, HELD_OUT, ["s3://bucket"])


def test_with_held_out_a_file_of_another_split_is_refused(tmp_path: Path) -> None:
    files = two_files(tmp_path / "in")
    with pytest.raises(ValidationError, match=r"files\.val\.cs: with held_out all files are of the split train"):
        spec({**files, "val.cs": files["train.cs"]}, HELD_OUT, ["in"])


def test_multi30ks_french_as_params_name_it(tmp_path: Path, multi30k_mirror: str) -> None:
    """The English files are the real ones; German stands in for French, which is not on every machine."""
    real = Path(multi30k_mirror.removeprefix("file://"))
    dataset = load_params(ROOT / "params.yaml").datasets["multi30k-fr"]
    assert dataset.kind == "texts"
    for file in dataset.files.values():
        path = tmp_path / "mirror" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(real / re.sub(r"\.fr\b", ".de", file.path))
    places = texts.places_in_order(dataset, {"BLEUPRINT_MIRROR": (tmp_path / "mirror").as_uri()})
    texts.download(dataset, tmp_path / "raw", tmp_path / "cache", tmp_path / "checksums.yaml", places)
    sizes = {split: len(read_pairs(tmp_path / "raw", split, "en", "fr")[0]) for split in dataset.splits.all}
    assert sizes == {
        "train": 29000,
        "val": 1014,
        "test_2016_flickr": 1000,
        "test_2017_flickr": 1000,
        "test_2017_mscoco": 461,
    }
    recorded = (tmp_path / "checksums.yaml").read_text()
    assert recorded.count(".fr: ") == 8
    assert ".en: " not in recorded, "these are known"
