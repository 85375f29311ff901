"""Counts the messages that a context shows something of: verbatim, excerpted or summarised.

Coverage means that every message is under some block; it does not mean that the block says anything
about the message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hiermem.types.brief import Brief
from hiermem.types.runs import Runs


@dataclass(frozen=True, slots=True)
class ShownQuarter:
    """One quarter of a session: its messages, and how many of them stand how in a context.

    ``excerpted`` are shown by a line of their own words, ``summarised`` are covered by a model's
    text of which a line is shown. A line does not speak of every message that its text covers, so
    ``summarised`` is an upper bound. Each message counts once.
    """

    messages: int = 0
    verbatim: int = 0
    excerpted: int = 0
    summarised: int = 0

    @property
    def share(self) -> float:
        """Return the share of the messages that are shown; 1.0 for a quarter without messages."""
        shown = self.verbatim + self.excerpted + self.summarised
        return shown / self.messages if self.messages else 1.0


@dataclass(frozen=True, slots=True)
class ShownMessages(Brief):
    """The messages that a context shows something of.

    ``messages`` are their indices, sorted. ``by_quarter`` counts the quarters of the session,
    oldest first. Messages that were erased or put in quarantine are not counted at all.
    """

    messages: tuple[int, ...] = ()
    by_quarter: tuple[ShownQuarter, ...] = (ShownQuarter(),) * 4

    def explain(self) -> str:
        """Return a description of their number and of the share of each quarter."""
        quarters = ", ".join(f"{quarter.share:.0%}" for quarter in self.by_quarter)
        return f"{len(self.messages):,} (by quarter, oldest first: {quarters})"


def of(
    *,
    verbatim: Iterable[int],
    excerpted: Iterable[int],
    summarised: Iterable[int],
    total: int,
    gone: Runs = (),
) -> ShownMessages:
    """Return the shown messages of a session of ``total`` messages, without those ``gone``."""

    def kept(indices: Iterable[int], *taken: Collection[int]) -> list[int]:
        return sorted(
            index
            for index in set(indices)
            if 0 <= index < total
            and not any(begin <= index < end for begin, end in gone)
            and not any(index in each for each in taken)
        )

    raw = kept(verbatim)
    lines = kept(excerpted, raw_set := frozenset(raw))
    under = kept(summarised, raw_set, frozenset(lines))
    quarters: list[ShownQuarter] = []
    for quarter in range(4):
        begin, end = total * quarter // 4, total * (quarter + 1) // 4
        lost = sum(max(0, min(end, b) - max(begin, a)) for a, b in gone)
        counts = [bisect_left(each, end) - bisect_left(each, begin) for each in (raw, lines, under)]
        quarters.append(ShownQuarter(end - begin - lost, *counts))
    first, second, third, fourth = quarters
    return ShownMessages(tuple(sorted((*raw, *lines, *under))), (first, second, third, fourth))
