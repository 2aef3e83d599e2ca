"""`new-experiment`: parameters, a table and a place for claims, taken from an experiment that there is.

params.yaml keeps every byte that it has; what is new is inserted at the ends of its sections. All is checked before
anything is written, and the files are written together or not at all.
"""

import gzip
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from bleuprint.datasets import Dataset, GeneratedDataset, TextsDataset
from bleuprint.files import sha256_of, write_text
from bleuprint.graph import PARAMS_FILE, TABLES_DIR, Params, load_params
from bleuprint.params import Corpus, Reuse
from bleuprint.strict import choose, validate
from bleuprint.tables import dump, ends_of_sections, render
from bleuprint.verdicts.published import OWN_CLAIMS_FILE

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")  # DVC, Snakemake and the file system take it as it is
MOST_HELD_OUT = 1000  # pairs for validation, and as many for the test: what Multi30K and WMT have
HELD_OUT_SHARE = 10  # at most one pair of so many for each
TOY_LANGUAGES = ("en", "de")


class Wish(NamedTuple):
    """What a new experiment is to be; None is as the experiment `of` has it."""

    name: str
    of: str
    source: str | None
    target: str | None
    data: str | None
    texts: tuple[Path, Path] | None  # the source's and the target's, line by line


class Addition(NamedTuple):
    """What becomes of params.yaml: new entries by section, as YAML."""

    datasets: str
    corpora: str
    experiments: str


def add_experiment(wish: Wish, root: Path = Path()) -> list[Path]:
    """Write the parameters, the table and the claim stub of a new experiment; return the files.

    ValueError, with every file untouched, for a name that is malformed or taken, an unknown experiment, languages that
    no data set has, texts that are not parallel, or parameters that would be invalid.
    """
    params_file, table_file, claims_file = (root / path for path in files_of(wish.name))
    params = load_params(params_file)
    check_name(wish.name, params)
    choose("experiment", wish.of, params.experiments, "--from: ")
    text = params_file.read_bytes().decode("utf-8")
    before = YAML().load(text)
    changed = insert(text, addition_of(wish, params, before, root)._asdict())
    data = YAML(typ="safe", pure=True).load(changed)
    valid = validate(Params, data, params_file)
    for key in Addition._fields:
        assert {name: data[key][name] for name in before[key]} == before[key], "an older entry has changed"
    valid.derive((f"{wish.name}-1",))
    table, stub, claims = (
        table_text(wish, valid),
        claim_stub(wish.name, valid),
        claims_file.read_bytes().decode("utf-8"),
    )
    if table_file.exists() and table_file.read_bytes() != table.encode():  # else a killed call left it
        raise ValueError(f"{table_file} exists already; choose another name")
    write_together({table_file: table, claims_file: claims if stub in claims else claims + stub, params_file: changed})
    return [params_file, table_file, claims_file]


def files_of(name: str) -> tuple[Path, Path, Path]:
    """Return params.yaml, the new table's file and the file of claims, seen from the project's root."""
    return PARAMS_FILE, TABLES_DIR / f"{name}.yaml", OWN_CLAIMS_FILE


def check_name(name: str, params: Params) -> None:
    """Raise ValueError unless a new experiment, its corpus and data set may bear this name."""
    if not NAME.fullmatch(name) or YAML(typ="safe", pure=True).load(name) != name:
        raise ValueError(
            f"{name!r} cannot be a name: it begins with a letter, goes on with letters, digits, - and _, has 100 "
            "characters at most, and is no word that YAML reads as something else, such as null or true"
        )
    for kind, taken in (
        ("an experiment", params.experiments),
        ("a corpus", params.corpora),
        ("a data set", params.datasets),
    ):
        if name in taken:
            raise ValueError(f"there is {kind} named {name} in params.yaml already; choose another name")


# --- params.yaml ------------------------------------------------------------------------------------------------------


