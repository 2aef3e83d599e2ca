"""Each experiment of the ablation differs from its baseline in what its name says, and in nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bleuprint.graph import load_params, load_table
from bleuprint.params import Reuse
from bleuprint.verdicts.published import load_claims

ROOT = Path(__file__).parents[2]
PARAMS = load_params(ROOT / "params.yaml")
TABLE = load_table("ablation", ROOT / "workflow/tables")
UPDATES = 3_000
# What the baselines differ in from the experiments that they are small forms of, and the others from their baselines.
DIFFERENCES: dict[str, tuple[str, dict[str, Any]]] = {
    "ablate-tiny": (
        "tiny",
        {
            "train.batches.batches_per_step": 1,
            "train.max_steps": UPDATES,
            "train.patience_epochs": 1000,
            "average.last": 5,
        },
    ),
    "ablate-no-scale": ("ablate-tiny", {"model.scale_embeddings": False}),
    "ablate-untied": ("ablate-tiny", {"model.tie_embeddings": "none"}),
    "ablate-words": ("ablate-untied", {"corpus": "multi30k-words"}),
    "ablate-no-smoothing": ("ablate-tiny", {"train.label_smoothing": 0.0}),
    "ablate-plateau": (
        "ablate-tiny",
        {
            "train.schedule.kind": "plateau",
            "train.schedule.lr": 1e-4,
            "train.schedule.factor": 0.9,
            "train.schedule.patience_epochs": 10,
            "train.schedule.warmup_epochs": 101,
            "train.schedule.warmup_steps": None,
        },
    ),
    "ablate-no-averaging": ("ablate-tiny", {"average.last": 1}),
    "ablate-greedy": ("ablate-tiny", {"decode.search": "greedy", "decode.beam": 1}),
    "ablate-preln": (
        "preln",
        {"model.d_model": 128, "model.d_ff": 256, "model.n_heads": 4, "train.max_steps": UPDATES},
    ),
    "ablate-pitau": ("ablate-preln", {"model.form": "coded"}),
}
# In one thing they are as the system that they lead to: the value of that key there.
TOWARDS = {
    "ablate-no-scale": ("readme", "model.scale_embeddings"),
    "ablate-untied": ("readme", "model.tie_embeddings"),
    "ablate-words": ("readme", "corpus"),
    "ablate-no-smoothing": ("readme", "train.label_smoothing"),
    "ablate-plateau": ("readme", "train.schedule.warmup_epochs"),
    "ablate-no-averaging": ("readme", "average.last"),
    "ablate-greedy": ("readme", "decode.search"),
    "ablate-pitau": ("pitau", "model.form"),
}


def flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values as {"train.schedule.lr": 0.005}."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def recipe(experiment: str) -> dict[str, Any]:
    return flat(PARAMS.recipes[experiment].model_dump(mode="json"))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_it_differs_in_what_its_name_says(name: str) -> None:
    baseline, expected = DIFFERENCES[name]
    own, other = recipe(name), recipe(baseline)
    missing = dict.fromkeys(own.keys() | other.keys())
    own, other = missing | own, missing | other
    assert {key: own[key] for key in missing if own[key] != other[key]} == expected


@pytest.mark.parametrize("name", TOWARDS)
def test_it_leads_towards_the_other_system(name: str) -> None:
    system, key = TOWARDS[name]
    assert recipe(name)[key] == recipe(system)[key]


def test_preln_and_pitau_differ_in_the_form_alone() -> None:
    other = recipe("pitau")
    assert {key for key, value in recipe("preln").items() if value != other[key]} == {"model.form"}


def test_the_table_compares_all_of_them_with_those_baselines() -> None:
    assert TABLE.runs == tuple(f"{name}-1" for name in sorted(DIFFERENCES, key=[run[:-2] for run in TABLE.runs].index))
    compared = {name: entry.baseline for entry in TABLE.comparisons for name in entry.experiments}
    small = {"ablate-tiny", "ablate-preln"}
    assert compared == {name: baseline for name, (baseline, _) in DIFFERENCES.items() if name not in small}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_all_make_as_many_updates(name: str) -> None:
    """Patience ends none of them: 29,000 pairs are more than 100 updates an epoch."""
    train = PARAMS.recipes[name].train
    assert train.max_steps == UPDATES
    assert train.patience_epochs * 100 >= UPDATES


def test_averaging_and_decoding_train_nothing() -> None:
    assert {name for name in DIFFERENCES if isinstance(PARAMS.experiments[name], Reuse)} == {
        "ablate-no-averaging",
        "ablate-greedy",
    }


def test_the_seeds_are_three_of_the_anchor_beside_its_claims() -> None:
    assert load_table("seeds", ROOT / "workflow/tables").runs == ("tiny-1", "tiny-2", "tiny-3")
    claims = load_claims("seeds")
    assert claims == tuple(claim for claim in load_claims("default") if claim.tables["default"] == "tiny")
    assert {claim.tables["seeds"] for claim in claims} == {"tiny"}
    assert len(claims) == 3
