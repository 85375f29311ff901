"""Rows of ranges of numbers: apart, in order, none empty.

One finding of a check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from hiermem.types.brief import Brief


def named_subject(subject: str) -> str:
    """Return what a message calls a session, a space, or "", what belongs to no session.

    >>> named_subject("chat"), named_subject("space:trip"), named_subject("")
    ("session 'chat'", "space 'trip'", 'what belongs to no session')
    """
    if not subject:
        return "what belongs to no session"
    kind, _, name = subject.partition(":")
    return f"space {name!r}" if kind == "space" and name else f"session {subject!r}"


@dataclass(frozen=True, slots=True, order=True)
class Finding(Brief):
    """One promise that is not kept: which, in which session or space, where, and what is wrong.

    ``session_id`` is the subject under which runs are journalled: of a space, ``space:`` and its
    name.
    """

    promise: str
    session_id: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {named_subject(self.session_id)}, {self.where}: {self.what}"


Range: TypeAlias = tuple[int, int]


def _apart(runs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Refuse ranges that are not increasing, or that touch."""
    if any(before[1] >= after[0] for before, after in pairwise(runs)):
        raise ValueError("ranges touch")
    return runs


#: A set of numbers as increasing half-open ranges that do not touch.
Runs: TypeAlias = Annotated[tuple[Range, ...], AfterValidator(_apart)]


def runs_of(numbers: Iterable[int]) -> Runs:
    """Return numbers as increasing half-open ranges, each number once."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)


def clipped(runs: Iterable[tuple[int, int]], start: int, stop: int) -> Runs:
    """Return what of half-open ranges is in ``start <= number < stop``."""
    return tuple((max(a, start), min(b, stop)) for a, b in runs if max(a, start) < min(b, stop))


def each_of(runs: Iterable[tuple[int, int]]) -> Iterable[int]:
    """Return the numbers in half-open ranges, in order."""
    return (number for begin, end in runs for number in range(begin, end))
