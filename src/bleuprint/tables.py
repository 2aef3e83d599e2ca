"""The active table of params.yaml: `use` rewrites its four keys and leaves every other byte as it is."""

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode
from ruamel.yaml.representer import RoundTripRepresenter

from bleuprint.files import write_text
from bleuprint.graph import PARAMS_FILE, TABLES_DIR, Params, Table, load_table
from bleuprint.strict import read_yaml, validate

ACTIVE_KEYS = ("table", "inputs", "trainings", "runs")


def use(name: str, params_file: Path = PARAMS_FILE, tables: Path = TABLES_DIR) -> bool:
    """Make workflow/tables/{name}.yaml the active table of params.yaml; return whether the file changed.

    Raises ValueError, with the file untouched, for an unknown table, a run without experiment, or invalid parameters.
    """
    data = read_yaml(params_file)
    active = active_section(name, load_table(name, tables), data, params_file)
    if in_order({key: data.get(key) for key in ACTIVE_KEYS}) == in_order(active):
        return False
    text = params_file.read_bytes().decode("utf-8")
    changed = replace_blocks(text, active, params_file)
    try:
        reread = YAML(typ="safe", pure=True).load(changed)
    except YAMLError as error:  # what follows the active table refers to an anchor in it
        raise ValueError(
            f"{params_file}: without {', '.join(ACTIVE_KEYS)} as they are {' '.join(str(error).split())}"
        ) from None
    assert reread == {**data, **active}, "use changed more than the active table"
    write_text(params_file.resolve(), changed)
    return True


def in_order(value: Any) -> Any:
    """Return mappings as lists of their items, which are equal only in the same order: rows of reports follow it."""
    return [(key, in_order(item)) for key, item in value.items()] if isinstance(value, dict) else value


def active_section(name: str, table: Table, data: dict, params_file: Path) -> dict[str, Any]:
    """Return ACTIVE_KEYS with their values for a table; what stands there now may be out of date and is not read."""
    recipes = {**data, "table": name, "inputs": {"datasets": {}, "corpora": {}}, "trainings": {}, "runs": {}}
    params = validate(Params, recipes, params_file)
    try:
        derived = params.derive(table.runs)
    except ValueError as error:
        raise ValueError(f"table {name}: {error}") from None
    trainings, runs = ({run: spec.model_dump() for run, spec in derived[key].items()} for key in ("trainings", "runs"))
    return {"table": name, "inputs": derived["inputs"].model_dump(), "trainings": trainings, "runs": runs}


def replace_blocks(text: str, blocks: dict[str, Any], path: Path) -> str:
    """Return `text` with the values of some top-level keys replaced; ValueError where a key is missing."""
    places = ends_of_sections(text)
    for key in blocks:
        if key not in places:
            raise ValueError(f"{path}: {key} is missing")
    for key in sorted(blocks, key=places.__getitem__, reverse=True):
        start, end = places[key]
        text = text[:start] + render({key: blocks[key]}) + text[end:]
    return text


def ends_of_sections(text: str) -> dict[str, tuple[int, int]]:
    """Return where each top-level key of a YAML mapping begins, and where the last visible token of its value ends."""
    yaml = YAML(typ="safe", pure=True)
    document = yaml.compose(text)
    assert isinstance(document, MappingNode), "read_yaml has refused the file"
    # A block's own end lies behind the comments that follow it: what counts is the end of its last visible token.
    ends = [token.end_mark.index for token in yaml.scan(text) if token.end_mark.index > token.start_mark.index]
    return {
        key.value: (key.start_mark.index, max(end for end in ends if end <= value.end_mark.index))
        for key, value in document.value
    }


class Plain(RoundTripRepresenter):
    """Writes null as a word: ruamel's own leaves nothing behind the colon."""


Plain.add_representer(type(None), lambda self, _: self.represent_scalar("tag:yaml.org,2002:null", "null"))


def dump(value: Any, default_flow_style: bool | None = False) -> str:
    """Return a mapping as YAML, without breaking lines."""
    yaml, stream = YAML(), io.StringIO()
    yaml.Representer = Plain
    yaml.default_flow_style = default_flow_style
    yaml.width = 10_000
    yaml.dump(value, stream)
    return stream.getvalue()


def render(block: dict[str, Any]) -> str:
    """Return one key and its value as YAML: mappings of scalars on one line, all others one key a line."""
    outer = CommentedMap(block)
    outer.fa.set_block_style()
    return dump(outer, default_flow_style=None).removesuffix("\n")
