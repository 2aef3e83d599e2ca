"""The data sets of params.yaml, as strict, frozen models: mirrored files, archives, and the toy grammar."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bleuprint.strict import Count, Md5, MirrorUrl, Name, RelativePath, Seed, Sha256, Strict, choose


class Splits(Strict):
    train: Name
    validation: Name
    tests: Annotated[tuple[Name, ...], Field(min_length=1)]

    @property
    def all(self) -> tuple[str, ...]:
        return (self.train, self.validation, *self.tests)


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


Dataset = Annotated[MirroredDataset | ArchivesDataset | GeneratedDataset, Field(discriminator="kind")]