def addition_of(wish: Wish, params: Params, document: CommentedMap, root: Path) -> Addition:
    """Return the new entries of params.yaml, read as `document`; ValueError as `add_experiment`."""
    entry = without_comments(document["experiments"][wish.of])
    head = f"{wish.name}:  # from {wish.of}, which says why"
    if wish[2:] == (None, None, None, None):
        return Addition("", "", indented(head, entry))
    if isinstance(found := params.experiments[wish.of], Reuse):
        raise ValueError(
            f"--from: {wish.of} has the weights of {found.weights}, and its corpus; use --from {found.weights}"
        )
    corpus = params.corpora[found.corpus]
    source, target = wish.source or corpus.source, wish.target or corpus.target
    if source == target:
        raise ValueError(f"source and target are both {source}; name two languages by --src and --tgt")
    dataset, dataset_text = dataset_of(wish, params, corpus, source, target, root)
    new_corpus = without_comments(document["corpora"][found.corpus])
    new_corpus.update({"dataset": dataset, "source": source, "target": target})
    entry["corpus"] = wish.name
    return Addition(dataset_text, indented(f"{wish.name}:", new_corpus), indented(head, entry))


def dataset_of(wish: Wish, params: Params, corpus: Corpus, source: str, target: str, root: Path) -> tuple[str, str]:
    """Return the name of the data set and the entry of a new one, else ""; ValueError where none has the languages."""
    if wish.texts is not None:
        if wish.data is not None:
            raise ValueError("--data names a data set that there is, --src-text and --tgt-text make one: give either")
        return wish.name, indented(f"{wish.name}:", texts_dataset(wish.texts, source, target, root))
    languages = {name: languages_of(found) for name, found in params.datasets.items()}
    if wish.data is not None:
        choose("data set", wish.data, params.datasets, "--data: ")
    fit = [name for name, found in languages.items() if {source, target} <= found]
    if wish.data in fit or (wish.data is None and corpus.dataset in fit):
        return wish.data or corpus.dataset, ""
    if wish.data is None and len(fit) == 1:
        return fit[0], ""
    if wish.data is None and fit:
        raise ValueError(f"{source} and {target} are in {', '.join(fit)}; choose one by --data")
    known = "; ".join(f"{name}: {' '.join(sorted(found))}" for name, found in languages.items())
    raise ValueError(
        f"{wish.data or 'no data set'} has{' not' if wish.data else ''} both {source} and {target} in every split "
        f"({known}); bring two files of your own by --src-text and --tgt-text"
    )


def languages_of(dataset: Dataset) -> set[str]:
    """Return the languages in which a data set has every split, by the names of its files."""
    if isinstance(dataset, GeneratedDataset):
        return set(TOY_LANGUAGES)
    held_out = isinstance(dataset, TextsDataset) and dataset.held_out is not None
    splits = (dataset.splits.train,) if held_out else dataset.splits.all
    found = [{name.removeprefix(f"{it}.") for name in dataset.files if name.startswith(f"{it}.")} for it in splits]
    return set.intersection(*found)


