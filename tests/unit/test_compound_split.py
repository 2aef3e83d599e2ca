import pytest
from texts import split_by_perl

from bleuprint.compound_split import compound_split, split_at_hyphens

AT = "##AT##-##AT##"
# By hand: tokens, and the same with compounds split.
SPLIT = {
    "ein saftig-grünes Gras .": f"ein saftig {AT} grünes Gras .",
    "der Ping-Pong-Ball": f"der Ping {AT} Pong {AT} Ball",
    "a-b-c-d": f"a {AT} b-c {AT} d",  # b belongs to the first match, c begins the second
    "x-ö-z": f"x {AT} ö {AT} z",  # ö is two bytes, one for each match
    "a - b , Vor- und Nachname , -5": "a - b , Vor- und Nachname , -5",  # white space before or after
    "a--b": f"a {AT} -b",
    "--": "--",
    "---": f"- {AT} -",
    "U-Bahn T-Shirt": f"U {AT} Bahn T {AT} Shirt",
    "Straße\N{EN DASH}Weg": "Straße\N{EN DASH}Weg",  # another sign
    "": "",
}


@pytest.mark.parametrize("tokens", SPLIT)
def test_compounds_are_split_as_by_hand(tokens: str) -> None:
    assert split_at_hyphens(tokens) == SPLIT[tokens]


def test_perl_splits_alike() -> None:
    tokens = "".join(f"{line}\n" for line in SPLIT).encode()
    assert split_by_perl(tokens).decode() == "".join(f"{line}\n" for line in SPLIT.values())


def test_running_text_is_tokenised_first() -> None:
    """What Moses' own tokenizer.perl, and Perl, give; the second hyphen has white space before it by then."""
    assert compound_split(['Ein "Hot-Dog"-Stand, z.B. für 3,50 &c!', ""]) == [
        f"Ein &quot; Hot {AT} Dog &quot; -Stand , z.B. für 3,50 &amp; c !",
        "",
    ]
