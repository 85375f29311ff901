"""Decides which units that answer a question fit a budget, and how they are written as text.

The best unit comes first; a unit that does not fit is skipped for one that does. Measured: dividing
scores by costs, spreading over sittings or windows, and covering the question's terms one after the
other all find less than this plain order.

The text never costs more than the budget, as the caller's counter counts, and every character of a
passage is verbatim. The oldest comes first. Each message is one line that begins with the speaker's
name, under a date if the date changes; an ellipsis marks omitted parts of a long message, and
messages omitted between two lines, which would else read as question and answer. ``rank`` decides
which units are best.

Overviews favour breadth. The best passages fill a quarter of the budget as they are. Of the other
messages, one passage of each comes before a second one of any; if they do not fit whole, each is
cut to its most telling part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final

import numpy as np

from hiermem.search.index import Array, Index
from hiermem.text.fence import escape, in_turn
from hiermem.text.measure import body, day, speaker
from hiermem.text.slices import char_points
from hiermem.text.terms import terms
from hiermem.types import Span, StoredMessage

#: The mark of an omitted part of a long message, or of omitted messages, and its approximate cost.
GAP: Final = "…"
_GAP_TOKENS: Final = 1
#: The mark of a statement of change about what an earlier passage says.
_LATER: Final = "later: "
#: A header as long as any other.
HEADER: Final = "[2024-12-31]\n"
#: The most tokens of a passage cut for an overview, and its average cost: it ends at the end of a
#: line or of a sentence.
BRIEF: Final = 32
_BRIEF_MEAN: Final = 26
#: The share of the budget that an overview gives to the best passages as they are.
_LEADING: Final = 0.25
#: Characters added to the length of a part, so that a heading of a few words does not stand for it.
_LEAST_PART: Final = 40
#: Fewer tokens than this hold no useful unit.
_CRUMB: Final = 10
#: After this many consecutive units that did not fit, the budget counts as full.
_MISSES: Final = 40
#: An offset beyond the end of any message.
_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive characters of one message's body that are returned together."""

    message: int
    begin: int
    end: int
    units: tuple[int, ...]


def fill(
    index: Index,
    ranked: Sequence[int] | Array,
    budget: int,
    *,
    count: Callable[[str], int],
    header: str = HEADER,
    overview: bool = False,
) -> list[int]:
    """Return the units of ``ranked`` (best first) that fill ``budget``, best first.

    Costs are estimated, with one header for each sitting; ``write`` counts exactly. For an
    ``overview`` they are those of brief parts, and each message comes once before any comes twice.
    """
    units = index.units
    places = np.asarray(ranked, dtype=np.int64)
    labels = np.array([count(f"{name}: ") + 1 for name in units.speakers] or [0])
    cost = units.tokens.astype(np.int64)
    if overview:
        leading = _leading(index, places, budget)
        cost[places[~leading]] = np.minimum(cost[places[~leading]], _BRIEF_MEAN)
        first = np.zeros(len(places), dtype=bool)
        first[np.unique(units.message[places], return_index=True)[1]] = True
        order = np.lexsort((~first, ~leading))
        places = places[order]
    if len(cost):
        # Counting passages one by one overestimates enough to pay for the marks between messages.
        cost = cost + labels[units.speaker] + _GAP_TOKENS * (units.tokens < units.whole)
    sittings = int(index.sitting.max(initial=-1)) + 1
    headers = np.full(sittings, count(header))
    chosen = set(pack(places, budget, cost=cost, sitting=index.sitting, header=headers))
    return [unit for unit in places.tolist() if unit in chosen]


def around(index: Index, ranked: Iterable[int], neighbours: int, allowed: Array) -> list[int]:
    """Add after each ranked unit its neighbours, up to ``neighbours`` on each side.

    Each unit occurs once, at the first of its places; neighbours belong to the same sitting.
    """
    ordered: dict[int, None] = {}
    for unit in ranked:
        ordered[unit] = None
        before = after = unit
        for _ in range(neighbours):
            before = int(index.before[before]) if before >= 0 else -1
            after = int(index.after[after]) if after >= 0 else -1
            for neighbour in (before, after):
                if neighbour >= 0 and allowed[neighbour]:
                    ordered.setdefault(neighbour)
    return list(ordered)


