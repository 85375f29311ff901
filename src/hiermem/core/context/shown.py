"""Which messages a context shows something of: raw, recalled, or by a line of a record.

Coverage means that every message is under some block; it does not mean that the block says anything
about the message. A line that was kept from a message shows that message. A line that a model wrote
about a stretch shows those messages of the stretch that hold at least half of the line's anchors,
or at least half of its stems if the line has no anchors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hiermem.core import needs
from hiermem.core.context.cover import Covered
from hiermem.core.context.view import Runs
from hiermem.core.needs import Reading
from hiermem.core.summaries import inputs
from hiermem.core.text import anchors
from hiermem.core.text.lexicon import terms_of
from hiermem.core.text.measure import body
from hiermem.types import StoredMessage, Unit

#: The maximal number of messages that are read to find which of them a model's lines show. The
#: lines of nodes beyond this number count as showing no message.
MOST_READ: Final = 2_000


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """The messages that a context shows something of.

    ``messages`` are their indices, sorted. ``by_quarter`` is the shown share of the messages of
    each quarter of the session, oldest first. Messages that were erased or put in quarantine are
    not counted at all; a quarter that contains only such messages has the share 1.0.
    """

    messages: tuple[int, ...] = ()
    by_quarter: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)

    def explain(self) -> str:
        """Return a description of their number and of the share of each quarter."""
        quarters = ", ".join(f"{share:.0%}" for share in self.by_quarter)
        return f"{len(self.messages):,} (by quarter, oldest first: {quarters})"


def of(indices: Iterable[int], *, total: int, gone: Runs = ()) -> ShownMessages:
    """Return the shown messages of a session of ``total`` messages, without those ``gone``."""
    held = sorted(
        index
        for index in set(indices)
        if 0 <= index < total and not any(begin <= index < end for begin, end in gone)
    )
    shares: list[float] = []
    for quarter in range(4):
        begin, end = total * quarter // 4, total * (quarter + 1) // 4
        lost = sum(max(0, min(end, b) - max(begin, a)) for a, b in gone)
        shown = bisect_left(held, end) - bisect_left(held, begin)
        shares.append(shown / (end - begin - lost) if end - begin > lost else 1.0)
    return ShownMessages(tuple(held), (shares[0], shares[1], shares[2], shares[3]))


def of_lines(lines: Sequence[Unit], sources: Mapping[str, Covered]) -> Reading[set[int]]:
    """Return the messages that lines show; ``sources`` maps each model-written line to its node."""
    found = {unit.index for unit in lines if unit.index is not None}
    by_node: dict[str, tuple[Covered, list[str]]] = {}
    for unit in lines if sources else ():
        node = _node_of(unit, sources)
        if node is not None:
            by_node.setdefault(node.id, (node, []))[1].append(unit.text)
    left = MOST_READ
    looked_at: list[tuple[Covered, list[str]]] = []
    for node, texts in by_node.values():
        left -= node.span.stop - node.span.start
        if left < 0:
            break
        looked_at.append((node, texts))
    read = yield from needs.stretches([(node.span.start, node.span.stop) for node, _ in looked_at])
    for (node, texts), messages in zip(looked_at, read, strict=True):
        found |= _spoken_of(texts, node, messages)
    return found


def _node_of(unit: Unit, sources: Mapping[str, Covered]) -> Covered | None:
    if unit.index is not None:
        return None
    if unit.text in sources:
        return sources[unit.text]
    head = unit.text.removesuffix("…")
    return next((node for text, node in sources.items() if text.startswith(head)), None)


def _spoken_of(texts: Sequence[str], node: Covered, messages: Sequence[StoredMessage]) -> set[int]:
    """Return the messages of a node that hold half of the content of one of its lines."""
    wanted = [(anchors.find(text), terms_of(text).keys()) for text in texts]
    found: set[int] = set()
    for stored in messages:
        if stored.state != "live":
            continue
        begin, end = inputs.within(node.span, stored.index)
        said = body(stored.message)[begin:end]
        folded = " ".join(said.casefold().split())
        terms: frozenset[str] | None = None
        for facts, words in wanted:
            if facts:
                held = sum(" ".join(fact.casefold().split()) in folded for fact in facts)
                enough = 2 * held >= len(facts)
            else:
                terms = frozenset(terms_of(said)) if terms is None else terms
                enough = bool(words) and 2 * len(words & terms) >= len(words)
            if enough:
                found.add(stored.index)
                break
    return found
