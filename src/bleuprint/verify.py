"""Do the committed numbers follow from the committed texts? Scores them again and compares number by number.

Of each run of a table: the texts in results/{run} are scored beside references made from the data set, and every score,
bound, signature, loss and count of updates is compared with results/{run}.json. From what was found, claims are judged
and reports/{table}/results.md is written again, and compared line by line, its tables cell by cell; README.md's are
compared with those of reports/default. Nothing is trained, and neither torch nor DVC is needed.

Parameters, tokens and FLOPs of a run, and the hashes of its code, are taken from its result: a training counted them.
Of its history, the last and the best epoch count for the result, and those that a published curve has for the report.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from bleuprint.estimates.plans import load_plans
from bleuprint.graph import Params, Run, load_table
from bleuprint.hypotheses import HISTORY, rebuild_decoded
from bleuprint.inputs import Places, find_corpus, find_raw
from bleuprint.provenance import hash_files
from bleuprint.report import readme_block, render_report, split_block
from bleuprint.reporting.reported import put_together, read_result_of
from bleuprint.scoring import Result, score_forced, score_test_set
from bleuprint.segmentation import usable_cores
from bleuprint.verdicts.curves import Epoch, finite_epochs, read_history
from bleuprint.verdicts.evidence import load_evidence
from bleuprint.verdicts.published import load_claims

README_TABLE = "default"  # its report stands in README.md
COUNTED_AGAIN = ("test_sets", "legacy_score", "data", "steps", "epochs", "validation_loss")  # of results/{run}.json
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NO_NUMBERS = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")  # names, links and addresses may hold digits
CELL = re.compile(r"(?<!\\)\|")


class Checked(NamedTuple):
    """A file, how many numbers in it were compared, and a line for each thing in it that is not as it should be."""

    file: Path
    numbers: int
    wrong: tuple[str, ...]


class Ready(NamedTuple):
    """A run's result as it was written, with the data that it was scored on."""

    written: Result
    settings: Run
    raw: Path
    corpus_dir: Path


class Found(NamedTuple):
    """A run as its texts and its history say that it is."""

    result: Result
    history: list[Epoch]


def verify_table(
    table: str, runs: Mapping[str, Run], params: Params, places: Places, curves_dir: Path, plans_file: Path
) -> Iterator[Checked]:
    """Yield what was checked, file by file: each run's result, the table's report and, of one table, README.md.

    What is missing or damaged is a line of `wrong`. ValueError where the data cannot be had.
    """
    ready = [prepare(run, settings, params, places) for run, settings in runs.items()]  # one corpus is made once
    found: list[Found] = []
    try:
        with ProcessPoolExecutor(usable_cores(), get_context("spawn")) as pool:
            for checked, rescored in pool.map(check_run, ready, repeat(params), repeat(places)):
                found += [rescored] if rescored else []
                yield checked
    except BrokenProcessPool:
        raise ChildProcessError("a process that scores texts died: stopped, or short of memory?") from None
    report = places.reports / table / "results.md"
    if len(found) < len(runs):
        yield Checked(report, 0, (f"{report} was not compared: not all of its runs could be scored",))
    else:
        yield check_report(report, table, found, params, places, curves_dir, plans_file)
    if table == README_TABLE:
        yield check_readme(places.readme, report.parent)


def summary(checked: Sequence[Checked]) -> str:
    """Return "480 numbers of 10 files agree", and how much does not."""
    wrong = sum(len(one.wrong) for one in checked)
    numbers = sum(one.numbers for one in checked)
    if not wrong:
        return f"{numbers:,} numbers of {len(checked)} files agree"
    return f"{wrong} of what was compared in {len(checked)} files ({numbers:,} numbers) is not as it should be"


# --- results/{run}.json -----------------------------------------------------------------------------------------------


def prepare(run: str, settings: Run, params: Params, places: Places) -> Ready | Checked:
    """Return a run's result with the data that it was scored on; what is wrong where there is no result.

    ValueError where the data cannot be had.
    """
    file = places.results / f"{run}.json"
    try:
        written = read_result_of(run, settings, file)
    except ValueError as error:
        return Checked(file, 0, (str(error),))
    raw = find_raw(settings.dataset, written.data["raw"], params, places)
    return Ready(written, settings, raw, find_corpus(settings.corpus, written.data["corpus"], raw, params, places))


def check_run(ready: Ready | Checked, params: Params, places: Places) -> tuple[Checked, Found | None]:
    """Return a run's result compared with its texts scored again, and these scores; None where there are none."""
    if isinstance(ready, Checked):
        return ready, None
    file = places.results / f"{ready.written.run}.json"
    try:
        found = rescore(ready, params, places)
    except ValueError as error:
        return Checked(file, 0, (str(error),)), None
    old, new = (flat(result.model_dump(include=set(COUNTED_AGAIN))) for result in (ready.written, found.result))
    keys = sorted(old.keys() | new.keys())
    wrong = [
        f"{file}: {key} is {show(old, key)}, counted again {show(new, key)}" for key in keys if differ(old, new, key)
    ]
    return Checked(file, len(keys), tuple(wrong)), found


