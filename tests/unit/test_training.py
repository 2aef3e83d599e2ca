"""The loop: it learns, counts, stops, and keeps what it should; test_same_bits.py: and is the same each time."""

import csv
import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from copy_task import NO_DROPOUT, TYPES, corpus, epoch_ends, finished, read_lines, recipe_for, run, write_corpus

from bleuprint.batching import collate, epoch_batches, open_pairs, ordered_batches
from bleuprint.checkpoint import load_into, load_state, load_weights, save_state, weights_of
from bleuprint.idstore import write_ids
from bleuprint.params import PlateauSchedule
from bleuprint.resume import Learner, Progress
from bleuprint.tokenizers import BOS, EOS, PAD
from bleuprint.training import Recipe, follow_validation, new_learner
from bleuprint.updates import batch_loss, evaluate, prepare, train_step

__all__ = ["corpus", "finished"]  # fixtures

SENTENCES = {
    "kind": "sentences",
    "sentences": 10,
    "pool_batches": 3,
    "sort_by": "tokens",
    "shuffle_batches": True,
    "drop_last": False,
    "validation_sort_by": "tokens",
    "batches_per_step": 1,
}


# --- learning ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def share_copied(learner: Learner, corpus: Path, split: str) -> float:
    """Return the share of words and end symbols that are the likeliest next ones, given those before."""
    learner.model.eval()
    pairs = open_pairs(corpus, split)
    batch = collate(pairs, np.arange(len(pairs)))
    found = learner.model.project(learner.model(batch.source, batch.inputs)).argmax(-1)
    real = batch.labels != PAD
    return float((found == batch.labels)[real].float().mean())


def test_a_copy_task_is_learnt(tmp_path: Path) -> None:
    """New sentences: nothing but attention to the right place of the source can tell the next word."""
    write_corpus(tmp_path / "copy", {"train": 2000, "val": 100})
    batches = {"kind": "tokens", "max_tokens": 512, "batches_per_step": 1}
    train = {"max_steps": 400, "batches": batches, "label_smoothing": 0.0, "checkpoint_every_steps": 100}
    recipe = recipe_for(tmp_path / "copy", train, NO_DROPOUT)
    out = run(recipe, tmp_path)
    learner = new_learner(recipe)
    assert share_copied(learner, recipe.corpus, "val") < 0.3
    with torch.no_grad():
        load_into(learner.model, load_weights(out / "weights/best.safetensors"), out)
    assert share_copied(learner, recipe.corpus, "val") > 0.99  # measured: 0.997 to 1 with three seeds
    pairs = open_pairs(recipe.corpus, "val")
    assert evaluate(learner, pairs) == json.loads((out / "summary.json").read_text())["validation_loss"] < 0.1


def one_step(recipe: Recipe, batches: list[list[int]], lr: float = 1.0) -> dict[str, torch.Tensor]:
    """Return the weights after one update over batches of these rows."""
    learner, pairs = new_learner(recipe), open_pairs(recipe.corpus, "train")
    train_step(learner, [prepare(collate(pairs, np.array(rows)), learner.device) for rows in batches], lr)
    return weights_of(learner.model)


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_accumulated_batches_are_one_large_batch(corpus: Path, clip_norm: float | None) -> None:
    """10 and 2 sentences: the mean of two means would be another number. With eps 1 Adam is smooth in the gradient."""
    optimizer = {"kind": "adam", "betas": [0.9, 0.98], "eps": 1.0, "weight_decay": 0.0, "clip_norm": clip_norm}
    recipe = recipe_for(corpus, {"optimizer": optimizer}, NO_DROPOUT)
    before, rows = weights_of(new_learner(recipe).model), list(range(12))
    apart, together = one_step(recipe, [rows[:10], rows[10:]]), one_step(recipe, [rows])
    unlike = one_step(recipe, [rows[:10]])
    for name, value in together.items():
        torch.testing.assert_close(apart[name], value, rtol=1e-5, atol=1e-6)
    assert max(float((together[name] - before[name]).abs().max()) for name in before) > 1e-3
    assert max(float((together[name] - unlike[name]).abs().max()) for name in before) > 1e-4


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_gradients_are_clipped_by_their_norm(corpus: Path, clip_norm: float | None) -> None:
    """With eps far above the gradients and lr equal to it, the first update of Adam is the gradient itself."""
    optimizer = {"kind": "adam", "betas": [0.9, 0.98], "eps": 1e3, "weight_decay": 0.0, "clip_norm": clip_norm}
    recipe = recipe_for(corpus, {"optimizer": optimizer}, NO_DROPOUT)
    before, after = weights_of(new_learner(recipe).model), one_step(recipe, [[0, 1, 2]], lr=1e3)
    norm = float(torch.cat([(after[name] - before[name]).flatten() for name in before]).norm())
    assert norm > 0.5 if clip_norm is None else norm == pytest.approx(clip_norm, rel=0.01)


