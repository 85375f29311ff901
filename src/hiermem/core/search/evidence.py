"""Packs the units that answer a question into a budget, and writes them as readable text.

The text never costs more than the budget, as the caller's counter counts, and every character of a
passage is verbatim. The oldest comes first. Each message is one line that begins with the speaker's
name, under a date where the date changes; an ellipsis marks omitted parts of a long message.
``ranking`` decides which units are best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hiermem.core.search import packing
from hiermem.core.search.index import Index
from hiermem.core.search.packing import Stretch
from hiermem.core.search.postings import Array
from hiermem.core.text.measure import body, day, speaker
from hiermem.types import Span, StoredMessage

#: The mark of an omitted part of a long message, and its approximate cost.
GAP: Final = "…"
_GAP_TOKENS: Final = 1
#: A header as long as any other.
HEADER: Final = "[2024-12-31]\n"


@dataclass(frozen=True, slots=True)
class Written:
    """Stretches in reading order, with the text that they make together."""

    stretches: tuple[Stretch, ...]
    text: str
    tokens: int


def fill(
    index: Index,
    ranked: Sequence[int] | Array,
    budget: int,
    *,
    count: Callable[[str], int],
    header: str = HEADER,
) -> list[int]:
    """Return the units of ``ranked`` (best first) that fill ``budget``, best first.

    Costs are estimated, with one header for each sitting; ``write`` counts exactly.
    """
    units = index.units
    places = np.asarray(ranked, dtype=np.int64)
    labels = np.array([count(f"{name}: ") + 1 for name in units.speakers] or [0])
    cost = units.tokens.astype(np.int64)
    if len(cost):
        cost = cost + labels[units.speaker] + _GAP_TOKENS * (units.tokens < units.whole)
    sittings = int(index.sitting.max(initial=-1)) + 1
    headers = np.full(sittings, count(header))
    chosen = set(packing.pack(places, budget, cost=cost, sitting=index.sitting, header=headers))
    return [unit for unit in places.tolist() if unit in chosen]


def around(index: Index, ranked: Iterable[int], neighbours: int, allowed: Array) -> list[int]:
    """Add after each ranked unit its neighbours, up to ``neighbours`` on each side.

    Each unit occurs once, at the first of its places; neighbours belong to the same sitting.
    """
    found: dict[int, None] = {}
    for unit in ranked:
        found[unit] = None
        before = after = unit
        for _ in range(neighbours):
            before = int(index.before[before]) if before >= 0 else -1
            after = int(index.after[after]) if after >= 0 else -1
            for place in (before, after):
                if place >= 0 and allowed[place]:
                    found.setdefault(place)
    return list(found)


def write(
    index: Index,
    chosen: Sequence[int],
    budget: int,
    messages: Mapping[int, StoredMessage],
    *,
    count: Callable[[str], int],
    shown: Iterable[Span] = (),
    session_of: Callable[[int], str] | None = None,
) -> Written:
    """Write the ``chosen`` units (best first); leave out the last ones that do not fit.

    Of a unit that is partly ``shown`` already, the other part is written. ``session_of`` returns
    the session of a message, where the index is of several: the headers name it.
    """
    spans = tuple(shown)
    kept = len(chosen)
    while True:
        parts = packing.without(packing.stretches(index, sorted(chosen[:kept])), spans)
        text = "\n".join(_lines(parts, messages, session_of))
        tokens = count(text)
        if tokens <= budget or not kept:
            return Written(tuple(parts), text, tokens)
        # The estimate is nearly right: seldom more than one or two units are too many.
        kept -= 1 if tokens < 1.05 * budget else max(1, kept // 20)


def header(day: str, session_id: str | None) -> str:
    """Return the line that stands where the date changes, or the session.

    >>> header("2024-03-15", None), header("2024-03-15", "support-42")
    ('[2024-03-15]', '[2024-03-15, session support-42]')
    """
    return f"[{day}]" if session_id is None else f"[{day}, session {session_id}]"


def _lines(
    parts: Sequence[Stretch],
    messages: Mapping[int, StoredMessage],
    session_of: Callable[[int], str] | None,
) -> Iterator[str]:
    """Yield one line for each message, and a header where the date or the session changes."""
    shown = ""
    by_message: dict[int, list[Stretch]] = {}
    for part in parts:
        by_message.setdefault(part.message, []).append(part)
    for number, held in by_message.items():
        stored = messages[number]
        head = header(day(stored.created_at), session_of(number) if session_of else None)
        if head != shown:
            shown = head
            yield head
        yield f"{speaker(stored.message)}: {_spliced(body(stored.message), held)}"


def _spliced(text: str, held: Sequence[Stretch]) -> str:
    """Join stretches of one message; an ellipsis marks what is left out."""
    found = ""
    reached = 0
    for part in held:
        found += _gap(text[reached : part.begin], found) + text[part.begin : part.end]
        reached = part.end
    return found + (f" {GAP}" if text[reached:].strip() else "")


def _gap(left_out: str, found: str) -> str:
    if not left_out.strip():
        return left_out if found else ""
    return f" {GAP} " if found else f"{GAP} "
