"""Sample translations for the report's page, chosen by a rule that is fixed here and looks at no text.

Of each data set and direction in a table the first test set; ten sentences in all, shared among them. The sentences are
ranked by sentence-level chrF, its mean over the systems: a fifth are the best, a fifth the worst, the others stand at
even distances in the file. They are shown in the order of the file.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bleuprint.graph import Run
from bleuprint.lines import pair_files, read_lines
from bleuprint.metrics import METRICS, build_metric
from bleuprint.params import Corpus, Splits
from bleuprint.scoring import read_decoded

SENTENCES = 10  # on a page
BEST, WORST, EVEN = "best by chrF", "worst by chrF", "at an even distance in the file"


class System(NamedTuple):
    """What a run made of a sentence, with its sentence-level chrF."""

    run: str
    text: str
    chrf: float


class Sample(NamedTuple):
    """A sentence of a test set by its line, from 1, with its reference and every system's translation."""

    line: int
    why: str
    source: str
    reference: str
    systems: tuple[System, ...]


class Samples(NamedTuple):
    """The samples of one data set in one direction; `source` and `target` are languages."""

    dataset: str
    test: str
    source: str
    target: str
    lines: int
    samples: tuple[Sample, ...]


class Direction(NamedTuple):
    """A data set, translated from one language into another."""

    dataset: str
    source: str
    target: str


def choose_samples(
    runs: Mapping[str, Run],
    corpora: Mapping[str, Corpus],
    splits: Mapping[str, Splits],
    raw: Mapping[str, Path],
    decoded: Mapping[str, Path],
) -> list[Samples]:
    """Return the samples of a table's runs; `corpora` by name, `splits` and `raw` of data sets, `decoded` of runs.

    ValueError where texts are missing or of other sentences than the data set's.
    """
    groups: dict[Direction, list[str]] = {}
    for name, run in runs.items():
        corpus = corpora[run.corpus]
        groups.setdefault(Direction(run.dataset, corpus.source, corpus.target), []).append(name)
    shown = list(islice(groups.items(), SENTENCES))
    quota = SENTENCES // len(shown)
    return [
        samples_of(direction, names, splits[direction.dataset].tests[0], raw[direction.dataset], decoded, quota)
        for direction, names in shown
    ]


def samples_of(
    direction: Direction, runs: Sequence[str], test: str, raw: Path, decoded: Mapping[str, Path], quota: int
) -> Samples:
    """Return `quota` sentences, or all where there are fewer, of a test set with the translations of `runs`."""
    source_file, reference_file = pair_files(raw, test, direction.source, direction.target)
    sources, references = read_lines(source_file), read_lines(reference_file)
    texts: dict[str, list[str]] = {}
    for run in runs:
        texts[run], own = read_decoded(decoded[run], test, METRICS["chrf"].suffix)
        if own != references:
            raise ValueError(f"{decoded[run]} and {reference_file} are of other sentences; decode {run} again")
    scores = {run: sentence_scores(lines, references) for run, lines in texts.items()}
    means = [fmean(scores[run][index] for run in runs) for index in range(len(references))]
    samples = tuple(
        Sample(
            index + 1,
            why,
            sources[index],
            references[index],
            tuple(System(run, texts[run][index], scores[run][index]) for run in runs),
        )
        for index, why in sorted(choose(means, quota).items())
    )
    return Samples(direction.dataset, test, direction.source, direction.target, len(references), samples)


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return sacreBLEU's sentence-level chrF of each line."""
    metric = build_metric("chrf")
    counts = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return [metric._compute_score_from_stats(count).score for count in counts]


def choose(means: Sequence[float], quota: int) -> dict[int, str]:
    """Return `quota` indices, or all, each with why: the best, the worst, and of the others those at even distances.

    Of equal means the first in the file is ranked first.
    """
    extreme = max(1, quota // 5)
    ranked = sorted(range(len(means)), key=lambda index: (-means[index], index))
    chosen = dict.fromkeys(ranked[:extreme], BEST)
    chosen |= {index: WORST for index in ranked[::-1][:extreme] if index not in chosen}
    others = [index for index in range(len(means)) if index not in chosen]
    wanted = min(max(0, quota - len(chosen)), len(others))
    return chosen | {others[(2 * number + 1) * len(others) // (2 * wanted)]: EVEN for number in range(wanted)}
