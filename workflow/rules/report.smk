# The table: claimed beside measured.


rule report:
    input:
        # They stand for the runs' histories as well: every training writes another metrics.jsonl, and with it `score`
        # another provenance.
        results=expand("results/{run}.{kind}", run=PARAMS.runs, kind=["json", "provenance.json"]),
        code=code("claims", "figures", "report", "scoring"),
        claims="src/bleuprint/reference/claims.yaml",
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
