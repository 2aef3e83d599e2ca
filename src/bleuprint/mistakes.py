"""What is wrong in a file that a strict model reads, one sentence per mistake: key, value, what is valid."""

import difflib
import re
import reprlib
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

TAG = "kind"  # the key that tells the members of a union apart
KEY_MARK = "[key]"  # pydantic's last step to a key, rather than to its value
MAPPING_ERRORS = ("model_type", "dict_type", "model_attributes_type")


def describe_mistakes(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one sentence per mistake in data that `model` refused."""
    return [describe(item, model) for item in error.errors()]


def describe(item: ErrorDetails, model: type[BaseModel]) -> str:
    """Return one mistake as a sentence that begins with the key, as it stands in the file."""
    *outer, last = item["loc"] or ("",)
    key, found = locate(model, item["loc"])
    kind = item["type"]
    context = item["ctx"] if "ctx" in item else {}  # noqa: SIM401  an error without a context has no such key
    if kind == "extra_forbidden":
        section, place = locate(model, outer)
        where = f"valid in {section}" if section else "valid"
        return f"{key} is not a known key{suggest(str(last), keys_of(place), where)}"
    if kind == "missing":
        return f"{key} is missing"
    if kind == "value_error":
        return f"{key}: {context['error']}" if key else str(context["error"])
    if kind == "union_tag_not_found":
        return f"{key}.{TAG} is missing; valid: {', '.join(members(found))}"
    if kind == "union_tag_invalid":
        return f"{key}.{TAG} is {context['tag']!r}{suggest(str(context['tag']), members(found))}"
    if kind == "literal_error":
        return f"{key} is {item['input']!r}{suggest(str(item['input']), [str(name) for name in get_args(found)])}"
    return f"{key} is {reprlib.repr(item['input'])}: {wanted(kind, item['msg'])}"


def suggest(name: str, choices: Iterable[str], valid: str = "valid") -> str:
    """Return " (did you mean …?); valid: …" for a name that is none of the choices."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"{f' (did you mean {near[0]}?)' if near else ''}; {valid}: {', '.join(choices)}"


def wanted(kind: str, message: str) -> str:
    """Return pydantic's message in words of the file: a mapping is no `dictionary`, a list no `tuple`."""
    if kind in MAPPING_ERRORS:
        return "it should be a mapping"
    if kind == "tuple_type":
        return "it should be a list"
    return re.sub("^(Input|String) should", "it should", message).replace("Tuple should", "the list should")


# --- from pydantic's location to the key in the file ------------------------------------------------------------------


def locate(model: type[BaseModel], location: Iterable[int | str]) -> tuple[str, Any]:
    """Return the dotted key of an error and the type that stands there, None below an unknown key.

    Pydantic's location also has the members of unions and a mark behind keys, which nobody wrote: they are left out.
    """
    written, place = [], model
    for part in location:
        if part == KEY_MARK:
            continue
        place, is_key = descend(plain_type(place), part)
        written += [str(part)] if is_key else []
    return ".".join(written), plain_type(place)


def descend(place: Any, part: int | str) -> tuple[Any, bool]:
    """Return the type one step below `place`, and whether that step is a key of the file."""
    if part in members(place):
        return members(place)[str(part)], False
    if get_origin(place) is dict:
        return get_args(place)[1], True
    if get_origin(place) is tuple:
        return get_args(place)[0], True
    if part in keys_of(place):
        return place.model_fields[part].annotation, True
    return None, True


def plain_type(place: Any) -> Any:
    """Return a type without its Annotated."""
    return plain_type(get_args(place)[0]) if get_origin(place) is Annotated else place


def members(place: Any) -> dict[str, Any]:
    """Return the models of a union by their tags; of any other type none."""
    if get_origin(place) not in (Union, UnionType):
        return {}
    return {tag: plain_type(member) for member in get_args(place) for tag in tags_of(member)}


def tags_of(member: Any) -> list[str]:
    """Return the tags of a member of a union: pydantic's own mark, or the values of its key `kind`."""
    if get_origin(member) is Annotated:
        return [mark.tag for mark in get_args(member) if isinstance(mark, Tag)]
    return list(get_args(member.model_fields[TAG].annotation)) if TAG in keys_of(member) else []


def keys_of(place: Any) -> list[str]:
    """Return the keys of a section; of any other type none."""
    return list(place.model_fields) if isinstance(place, type) and issubclass(place, BaseModel) else []
