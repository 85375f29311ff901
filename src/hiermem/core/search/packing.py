"""Chooses which ranked units fill a budget, and puts them in reading order.

The best unit comes first, and a unit that does not fit is skipped for one that does. The result
never costs more than the budget by the given costs. Measured: dividing scores by costs, spreading
over sittings or windows, and covering the question's terms one after the other all find less than
this plain order. The caller renders the units and decides what each one costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array
from hiermem.types import Span

#: Fewer tokens than this hold no useful unit.
_CRUMB: Final = 10
#: After this many consecutive units that did not fit, the budget counts as full.
_MISSES: Final = 40
#: Two units that share this part of their terms say the same; very short ones may by chance.
_ALIKE: Final = 0.9
_LEAST_TERMS: Final = 6
#: An offset beyond the end of any message.
_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive characters of one message's body that are returned together."""

    message: int
    begin: int
    end: int
    units: tuple[int, ...]


def candidates(budget: int) -> int:
    """Return how many of the best units packing has to see to fill ``budget`` tokens."""
    return max(400, budget // 8)


def pack(
    ranked: Sequence[int] | Array,
    budget: int,
    *,
    cost: Array,
    sitting: Array,
    header: Array,
) -> list[int]:
    """Fill ``budget`` from ``ranked`` (best first); return the units in reading order.

    ``cost`` and ``sitting`` are by unit; ``header`` is, by sitting, the cost of its one header.
    """
    chosen: list[int] = []
    headed: set[int] = set()
    left, missed = budget, 0
    for unit in np.asarray(ranked).tolist():
        own = int(sitting[unit])
        price = int(cost[unit]) + (0 if own in headed else int(header[own]))
        if price <= left:
            left -= price
            headed.add(own)
            chosen.append(unit)
        else:
            missed += 1
        if left < _CRUMB or missed > _MISSES:
            break
    return sorted(chosen)


def stretches(index: Index, units: Sequence[int]) -> list[Stretch]:
    """Join chosen units of one message that are adjacent; ``units`` rise."""
    found: list[Stretch] = []
    for unit in units:
        message, begin, end = (
            int(column[unit])
            for column in (index.units.message, index.units.begin, index.units.end)
        )
        last = found[-1] if found else None
        if last and last.message == message and last.units[-1] == unit - 1:
            found[-1] = Stretch(message, last.begin, end, (*last.units, unit))
        else:
            found.append(Stretch(message, begin, end, (unit,)))
    return found


def without(parts: Iterable[Stretch], shown: Iterable[Span]) -> list[Stretch]:
    """Remove from stretches the characters that are shown already, message by message.

    A unit across the edge of what is ``shown`` of its message keeps its other side.

    >>> without([Stretch(3, 0, 90, (7,))], [Span(3, 4, 60)])
    [Stretch(message=3, begin=0, end=60, units=(7,))]
    """
    cuts: dict[int, list[tuple[int, int]]] = {}
    for span in shown:
        if span.start_char or span.stop_char is not None:
            for message in range(span.start, span.stop):
                begin = span.start_char if message == span.start else 0
                last = span.stop_char if message == span.stop - 1 else None
                cuts.setdefault(message, []).append((begin, _END if last is None else last))
    found: list[Stretch] = []
    for part in parts:
        begin = part.begin
        for low, high in sorted(cuts.get(part.message, ())):
            if begin < min(low, part.end):
                found.append(replace(part, begin=begin, end=min(low, part.end)))
            begin = max(begin, high)
        if begin < part.end:
            found.append(replace(part, begin=begin))
    return found


def distinct(index: Index, ranked: Sequence[int] | Array, *, most: int) -> list[int]:
    """Keep the first ``most`` of ``ranked`` (best first) that repeat none before them.

    Two units repeat one another if their terms are nearly the same, whoever says them and whenever,
    as far as date and name are the smaller part of their terms. Two such sets share one of their
    first terms in any fixed order (prefix filtering: Chaudhuri, Ganti and Kaushik 2006); with the
    rarest terms first, few pairs have to be compared.
    """
    kept: list[int] = []
    wanted = np.asarray(ranked, dtype=np.int64)
    holding: dict[int, list[frozenset[int]]] = {}
    starts = np.append(0, np.cumsum(index.units.sizes, dtype=np.int64))
    held = [index.units.terms[starts[unit] : starts[unit + 1]].tolist() for unit in wanted]
    shared = Counter(chain.from_iterable(held))
    for unit, numbers in zip(wanted.tolist(), held, strict=True):
        if len(kept) >= most:
            break
        # Other forms of its words make a text no longer.
        if min(len(numbers), int(index.units.length[unit])) >= _LEAST_TERMS:
            own = frozenset(numbers)
            rarest = sorted(numbers, key=lambda number: (shared[number], number))
            first = rarest[: len(rarest) - math.ceil(_ALIKE * len(rarest)) + 1]
            if any(_alike(own, other) for term in first for other in holding.get(term, ())):
                continue
            for term in first:
                holding.setdefault(term, []).append(own)
        kept.append(unit)
    return kept


def _alike(one: frozenset[int], other: frozenset[int]) -> bool:
    smaller, larger = sorted((len(one), len(other)))
    # Sets of too different a size are skipped: their overlap cannot be large enough.
    return smaller >= _ALIKE * larger and len(one & other) >= _ALIKE * len(one | other)