def rescore(ready: Ready, params: Params, places: Places) -> Found:
    """Return a result with all that its texts and its history say; ValueError where one is missing or damaged."""
    written, settings, raw, corpus_dir = ready
    corpus, splits = params.corpora[settings.corpus], params.datasets[settings.dataset].splits
    kept, decoded = places.results / written.run, places.work / "decode" / written.run
    rebuild_decoded(kept, raw, corpus_dir, corpus, splits, decoded)
    history = read_history(kept / HISTORY, written.trained, written.stopped == "diverged")
    changes = {
        "test_sets": {test: score_test_set(decoded, test, corpus, params.scoring) for test in splits.tests},
        "legacy_score": score_forced(decoded, splits.validation, kept / HISTORY),
        "data": hash_files({"raw": raw / "manifest.json", "corpus": corpus_dir / "manifest.json"}),
        "steps": history[-1].step,
        "epochs": history[-1].epoch,
        "validation_loss": None
        if written.stopped == "diverged"
        else min(row.validation_loss for row in finite_epochs(history)),
    }
    return Found(written.model_copy(update=changes), history)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one, e.g. {"test_sets.test.chrf.score": 51.3}."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf
        for key, item in value.items()
        for name, leaf in flat(item, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def differ(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> bool:
    """Return whether a number is not the same in both, or only in one."""
    return key not in old or key not in new or old[key] != new[key]


def show(values: Mapping[str, Any], key: str) -> str:
    """Return a value, or that there is none."""
    return str(values[key]) if key in values else "absent"


# --- the tables in Markdown -------------------------------------------------------------------------------------------


def check_report(
    path: Path, table: str, found: Sequence[Found], params: Params, places: Places, curves_dir: Path, plans_file: Path
) -> Checked:
    """Return results.md compared with what follows from what was found."""
    results = [one.result for one in found]
    histories = {one.result.run: one.history for one in found}
    try:
        written = read_text(path)
        settings = load_table(table)
        reported = put_together(
            table,
            settings.title,
            results,
            histories,
            settings.comparisons,
            params.scoring,
            corpora=params.corpora,
            provenances={run: places.results / f"{run}.provenance.json" for run in histories},
            decoded={run: places.work / "decode" / run for run in histories},
            claims=load_claims(table),
            evidence=load_evidence(table),
            plans=load_plans(plans_file),
            curves_dir=curves_dir,
        )
    except ValueError as error:
        return Checked(path, 0, (str(error),))
    return compare_lines(path, 0, written, render_report(reported), "counted again")


def check_readme(readme: Path, report_dir: Path) -> Checked:
    """Return README.md's table compared with that of a report."""
    try:
        before, block, _ = split_block(read_text(readme), readme)
        expected = readme_block(report_dir, readme.parent)
    except ValueError as error:
        return Checked(readme, 0, (str(error),))
    return compare_lines(readme, before.count("\n"), block, expected, f"{report_dir / 'results.md'} has")


def read_text(path: Path) -> str:
    """Return a text file; ValueError where it is missing."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; restore it with: git restore {path}")
    return path.read_text(encoding="utf-8")


def compare_lines(path: Path, lines_before: int, block: str, expected: str, source: str) -> Checked:
    """Return a block of Markdown, line by line and cell by cell, compared with the expected one.

    `lines_before` of the file stand before the block's first; `source` says where the expected numbers come from.
    """
    wrong: list[str] = []
    header: list[str] = []
    pairs = list(zip_longest(block.split("\n"), expected.split("\n")))
    for number, (written, right) in enumerate(pairs, lines_before + 1):
        place = f"{path}, line {number}"
        if written is None or right is None:
            wrong.append(f"{place}: the table has another number of lines than expected")
            break
        cells, right_cells = CELL.split(written), CELL.split(right)
        header = right_cells if len(header) != len(right_cells) else header
        if len(cells) != len(right_cells):
            wrong.append(f"{place}: {quote(written)}, {source} {quote(right)}")
        elif len(cells) == 1:
            wrong += [f"{place}: {a}, {source} {b}" for a, b in [changed_words(written, right)] if written != right]
        else:
            wrong += [
                f"{place}, {cell_name(header, right_cells, i)}: {a.strip()}, {source} {b.strip()}"
                for i, (a, b) in enumerate(zip(cells, right_cells, strict=True))
                if a != b
            ]
    numbers = sum(len(NUMBER.findall(NO_NUMBERS.sub("", right))) for _, right in pairs if right is not None)
    return Checked(path, numbers, tuple(wrong))


def cell_name(header: Sequence[str], row: Sequence[str], column: int) -> str:
    """Return which cell of a table it is: its row's first cell and its column's head."""
    return f"{row[1].strip()}, column {re.sub(r'[(][^)]*[)]|[][]', '', header[column]).strip()}"


def changed_words(written: str, right: str) -> tuple[str, str]:
    """Return the first words that differ in two lines, with one word before them."""
    pairs = list(zip_longest(written.split(" "), right.split(" "), fillvalue=""))
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
    some = pairs[max(0, first - 1) : first + 2]
    return quote(" ".join(a for a, _ in some).strip()), quote(" ".join(b for _, b in some).strip())


def quote(text: str) -> str:
    """Return a piece of text, cut where it is long."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
