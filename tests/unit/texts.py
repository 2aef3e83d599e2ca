"""Made-up texts for the tests of scores, and the published rule for compounds, as Perl follows it."""

import random
import shutil
import subprocess

import pytest

RULE = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"


def sentences(count: int, drop: float) -> list[str]:
    """Return German-like lines; the same words for every `drop`, the share of them that is left out."""
    words = ["Der", "Hund", "läuft,", "die", "Katze", "(grau)", "sieht", "Haus.", "3,5", "Meter", "U-Bahn", "Fluß&Ufer"]
    choose, leave = random.Random(5), random.Random(6)
    lines = [[choose.choice(words) for _ in range(4 + i % 9)] for i in range(count)]
    return [" ".join(word for word in line if leave.random() >= drop) for line in lines]


def split_by_perl(tokens: bytes) -> bytes:
    """Return lines of tokens with their compounds split; the test is skipped where there is no Perl."""
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("there is no perl here")
    return subprocess.run([perl, "-ple", RULE], input=tokens, capture_output=True, check=True).stdout
