"""Commands that carry a run's record to where people look at it."""

import typer

from bleuprint.commands.arguments import RunName
from bleuprint.console import plain_errors, start_log
from bleuprint.runs import RESULTS, RUNS, WORK, recipe_of, settings_of


def track(run: RunName) -> None:
    """Put into MLflow what it missed of a run.

    Losses and rates from metrics.jsonl, scores from results/RUN.json, nothing twice: for a run during which MLflow was
    away, or its database deleted.

    Example: python -m bleuprint track tiny-1
    """
    with plain_errors("goes on"):
        from bleuprint.files import held
        from bleuprint.graph import load_params
        from bleuprint.history import METRICS, read_metrics
        from bleuprint.replay import Point, Record, points_of, replay, scores_of
        from bleuprint.scoring import read_result

        params = load_params()
        spec = params.run_named(run)
        start_log("track", run)
        points, work, finished = list[Point](), WORK / "track" / run, True
        if spec.trained == run:
            from bleuprint.training import work_directory

            work, out = work_directory(WORK / "train", run, recipe_of(params, run)), RUNS / run / "train"
            finished = (out / METRICS).exists()
            points += points_of(read_metrics(out if finished else work))
        if (RESULTS / f"{run}.json").exists():
            result = read_result(RESULTS / f"{run}.json")
            points += points_of([{"step": result.steps, **scores_of(result)}])
        if not points:
            raise ValueError(f"nothing is recorded of {run} yet; train it with: python -m bleuprint train {run}")
        with held(work):
            record = Record(params.table, run, *settings_of(params, run), points, finished)
            sent = replay(record, work / "mlflow_run_id")
        typer.echo(f"{run}: {sent:,} numbers put into MLflow, which had {len(points) - sent:,} already")
