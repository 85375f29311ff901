"""Decides which lines of the bank an answer makes vanish, and when that is too many.

A line has vanished where it is not empty and, its white space folded, stands neither in the new
text of its file nor in what another file gained by the same answer: moving a line loses nothing.
One that is struck through is still there. Lines of a section that was deleted on purpose, with its
reason, are not counted.

The one rule: what is counted here is what a reader would miss, so nothing is counted twice and
nothing that can still be read is counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hiermem.core.spaces.clean import folded

_STRUCK: Final = re.compile(r"^(?P<lead>[^~]*)~~(?P<line>.+)~~")


@dataclass(frozen=True, slots=True)
class LostLines:
    """How many of a file's lines have vanished."""

    count: int
    of: int

    def passes(self, *, share: float, lines: int) -> bool:
        """Say whether it is more than that share of the file and more than so many lines.

        >>> LostLines(6, 10).passes(share=0.5, lines=5), LostLines(5, 5).passes(share=0.5, lines=5)
        (True, False)
        """
        return self.count > lines and self.count > share * self.of


def lines_of(text: str) -> list[str]:
    """Give the lines of a text that are not empty, folded."""
    return [line for each in text.split("\n") if (line := folded(each))]


def lost_lines(
    before: Mapping[str, str],
    after: Mapping[str, str],
    deleted: Mapping[str, Collection[str]],
) -> dict[str, LostLines]:
    """Give for each file of ``after`` that was there before what has vanished of it.

    ``deleted`` are the folded lines that were taken out of a file for a reason.
    """
    old = {name: lines_of(text) for name, text in before.items() if name in after}
    new = {name: set(_readable(text)) for name, text in after.items()}
    gained: set[str] = set()
    for name, readable in new.items():
        gained |= readable.difference(old.get(name, ()))
    found: dict[str, LostLines] = {}
    for name, lines in old.items():
        still = new[name] | gained | set(deleted.get(name, ()))
        found[name] = LostLines(sum(line not in still for line in lines), len(lines))
    return found


def _readable(text: str) -> Iterator[str]:
    """Yield the lines of a text, and what those that are struck through said."""
    for line in lines_of(text):
        yield line
        if found := _STRUCK.match(line):
            yield folded(found["lead"] + found["line"])