def test_batches_per_step_makes_fewer_updates(corpus: Path, tmp_path: Path) -> None:
    """12 batches an epoch; the last update of an epoch may have fewer than the others."""
    steps = {}
    for size in (1, 5):
        batches = SENTENCES | {"batches_per_step": size}
        out = run(recipe_for(corpus, {"batches": batches, "max_steps": 12}), tmp_path / str(size))
        steps[size] = epoch_ends(out)
    assert steps == {1: [12], 5: [3, 6, 9, 12]}


def test_an_epoch_may_count_each_batch_alike(corpus: Path) -> None:
    """30 sentences in batches of 10: the mean over the tokens, and the mean of the three batches' means."""
    pairs, found = open_pairs(corpus, "val"), {}
    for epoch_loss in ("tokens", "batches"):
        learner = new_learner(recipe_for(corpus, {"batches": SENTENCES, "epoch_loss": epoch_loss}))
        found[epoch_loss] = evaluate(learner, pairs)
    learner.model.eval()
    sums, tokens = [], []
    for rows in ordered_batches(pairs, learner.train.batches):
        batch = prepare(collate(pairs, rows), learner.device)
        with torch.no_grad():
            sums.append(batch_loss(learner, batch, 0.0).plain.item())
        tokens.append(batch.tokens)
    assert found["tokens"] == pytest.approx(sum(sums) / sum(tokens), rel=1e-6)
    assert found["batches"] == pytest.approx(fmean(s / n for s, n in zip(sums, tokens, strict=True)), rel=1e-6)
    assert found["tokens"] != pytest.approx(found["batches"], rel=1e-4)


def test_the_loss_is_the_cross_entropy_per_token(corpus: Path) -> None:
    """By torch's own, over all of the validation split in one batch; and dropout is off, but on again afterwards."""
    learner, pairs = new_learner(recipe_for(corpus)), open_pairs(corpus, "val")
    found = evaluate(learner, pairs)
    assert learner.model.training
    batch = collate(pairs, np.arange(len(pairs)))
    with torch.no_grad():
        logits = learner.model.eval().project(learner.model(batch.source, batch.inputs))
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.labels, ignore_index=PAD)
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_bf16_trains_fp32_weights(corpus: Path, tmp_path: Path, finished: Path) -> None:
    out = run(recipe_for(corpus, {"precision": "bf16"}), tmp_path)
    assert {value.dtype for value in load_weights(out / "weights/best.safetensors").values()} == {torch.float32}
    losses = [json.loads((where / "summary.json").read_text())["validation_loss"] for where in (out, finished)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_validation_pair_that_is_too_long_is_refused_before_the_first_update(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", {"train": 90, "val": 1})
    for side in ("source", "target"):
        write_ids(tmp_path / "corpus", f"val.{side}", [[BOS, *[4] * 70, EOS]], TYPES)
    with pytest.raises(ValueError, match=r"a pair of 72 tokens does not fit into batches\.max_tokens 64"):
        run(recipe_for(tmp_path / "corpus"), tmp_path)
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_a_diverged_training_is_over_and_says_so(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first update makes the weights infinite; the epoch's losses are fetched after 4 and the run ends there."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e30, "warmup_steps": 1}
    out = run(recipe_for(corpus, {"schedule": schedule, "log_every_steps": 4}), tmp_path)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["stopped"], summary["validation_loss"], summary["steps"]) == ("diverged", None, 4)
    assert "the loss of update 2, of epoch 1, is nan" in caplog.text
    assert "training has diverged" in caplog.text
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["validation_loss"]) for row in rows] == [("1", "nan")]
    assert sorted(file.name for file in (out / "weights").iterdir()) == [
        "best.safetensors",
        "manifest.json",
        "step-00000004.safetensors",
    ]


