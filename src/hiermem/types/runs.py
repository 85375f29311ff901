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


@dataclass(frozen=True, slots=True, order=True)
class Finding(Brief):
    """One promise that is not kept: which, in which session, where in it, and what is wrong."""

    promise: str
    session_id: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: session {self.session_id!r}, {self.where}: {self.what}"


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
