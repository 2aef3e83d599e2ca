# The table: claimed beside measured.

# The published curves that claims.yaml names, by commit and number of epochs.
LOGS = ["1a4aecf_2", "1d076f1_49", "817082d_1065", "b1e73da_23", "c1c22a3_12", "ded5bcf_2"]


rule report:
    input:
        # They stand for the runs' histories as well: every training writes another metrics.jsonl, and with it `score`
        # another provenance.
        results=expand("results/{run}.{kind}", run=PARAMS.runs, kind=["json", "provenance.json"]),
        code=code(
            "claims",
            "curves",
            "evidence",
            "figures",
            "forensics",
            "markdown",
            "published",
            "report",
            "scoring",
            "sections",
        ),
        claims="src/bleuprint/reference/claims.yaml",
        evidence="src/bleuprint/reference/evidence.yaml",
        curves=expand("src/bleuprint/reference/curves/{log}epochs.csv", log=LOGS),
        table="workflow/tables/{table}.yaml",
    output:
        table=report(
            "reports/{table}/results.md",
            caption="../report/table.rst",
            category="Report",
            labels={"part": "table"},
        ),
        figures=report(
            directory("reports/{table}/figures"),
            patterns=["{figure}.svg"],
            caption="../report/figures.rst",
            category="Report",
            labels={"part": "{figure}"},
        ),
    log:
        "work/logs/report-{table}.log",
    benchmark:
        "work/benchmarks/report-{table}.tsv"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        runs={name: plain(run) for name, run in PARAMS.runs.items()},
        table=PARAMS.table,
    shell:
        "python -m bleuprint report"