def test_a_validation_that_diverges_ends_a_run_too(corpus: Path, tmp_path: Path) -> None:
    """Losses of an epoch of one update are those of the first weights, which are finite; those after it are not."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e30, "warmup_steps": 1}
    batches = {"kind": "tokens", "max_tokens": 5000, "batches_per_step": 1}
    out = run(recipe_for(corpus, {"schedule": schedule, "batches": batches}), tmp_path)
    with (out / "history.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["train_loss"]) < 10
    assert row["validation_loss"] == "nan"


def test_a_run_that_diverges_later_keeps_its_best_weights(corpus: Path, tmp_path: Path) -> None:
    """Nothing finite is left in the state from which the second epoch goes on."""
    run(recipe_for(corpus, {"max_steps": 24}), tmp_path)
    (path,) = tmp_path.rglob("state.pt")
    state = load_state(path)
    state["weights"]["source_embedding.weight"].fill_(float("nan"))
    save_state(state, path)
    out = run(recipe_for(corpus, {"max_steps": 90}), tmp_path)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["stopped"], summary["validation_loss"], summary["epochs"]) == ("diverged", None, 2)
    assert all(bool(value.isfinite().all()) for value in load_weights(out / "weights/best.safetensors").values())


# --- when to stop -----------------------------------------------------------------------------------------------------


def test_max_steps_is_exact(finished: Path) -> None:
    """25 updates end in the middle of an epoch, which is validated and counted all the same."""
    summary = json.loads((finished / "summary.json").read_text())
    assert (summary["steps"], summary["stopped"]) == (25, "max_steps")
    ends = epoch_ends(finished)
    assert ends[-1] == 25
    assert ends[-1] - ends[-2] < ends[0], "the last epoch is a part of one"
    assert summary["epochs"] == len(ends) == 3


def test_patience(corpus: Path, tmp_path: Path) -> None:
    """With updates too small for fp32 every epoch validates like the first; two more are granted."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e-30, "warmup_steps": 1}
    out = run(recipe_for(corpus, {"schedule": schedule, "patience_epochs": 2, "max_steps": 1000}), tmp_path)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["epochs"], summary["stopped"]) == (3, "patience")


def test_patience_counts_from_the_last_best(corpus: Path) -> None:
    train, progress = recipe_for(corpus, {"patience_epochs": 2}).train, Progress()
    bad_epochs = []
    for loss in (3.0, 3.1, 2.9, 2.9, 2.8, 5.0, 2.9):
        follow_validation(progress, train, loss)
        bad_epochs.append(progress.bad_epochs)
    assert bad_epochs == [0, 1, 0, 1, 0, 1, 2]
    assert progress.best == 2.8


def test_the_plateau_schedule_is_followed(corpus: Path, tmp_path: Path) -> None:
    """An eps of 1e20 stands still, so no epoch is better than the first: the rate halves after each other one."""
    schedule = PlateauSchedule(kind="plateau", lr=1e-3, factor=0.5, patience_epochs=0, warmup_epochs=0)
    still = {"kind": "adam", "betas": [0.9, 0.98], "eps": 1e20, "weight_decay": 0.0, "clip_norm": None}
    changes = {"schedule": schedule.model_dump(), "optimizer": still, "max_steps": 40}
    out = run(recipe_for(corpus, changes), tmp_path)
    ends = [line for line in read_lines(out) if "validation_loss" in line]
    assert [line["lr"] for line in ends] == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4])


# --- what is written --------------------------------------------------------------------------------------------------


def test_the_last_weights_and_the_best_are_kept(finished: Path) -> None:
    expected = ["best", *(f"step-{step:08d}" for step in epoch_ends(finished)[-2:])]
    assert sorted(file.stem for file in (finished / "weights").glob("*.safetensors")) == expected
    losses = [line["validation_loss"] for line in read_lines(finished) if "validation_loss" in line]
    assert losses == sorted(losses, reverse=True), "the last is the best"
    best, last = (finished / f"weights/{name}.safetensors" for name in (expected[0], expected[-1]))
    assert best.read_bytes() == last.read_bytes()