def texts_dataset(texts: tuple[Path, Path], source: str, target: str, root: Path) -> dict[str, Any]:
    """Return the entry of a data set of two parallel files; ValueError where they are missing or not parallel."""
    for path in texts:
        if not path.is_file():
            raise ValueError(f"{path} is no file")
    lines = [count_lines(path) for path in texts]
    if lines[0] != lines[1]:
        raise ValueError(f"{texts[0]} has {lines[0]} lines and {texts[1]} has {lines[1]}: they are not parallel")
    held_out = min(MOST_HELD_OUT, lines[0] // HELD_OUT_SHARE)
    if not held_out:
        raise ValueError(f"{texts[0]} has {lines[0]} lines: too few to take validation and test sets from")
    files = {
        f"train.{language}": {"path": path.name, "sha256": sha256_of(path)}
        for language, path in zip((source, target), texts, strict=True)
    }
    return {
        "kind": "texts",
        "places": list(dict.fromkeys(place_of(path, root) for path in texts)),
        "splits": {"train": "train", "validation": "val", "tests": ["test"]},
        "held_out": {"seed": 1, "pairs": {"val": held_out, "test": held_out}},
        "files": files,
    }


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, packed or not; ValueError where it is no whole gzip file."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return sum(1 for _ in file)
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a broken or truncated gzip file: {error}") from None


def place_of(path: Path, root: Path) -> str:
    """Return the folder of a file: seen from the project's root where it lies in the project, else absolute."""
    folder, project = path.absolute().parent, root.absolute()
    return os.path.relpath(folder, project) if folder.is_relative_to(project) else str(folder)


# --- YAML -------------------------------------------------------------------------------------------------------------


def without_comments(entry: Any) -> Any:
    """Return a copy of a mapping that ruamel has read for a round trip, in the same style, without its comments.

    They tell of the other experiment: an ASSUME or DEVIATES would stand in reports/deviations.md twice. What is merged
    into it by `<<: *other` stands in the copy itself.
    """
    if not isinstance(entry, (CommentedMap, CommentedSeq)):
        return entry
    found: Any
    if isinstance(entry, CommentedMap):
        found = CommentedMap((key, without_comments(value)) for key, value in entry.items())
    else:
        found = CommentedSeq(map(without_comments, entry))
    if entry.fa.flow_style():
        found.fa.set_flow_style()
    return found


def indented(head: str, entry: Any) -> str:
    """Return `head` and below it an entry as YAML, two spaces in, as it stands in a section of params.yaml."""
    own_style = isinstance(entry, CommentedMap)
    body = dump(entry) if own_style else "\n".join(render({key: value}) for key, value in entry.items())
    lines = [head, *(f"  {line}" for line in body.splitlines())]
    return "".join(f"  {line}\n" for line in lines)


def insert(text: str, blocks: Mapping[str, str]) -> str:
    """Return params.yaml with each block behind the last entry of its section, before the comments that follow."""
    ends = {key: end for key, (_, end) in ends_of_sections(text).items()}
    for key in sorted(blocks, key=ends.__getitem__, reverse=True):
        line_end = text.find("\n", ends[key])
        before, after = (text, "") if line_end < 0 else (text[:line_end], text[line_end + 1 :])
        text = f"{before}\n{blocks[key]}{after}"
    return text


# --- the other files --------------------------------------------------------------------------------------------------


def table_text(wish: Wish, params: Params) -> str:
    """Return workflow/tables/{name}.yaml."""
    recipe = params.recipes[wish.name]
    corpus = params.corpora[recipe.corpus]
    text = f'title: "{wish.name}: from {corpus.source} to {corpus.target}, by the recipe of {wish.of}"\n'
    text += f"runs: [{wish.name}-1]  # {wish.name} with seed 1; more seeds: {wish.name}-2, {wish.name}-3\n"
    if recipe.corpus == params.recipes[wish.of].corpus:
        text += f"# What it changes, with an interval: add {wish.of}-1 to the runs, and\n"
        text += f"# comparisons: [{{baseline: {wish.of}, experiments: [{wish.name}]}}]\n"
    return text


def claim_stub(name: str, params: Params) -> str:
    """Return a claim on a table of this name, as comments: what nobody has claimed is not to be printed."""
    corpus = params.corpora[params.recipes[name].corpus]
    claim = {
        "tables": {name: name},
        "who": "who reports it",
        "text": "the system, as its source calls it",
        "kind": "value",
        "value": 0.0,
        "unit": "BLEU",
        "metric": "bleu_13a" if corpus.cased else "bleu_lc_tok",
        "split": params.datasets[corpus.dataset].splits.tests[0],
        "source": "where it stands",
        "comparable": True,
        "tolerance": 0.6,
        "steps": None,
        "parameters": None,
        "note": "what a reader should know",
    }
    lines = ["  - " + render({"id": f"{name}-claim"}), *(f"    {render({key: value})}" for key, value in claim.items())]
    return f"\n# {name}\n" + "".join(f"# {line}\n" for line in lines)


def write_together(texts: Mapping[Path, str]) -> None:
    """Write files, each whole; where one cannot be written, those before it are as they were."""
    before = {path: path.read_bytes().decode("utf-8") if path.exists() else None for path in texts}
    written: list[Path] = []
    try:
        for path, text in texts.items():
            write_text(path.resolve(), text)
            written.append(path)
    except BaseException:
        for path in written:
            old = before[path]
            if old is None:
                path.unlink()
            else:
                write_text(path.resolve(), old)
        raise
