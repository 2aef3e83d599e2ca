"""An engine is killed with its stage, again and again: the same command then ends well, with the bytes of a run that
nobody disturbed, and nothing half is ever where a whole output belongs.

SIGKILL is what a power cut or the kernel's out-of-memory killer does, SIGTERM what a batch system does first.
"""

import random
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from clones import changed_stages, planned_jobs, run, set_parameter
from reliability import Record
from strikes import (
    RAW,
    SHORT_TRAINING,
    STAGES,
    Ended,
    Place,
    Stage,
    begin_anew,
    call,
    count_calls,
    hashes,
    killed_in,
    strike,
)

SEED = 8
POINTS = 20  # of each stage under each engine; half of them with each signal
KILLS_IN_A_ROW = 4  # before the command may end
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
ENGINES = ("dvc", "snakemake")
TRAINED = tuple(f"runs/toy-1/train/{part}" for part in ("weights", "metrics.jsonl", "summary.json", "history.csv"))
TRAININGS = (
    killed_in("train, in a step", "train@toy-1", TRAINED, "updates.py", "train_step"),
    killed_in("train, in validation", "train@toy-1", TRAINED, "updates.py", "evaluate"),
    killed_in("train, while a checkpoint is written", "train@toy-1", TRAINED, "resume.py", "save_progress"),
    killed_in("train, while it is published", "train@toy-1", TRAINED, "resume.py", "publish"),
)
# What the engine itself does before and after a stage, with the outputs of the last time in place.
BOOKKEEPING = {
    "dvc": (Place("dvc repro", "dvc/repo/reproduce.py", "_reproduce_stage"),),
    "snakemake": (
        Place("snakemake --cores", "snakemake/scheduling/job_scheduler.py", "schedule"),
        Place("dvc commit", "dvc/repo/commit.py", "commit"),
    ),
}


# --- the undisturbed ones ---------------------------------------------------------------------------------------------


@pytest.fixture
def victim(toy_project: Path) -> Path:
    """Return the toy project in which no stage can be taken from DVC's cache instead of being run."""
    shutil.rmtree(toy_project / ".dvc/cache")
    return toy_project


@pytest.fixture
def short_training(victim: Path) -> Path:
    """Return it with a training of seconds, which has been run once."""
    for key, value in SHORT_TRAINING.items():
        set_parameter(victim, f"experiments.toy.train.{key}", value)
    run(victim, "python", "-m", "bleuprint", "train", "toy-1")
    return victim


# --- killed, and called again -----------------------------------------------------------------------------------------


def assert_nothing_half(where: Path, stage: Stage, whole: Mapping[str, str], ended: Ended) -> None:
    """Every output is missing, or is the undisturbed one."""
    for name in stage.outputs:
        found = hashes(where, (name,))
        expected = {path: sha for path, sha in whole.items() if path == name or path.startswith(f"{name}/")}
        assert not found or found == expected, f"half of {name} after {ended.struck_at}\n{ended.output}"


def chain(
    where: Path, stage: Stage, engine: str, whole: Mapping[str, str], numbers: Iterator[tuple[int, int]], kills: int
) -> int:
    """Kill the command up to `kills` times in a row, let it end, compare; return how often it was killed."""
    begin_anew(where, stage)
    command, done = call(engine, stage), 0
    while done < kills:
        ended = strike(where, command, stage.place, *next(numbers))
        if ended.struck_at is None:
            assert ended.returncode == 0, ended.output
            break
        assert ended.returncode != 0, ended.output
        assert_nothing_half(where, stage, whole, ended)
        done += 1
    else:
        run(where, *command)
    assert hashes(where, stage.outputs) == whole
    return done


def draw(calls: int, seed: str) -> Iterator[tuple[int, int]]:
    """Yield (call, signal) without end, the signals in turn."""
    drawn = random.Random(f"{SEED} {seed}")
    while True:
        for sent in SIGNALS:
            yield drawn.randint(1, calls), sent


def kill_at_all_points(where: Path, stage: Stage, engine: str, calls: int) -> int:
    """Kill at POINTS points and return at how many; the last state is one in which neither engine has work left."""
    whole, numbers, done = hashes(where, stage.outputs), draw(calls, f"{engine} {stage.what}"), 0
    while done < POINTS:
        done += chain(where, stage, engine, whole, numbers, min(KILLS_IN_A_ROW, POINTS - done))
    leftovers = [path for top in ("data", "runs", "results", "reports") for path in (where / top).rglob("*.partial-*")]
    assert not leftovers
    return done


@pytest.mark.slow_faults
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.what)
def test_a_stage_is_killed(victim: Path, record: Record, engine: str, stage: Stage) -> None:
    whole = hashes(victim, stage.outputs)
    begin_anew(victim, stage)
    calls = count_calls(victim, call(engine, stage), stage.place)
    assert hashes(victim, stage.outputs) == whole
    done = kill_at_all_points(victim, stage, engine, calls)
    record("kill", f"{stage.what}, under {engine}", done, done)


