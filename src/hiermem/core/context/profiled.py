"""The cut for a profile: which summaries are shown whole, how many messages raw, what is pinned.

The result is an exact cover inside the budget, like every cut. The summaries that the profile wants
are shown whole as far as they fit; trimmed views between them show the rest of the summary zone.
The cut stays unchanged until it reaches the budget, or twice the number of recent messages, and is
then planned again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hiermem.core import needs
from hiermem.core.context import cover, pool, verbatim
from hiermem.core.context.cover import Covered
from hiermem.core.context.cut import Cut, Planner, Situation
from hiermem.core.context.profile import ContextProfile
from hiermem.core.context.render import Block, Shown
from hiermem.core.context.view import Piece, View
from hiermem.core.context.zone import VIEW_TOKENS
from hiermem.core.needs import Reading
from hiermem.errors import BudgetTooSmallError
from hiermem.types import Node, Revision, Summary

#: The approximate cost of a frame; the exact cost is known once a piece is made.
_FRAME: Final = 90
#: Only this many summaries, the newest, are compared with one another.
_WEIGHED: Final = 500

#: A made summary that may be shown whole.
_Candidate: TypeAlias = tuple[Node, Revision]


def select(
    at: Situation, profile: ContextProfile, session_id: str, previous: View | None
) -> Reading[Cut]:
    """Return the cut for a profile; keep the ``previous`` one as long as it is sufficient.

    Raises BudgetTooSmallError like every cut; the pins are part of the minimum.
    """
    pins = yield from _pinned(at, profile)
    planner = _Planner(at, profile, session_id, previous)
    block = planner.zone.quoted(pins)
    if block is None:
        return (yield from planner.select())
    taken = block.tokens
    if taken > at.budget:
        raise BudgetTooSmallError(
            budget=at.budget + at.overhead,
            minimum=taken + at.overhead,
            why=f"the profile's pins take {taken} tokens",
        )
    planner.at = replace(at, budget=at.budget - taken, overhead=at.overhead + taken)
    found = yield from planner.select()
    raw = {item.message.index for item in found.shown if not item.partial}
    left = [item for item in pins if item.message.index not in raw]
    block = planner.zone.quoted(left)
    if block is None:
        return found
    return replace(found, blocks=_before_raw(found.blocks, block), pinned=tuple(left))


def _pinned(at: Situation, profile: ContextProfile) -> Reading[list[Shown]]:
    found: dict[int, Shown] = {}
    for start, stop in profile.pins:
        read = yield from needs.messages(start, min(stop, at.state.next_index))
        found |= {stored.index: Shown(stored) for stored in read}
    return [found[index] for index in sorted(found)]


def _before_raw(blocks: Sequence[Block], block: Block) -> tuple[Block, ...]:
    place = next(
        (place for place, each in enumerate(blocks) if each.message is not None), len(blocks)
    )
    return (*blocks[:place], block, *blocks[place:])


class _Planner(Planner):
    """Plans one selection for a profile."""

    def __init__(
        self, at: Situation, profile: ContextProfile, session_id: str, previous: View | None
    ) -> None:
        super().__init__(at, previous)
        self.profile = profile
        self.session_id = session_id

    def keep(self, view: View) -> Reading[Cut | None]:
        """Append the new messages; return None if there are too many."""
        if view.boundary > self.last:
            return None
        windows = yield from needs.windows(view.boundary, self.total)
        found = self._assemble(view, (yield from self._shown(windows)))
        if found.tokens > self.at.budget:
            return None
        recent = self.profile.recent
        spoken = sum(not item.silent for item in found.shown)
        return None if recent is not None and spoken > 2 * recent else found

    def afresh(self, fullness: float) -> Reading[Cut]:
        """Plan both zones anew; as without a profile where its wishes do not fit."""
        budget = self.at.budget
        raw, older, boundary = yield from self._recent(int(fullness * budget))
        below = yield from cover.below(self.roots, boundary)
        least = self.zone.least(below) + (VIEW_TOKENS // 2 + pool.PIECE if older else 0)
        spent = self.cost(raw)
        if spent + least > budget:
            return (yield from super().afresh(1.0))
        room = max(least, int(fullness * budget) - spent)
        pieces: list[Piece] = []
        if older:
            weight = sum(item.message.tokens for item in older)
            share = max(VIEW_TOKENS // 2 + pool.PIECE, min(weight, room // 4))
            share = min(share, room - self.zone.least(below))
            pieces.append((yield from self.zone.of_messages(older, share, at=boundary)))
            room -= pieces[0].tokens
        pieces[:0] = yield from self._mixed(below, boundary, room)
        view = View(boundary, tuple(pieces))
        found = self._assemble(view, [*older, *raw])
        return found if found.tokens <= budget else (yield from super().afresh(1.0))

    # -- raw messages

    def _recent(self, limit: int) -> Reading[tuple[list[Shown], list[Shown], int]]:
        """Return the chosen newest messages, the other messages outside the zone, the boundary."""
        windows = yield from self._newest_windows()
        shown = yield from self._shown(windows or self.tail)
        wanted = self.profile.recent
        share = limit if wanted else int(self.at.policy.verbatim * self.at.budget)
        raw: list[Shown] = []
        for piece in reversed(verbatim.pieces_of(shown)):
            if raw and self.cost([*piece, *raw]) > share:
                break
            raw += piece
            if wanted is not None and sum(not item.silent for item in raw) >= wanted:
                break
        held = {item.message.index for item in raw}
        allowed = verbatim.allowed_boundaries(windows, self.opened, self.total)
        boundary = self._boundary_before(held, windows, shown, allowed)
        rest = [window for window in windows if window.ordinal >= boundary]
        shown = yield from self._shown(self.tail if boundary == self.last else rest)
        newest = [item for item in shown if item.message.index in held]
        older = [item for item in shown if item.message.index not in held and not item.silent]
        return newest, older, boundary

    # -- whole summaries

    def _mixed(
        self, below: Sequence[Covered], boundary: int, room: int
    ) -> Reading[tuple[Piece, ...]]:
        """Cover the zone by the wanted whole summaries, and by views of the gaps between them."""
        if not self.profile.mixes:
            return (yield from self.zone.pooled(below, room))
        wanted = yield from self._by_worth((yield from self._candidates(below)))
        low, high = 0, len(wanted)
        # Search for the largest number that fits; the cost grows with the number.
        while low < high:
            middle = (low + high + 1) // 2
            fits = yield from self._fits(wanted[:middle], boundary, room)
            low, high = (middle, high) if fits else (low, middle - 1)
        while True:
            pieces = yield from self._pieces(wanted[:low], boundary, room)
            if not low or sum(piece.tokens for piece in pieces) <= room:
                return pieces
            low -= 1

    def _candidates(self, below: Sequence[Covered]) -> Reading[list[_Candidate]]:
        """Return the largest made summaries of wanted levels; tagged ones as fine as possible."""
        levels = self.profile.levels
        lowest = min(levels) if levels else 1
        waiting = list(below)
        found: list[_Candidate] = []
        while waiting:
            waiting = sorted(waiting, key=lambda item: item.windows)[-_WEIGHED:]
            read = yield from self._made(waiting)
            finer: list[Covered] = []
            for item in waiting:
                candidate = read.get(item.id)
                allowed = levels is None or item.level in levels
                tagged = candidate is not None and self._tagged(candidate[1])
                if item.level > lowest and (not allowed or tagged):
                    finer.append(item)
                elif allowed and candidate is not None:
                    found.append(candidate)
            waiting = yield from cover.children(finer)
        return found

    def _made(self, items: Sequence[Covered]) -> Reading[dict[str, _Candidate]]:
        nodes = yield from needs.nodes([item.id for item in items])
        made = {node.id: node for node in nodes if node.revision}
        read = yield from needs.revisions([(node.id, node.revision) for node in made.values()])
        return {
            revision.node_id: (made[revision.node_id], revision)
            for revision in read
            if revision.text
        }

    def _tagged(self, revision: Revision) -> bool:
        return any(tag.strip().casefold() in self.profile.tags for tag in revision.tags)

    def _by_worth(self, candidates: Sequence[_Candidate]) -> Reading[list[_Candidate]]:
        value = self.profile.value
        above: list[Node] = []
        if value is not None:
            parents = {node.parent for node, _ in candidates if node.parent}
            above = yield from needs.nodes(sorted(parents))
        made = {node.id for node in above if node.revision}

        def worth(each: _Candidate) -> tuple[float, bool, int]:
            node, revision = each
            given = 0.0
            if value is not None:
                superseded = node.parent in made
                given = float(
                    value(Summary(self.session_id, node, revision, superseded=superseded))
                )
            return given, self._tagged(revision), node.windows[0]

        return sorted(candidates, key=worth, reverse=True)

    def _fits(self, whole: Sequence[_Candidate], boundary: int, room: int) -> Reading[bool]:
        gaps = yield from self._gaps(whole, boundary)
        cost = sum(revision.tokens + _FRAME for _, revision in whole)
        return cost + sum(self.zone.least(gap) for gap in gaps) <= room

    def _gaps(self, whole: Sequence[_Candidate], boundary: int) -> Reading[list[list[Covered]]]:
        """Return one cover for each stretch between the whole summaries."""
        found: list[list[Covered]] = []
        begin = 0
        for start, stop in [*sorted(node.windows for node, _ in whole), (boundary, boundary)]:
            if begin < start:
                found.append((yield from cover.inside(self.roots, begin, start)))
            begin = stop
        return found

    def _pieces(
        self, whole: Sequence[_Candidate], boundary: int, room: int
    ) -> Reading[tuple[Piece, ...]]:
        pieces: list[Piece] = []
        for node, revision in whole:
            pieces.append((yield from self.zone.whole(node, revision)))
        gaps = yield from self._gaps(whole, boundary)
        least = [self.zone.least(gap) for gap in gaps]
        spare = max(0, room - sum(piece.tokens for piece in pieces) - sum(least))
        weights = [sum(item.tokens for item in gap) for gap in gaps]
        for gap, low, weight in zip(gaps, least, weights, strict=True):
            share = low + spare * weight // max(1, sum(weights))
            pieces += yield from self.zone.pooled(gap, share)
        return tuple(sorted(pieces, key=lambda piece: piece.windows))
