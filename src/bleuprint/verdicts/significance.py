"""Runs beside a first one: sacreBLEU's two paired tests for each test set, and the sentences that differ most.

Paired bootstrap (Koehn 2004) asks whether other sentences could undo a difference, paired approximate randomisation
(Riezler and Maxwell 2005) whether swapping the two systems' translations of sentences at random would give one as
large. Neither says what another seed would give. A table's own comparisons, with intervals and over seeds, are
comparisons.py's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bleuprint.graph import Params
from bleuprint.hypotheses import references_of
from bleuprint.inputs import Places, find_raw
from bleuprint.lines import read_lines, read_pairs
from bleuprint.metrics import MetricName, bootstrap_seed, build_metric
from bleuprint.params import Scoring
from bleuprint.scoring import read_decoded, read_result

AR_TRIALS = 10_000  # sacreBLEU's own default


class Texts(NamedTuple):
    """What each run wrote for a test set, in the order in which the runs were named, and the one reference."""

    runs: tuple[str, ...]
    hypotheses: tuple[list[str], ...]
    references: list[str]


class Outcome(NamedTuple):
    """A run's score; how it differs from the first run's, with p-values; None for the first, and for the same texts."""

    run: str
    score: float
    difference: float | None
    bootstrap_p: float | None
    randomisation_p: float | None


class Change(NamedTuple):
    """A sentence (`line`, from 1 on) with its sentence score by the first run and by another one."""

    line: int
    before: float
    after: float

    @property
    def gain(self) -> float:
        return self.after - self.before


# --- what may be compared ---------------------------------------------------------------------------------------------


def check_comparable(runs: Sequence[str], params: Params) -> tuple[str, ...]:
    """Return the test sets of two runs or more; ValueError unless all translate the same ones and none is twice."""
    if len(runs) < 2:
        raise ValueError("compare takes two runs or more: the first is what the others are compared with")
    if doubles := [run for run in dict.fromkeys(runs) if runs.count(run) > 1]:
        raise ValueError(f"{doubles[0]} stands there twice; a run has no difference from itself")
    first, *others = runs
    for other in others:
        if task_of(other, params) != task_of(first, params):
            raise ValueError(
                f"{first} and {other} cannot be compared: {first} translates {task_of(first, params)}, "
                f"{other} {task_of(other, params)}; only runs that translate the same test sets can"
            )
    return params.datasets[params.run_named(first).dataset].splits.tests


def fair_metrics(runs: Sequence[str], params: Params) -> list[MetricName]:
    """Return what runs are compared in: chrf, which is cased, only where all of them write capitals or none does."""
    cased = {params.corpora[params.run_named(run).corpus].cased for run in runs}
    return ["bleu_lc_tok", "chrf"] if len(cased) == 1 else ["bleu_lc_tok"]


def task_of(run: str, params: Params) -> str:
    """Return "multi30k from en to de": what a run's test sets are."""
    corpus = params.corpora[params.run_named(run).corpus]
    return f"{corpus.dataset} from {corpus.source} to {corpus.target}"


def read_texts(runs: Sequence[str], test: str, suffix: str, params: Params, places: Places, decoded: Path) -> Texts:
    """Return what runs wrote for a test set, below `decoded`/{run}/decode or else in results/{run}.

    ValueError where it is at neither, or where the references are not the same.
    """
    pairs = [read_text(run, test, suffix, params, places, decoded) for run in runs]
    for run, (_, references) in zip(runs, pairs, strict=True):
        if references != pairs[0][1]:
            raise ValueError(f"{runs[0]} and {run} cannot be compared: their references of {test} differ")
    return Texts(tuple(runs), tuple(hypotheses for hypotheses, _ in pairs), pairs[0][1])


def read_text(
    run: str, test: str, suffix: str, params: Params, places: Places, decoded: Path
) -> tuple[list[str], list[str]]:
    """Return one run's hypotheses and references; ValueError where there are none."""
    directory, kept = decoded / run / "decode", places.results / run / f"{test}.hyp.{suffix}"
    if (directory / f"{test}.hyp.{suffix}").is_file():
        return read_decoded(directory, test, suffix)
    if not kept.is_file():
        raise ValueError(f"{run} has no translations, neither in {directory} nor in {kept.parent}; decode and score it")
    corpus = params.corpora[params.run_named(run).corpus]
    hypotheses, references = read_lines(kept), references_of(raw_of(run, params, places), test, corpus)[suffix]
    if len(hypotheses) != len(references):
        raise ValueError(f"{kept} has {len(hypotheses)} lines and its references have {len(references)}")
    return hypotheses, references


def raw_of(run: str, params: Params, places: Places) -> Path:
    """Return the data set that a run was scored on, fetched where it is not there."""
    result = read_result(places.results / f"{run}.json")
    return find_raw(params.run_named(run).dataset, result.data["raw"], params, places)


def read_sources(run: str, test: str, params: Params, places: Places) -> list[str]:
    """Return the source sentences of a test set."""
    corpus = params.corpora[params.run_named(run).corpus]
    return read_pairs(raw_of(run, params, places), test, corpus.source, corpus.target)[0]