def candidates(budget: int) -> int:
    """Return how many of the best units ``pack`` needs to fill ``budget`` tokens."""
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
    remaining, missed = budget, 0
    for unit in np.asarray(ranked).tolist():
        group = int(sitting[unit])
        price = int(cost[unit]) + (0 if group in headed else int(header[group]))
        if price <= remaining:
            remaining -= price
            headed.add(group)
            chosen.append(unit)
        else:
            missed += 1
        if remaining < _CRUMB or missed > _MISSES:
            break
    return sorted(chosen)


def stretches(index: Index, units: Sequence[int]) -> list[Stretch]:
    """Join chosen units of one message that are adjacent; ``units`` rise."""
    joined: list[Stretch] = []
    for unit in units:
        message, begin, end = (
            int(column[unit])
            for column in (index.units.message, index.units.begin, index.units.end)
        )
        last = joined[-1] if joined else None
        if last and last.message == message and last.units[-1] == unit - 1:
            joined[-1] = Stretch(message, last.begin, end, (*last.units, unit))
        else:
            joined.append(Stretch(message, begin, end, (unit,)))
    return joined


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
    unseen: list[Stretch] = []
    for part in parts:
        begin = part.begin
        for low, high in sorted(cuts.get(part.message, ())):
            if begin < min(low, part.end):
                unseen.append(replace(part, begin=begin, end=min(low, part.end)))
            begin = max(begin, high)
        if begin < part.end:
            unseen.append(replace(part, begin=begin))
    return unseen


