# What the rules share: the parameters, the names that a wildcard may stand for, how a finished job is told to DVC.

import _thread
import atexit
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from snakemake_interface_common.exceptions import WorkflowError

from bleuprint.engines import dvc_kept_out, snakemake_alone
from bleuprint.graph import load_params
from bleuprint.overrides import set_overrides

set_overrides(config)  # of `--config` or `--configfile`: the jobs read params.yaml through it
PARAMS = load_params()

# Of a job that computes. `gpu` is what a cluster is asked for; `gpu_jobs` is counted on one machine, where profiles/default
# limits it: a limit on `gpu` would also cut what is asked for.
GPUS = 0 if PARAMS.machine.device == "cpu" else 1

shell.prefix("export BLEUPRINT_ORCHESTRATOR=snakemake; ")  # for the tags in MLflow; DVC says so of its own


def one_of(names):
    """Return a pattern that matches exactly these names, so that no path is built for an unknown one."""
    return "|".join(re.escape(name) for name in names)


wildcard_constraints:
    dataset=one_of(PARAMS.inputs.datasets),
    corpus=one_of(PARAMS.inputs.corpora),
    run=one_of(PARAMS.runs),
    table=one_of([PARAMS.table]),


def code(*modules):
    """Return the files of these modules of bleuprint."""
    return [f"src/bleuprint/{module}.py" for module in modules]


def run_of(wildcards):
    """Return {run}, whether the table names it or it is trained for one that the table names."""
    return PARAMS.run_named(wildcards.run)


def experiment_of(wildcards):
    """Return the whole recipe of {run}."""
    return PARAMS.recipes[run_of(wildcards).experiment]


def trained(name):
    """Return where the run whose weights {run} has, mostly itself, keeps a file or folder of its training."""
    return lambda wildcards: f"runs/{run_of(wildcards).trained}/train/{name}"


def corpus_of(wildcards):
    """Return the corpus {corpus}, or the one that {run} reads."""
    names = dict(wildcards.items())
    return PARAMS.corpora[names["corpus"] if "corpus" in names else run_of(wildcards).corpus]


def raw_data(wildcards):
    return f"data/raw/{corpus_of(wildcards).dataset}"


def corpus_data(wildcards):
    return f"data/corpora/{run_of(wildcards).corpus}"


def model_code(wildcards):
    return code(f"models/{run_of(wildcards).model}")


# Snakemake runs a job again when its params differ from those it ran with, so rules take slices of params.yaml as plain
# values, the same slices as in dvc.yaml.


def plain(section):
    return section.model_dump(mode="json")


def corpus_values(wildcards):
    return plain(corpus_of(wildcards))


def splits_values(wildcards):
    return plain(PARAMS.datasets[corpus_of(wildcards).dataset].splits)


def machine_values(_):
    return plain(PARAMS.machine)


# --- alone in the project ---------------------------------------------------------------------------------------------

AGAINST_SNAKEMAKE, AGAINST_DVC = ExitStack(), ExitStack()


def take_the_project():
    """Let no other snakemake run here, and no DVC write here; say who does if one does already."""
    for locks in (AGAINST_SNAKEMAKE, AGAINST_DVC):
        atexit.register(locks.close)
    try:
        AGAINST_SNAKEMAKE.enter_context(snakemake_alone(Path.cwd()))
        AGAINST_DVC.enter_context(dvc_kept_out(Path.cwd()))
    except ValueError as error:
        raise WorkflowError(str(error)) from None


def end_on_sigterm():
    """Let Snakemake begin no further job after a SIGTERM, as it means to.

    The handler of release 9.27.1 takes the scheduler's lock in the thread that it interrupts. Where that thread holds the
    lock already, it waits for itself for ever, with the project locked. Starting a thread by `_thread` takes no lock.
    """
    graceful = workflow.scheduler.exit_gracefully
    signal.signal(signal.SIGTERM, lambda *_: _thread.start_new_thread(graceful, ()))


# --- what DVC is told -------------------------------------------------------------------------------------------------


def what_dvc_would_record():
    """Return the parameters and the code as they stand now."""
    return load_params(), {path: path.read_bytes() for path in Path("src/bleuprint").rglob("*.py")}


AT_START = what_dvc_would_record()


def changed_meanwhile():
    """Return whether DVC would record something else now than at the start."""
    try:
        return what_dvc_would_record() != AT_START
    except ValueError:  # params.yaml is being written, or has a mistake
        return True


def record_finished_jobs_in_dvc():
    """Commit to DVC the stages whose jobs ran to their end in this call, and no others.

    A blanket `dvc commit -f` after a partial target would record old outputs under new parameters; so would any commit
    after an edit of parameters or code while jobs ran, for DVC reads them now. `--touch` runs no job: it follows a `dvc
    repro`. What --config set does not stand in params.yaml, where DVC would look for it.
    """
    AGAINST_DVC.close()
    if workflow.touch:
        return
    if config:
        print("--config set parameters for this call: DVC is told nothing and will run its stages", file=sys.stderr)
        return
    if changed_meanwhile():
        print(
            "params.yaml or src/ changed during this call: DVC is told nothing and will run its stages", file=sys.stderr
        )
        return
    stages = [f"{job.rule.name}@{name}" for job in workflow.dag.finished_jobs for name in job.wildcards]
    if stages:
        subprocess.run([sys.executable, "-m", "dvc", "commit", "--force", "--quiet", *sorted(stages)], check=True)
