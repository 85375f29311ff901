"""The data that ships with the package: word lists, thesaurus, vocabulary, sample conversation.

This module reads package resources and nothing else, through ``importlib.resources``. Word lists
are read once in a process and kept. The vocabulary is read at each call, because its caller keeps
the encoding that it builds. The command line reads the sample conversation.

A word list is a text file. A line that begins with ``#`` is a comment, an entry begins at the
margin, and a line that begins with a blank continues the entry above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType


def _read(name: str) -> bytes:
    # A process that needs no data does not pay for this import.
    from importlib.resources import files

    return files(__name__).joinpath(name).read_bytes()


def _entries(name: str) -> list[str]:
    """Return the entries of a word list, each in one line."""
    entries: list[str] = []
    for line in _read(f"{name}.txt").decode("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            entries[-1] += line
        else:
            entries.append(line)
    return entries


@cache
def word_lists(name: str) -> Mapping[str, frozenset[str]]:
    """Return the word lists of a file by their names; each entry is ``name: word word``.

    A word that holds an underscore is written so in place of a blank.

    >>> "new york" in word_lists("entity_words")["places"]
    True
    """
    found: dict[str, frozenset[str]] = {}
    for entry in _entries(name):
        title, _, words = entry.partition(": ")
        found[title] = frozenset(word.replace("_", " ") for word in words.split())
    return MappingProxyType(found)


@cache
def thesaurus() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return each entry of the thesaurus: the words for a kind, and the words of its members."""
    pairs = (entry.partition(": ") for entry in _entries("thesaurus"))
    return tuple((tuple(kind.split()), tuple(members.split())) for kind, _, members in pairs)


def published() -> list[list[str]]:
    """Return the rows of the table of published settings, each split into its columns."""
    return [entry.split() for entry in _entries("published")]


def vocabulary(encoding: str) -> dict[bytes, int]:
    """Return the tokens of a shipped encoding with their ranks.

    The file holds, in the order of the ranks, one byte for the length of a token and its bytes.
    """
    import lzma

    raw = lzma.decompress(_read(f"{encoding}.ranks.xz"))
    ranks: dict[bytes, int] = {}
    place, end, rank = 0, len(raw), 0
    while place < end:
        start = place + 1
        place = start + raw[place]
        ranks[raw[start:place]] = rank
        rank += 1
    return ranks