def write(
    index: Index,
    chosen: Sequence[int],
    budget: int,
    messages: Mapping[int, StoredMessage],
    *,
    count: Callable[[str], int],
    shown: Iterable[Span] = (),
    session_of: Callable[[int], str] | None = None,
    overview: bool = False,
    later: Sequence[int] = (),
) -> tuple[tuple[Stretch, ...], str, int]:
    """Write the ``chosen`` units (best first); leave out the last ones that do not fit.

    Returns stretches in reading order, the text that they make together, and its tokens.
    Of a unit that is partly ``shown``, only the other part is written. ``session_of`` returns
    the session of a message for the headers, if the index is of several. For an
    ``overview`` that does not hold them whole, all units but the leading ones are cut to their most
    telling parts. Messages of ``later`` are marked as later statements about an earlier one.
    """
    spans = tuple(shown)
    included = len(chosen)
    brief = _brief(index, chosen, budget, messages) if overview else {}
    while True:
        parts = stretches(index, sorted(chosen[:included]))
        if brief:
            parts = [piece for part in parts for piece in _cut(index, part, brief)]
        parts = without(parts, spans)
        text = "\n".join(_lines(parts, messages, session_of, later))
        tokens = count(text)
        if tokens <= budget or not included:
            return tuple(parts), text, tokens
        # The estimate is nearly right: seldom more than one or two units are too many.
        included -= 1 if tokens < 1.05 * budget else max(1, included // 20)


def _leading(index: Index, ranked: Array, budget: int) -> Array:
    """Return which of the ``ranked`` units an overview shows as they are."""
    leading: Array = np.cumsum(index.units.tokens[ranked], dtype=np.int64) <= _LEADING * budget
    return leading


def _brief(
    index: Index, chosen: Sequence[int], budget: int, messages: Mapping[int, StoredMessage]
) -> dict[int, Stretch]:
    """Return the most telling part of each unit but the leading ones; {} if all fit whole.

    Parts are as long as all of them may be to fit, but never cut below ``BRIEF``. A unit's part is
    the one with the most terms for its length; the fewer chosen passages hold a term, the more it
    weighs.
    """
    places = np.asarray(chosen, dtype=np.int64)
    leading = _leading(index, places, budget)
    sizes = index.units.tokens[places[~leading]].astype(np.int64)
    remaining = budget - int(index.units.tokens[places[leading]].sum())
    longest = sizes.max(initial=0)
    room = BRIEF
    while room < longest and np.minimum(sizes, room + 10).sum() <= remaining:
        room += 10
    if room >= longest:
        return {}
    parts: dict[int, list[tuple[Stretch, set[str]]]] = {}
    for unit, size in zip(places[~leading].tolist(), sizes.tolist(), strict=True):
        (whole,) = stretches(index, (unit,))
        text = body(messages[whole.message].message)
        # As many characters as hold that many tokens of this passage.
        most = max(1, room * (whole.end - whole.begin) // max(1, size))
        parts[unit] = [
            (part, set(terms(text[part.begin : part.end]))) for part in _parts(whole, text, most)
        ]
    holding = Counter(
        chain.from_iterable(
            set().union(*(part_terms for _, part_terms in of)) for of in parts.values()
        )
    )
    weight = {term: math.log((1 + len(parts)) / (1 + many)) for term, many in holding.items()}

    def telling(part: tuple[Stretch, set[str]]) -> float:
        length = part[0].end - part[0].begin
        return math.fsum(weight[term] for term in part[1]) / (_LEAST_PART + length)

    return {unit: max(of, key=telling)[0] for unit, of in parts.items()}


def _parts(whole: Stretch, text: str, most: int) -> Iterator[Stretch]:
    """Cut a stretch of ``text`` into parts of at most ``most`` characters, stripped."""
    passage = text[whole.begin : whole.end]
    for begin, end in pairwise((0, *char_points(passage, most), len(passage))):
        if words := passage[begin:end].strip():
            start = whole.begin + passage.index(words, begin)
            yield replace(whole, begin=start, end=start + len(words))


def _cut(index: Index, part: Stretch, brief: Mapping[int, Stretch]) -> Iterator[Stretch]:
    """Yield a stretch with its brief units cut; the others stay joined where they are adjacent."""
    uncut: list[int] = []
    for unit in part.units:
        if unit in brief:
            yield from stretches(index, uncut)
            uncut = []
            yield brief[unit]
        else:
            uncut.append(unit)
    yield from stretches(index, uncut)


def header(day: str, session_id: str | None) -> str:
    """Return the line for a new date or session.

    >>> header("2024-03-15", None), header("2024-03-15", "support-42")
    ('[2024-03-15]', '[2024-03-15, session support-42]')
    """
    if session_id is None:
        return f"[{day}]"
    return escape(f"[{day}, session {' '.join(session_id.split())}]")


def _lines(
    parts: Sequence[Stretch],
    messages: Mapping[int, StoredMessage],
    session_of: Callable[[int], str] | None,
    later: Sequence[int],
) -> Iterator[str]:
    """Yield one line for each message, and a header where the date or the session changes.

    A line ends with a mark if messages between it and the next line are omitted.
    """
    by_message: dict[int, list[Stretch]] = {}
    for part in parts:
        by_message.setdefault(part.message, []).append(part)
    shown, line, inside = "", "", False
    before: tuple[str | None, int] | None = None
    for number, group in by_message.items():
        stored = messages[number]
        session = session_of(number) if session_of else None
        whole = body(stored.message)
        if before is not None:
            # One mark is enough if a line ends or begins inside its message.
            joined = before == (session, stored.index - 1) or before[0] != session
            yield line if joined or inside or whole[: group[0].begin].strip() else f"{line} {GAP}"
        head = header(day(stored.created_at), session)
        if head != shown:
            shown = head
            yield head
        line = escape(in_turn(speaker(stored.message), _spliced(whole, group)))
        line = f"{_LATER}{line}" if number in later else line
        inside = bool(whole[group[-1].end :].strip())
        before = session, stored.index
    if before is not None:
        yield line


def _spliced(text: str, group: Sequence[Stretch]) -> str:
    """Join stretches of one message; an ellipsis marks what is left out."""
    spliced = ""
    reached = 0
    for part in group:
        omitted = text[reached : part.begin]
        if omitted.strip():
            omitted = f" {GAP} " if spliced else f"{GAP} "
        spliced += (omitted if spliced or omitted.strip() else "") + text[part.begin : part.end]
        reached = part.end
    return spliced + (f" {GAP}" if text[reached:].strip() else "")
