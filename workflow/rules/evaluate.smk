# Text, then scores. Two rules joined by plain files, so that anyone can score with the sacrebleu command.


rule decode:
    input:
        raw=raw_data,  # the references, and the official tokens where the data set has them
        corpus=corpus_data,
        weights="runs/{run}/average/weights.safetensors",
        epoch_weights=trained("weights"),
        code=code(
            "batching",
            "checkpoint",
            "decoding",
            "lines",
            "models/uncached",
            "search",
            "segmentation",
            "tokenizers",
        ),
        model_code=model_code,
    output:
        directory("runs/{run}/decode"),
    log:
        "work/logs/decode-{run}.log",
    benchmark:
        "work/benchmarks/decode-{run}.tsv"
    threads: PARAMS.machine.threads
    resources:
        mem_mb=8000,
        runtime=240,
        gpu=GPUS,
        gpu_jobs=GPUS,
    params:
        # Validation's, for the teacher-forced text.
        batches=lambda wildcards: plain(experiment_of(wildcards).train.batches),
        corpus=corpus_values,
        decode=lambda wildcards: plain(experiment_of(wildcards).decode),
        machine=machine_values,
        model=lambda wildcards: plain(experiment_of(wildcards).model),
        splits=splits_values,
    shell:
        "python -m bleuprint decode {wildcards.run}"


# Where the model looks in a few sentences. In results/, which the report depends on as a whole in dvc.yaml.
rule attend:
    input:
        corpus=corpus_data,
        weights="runs/{run}/average/weights.safetensors",
        code=code(
            "attended",
            "attention",
            "batching",
            "checkpoint",
            "decoding",
            "lines",
            "models/uncached",
            "search",
            "segmentation",
            "tokenizers",
        ),
        model_code=model_code,
    output:
        "results/{run}.attention.json",
    log:
        "work/logs/attend-{run}.log",
    benchmark:
        "work/benchmarks/attend-{run}.tsv"
    threads: PARAMS.machine.threads
    resources:
        mem_mb=8000,
        runtime=10,
        gpu=GPUS,
        gpu_jobs=GPUS,
    params:
        decode=lambda wildcards: plain(experiment_of(wildcards).decode),
        machine=machine_values,
        model=lambda wildcards: plain(experiment_of(wildcards).model),
        splits=splits_values,
    shell:
        "python -m bleuprint attend {wildcards.run}"


rule score:
    input:
        raw=raw_data,
        corpus=corpus_data,
        weights="runs/{run}/average/weights.safetensors",
        decoded="runs/{run}/decode",
        history=trained("history.csv"),
        metrics=trained("metrics.jsonl"),
        summary=trained("summary.json"),
        code=code("compound_split", "hypotheses", "legacy_score", "metrics", "provenance", "scoring"),
        # A result names by their hashes all files that decided it.
        hashed=code(
            "batching",
            "checkpoint",
            "cleaning",
            "consistency",
            "corpus",
            "decoding",
            "distributed",
            "history",
            "idstore",
            "learning",
            "lines",
            "models/dropout",
            "models/uncached",
            "objective",
            "resume",
            "search",
            "segmentation",
            "subwords",
            "tokenizers",
            "tokenizing",
            "training",
            "updates",
        ),
        model_code=model_code,
    output:
        texts=directory("results/{run}"),  # those that were scored, without references
        result=report(
            "results/{run}.json",
            caption="../report/result.rst",
            category="Scores",
            labels={"run": "{run}", "file": "scores"},
        ),
        provenance=report(
            "results/{run}.provenance.json",
            caption="../report/provenance.rst",
            category="Scores",
            labels={"run": "{run}", "file": "provenance"},
        ),
    log:
        "work/logs/score-{run}.log",
    benchmark:
        "work/benchmarks/score-{run}.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        corpus=corpus_values,
        machine=machine_values,
        run=lambda wildcards: plain(PARAMS.runs[wildcards.run]),
        scoring=plain(PARAMS.scoring),
        splits=splits_values,
    shell:
        "python -m bleuprint score {wildcards.run}"
