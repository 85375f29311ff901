"""Pooled views: many nodes, one trim. What the summary zone says where it cannot say everything.

The units of all nodes go into one selection for the whole share, instead of trimming each node by
itself; every root keeps at least its best unit, so that no stretch goes unrepresented
(summary_recipe section 4). The one rule: a view never waits for a model. Where a summary is not
made its children stand in, and below them the first and last message that it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hiermem.core import needs
from hiermem.core.context.cover import Covered, covered, refine, within
from hiermem.core.context.render import Shown
from hiermem.core.needs import Reading
from hiermem.core.summaries import inputs, salience
from hiermem.core.text import units
from hiermem.core.text.measure import day, speaker
from hiermem.core.text.trust import lowest, trust_of
from hiermem.types import Node, Revision, StoredMessage, Trust, Unit

#: Tokens that each root's best unit may take, date and speaker included.
PIECE = 40
#: The level whose nodes together hold so many times the share is the one that is pooled: what is
#: chosen from more, by one trim, keeps more.
DEPTH = 4
#: How many missing summaries a view follows downward before it quotes first and last messages.
MOST_STAND_INS = 256
#: Characters read of a first or last message; a unit of 40 tokens is far shorter.
MOST_QUOTED = 4_000


@dataclass(frozen=True, slots=True)
class Pooled:
    """The body of a view: its text, what of its roots was trimmed, the days and trust it bears."""

    text: str
    trimmed: tuple[str, ...]
    dates: tuple[str, str] | None
    trust: Trust


def pooled(
    cover: Sequence[Covered],
    share: int,
    *,
    count: Callable[[str], int],
    weights: salience.Weights,
    beside: Sequence[Shown] = (),
) -> Reading[Pooled]:
    """Represent ``cover`` in at most ``share`` tokens of text, each of its nodes at least once.

    Messages ``beside`` it are one more stretch to represent, the newest.
    """
    sources = yield from refine(cover, DEPTH * share)
    made, missing = yield from _texts(sources)
    found: list[tuple[Covered, list[Unit], Trust]] = []
    for item, revision in made:
        found.append((item, list(_units_of(revision)), revision.trust))
    for item in missing:
        first_and_last, trust = yield from _ends(item)
        found.append((item, first_and_last, trust))
    found.sort(key=lambda entry: entry[0].windows)

    pieces: list[Unit] = []
    groups: list[list[int]] = []
    for root in cover:
        begin = len(pieces)
        for item, own, _ in found:
            if within(item, root.windows):
                pieces += own
        if begin == len(pieces):
            pieces.append(_nothing_to_quote(root))
        groups.append(list(range(begin, len(pieces))))
    newest = _units_of_messages(beside)
    if newest:
        groups.append(list(range(len(pieces), len(pieces) + len(newest))))
        pieces += newest
    selection = salience.select(pieces, share, count, weights=weights, groups=groups, piece=PIECE)
    kept = set(selection.units)
    trimmed = tuple(
        root.id
        for root, group in zip(cover, groups, strict=False)
        if any(pieces[place] not in kept for place in group) or len(sources) != len(cover)
    )
    trusts: list[Trust] = []
    trusts.extend(trust_of(item.message) for item in beside)
    trusts.extend(trust for _, _, trust in found)
    return Pooled(selection.text, trimmed, _dates(selection.units), lowest(trusts))


def of_messages(
    shown: Sequence[Shown], share: int, *, count: Callable[[str], int], weights: salience.Weights
) -> Pooled:
    """Represent verbatim messages in at most ``share`` tokens of text."""
    pieces = _units_of_messages(shown)
    selection = salience.select(pieces, share, count, weights=weights)
    trust = lowest(trust_of(item.message) for item in shown if not item.silent)
    return Pooled(selection.text, (), _dates(selection.units), trust)


def _units_of_messages(shown: Sequence[Shown]) -> list[Unit]:
    return [
        unit
        for item in shown
        if not item.silent
        for unit in _message_units(item.message, item.begin, item.end, most=None)
    ]


def _texts(
    sources: Sequence[Covered],
) -> Reading[tuple[list[tuple[Covered, Revision]], list[Covered]]]:
    """Find what each source says; where one is not made, what its children say."""
    made: list[tuple[Node, int]] = []
    missing: list[Covered] = []
    waiting = yield from needs.nodes([item.id for item in sources])
    followed = 0
    while waiting:
        below: list[str] = []
        for node in waiting:
            if node.revision:
                made.append((node, node.revision))
            elif node.children and followed < MOST_STAND_INS:
                followed += len(node.children)
                below += node.children
            else:
                missing.append(covered(node))
        waiting = yield from needs.nodes(below)
    read = yield from needs.revisions([(node.id, number) for node, number in made])
    texts = {revision.node_id: revision for revision in read}
    found = [(covered(node), texts[node.id]) for node, _ in made if node.id in texts]
    # A revision that was replaced between the two reads is treated like one not made yet.
    missing += [covered(node) for node, _ in made if node.id not in texts]
    return found, missing


def _units_of(revision: Revision) -> tuple[Unit, ...]:
    if revision.provenance:
        return inputs.kept_units(revision)
    return tuple(units.split(revision.text, index=None, role="user", speaker="Summary", date=""))


def _ends(item: Covered) -> Reading[tuple[list[Unit], Trust]]:
    """Quote the first and the last message that a node without text covers."""
    first = yield from needs.messages(item.span.start, item.span.start + 1)
    last: list[StoredMessage] = []
    if item.span.stop - 1 > item.span.start:
        last = yield from needs.messages(item.span.stop - 1, item.span.stop)
    found: list[Unit] = []
    heard: list[StoredMessage] = []
    for stored in (*first, *last):
        if stored.state != "live":
            continue
        heard.append(stored)
        begin, end = inputs.within(item.span, stored.index)
        found += _message_units(stored, begin, end)
    return found, lowest(map(trust_of, heard))


def _message_units(
    stored: StoredMessage, begin: int, end: int | None, *, most: int | None = MOST_QUOTED
) -> list[Unit]:
    text = inputs.heard(stored, begin, end)
    return list(
        units.split(
            text[:most],
            index=stored.index,
            role=stored.role,
            speaker=speaker(stored.message),
            date=day(stored.created_at),
        )
    )


def _nothing_to_quote(root: Covered) -> Unit:
    """Stand for a stretch whose texts are empty, erased or our own rendering."""
    last = root.span.stop - 1
    return Unit(None, 0, "user", "Record", "", f"messages {root.span.start}-{last}: no text kept.")


def _dates(kept: Sequence[Unit]) -> tuple[str, str] | None:
    days = [unit.date for unit in kept if unit.date]
    return (min(days), max(days)) if days else None
