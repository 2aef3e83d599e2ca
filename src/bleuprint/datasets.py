"""The data sets of params.yaml, as strict, frozen models: files of mirrors, archives, any texts, the toy grammar."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from bleuprint.strict import Count, Md5, MirrorUrl, Name, RelativePath, Seed, Sha256, Strict, choose


class Splits(Strict):
    """Names of files. A split can be validation and test: a search over settings is scored on validation alone."""

    train: Name
    validation: Name
    tests: Annotated[tuple[Name, ...], Field(min_length=1)]

    @property
    def all(self) -> tuple[str, ...]:
        """Every split once, train first."""
        return tuple(dict.fromkeys((self.train, self.validation, *self.tests)))

    @model_validator(mode="after")
    def check_apart(self) -> "Splits":
        if self.train in (self.validation, *self.tests):
            raise ValueError(f"split {self.train!r} is trained on, so it can be neither validation nor test")
        if len(set(self.tests)) < len(self.tests):
            raise ValueError(f"a test split is named twice: {', '.join(self.tests)}")
        return self


class MirroredFile(Strict):
    path: RelativePath
    sha256: Sha256


class MirroredDataset(Strict):
    """Files that are downloaded from the first mirror that has them, and verified."""

    kind: Literal["mirrored"]
    mirrors: tuple[MirrorUrl, ...]
    splits: Splits
    files: dict[Name, MirroredFile]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "corpus"


class Archive(Strict):
    """A tar archive below a mirror, packed by gzip or not; what nobody publishes of it is null."""

    path: RelativePath
    bytes: Count | None
    sha256: Sha256 | None
    md5: Md5 | None


class Member(Strict):
    archive: Name
    member: RelativePath


class ArchivesDataset(Strict):
    """Files made of members of archives, one member after the other; of an .sgm its segments."""

    kind: Literal["archives"]
    mirrors: tuple[MirrorUrl, ...]
    splits: Splits
    archives: dict[Name, Archive]
    files: dict[Name, Annotated[tuple[Member, ...], Field(min_length=1)]]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "archives"

    @model_validator(mode="after")
    def check_members(self) -> "ArchivesDataset":
        for name, members in self.files.items():
            for index, member in enumerate(members):
                choose("archive", member.archive, self.archives, f"files.{name}.{index}.archive: ")
        return self


Place = Annotated[str, Field(min_length=1), AfterValidator(lambda place: check_place(place))]


def check_place(place: str) -> str:
    """Return where files lie: a folder or a URL that can be read; ValueError on any other URL."""
    if "://" in place and not re.match(r"(https?|file)://.", place):
        raise ValueError(f"{place!r} is neither a folder nor a URL that begins with https://, http:// or file://")
    return place


class TextFile(Strict):
    """A file below a place, packed by gzip where its path ends in .gz.

    `sha256` is that of the file as it lies there; where it is null, the first download records it.
    """

    path: RelativePath
    sha256: Sha256 | None


class HeldOut(Strict):
    """How many pairs of the train split become each other split; `seed` decides which."""

    seed: Seed
    pairs: dict[Name, Count]


class TextsDataset(Strict):
    """Parallel text files, of this machine or of the web, in any languages.

    `places` are tried in order: folders, seen from the project's root or absolute, and URLs. With `held_out` there are
    files of the train split alone, and the other splits are taken out of it.
    """

    kind: Literal["texts"]
    places: Annotated[tuple[Place, ...], Field(min_length=1)]
    splits: Splits
    held_out: HeldOut | None
    files: Annotated[dict[Name, TextFile], Field(min_length=1)]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "texts"

    @model_validator(mode="after")
    def check_held_out(self) -> "TextsDataset":
        if self.held_out is None:
            return self
        others = (self.splits.validation, *self.splits.tests)
        if set(self.held_out.pairs) != set(others):
            raise ValueError(f"held_out.pairs must name exactly the splits {', '.join(others)}")
        for name in self.files:
            if not name.startswith(f"{self.splits.train}."):
                raise ValueError(
                    f"files.{name}: with held_out all files are of the split {self.splits.train}, and their names "
                    f"begin with {self.splits.train} and a dot"
                )
        return self


class GeneratedDataset(Strict):
    """Sentence pairs drawn from the project's own grammar."""

    kind: Literal["generated"]
    seed: Seed
    splits: Splits
    pairs: dict[Name, Count]

    @property
    def module(self) -> str:
        """Name of the module of bleuprint that makes this data set."""
        return "toy"

    @model_validator(mode="after")
    def check_pairs(self) -> "GeneratedDataset":
        if set(self.pairs) != set(self.splits.all):
            raise ValueError(f"pairs must name exactly the splits {', '.join(self.splits.all)}")
        return self


Dataset = Annotated[MirroredDataset | ArchivesDataset | TextsDataset | GeneratedDataset, Field(discriminator="kind")]
