"""From a number of the table back to its sources: claim, verdict, result, commands, parameters, code, hashes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bleuprint.datasets import MirroredDataset, TextsDataset
from bleuprint.files import sha256_of
from bleuprint.graph import PARAMS_FILE, Params, Run
from bleuprint.hypotheses import HISTORY
from bleuprint.metrics import METRICS
from bleuprint.reporting.pointers import line_of, line_of_claim, place_of, shown_path, span_of
from bleuprint.reporting.reported import judge_claim, read_result_of
from bleuprint.reporting.sections import claimed_value, measured_curve, measured_value
from bleuprint.scoring import Result
from bleuprint.strict import choose, read_json
from bleuprint.verdicts.claims import CurveJudgement, Judgement
from bleuprint.verdicts.curves import Epoch, read_history, without_cut_off
from bleuprint.verdicts.published import (
    COUNTS,
    AnyClaim,
    CountClaim,
    CurveClaim,
    ValueClaim,
    read_claims,
)
from bleuprint.verdicts.reckoning import RULES, arithmetic

# What the `sacrebleu` command is told for each metric, besides the texts. metrics.py builds the same.
SACREBLEU_OPTIONS = {
    "bleu_lc_tok": "-tok none",
    "bleu_13a_lc": "-lc",
    "bleu_13a": "",
    "bleu_compound_split": "-tok none --smooth-method none",
    "chrf": "-m chrf",
}
# The functions behind a measure, from the model's words to the number, by their dotted names.
COUNTED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(METRICS, ("search.search", "decoding.translate", "metrics.score_corpus", "scoring.score_test_set")),
    "bleu_compound_split": (
        "search.search",
        "decoding.translate",
        "compound_split.compound_split",
        "metrics.score_corpus",
    ),
    "legacy_score": ("decoding.predict_forced", "legacy_score.legacy_score", "scoring.score_forced"),
    "train_loss": ("objective.cross_entropy", "updates.train_step", "verdicts.claims.measure"),
    "validation_loss": ("objective.cross_entropy", "updates.evaluate", "verdicts.claims.measure"),
    "parameters": ("scoring.count_parameters", "verdicts.claims.count"),
    "model_size": ("scoring.count_parameters", "verdicts.claims.count"),
    "curve": (
        "updates.train_step",
        "updates.evaluate",
        "verdicts.curves.whole_epochs",
        "verdicts.curves.mean_curve",
        "verdicts.curves.distance",
    ),
}
JUDGED_BY = {
    "value": "verdicts.claims.value_verdict",
    "count": "verdicts.claims.judge_count",
    "curve": "verdicts.claims.curve_verdict",
}
SHOWN_BY = {
    "value": "reporting.sections.measured_value",
    "count": "reporting.sections.measured_value",
    "curve": "reporting.sections.measured_curve",
}


class Sources(NamedTuple):
    """Where a claim's numbers lie: results, the package, the curves, the raw data; all seen from the project's root."""

    results: Path
    package: Path
    curves: Path
    raw: Path


# --- which claim ------------------------------------------------------------------------------------------------------


def all_claims() -> dict[str, AnyClaim]:
    """Return every claim by its id, those of the project's own file last."""
    return {claim.id: claim for claims in read_claims().values() for claim in claims}


def find_claim(asked: str, judgements: Sequence[Judgement | CurveJudgement]) -> str:
    """Return the id of the claim whose row of the table shows a number.

    ValueError lists the ids of all claims where none does, and those of its rows where several do.
    """
    found = [one.claim.id for one in judgements if plain(asked) in shown_numbers(one)]
    if len(found) > 1:
        raise ValueError(f"{asked} stands in several rows; name the claim by its id: {', '.join(found)}")
    if not found and plain(asked).replace(".", "", 1).isdigit():
        ids = ", ".join(all_claims())
        raise ValueError(f"no row of the active table claims or measured {asked}; name the claim by its id: {ids}")
    if not found:
        choose("claim", asked, all_claims())
    return found[0]


def shown_numbers(judgement: Judgement | CurveJudgement) -> set[str]:
    """Return the numbers that a claim's row shows as claimed and as measured in the same metric."""
    if isinstance(judgement, CurveJudgement):
        return {plain(word) for word in measured_curve(judgement).replace(";", ",").split(" ")}
    claimed = claimed_value(judgement.claim).partition(" ")[0]
    return {plain(claimed), plain(measured_value(judgement).partition(" ")[0])}


def plain(number: str) -> str:
    """Return a number without the marks between its thousands or behind it."""
    return number.strip().replace(",", "")


