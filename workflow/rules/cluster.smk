# What Snakemake's Slurm plugin leaves undone. Under another executor nothing here happens.

import asyncio

from snakemake.logging import logger
from snakemake_interface_common.exceptions import WorkflowError

from bleuprint.cluster import Request, ask_sinfo, refuse_impossible


def prepare_cluster():
    """Say before the first job what can't work; be patient with a Slurm that is away for a while."""
    if workflow.executor_plugin.name != "slurm":
        return
    jobs = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
    try:
        refuse_impossible([request_of(job.rule.name, job.resources) for job in jobs])
    except ValueError as error:
        raise WorkflowError(str(error)) from None
    for executor in {workflow.scheduler.get_executor(job) for job in jobs}:
        wait_for_slurm(executor)


def request_of(rule, resources):
    return Request(rule, *(resources.get(name) for name in ("slurm_partition", "runtime", "gpu")))


def wait_for_slurm(executor):
    """Ask for the states of jobs only when Slurm answers.

    Release 2.8.0 of the plugin forgets the jobs that it gets no answer for, and then waits for them for ever. A restart
    of Slurm's controller at the wrong second is enough.
    """
    states_of = executor.check_active_jobs

    async def states_when_slurm_answers(jobs):
        try:
            if jobs:
                await asyncio.to_thread(ask_sinfo)
        except ValueError as error:
            logger.warning(f"{error}; asking again later")
            for job in jobs:
                yield job
        else:
            async for job in states_of(jobs):
                yield job

    executor.check_active_jobs = states_when_slurm_answers
