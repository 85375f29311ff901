"""Names and docstrings use the terms of the field; words that were given up do not come back.

A private vocabulary has to be learnt before the code can be read, and it grows back one name at a
time.
"""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "benchmarks", "examples")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]

RETIRED = {
    "allowance", "blow", "callbook", "crew", "desk", "keeper", "lane", "lookout", "mishap", "purse",
    "rota", "scout", "seat", "shelf", "shelves", "shop", "soil", "soiled", "stint", "told",
    "workshop",
}  # fmt: skip


def retired_words(identifier: str) -> set[str]:
    """Return the retired words in an identifier, in snake case or camel case, also in plural."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    words = spaced.lower().split("_")
    return RETIRED & {*words, *(word.removesuffix("s") for word in words)}


@pytest.mark.thorough
def test_no_identifier_uses_a_retired_word():
    """Broken, a reader meets a word that only this project uses so."""
    found = {}
    for path in FILES:
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        names = {path.stem, *(each.string for each in tokens if each.type == tokenize.NAME)}
        if wrong := sorted(name for name in names if retired_words(name)):
            found[str(path.relative_to(ROOT))] = wrong
    assert not found


@pytest.mark.parametrize(
    "identifier",
    ["shop", "_shop", "Workshop", "seat_for", "SHELF_MARK", "ShiftsTold", "desks", "HTTPShop"],
)
def test_a_retired_word_is_found_in_any_spelling(identifier):
    """The check would prove nothing if it overlooked a spelling."""
    assert retired_words(identifier)