def judgements_of(
    claims: Sequence[AnyClaim], table: str, runs: Mapping[str, Run], sources: Sources
) -> dict[str, tuple[Judgement | CurveJudgement, dict[str, list[Epoch]]]]:
    """Return a table's verdicts on claims by their ids, each with the histories of its runs.

    ValueError where a result is missing.
    """
    found = {}
    for claim in claims:
        own = {run: settings for run, settings in runs.items() if settings.experiment == claim.tables[table]}
        results = [read_result_of(run, settings, sources.results / f"{run}.json") for run, settings in own.items()]
        histories = {result.run: history_of(result, sources) for result in results}
        found[claim.id] = judge_claim(claim, table, results, histories, sources.curves), histories
    return found


def history_of(result: Result, sources: Sources) -> list[Epoch]:
    """Return the epochs of a run's training, from what is committed of it."""
    return read_history(sources.results / result.run / HISTORY, result.trained, result.stopped == "diverged")


# --- the account ------------------------------------------------------------------------------------------------------


def explain(
    judgement: Judgement | CurveJudgement,
    histories: Mapping[str, Sequence[Epoch]],
    table: str,
    params: Params,
    sources: Sources,
) -> str:
    """Return what a claim is, how its verdict came about, and where every number behind it stands."""
    parts = {
        "Claim": claim_lines(judgement),
        f"Verdict in the table {table}: {judgement.verdict}": verdict_lines(judgement, sources),
        **{
            f"Measured: {run.run}": [
                *result_lines(judgement, run, histories, sources),
                *command_lines(judgement, run, table, params, sources),
                *hash_lines(run, sources),
            ]
            for run in judgement.runs
        },
        **({"Parameters": list(parameter_lines(judgement.runs[0], params))} if judgement.runs else {}),
        "Code": code_lines(judgement.claim, sources),
    }
    return "\n\n".join(f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in parts.items())


def claim_lines(judgement: Judgement | CurveJudgement) -> list[str]:
    """Return the claim as its file has it, with its line there."""
    claim = judgement.claim
    file = next(file for file, claims in read_claims().items() if claim.id in {one.id for one in claims})
    if isinstance(claim, CurveClaim):
        value = f"the curve {claim.file}"
        tolerance = f"{claim.median_tolerance:g} nats in the median, {claim.max_tolerance:g} at most"
    else:
        value = f"{claim.value:,.12g} {claim.unit}, {claim.metric}"
        value += f" on {claim.split}" if isinstance(claim, ValueClaim) else ""
        tolerance = "none" if claim.tolerance is None else f"{claim.tolerance:,g} {claim.unit}"
    return [
        f"id         {claim.id} ({shown_path(file)}:{line_of_claim(file, claim.id)})",
        f"says       {claim.who}: {claim.text}",
        f"value      {value}",
        f"tolerance  {tolerance}",
        f"source     {claim.source}",
        f"note       {claim.note}",
    ]


def verdict_lines(judgement: Judgement | CurveJudgement, sources: Sources) -> list[str]:
    """Return the rule with its place in the code, and the arithmetic."""
    kind = judgement.claim.kind
    rule = f"rule       {RULES[kind]} ({place_of(JUDGED_BY[kind], sources.package)})"
    return [rule, *(f"counted    {text}" for text in arithmetic(judgement))]


# --- one run ----------------------------------------------------------------------------------------------------------


def result_lines(
    judgement: Judgement | CurveJudgement, run: Result, histories: Mapping[str, Sequence[Epoch]], sources: Sources
) -> Iterator[str]:
    """Yield where the number stands that the verdict is about, its value, and its signature."""
    claim, file, history = judgement.claim, sources.results / f"{run.run}.json", sources.results / run.run / HISTORY
    if isinstance(claim, CurveClaim):
        yield f"result     {history}: columns train_loss and validation_loss, {len(histories[run.run])} epochs"
    elif claim.metric == "train_loss":
        best = min(without_cut_off(histories[run.run]), key=lambda row: row.train_loss)
        yield f"result     {history}:{best.epoch + 1}, epoch {best.epoch}, column train_loss: {best.train_loss}"
    else:
        keys = key_of(claim)
        value: Any = run.model_dump()
        for key in keys:
            value = value[key]
        yield f"result     {file}:{line_of(file, keys)}, key {'.'.join(keys)}: {value}"
        if claim.metric in METRICS and isinstance(claim, ValueClaim):
            score = run.test_sets[claim.split][claim.metric]
            yield f"interval   [{score.low}, {score.high}]"
            yield f"signature  {score.signature}"
    shown = measured_curve(judgement) if isinstance(judgement, CurveJudgement) else measured_value(judgement)
    yield f"shown      {shown}"