# --- tests ------------------------------------------------------------------------------------------------------------


def paired_tests(name: MetricName, texts: Texts, scoring: Scoring) -> list[Outcome]:
    """Return every run's score and, but for the first, its difference with sacreBLEU's two p-values."""
    if scoring.bootstrap_seed == 0:
        raise ValueError("scoring.bootstrap_seed is 0, which sacreBLEU's paired tests take for no seed; give another")
    bootstrap = p_values(name, texts, "bs", scoring.bootstrap_resamples, scoring.bootstrap_seed)
    randomisation = p_values(name, texts, "ar", AR_TRIALS, scoring.bootstrap_seed)
    (first, _), *_ = bootstrap
    rows = []
    for i, (run, hypotheses) in enumerate(zip(texts.runs, texts.hypotheses, strict=True)):
        score, p_value = bootstrap[i]
        same = hypotheses == texts.hypotheses[0]
        p_of_both = (None, None) if same else (p_value, randomisation[i][1])
        rows.append(Outcome(run, score, None if i == 0 else score - first, *p_of_both))
    return rows


def p_values(name: MetricName, texts: Texts, kind: str, samples: int, seed: int) -> list[tuple[float, float | None]]:
    """Return each run's score and p-value by `sacrebleu --paired-bs` (bs) or `--paired-ar` (ar)."""
    from sacrebleu.significance import PairedTest
    from sacrebleu.significance import Result as TestResult

    systems: list[tuple[str, Sequence[str]]] = list(zip(texts.runs, texts.hypotheses, strict=True))
    with bootstrap_seed(seed):
        tested = PairedTest(
            systems, {name: build_metric(name)}, [texts.references], test_type=kind, n_samples=samples
        )()[1]
    (column,) = (items for head, items in tested.items() if head != "System")
    return [(item.score, item.p_value) for item in column if isinstance(item, TestResult)]


# --- sentences --------------------------------------------------------------------------------------------------------


def changes(baseline: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[Change]:
    """Return every sentence with its chrF by two runs, from the largest loss to the largest gain.

    Lower-cased, so that a run without capitals can stand beside one with them. BLEU of one sentence would be mostly its
    smoothing.
    """
    from sacrebleu.metrics import CHRF

    metric = CHRF(lowercase=True)

    def score(hypothesis: str, reference: str) -> float:
        return float(metric.sentence_score(hypothesis, [reference]).score)

    pairs = zip(baseline, hypotheses, references, strict=True)
    found = [Change(line, score(old, ref), score(new, ref)) for line, (old, new, ref) in enumerate(pairs, 1)]
    return sorted(found, key=lambda change: (change.gain, change.line))


def extremes(found: Sequence[Change], count: int) -> list[Change]:
    """Return the `count` sentences that gain most and those that lose most, as far as any do."""
    gains = [change for change in reversed(found) if change.gain > 0][:count]
    losses = [change for change in found if change.gain < 0][:count]
    return [*gains, *losses]


# --- words ------------------------------------------------------------------------------------------------------------

HOW_TO_READ = f"""p: how easily chance alone would give such a difference; of one pair of runs, not corrected for others
  bootstrap: sacrebleu --paired-bs; in effect one-sided (below 0.05 in 11 to 13 of 100 cases without any effect)
  randomisation: sacrebleu --paired-ar, two-sided, {AR_TRIALS:,} trials
Both are about these sentences. With one seed, a difference between two trainings may be one between their seeds."""


def render_tests(test: str, tested: Mapping[MetricName, Sequence[Outcome]], sentences: int) -> str:
    """Return one test set as a table of text."""
    header = ("metric", "run", "score", "difference", "p, bootstrap", "p, randomisation")
    rows: list[tuple[str, ...]] = [header]
    for name, runs in tested.items():
        for i, row in enumerate(runs):
            difference = "" if row.difference is None else f"{row.difference:+.2f}"
            p_of_both = [("" if i == 0 else "same texts") if p is None else f"{p:.4f}" for p in row[3:]]
            rows.append((name if i == 0 else "", row.run, f"{row.score:.2f}", difference, *p_of_both))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join((f"{test}, {sentences:,} sentences", *lines))


def render_sentences(texts: Texts, other: int, sources: Sequence[str], count: int) -> str:
    """Return the sentences that run number `other` translates better and worse than the first, by sentence chrF."""
    first, run = texts.runs[0], texts.runs[other]
    old, new = texts.hypotheses[0], texts.hypotheses[other]
    width = max(len(name) for name in ("reference", first, run))
    parts = [f"{run} beside {first}, sentences that gain and that lose most by chrF (lower-cased):"]
    for change in extremes(changes(old, new, texts.references), count):
        i = change.line - 1
        lines = {"source": sources[i], "reference": texts.references[i], first: old[i], run: new[i]}
        head = f"  line {change.line}: {change.gain:+.1f} ({change.before:.1f} to {change.after:.1f})"
        parts.append("\n".join((head, *(f"    {name.ljust(width)}  {text}" for name, text in lines.items()))))
    return "\n".join(parts) if len(parts) > 1 else f"{run} beside {first}: no sentence differs in chrF"