@pytest.mark.slow_faults
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stage", TRAININGS, ids=lambda stage: stage.what.replace(" ", "-"))
def test_a_training_is_killed(short_training: Path, record: Record, engine: str, stage: Stage) -> None:
    whole = hashes(short_training, stage.outputs)
    begin_anew(short_training, stage)
    calls = count_calls(short_training, call(engine, stage), stage.place)
    assert hashes(short_training, stage.outputs) == whole
    # It goes on where it was: by half of the calls each time it is killed mostly twice before its end.
    done = kill_at_all_points(short_training, stage, engine, calls if stage.place.function == "publish" else calls // 2)
    record("kill", f"{stage.what}, under {engine}", done, done)


# --- the quick half: one point of each stage, without an engine; and one engine ---------------------------------------


def test_each_stage_is_killed_once(victim: Path, record: Record) -> None:
    """Training aside: tests/system/test_resume.py. The last stage first: another `score` makes another report."""
    for (number, sent), stage in zip(draw(50, "quick"), reversed(STAGES), strict=False):
        whole, name = hashes(victim, stage.outputs), stage.stage.partition("@")[2]
        begin_anew(victim, stage)
        command = ["python", "-m", *stage.place.command.split(), *([] if name == "demo" else [name])]
        ended = strike(victim, command, stage.place, number, sent)
        assert ended.struck_at is not None, ended.output
        assert ended.returncode == -sent, ended.output
        assert_nothing_half(victim, stage, whole, ended)
        run(victim, *command)
        assert hashes(victim, stage.outputs) == whole
    record("kill", "each stage but the training once, without an engine", len(STAGES), len(STAGES))


def test_a_killed_snakemake_leaves_no_lock(victim: Path, record: Record) -> None:
    """SIGKILL: of SIGTERM it would make an end of its own."""
    download = STAGES[0]
    begin_anew(victim, download)
    ended = strike(victim, call("snakemake", download), download.place, 1000, signal.SIGKILL)
    assert ended.returncode == -signal.SIGKILL, ended.output
    run(victim, *call("snakemake", download))
    assert planned_jobs(victim, RAW) == []
    assert "download" not in changed_stages(victim)
    record("kill", "snakemake in a download, quick half", 1, 1)


def test_a_snakemake_that_is_told_to_end_while_it_holds_its_own_lock_ends(victim: Path, record: Record) -> None:
    """Release 9.27.1 would wait for itself for ever: see `end_on_sigterm` in workflow/rules/common.smk."""
    download = STAGES[0]._replace(place=Place("snakemake --cores", "scheduling/job_scheduler.py", "_finish_jobs"))
    begin_anew(victim, download)
    ended = strike(victim, call("snakemake", download), download.place, 1, signal.SIGTERM, patience_seconds=120)
    assert ended.struck_at is not None, ended.output
    run(victim, *call("snakemake", download))
    assert planned_jobs(victim, RAW) == []
    record("kill", "snakemake itself, with its scheduler's lock held", 1, 1)


# --- the engines' own work --------------------------------------------------------------------------------------------


@pytest.mark.slow_faults
@pytest.mark.parametrize(
    ("engine", "place"),
    [(engine, place) for engine in ENGINES for place in BOOKKEEPING[engine]],
    ids=lambda value: value if isinstance(value, str) else value.function,
)
def test_an_engine_is_killed_before_or_after_its_stage(victim: Path, record: Record, engine: str, place: Place) -> None:
    """With the outputs of the last time in place: a part of them must not pass for the whole."""
    download = STAGES[0]._replace(place=place)
    whole, command = hashes(victim, download.outputs), call(engine, download)
    make_outdated(victim)
    numbers = draw(count_calls(victim, command, place), f"{engine} {place.function}")
    done = 0
    while done < POINTS:
        make_outdated(victim)
        ended = strike(victim, command, place, *next(numbers))
        done += ended.struck_at is not None
        if engine == "dvc":  # it writes dvc.lock and its list of locks in place; `make repro` begins so too
            run(victim, "python", "-m", "bleuprint", "unlock")
        run(victim, *command)
        assert hashes(victim, download.outputs) == whole, ended.struck_at
        run(victim, *call("dvc", download))  # it was told nothing by a snakemake that was killed, and makes it again
        assert hashes(victim, download.outputs) == whole, ended.struck_at
        assert "download" not in changed_stages(victim), ended.struck_at
        YAML(typ="safe").load(victim / "dvc.lock")
    record("kill", f"{engine} itself, in {place.function}", done, done)


@pytest.mark.slow_faults
def test_a_folder_that_snakemake_was_removing_is_made_again(victim: Path, record: Record) -> None:
    """What is left of it is newer than all that it is made of."""
    whole = hashes(victim, (RAW,))
    make_outdated(victim)
    removing = Place("snakemake --cores", "shutil.py", "_rmtree_safe_fd")
    ended = strike(victim, call("snakemake", STAGES[0]), removing, 30, signal.SIGKILL)
    assert ended.struck_at is not None, ended.output
    assert 0 < len(hashes(victim, (RAW,))) < len(whole)
    run(victim, *call("snakemake", STAGES[0]))
    assert hashes(victim, (RAW,)) == whole
    record("kill", "snakemake itself, while it removes a folder", 1, 1)


def make_outdated(where: Path) -> None:
    """Edit what the stage depends on, but not what it makes."""
    with (where / "src/bleuprint/lines.py").open("a") as file:
        file.write("# edited\n")