def key_of(claim: ValueClaim | CountClaim) -> tuple[str, ...]:
    """Return the key of results/{run}.json that a claim's measure stands under."""
    if claim.metric in COUNTS:
        return ("parameters",)
    if claim.metric in METRICS and isinstance(claim, ValueClaim):
        return ("test_sets", claim.split, claim.metric, "score")
    return ("legacy_score", "score") if claim.metric == "legacy_score" else (claim.metric,)


def command_lines(
    judgement: Judgement | CurveJudgement, run: Result, table: str, params: Params, sources: Sources
) -> Iterator[str]:
    """Yield the commands that make the number and those that check it."""
    if params.table != table:
        yield f"first      python -m bleuprint use {table}"
    yield f"make it    dvc repro score@{run.run}   # or: snakemake --cores 2 {sources.results}/{run.run}.json"
    claim = judgement.claim
    if isinstance(claim, ValueClaim) and claim.metric in METRICS:
        for command in sacrebleu_commands(claim, run, params, sources):
            yield f"check it   {command}"
    if isinstance(claim, CountClaim):
        yield f"check it   python -m bleuprint describe {run.run}"
    yield f"check it   python -m bleuprint verify {table}"


def sacrebleu_commands(claim: ValueClaim, run: Result, params: Params, sources: Sources) -> list[str]:
    """Return the command line by which sacreBLEU gives a score with its interval from the committed text."""
    corpus = params.corpora[run.corpus]
    suffix, raw = METRICS[claim.metric].suffix, sources.raw / corpus.dataset  # type: ignore[index]
    hypotheses = f"{sources.results / run.run / claim.split}.hyp.{suffix}"
    official = f"{claim.split}.lc.norm.tok.{corpus.target}"
    spec = params.datasets[corpus.dataset]
    has_official = isinstance(spec, MirroredDataset | TextsDataset) and official in spec.files
    if suffix == "txt":
        references = f"{raw / claim.split}.{corpus.target}"
    else:
        references = str(
            raw / official if has_official else Path("runs") / run.run / f"decode/{claim.split}.ref.{suffix}"
        )
    before = []
    if claim.metric == "bleu_compound_split":
        split = r"sacremoses -q -l de tokenize <{} | perl -ple 's{{(\S)-(\S)}}{{$1 ##AT##-##AT## $2}}g' >{}"
        before = [split.format(references, "work/ref.split"), split.format(hypotheses, "work/hyp.split")]
        references, hypotheses = "work/ref.split", "work/hyp.split"
    scoring = params.scoring
    confidence = f"--confidence --confidence-n {scoring.bootstrap_resamples} -w 6"
    options = SACREBLEU_OPTIONS[claim.metric]
    words = ("sacrebleu", references, "-i", hypotheses, options, confidence)
    return [*before, f"SACREBLEU_SEED={scoring.bootstrap_seed} {' '.join(word for word in words if word)}"]


def hash_lines(run: Result, sources: Sources) -> Iterator[str]:
    """Yield by which commit a run was scored, the hashes of its data, and whether its code has changed since."""
    git = read_json(sources.results / f"{run.run}.provenance.json")["git"]
    yield f"commit     {git['commit']}{', with uncommitted changes' if git['dirty'] else ''}"
    for name, digest in run.data.items():
        yield f"data       {name}: sha256 {digest} (of its manifest.json)"
    files = {name: sources.package / name for name in run.code}
    changed = [name for name, path in files.items() if not path.is_file() or sha256_of(path) != run.code[name]]
    yield f"code       {len(files)} files, {'changed since: ' + ', '.join(changed) if changed else 'as they are now'}"


# --- places -----------------------------------------------------------------------------------------------------------


def parameter_lines(run: Result, params: Params) -> Iterator[str]:
    """Yield the lines of params.yaml that decide a run, with their numbers."""
    settings = params.run_named(run.run)
    experiments = dict.fromkeys((settings.experiment, settings.recipe))
    sections = [*(("experiments", name) for name in experiments), ("corpora", run.corpus), ("scoring",), ("machine",)]
    lines = PARAMS_FILE.read_text(encoding="utf-8").split("\n")
    for keys in sections:
        first, last = span_of(PARAMS_FILE, keys)
        yield from (f"{PARAMS_FILE}:{number:<5} {lines[number - 1]}".rstrip() for number in range(first, last + 1))


def code_lines(claim: AnyClaim, sources: Sources) -> list[str]:
    """Return where the functions stand that make, judge and show the number, in their order."""
    measure = "curve" if isinstance(claim, CurveClaim) else claim.metric
    names = (*COUNTED_BY[measure], JUDGED_BY[claim.kind], SHOWN_BY[claim.kind])
    return [f"{place_of(name, sources.package)}  {name.rpartition('.')[2]}" for name in names]
