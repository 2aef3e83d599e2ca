"""What may be done with a data set's sentences, as facts with their sources: reference/licences.yaml."""

from pathlib import Path

from bleuprint.strict import Strict, read_yaml, validate

LICENCES_FILE = Path(__file__).parents[1] / "reference" / "licences.yaml"


class Licence(Strict):
    """A data set's name, where it is published, and the terms on which its sentences may be used."""

    title: str
    url: str
    terms: str


class Licences(Strict):
    licences: dict[str, Licence]


def load_licences(path: Path = LICENCES_FILE) -> dict[str, Licence]:
    """Return the licences of data sets by the data sets' names in params.yaml; one of a user's own has none."""
    return validate(Licences, read_yaml(path), path).licences
