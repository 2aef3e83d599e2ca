import math
from pathlib import Path

import pytest

from bleuprint.verdicts.curves import (
    Curve,
    Distance,
    Epoch,
    Point,
    distance,
    epochs_to_reach,
    mean_curve,
    read_curve,
    read_history,
)
from bleuprint.verdicts.published import CURVES_DIR


def curve(*losses: tuple[float, float]) -> Curve:
    return {epoch: Point(train, val, None) for epoch, (train, val) in enumerate(losses, 1)}


def test_the_published_curves() -> None:
    lengths = {path.name: len(read_curve(path)) for path in CURVES_DIR.glob("*.csv")}
    assert len(lengths) == 13
    assert all(name.endswith(f"_{length}epochs.csv") for name, length in lengths.items())
    readme = read_curve(CURVES_DIR / "817082d_1065epochs.csv")
    assert (round(readme[1].train_loss, 3), round(readme[1].validation_loss, 3)) == (7.580, 6.610)
    assert min(point.train_loss for point in readme.values()) == 2.852672759656864
    assert readme[904].validation_loss == 3.2048025131225586
    assert readme[1].legacy_score is None
    assert round(read_curve(CURVES_DIR / "1d076f1_49epochs.csv")[49].legacy_score or 0, 2) == 13.64


def test_both_losses_of_the_shared_epochs_make_the_distance() -> None:
    claimed = curve((7.0, 6.0), (6.0, 5.0), (5.0, 4.0))
    measured = curve((7.1, 5.8), (6.4, 5.3))
    found = distance(claimed, measured)
    assert found == pytest.approx(Distance(2, 0.25, 0.4))  # of 0.1, 0.2, 0.3, 0.4


def test_seeds_are_averaged_over_the_epochs_that_all_have() -> None:
    histories = [[Epoch(1, 10, 7.0, 6.0), Epoch(2, 20, 5.0, 4.0)], [Epoch(1, 10, 8.0, 6.5)]]
    assert mean_curve(histories, [{1: 2.0, 2: 9.0}, {1: 4.0}]) == {1: Point(7.5, 6.25, 3.0)}
    assert mean_curve(histories, [{1: 2.0}, {}]) == {1: Point(7.5, 6.25, None)}


def test_epochs_to_reach() -> None:
    assert epochs_to_reach(curve((9, 6.1), (9, 5.4), (9, 5.6))) == {6.0: 2, 5.5: 2, 5.0: None}
    assert epochs_to_reach(curve((9, 6.0)))[6.0] == 1


HEADER = "epoch,step,train_loss,validation_loss,lr\n"


@pytest.mark.parametrize("last", ["nan,nan", "4.0,nan", "inf,nan"])
def test_a_run_that_diverged_ends_with_a_loss_that_is_not_finite(tmp_path: Path, last: str) -> None:
    (tmp_path / "h.csv").write_text(f"{HEADER}1,10,5.0,4.5,0.1\n2,17,{last},0.1\n")
    first, second = read_history(tmp_path / "h.csv", "small-1", diverged=True)
    assert first == Epoch(1, 10, 5.0, 4.5)
    assert (second.epoch, second.step) == (2, 17)
    assert math.isnan(second.validation_loss)


@pytest.mark.parametrize(
    ("rows", "diverged", "end"),
    [
        ("1,10,5.0,nan,0.1\n", False, "did not diverge"),
        ("1,10,5.0,4.5,0.1\n2,20,inf,4.5,0.1\n", False, "did not diverge"),
        ("1,10,nan,nan,0.1\n2,20,5.0,4.5,0.1\n", False, "did not diverge"),
        ("1,10,nan,nan,0.1\n2,20,nan,nan,0.1\n", True, "diverged"),  # it went on
        ("1,10,nan,nan,0.1\n2,20,5.0,4.5,0.1\n", True, "diverged"),
        ("1,10,5.0,4.5,0.1\n", True, "diverged"),
    ],
)
def test_a_loss_that_is_not_finite_elsewhere_is_refused(tmp_path: Path, rows: str, diverged: bool, end: str) -> None:
    (tmp_path / "h.csv").write_text(HEADER + rows)
    with pytest.raises(ValueError, match=rf"h\.csv is not of a run that {end}: .*; make it with: .* train small-1$"):
        read_history(tmp_path / "h.csv", "small-1", diverged)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"c\.csv is missing"),
        ("epoch,train_loss\n1,2\n", r"c\.csv has no column val_loss"),
        ("epoch,train_loss,val_loss\n1,2,3\n3,2,3\n", r"c\.csv does not have the epochs 1, 2, 3"),
        ("epoch,train_loss,val_loss\n", r"c\.csv has no epoch"),
        ("epoch,train_loss,val_loss\n1,2,inf\n", r"c\.csv has a number that is not finite"),
        ("epoch,train_loss,val_loss\n1,2\n", r"c\.csv is damaged"),
        ("epoch,train_loss,val_loss\n1,2,x\n", r"c\.csv is damaged"),
    ],
)
def test_a_curve_that_is_none_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "c.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"{message}.*; it comes with bleuprint's code: .* git restore .*c\.csv$"):
        read_curve(tmp_path / "c.csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"", "has no epoch"),
        (b"4\n", "is damaged"),
        (b"1,10,5.0\n", "is damaged"),  # not a validation loss that is no number
        (b"1,10,5.0,4.0\n", "is damaged"),  # cut off in the middle of a row
        (b"1,10,5.0,4.0,0.1,7\n", "is damaged"),
        (b"x,y\n", "is damaged"),
        (b"abc\n", "is damaged"),
        (b"x,10,5.0,4.0,0.1\n", "is damaged"),
        (b"1,10,5.0,low,0.1\n", "is damaged"),
        (b"1,10,,4.0,0.1\n", "is damaged"),
        (b"\xff\xfe\x00\n", "is damaged"),
        (b'1,10,5.0,"4.0', "is damaged"),
        (b"1,10,5.0,4.0,0.1\n3,20,5.0,4.0,0.1\n", "does not have the epochs 1, 2, 3, … in their order"),
        (b"1,10,5.0,4.0,0.1\n2,10,5.0,4.0,0.1\n", "has an epoch without an update"),
    ],
)
def test_a_damaged_history_names_its_file_and_its_stage(tmp_path: Path, rows: bytes, message: str) -> None:
    (tmp_path / "h.csv").write_bytes(b"epoch,step,train_loss,validation_loss,lr\n" + rows)
    with pytest.raises(ValueError, match=rf"h\.csv {message}; make it with: python -m bleuprint train small-1$"):
        read_history(tmp_path / "h.csv", "small-1", diverged=False)