def test_the_best_weights_have_the_lowest_loss(tmp_path: Path) -> None:
    """Ten sentences are soon known by heart, and the loss of others rises; the weights of every epoch are kept."""
    write_corpus(tmp_path / "copy", {"train": 10, "val": 30})
    out = run(recipe_for(tmp_path / "copy", {"keep_last": 100, "max_steps": 100}, NO_DROPOUT), tmp_path)
    ends = [line for line in read_lines(out) if "validation_loss" in line]
    losses = [line["validation_loss"] for line in ends]
    best = losses.index(min(losses))
    assert best < len(losses) - 1
    assert json.loads((out / "summary.json").read_text())["validation_loss"] == losses[best]
    named = out / f"weights/step-{int(ends[best]['step']):08d}.safetensors"
    assert (out / "weights/best.safetensors").read_bytes() == named.read_bytes()
    assert len(list(tmp_path.glob("work/*/weights/best-*"))) == 1, "the best before are forgotten"


def test_summary_history_and_metrics_agree(finished: Path, corpus: Path) -> None:
    lines = read_lines(finished)
    windows = [line for line in lines if "validation_loss" not in line]
    ends = [line for line in lines if "validation_loss" in line]
    assert [line["step"] for line in windows] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert all(set(line) == {"step", "epoch", "train_loss", "lr", "tokens_per_second"} for line in windows)
    assert [line["epoch"] for line in ends] == [1, 2, 3]
    for line in windows:
        assert line["lr"] == pytest.approx(5e-3 * min(line["step"] / 20, (20 / line["step"]) ** 0.5))
    with (finished / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "step", "train_loss", "validation_loss", "lr"]
    names = {"train_loss": "train_loss_epoch"}
    for row, line in zip(rows, ends, strict=True):
        assert {name: float(value) for name, value in row.items()} == {n: line[names.get(n, n)] for n in row}
    summary = json.loads((finished / "summary.json").read_text())
    assert summary == {
        "epochs": 3,
        "steps": 25,
        "stopped": "max_steps",
        "validation_loss": min(line["validation_loss"] for line in ends),
        **read_and_done(recipe_for(corpus)),
    }


def read_and_done(recipe: Recipe) -> dict[str, float]:
    """Count the tokens of the first 25 updates, and 6 operations for each of them and each matrix element."""
    pairs = open_pairs(recipe.corpus, "train")
    batches = [rows for epoch in (1, 2, 3) for rows in epoch_batches(pairs, recipe.train.batches, 1, epoch)][:25]
    source = sum(int(pairs.source.lengths[rows].sum()) for rows in batches)
    target = sum(int(pairs.target.lengths[rows].sum()) - len(rows) for rows in batches)
    matrix = 4 * 32 * 32  # Q, K, V and the output of an attention
    encoder, decoder = matrix + 2 * 32 * 64, 2 * matrix + 2 * 32 * 64
    flops = 6.0 * (encoder * source + (decoder + TYPES * 32) * target)
    return {"source_tokens": source, "target_tokens": target, "flops": flops}


def test_epoch_and_window_losses_are_means_over_tokens(corpus: Path, tmp_path: Path) -> None:
    """Without updates to speak of and without dropout, the losses of an epoch are those of the first weights."""
    schedule = {"kind": "inverse_sqrt", "lr": 1e-30, "warmup_steps": 1}
    recipe = recipe_for(corpus, {"schedule": schedule, "log_every_steps": 1}, NO_DROPOUT)
    lines = read_lines(run(recipe, tmp_path))
    learner, pairs = new_learner(recipe), open_pairs(corpus, "train")
    expected = evaluate(learner, pairs)
    ends = [line["train_loss_epoch"] for line in lines if "train_loss_epoch" in line]
    assert ends[:2] == pytest.approx([expected, expected], rel=1e-5)
    for epoch in (1, 2):
        windows = [line["train_loss"] for line in lines if "train_loss" in line and line["epoch"] == epoch]
        rows = epoch_batches(pairs, recipe.train.batches, 1, epoch)
        batches = [prepare(collate(pairs, batch), learner.device) for batch in rows]
        means = [float(batch_loss(learner, batch, 0.0).plain) / batch.tokens for batch in batches]
        assert windows == pytest.approx(means, rel=1e-5)
