"""The data that ships with the package: word lists, thesaurus, vocabulary, sample conversation.

This module reads package resources and nothing else, through ``importlib.resources``. Word lists
are read once in a process and kept, and the vocabulary is mapped. The command line reads the sample
conversation.

A word list is a text file. A line that begins with ``#`` is a comment, an entry begins at the
margin, and a line that begins with a blank continues the entry above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmap import mmap


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
def words_of_languages(name: str, title: str) -> frozenset[str]:
    """Return the words of the lists ``language.title`` of a file, in all its languages.

    >>> "altijd" in words_of_languages("wish_words", "always")
    True
    """
    lists = word_lists(name).items()
    return frozenset(
        word for each, words in lists if each.partition(".")[2] == title for word in words
    )


@cache
def thesaurus() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Return each entry of the thesaurus: the words for a kind, and the words of its members."""
    pairs = (entry.partition(": ") for entry in _entries("thesaurus"))
    return tuple((tuple(kind.split()), tuple(members.split())) for kind, _, members in pairs)


@cache
def person_rules() -> str:
    """Return the rules of a space that knows a person."""
    return _read("person_rules.md").decode("utf-8")


@cache
def learning_rules() -> str:
    """Return what a model is told besides the rules of a space that learns."""
    return _read("learning_rules.txt").decode("utf-8")


def published() -> list[list[str]]:
    """Return the rows of the table of published settings, each split into its columns."""
    return [entry.split() for entry in _entries("published")]


class Vocabulary:
    """The tokens of a shipped encoding with their ranks, looked up where the file is mapped.

    The file begins with the number of lengths, one byte, and for each length in ascending order one
    byte for it and four for the number of such tokens. Then come for each length its tokens,
    sorted, and their ranks in three bytes each. Numbers are little-endian.
    """

    def __init__(self, encoding: str) -> None:
        self._data = _mapped(f"{encoding}.tokens")
        #: By length, where the tokens and their ranks begin, and how many there are.
        self._tables: dict[int, tuple[int, int, int]] = {}
        lengths = self._data[0]
        place = 1 + 5 * lengths
        for at in range(1, place, 5):
            length, many = self._data[at], int.from_bytes(self._data[at + 1 : at + 5], "little")
            self._tables[length] = (place, place + many * length, many)
            place += many * (length + 3)

    def rank(self, token: bytes) -> int | None:
        """Return the rank of a token, None where it is none."""
        length = len(token)
        tokens, ranks, high = self._tables.get(length, (0, 0, 0))
        data, low, end = self._data, 0, high
        while low < high:
            middle = (low + high) // 2
            place = tokens + middle * length
            if data[place : place + length] < token:
                low = middle + 1
            else:
                high = middle
        place = tokens + low * length
        if low == end or data[place : place + length] != token:
            return None
        return int.from_bytes(data[ranks + 3 * low : ranks + 3 * low + 3], "little")

    def ranks(self) -> dict[bytes, int]:
        """Return all tokens with their ranks, in the order of these."""
        data = self._data
        found: list[tuple[int, bytes]] = []
        for length, (tokens, ranks, many) in self._tables.items():
            for number in range(many):
                rank = int.from_bytes(data[ranks + 3 * number : ranks + 3 * number + 3], "little")
                place = tokens + number * length
                found.append((rank, data[place : place + length]))
        return {token: rank for rank, token in sorted(found)}


def _mapped(name: str) -> bytes | mmap:
    """Return a data file; its pages are read as they are used, if it is a file of its own."""
    from importlib.resources import files
    from mmap import ACCESS_READ, mmap

    path = files(__name__).joinpath(name)
    if not isinstance(path, Path):
        return path.read_bytes()
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


@cache
def vocabulary(encoding: str) -> Vocabulary:
    """Return the vocabulary of a shipped encoding."""
    return Vocabulary(encoding)
