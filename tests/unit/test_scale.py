"""benchmarks/scale.py writes a data set that `tokenize` takes. The whole takes minutes and is run by hand."""

from pathlib import Path

from scale import SMALL_SPLIT, write_text

from bleuprint.intact import check_raw
from bleuprint.lines import read_pairs
from bleuprint.manifests import read_digests
from bleuprint.params import Splits


def test_the_text_is_one_that_tokenize_takes(tmp_path: Path) -> None:
    splits = Splits(train="train", validation="val", tests=("test",))
    size = write_text(tmp_path, splits, 20)
    check_raw(tmp_path)
    assert len(read_digests(tmp_path)) == 6
    assert size == sum((tmp_path / f"train.{language}").stat().st_size for language in ("en", "de"))
    assert [len(read_pairs(tmp_path, split, "en", "de")[0]) for split in splits.all] == [20, SMALL_SPLIT, SMALL_SPLIT]
