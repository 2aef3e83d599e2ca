# The table: claimed beside measured.

# The published curves that claims.yaml names, by commit and number of epochs.
LOGS = ["1a4aecf_2", "1d076f1_49", "817082d_1065", "b1e73da_23", "c1c22a3_12", "ded5bcf_2"]


# What the page is made of.
TEMPLATES = [
    "attention.html",
    "attention.js",
    "page.js",
    "report.html",
    "run.html",
    "samples.html",
    "style.css",
]


rule report:
    input:
        # They stand for the runs' histories and decoded texts as well: every training writes another metrics.jsonl, and
        # `score`, which depends on it and on the texts, writes another provenance each time that it runs. And for recipes
        # and raw texts: another recipe is another training or text, and a result has the hash of the raw text's manifest.
        results=expand(
            "results/{run}{kind}", run=PARAMS.runs, kind=["", ".attention.json", ".json", ".provenance.json"]
        ),
        code=code(
            "attended",
            "estimates/cost",  # reads the hours of trainings
            "estimates/plans",
            "metrics",
            "report",
            "reporting/figures",
            "reporting/forensics",
            "reporting/hypertext",
            "reporting/interactive",
            "reporting/lengths",
            "reporting/licences",
            "reporting/markdown",
            "reporting/page",
            "reporting/reported",
            "reporting/run_facts",
            "reporting/run_tables",
            "reporting/samples",
            "reporting/sections",
            "scoring",
            "verdicts/claims",
            "verdicts/comparisons",
            "verdicts/curves",
            "verdicts/evidence",
            "verdicts/published",
            "verdicts/statistics",
        ),
        claims=["src/bleuprint/reference/claims.yaml", "workflow/claims.yaml"],
        deviations="reports/deviations.json",
        evidence="src/bleuprint/reference/evidence.yaml",
        licences="src/bleuprint/reference/licences.yaml",
        plans="src/bleuprint/reference/plans.json",
        curves=expand("src/bleuprint/reference/curves/{log}epochs.csv", log=LOGS),
        table="workflow/tables/{table}.yaml",
        templates=expand("src/bleuprint/reporting/templates/{name}", name=TEMPLATES),
    output:
        page=report(
            "reports/{table}/report.html",
            caption="../report/page.rst",
            category="Report",
            labels={"part": "reporting/page"},
        ),
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
        scoring=plain(PARAMS.scoring),
        table=PARAMS.table,
    shell:
        "python -m bleuprint report"
