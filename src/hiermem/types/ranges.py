"""Sets of numbers as rows of ranges: apart, in order, none empty."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

Range: TypeAlias = tuple[int, int]


def _apart(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Refuse ranges that are not increasing, or that touch."""
    if any(before[1] >= after[0] for before, after in pairwise(ranges)):
        raise ValueError("ranges touch")
    return ranges


#: A set of numbers as increasing half-open ranges that do not touch.
Ranges: TypeAlias = Annotated[tuple[Range, ...], AfterValidator(_apart)]


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return numbers as increasing half-open ranges, each number once."""
    return joined((number, number + 1) for number in numbers)


def clipped(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> Ranges:
    """Return what of half-open ranges is in ``start <= number < stop``."""
    return tuple((max(a, start), min(b, stop)) for a, b in ranges if max(a, start) < min(b, stop))


def each_of(ranges: Iterable[tuple[int, int]]) -> Iterable[int]:
    """Return the numbers in half-open ranges, in order."""
    return (number for begin, end in ranges for number in range(begin, end))


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return half-open ranges in any order as increasing ones that do not touch."""
    rows: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if rows and start <= rows[-1][1]:
            rows[-1] = (rows[-1][0], max(stop, rows[-1][1]))
        else:
            rows.append((start, stop))
    return tuple(rows)
