"""Decides which lines of the bank an answer loses.

A non-empty line is lost if, its white space folded, it is neither in the new text of its file nor
in what another file gained by the same answer: moving a line loses nothing. A line that is struck
through is still there. Lines of a section that was deleted on purpose, with a reason, do not count.

The count is what a reader would miss: no line counts twice, and no line counts that can still be
read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from hiermem.core.spaces.clean import folded

_STRUCK: Final = re.compile(r"^(?P<lead>[^~]*)~~(?P<line>.+)~~")


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a text, folded."""
    return [line for each in text.split("\n") if (line := folded(each))]


def lost_lines(
    before: Mapping[str, str],
    after: Mapping[str, str],
    deleted: Mapping[str, Collection[str]],
) -> dict[str, tuple[int, int]]:
    """Return for each existing file of ``after`` how many of its lines are lost, and of how many.

    ``deleted`` are the folded lines that were deleted from a file with a reason.
    """
    old = {name: lines_of(text) for name, text in before.items() if name in after}
    new = {name: set(_readable(text)) for name, text in after.items()}
    gained: set[str] = set()
    for name, readable in new.items():
        gained |= readable.difference(old.get(name, ()))
    found: dict[str, tuple[int, int]] = {}
    for name, lines in old.items():
        still = new[name] | gained | set(deleted.get(name, ()))
        found[name] = sum(line not in still for line in lines), len(lines)
    return found


def _readable(text: str) -> Iterator[str]:
    """Yield the lines of a text, and the content of the lines that are struck through."""
    for line in lines_of(text):
        yield line
        if found := _STRUCK.match(line):
            yield folded(found["lead"] + found["line"])
