# The graph as Snakemake sees it; dvc.yaml holds the same graph as DVC sees it, and tests/workflow/test_parity.py compares
# the two.
#
#   download → tokenize → train → average → decode → score → report
#                                           └ attend ────────┘
#
#   snakemake -n                             what would run, and why
#   snakemake --cores 2                      the active table
#   snakemake --cores 2 runs/tiny-1/decode   one file or folder, with all that it needs
#   snakemake --profile profiles/slurm       the active table, on a cluster
#   snakemake --report report.html           figures and tables of the active table, with the graph
#
# profiles/default/config.yaml is read on its own.

from snakemake.utils import min_version

min_version("9.0")


# Which Python a cluster's container should have. It holds none of the packages in requirements.lock: build your own on it
# before you use --sdm; without that nothing is pulled.
container: "docker://python:3.11"


# profiles/default limits the jobs with a GPU of one machine; a cluster runs as many as it has GPUs for.
resource_scopes:
    gpu_jobs="local",


include: "workflow/rules/common.smk"
include: "workflow/rules/cluster.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


rule all:
    input:
        # Committed to git.
        expand("reports/{table}/{part}", table=PARAMS.table, part=["results.md", "figures", "report.html"]),
        expand("results/{run}{kind}", run=PARAMS.runs, kind=["", ".attention.json", ".json", ".provenance.json"]),
        # Not committed. Without these lines a fresh clone would believe the committed results: git's files are as new as
        # the clone, so nothing looks out of date.
        expand("runs/{run}/train/weights", run=PARAMS.trainings),
        expand("runs/{run}/average/weights.safetensors", run=PARAMS.runs),
        expand("runs/{run}/decode", run=PARAMS.runs),


onstart:
    take_the_project()
    end_on_sigterm()
    prepare_cluster()


# After a failure too: the jobs that did finish left whole outputs. A snakemake that is killed records nothing; DVC then
# runs those stages again.
onsuccess:
    record_finished_jobs_in_dvc()


onerror:
    record_finished_jobs_in_dvc()
