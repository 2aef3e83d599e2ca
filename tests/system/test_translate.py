"""`translate` on the toy run, as a user calls it: what `decode` wrote, by either engine, and what it says otherwise."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clones import environment, run

TRANSLATE = ("python", "-m", "bleuprint", "translate", "toy-1")


@pytest.fixture(scope="module")
def project(by_snakemake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("translate") / "project"
    shutil.copytree(by_snakemake, root, symlinks=True)
    return root


def pipe(root: Path, text: bytes, *options: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [sys.executable, *TRANSLATE[1:], *options], cwd=root, env=environment(), input=text, capture_output=True
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_raw_file_becomes_what_decode_wrote_by_either_engine(project: Path) -> None:
    decoded = (project / "runs/toy-1/decode/test.hyp.txt").read_bytes()
    said = run(project, *TRANSLATE, "data/raw/toy/test.en", "--engine", "torch")
    assert "translating by torch" in said
    assert (project / "data/raw/toy/test.en.toy-1.de").read_bytes() == decoded
    run(project, "python", "-m", "bleuprint", "export", "toy-1", "--to", "ctranslate2")
    code, out, said = pipe(project, (project / "data/raw/toy/test.en").read_bytes())
    assert (code, "translating by CTranslate2, runs/toy-1/ctranslate2\n" in said) == (0, True)
    assert out == decoded
    with (project / "runs/toy-1/ctranslate2/made_from.json").open("r+") as file:
        made_from = json.load(file) | {"weights": "0" * 64}
        file.seek(0)
        json.dump(made_from, file)
    code, out, said = pipe(project, b"", "--engine", "ctranslate2")
    assert (code, out) == (1, b"")
    assert "was not made from runs/toy-1/average/weights.safetensors as it is now; make it with: python -m" in said


def test_stdin_as_a_conversation_and_what_is_wrong_with_it(project: Path) -> None:
    first, second = (project / "data/raw/toy/test.en").read_text().splitlines()[:2]
    decoded = (project / "runs/toy-1/decode/test.hyp.txt").read_text().splitlines()[:2]
    code, out, said = pipe(project, f"{first}\n\n{second}".encode(), "--interactive", "--engine", "torch")
    assert code == 0, said
    assert out.decode() == f"{decoded[0]}\n\n{decoded[1]}\n"
    code, out, said = pipe(project, b"the dog sleeps .\n\xff\n", "--engine", "torch")
    assert (code, out) == (1, b"")
    assert said.endswith("error: stdin, line 2 is not UTF-8: byte 0xff, invalid start byte\n")
    shutil.rmtree(project / "runs/toy-1/average")
    code, out, said = pipe(project, b"the dog sleeps .\n")
    assert said == (
        "error: runs/toy-1/average/weights.safetensors does not exist; make it with: dvc repro average@toy-1\n"
    )
