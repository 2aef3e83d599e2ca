"""Were the parameters edited while a stage worked? Both engines read them at its end again, as those of its output."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bleuprint.graph import Params


def check_unchanged(stage: str, name: str, before: Any, now: Any) -> None:
    """Raise ValueError where parameters are not what they were when a stage began."""
    if before != now:
        raise ValueError(
            f"parameters of {name} changed while {stage} worked; make it again: python -m bleuprint {stage} {name}"
        )


def check_run_unchanged(stage: str, run: str, params: "Params") -> None:
    """Raise ValueError where what params.yaml says of a run is not what it said when a stage began."""
    from bleuprint.graph import load_params

    check_unchanged(stage, run, parts_of_run(params, run), parts_of_run(load_params(), run))


def parts_of_run(params: "Params", run: str) -> tuple[Any, ...]:
    """Return all of params.yaml that decides what the stages of a run write."""
    spec = params.run_named(run)
    corpus = params.corpora[spec.corpus]
    return (
        spec,
        params.recipes[spec.experiment],
        corpus,
        params.datasets[corpus.dataset],
        params.machine,
        params.scoring,
    )
