# From the mirrors, or the toy grammar, to numbers that training reads.


rule download:
    input:
        code=lambda wildcards: code("corpus", "lines", PARAMS.inputs.datasets[wildcards.dataset].module),
    output:
        directory("data/raw/{dataset}"),
    log:
        "work/logs/download-{dataset}.log",
    benchmark:
        "work/benchmarks/download-{dataset}.tsv"
    localrule: True  # a cluster's nodes often have no internet: it runs where snakemake runs
    params:
        dataset=lambda wildcards: plain(PARAMS.datasets[wildcards.dataset]),
    shell:
        "python -m bleuprint download {wildcards.dataset}"


rule tokenize:
    input:
        raw=raw_data,
        code=code("cleaning", "idstore", "learning", "lines", "segmentation", "tokenizers", "tokenizing"),
    output:
        directory("data/corpora/{corpus}"),
    log:
        "work/logs/tokenize-{corpus}.log",
    benchmark:
        "work/benchmarks/tokenize-{corpus}.tsv"
    threads: 2  # processes: one for each core that the job may run on
    resources:
        mem_mb=4000,
        runtime=60,  # minutes, here and in the other rules: what a cluster is asked for
    params:
        corpus=corpus_values,
        splits=splits_values,
    shell:
        "python -m bleuprint tokenize {wildcards.corpus}"
