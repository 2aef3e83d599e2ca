"""What every model of a YAML file here is made of: strict types, and mistakes told as one line each.

Nothing is guessed: "200" is no number, yes is no boolean, an unknown key is an error. Files are read as YAML 1.2 by
ruamel, because `dvc exp run -S` writes 1e-05, which a YAML 1.1 reader takes for a string.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bleuprint.mistakes import describe_mistakes, suggest

MOST_LETTERS = 100  # of a name: files are called after several of them, and no file system takes more than 255
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MOST_LETTERS)]
# Without a dot: DVC takes it for a step into the key.
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=MOST_LETTERS)]
RelativePath = Annotated[str, AfterValidator(lambda path: check_relative(path))]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
MirrorUrl = Annotated[str, Field(pattern=r"^(https?|file)://.+")]
# Strict: "200" is no number, yes is no boolean in YAML 1.2, and true is not 1.
Flag = Annotated[bool, Field(strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]  # what torch takes
Count = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Section = TypeVar("Section", bound="Strict")
Probability = Annotated[float, Field(ge=0, lt=1, strict=True)]


class Strict(BaseModel):
    """A section of params.yaml: no unknown keys, no coercion across kinds, no later changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_relative(path: str) -> str:
    """Return a path that stays below where it is joined to; ValueError on any other."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or not path:
        raise ValueError(f"{path!r} is not a relative path without ..")
    return path


def choose(kind: str, name: str, choices: dict, prefix: str = "") -> None:
    """Raise ValueError naming the valid choices unless `name` is one of them."""
    if name not in choices:
        raise ValueError(f"{prefix}unknown {kind} {name!r}{suggest(name, choices)}")


def read_yaml(path: Path) -> dict:
    """Return the mapping in a YAML 1.2 file as plain Python objects; ValueError names the file and the place."""
    try:
        data = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist in {Path.cwd()}; run from the project's root") from None
    except (YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-45
        words = str(error).split("To suppress this check")[0].split()
        raise ValueError(f"{path} is not valid YAML: {' '.join(words)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds no mapping")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; ValueError names a file that is missing or is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path} holds no JSON object")
    return data


def validate(model: type[Section], data: dict, path: Path) -> Section:
    """Return `data` as `model`; ValueError has one line per mistake."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ValueError("\n".join(f"{path}: {line}" for line in describe_mistakes(error, model))) from None
