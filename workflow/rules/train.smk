# Weights: the last ones and the best one of a training, then their average.


rule train:
    input:
        corpus=corpus_data,
        code=code(
            "batching",
            "checkpoint",
            "consistency",
            "distributed",
            "history",
            "models/dropout",
            "objective",
            "resume",
            "subwords",
            "training",
            "updates",
        ),
        model_code=model_code,
    output:
        weights=directory("runs/{run}/train/weights"),
        metrics="runs/{run}/train/metrics.jsonl",
        summary="runs/{run}/train/summary.json",
        history=report(
            "runs/{run}/train/history.csv",
            caption="../report/history.rst",
            category="Training",
            labels={"run": "{run}", "file": "history"},
        ),
    log:
        "work/logs/train-{run}.log",
    benchmark:
        "work/benchmarks/train-{run}.tsv"
    wildcard_constraints:
        run=one_of(PARAMS.trainings),
    # Snakemake sets OMP_NUM_THREADS to this, 1 where a rule says nothing: half the speed, and other bits.
    threads: PARAMS.machine.threads
    resources:
        mem_mb=8000,
        runtime=1440,
        gpu=GPUS,
        gpu_jobs=GPUS,
    params:
        machine=machine_values,
        model=lambda wildcards: plain(experiment_of(wildcards).model),
        # The seed stands in the command, as the end of the run's name.
        splits=splits_values,
        train=lambda wildcards: plain(experiment_of(wildcards).train),
    shell:
        "python -m bleuprint train {wildcards.run}"


rule average:
    input:
        weights=trained("weights"),
        code=code("checkpoint"),
    output:
        "runs/{run}/average/weights.safetensors",
    log:
        "work/logs/average-{run}.log",
    benchmark:
        "work/benchmarks/average-{run}.tsv"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        average=lambda wildcards: plain(experiment_of(wildcards).average),
    shell:
        "python -m bleuprint average {wildcards.run}"
