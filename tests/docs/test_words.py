"""Names and docstrings use the terms of the field; words that were given up do not come back.

A private vocabulary has to be learnt before the code can be read, and it grows back one name at a
time.
"""

import ast
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
FORMULA = "The one rule"


def words_of(identifier: str) -> list[str]:
    """Return the words of an identifier in snake case or camel case, in lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    return [word.lower() for word in spaced.split("_") if word]


def retired_words(identifier: str) -> set[str]:
    """Return the retired words in an identifier, also in the plural."""
    words = words_of(identifier)
    return RETIRED & {*words, *(word.removesuffix("s") for word in words)}


def identifiers_of(text: str) -> set[str]:
    """Return all names of a module's code, without those in strings and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def has_formula(text: str) -> bool:
    """Return whether the module's docstring gives its reasons by the formula."""
    return FORMULA in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.thorough
def test_no_identifier_uses_a_retired_word():
    """Broken, a reader meets a word that only this project uses so."""
    found = {}
    for path in FILES:
        names = {path.stem, *identifiers_of(path.read_text(encoding="utf-8"))}
        if wrong := sorted(name for name in names if retired_words(name)):
            found[str(path.relative_to(ROOT))] = wrong
    assert not found


@pytest.mark.thorough
def test_no_module_gives_its_reasons_by_formula():
    """Broken, modules begin their reasons alike, so that the words mark nothing."""
    found = [path for path in FILES if has_formula(path.read_text(encoding="utf-8"))]
    assert not [str(path.relative_to(ROOT)) for path in found]


@pytest.mark.parametrize(
    "identifier",
    ["shop", "_shop", "Workshop", "seat_for", "SHELF_MARK", "ShiftsTold", "desks", "HTTPShop"],
)
def test_a_retired_word_is_found_in_any_spelling(identifier):
    """The check would prove nothing if it overlooked a spelling."""
    assert retired_words(identifier)
