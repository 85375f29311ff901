"""Show a summarised stretch in full inside a cut, and leave the verbatim part unchanged.

The result is still an exact cover inside the budget. The verbatim messages stay as they were. The
windows that a question is about appear word for word, or as their whole summaries where there is no
room for that; pooled views show the windows between them in the remaining tokens.
``core.search.search`` finds the windows that a question is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hiermem.core import needs
from hiermem.core.context import cover, pool, verbatim
from hiermem.core.context.cover import Covered
from hiermem.core.context.cut import Cut, Situation
from hiermem.core.context.render import Block, Shown
from hiermem.core.context.view import Piece
from hiermem.core.context.zone import VIEW_TOKENS, ZoneMaker
from hiermem.core.needs import Reading
from hiermem.types import Node

#: The maximal number of stretches shown in full: more would be a different selection.
_MOST: Final = 4

#: A window, or the index of an older message of an open window.
Wanted: TypeAlias = Node | int


def zoom(at: Situation, cut: Cut, wanted: Sequence[Wanted]) -> Reading[Cut | None]:
    """Show the ``wanted`` parts in full, the most wanted first, as far as the budget allows.

    Return None if none of them is in the summary zone, or none fits.
    """
    zoomer = _Zoomer(at, cut)
    yield from zoomer.look()
    for each in wanted:
        if len(zoomer.windows) + len(zoomer.opened) >= _MOST:
            break
        if isinstance(each, int):
            zoomer.raise_open(each)
        else:
            yield from zoomer.raise_window(each)
    if not zoomer.tokens:
        return None
    found = yield from zoomer.assembled()
    return found if found.tokens <= at.budget else None


class _Zoomer:
    """Builds one zoom."""

    def __init__(self, at: Situation, cut: Cut) -> None:
        self.at, self.cut, self.view = at, cut, cut.view
        self.zone = ZoneMaker(at.writer, cut.view.serial, at.view)
        self.roots = cover.cheapest(at.state, at.provisional)
        pieces = cut.view.pieces
        # Windows that were omitted with the caller's permission stay omitted.
        self.begin = pieces[0].windows[0] if pieces else cut.view.boundary
        # Pinned messages are raw like the newest messages.
        self.raw = [b for b in cut.blocks if b.message is not None or b.kind == "quote"]
        held = [*self.raw, *(piece.block() for piece in self.view.standing)]
        self.room = at.budget - sum(block.tokens for block in held)
        self.older: list[Shown] = []
        # The parts in full: windows by ordinal, messages of open windows, and what both show.
        self.windows: dict[int, Piece] = {}
        self.opened: list[Block] = []
        self.raised: set[int] = set()
        self.shown: list[Shown] = []
        # The covers between the windows in full; they determine the minimal size of the zone.
        self.gaps: list[list[Covered]] = []

    @property
    def tokens(self) -> int:
        """Return the tokens of the parts in full."""
        pieces = sum(piece.tokens for piece in self.windows.values())
        return pieces + sum(block.tokens for block in self.opened)

    def look(self) -> Reading[None]:
        """Read the older messages that are in the view of open windows."""
        self.gaps = yield from self._between(())
        runs = [run for piece in self.view.pieces for run in piece.runs]
        if not runs:
            return
        state = self.at.state
        windows = yield from needs.windows(self.view.boundary, state.next_ordinal(1))
        begins = verbatim.starts(windows, state.open_windows())
        read = yield from needs.messages(min(run[0] for run in runs), max(run[1] for run in runs))
        shown = verbatim.shown_from(begins, read)
        self.older = [item for item in shown if self.view.holds(item.message.index)]

    def raise_window(self, window: Node) -> Reading[None]:
        """Show a window of the zone in full, or by its whole summary, if either fits."""
        at = window.ordinal
        if not self.begin <= at < self.view.boundary or at in self.windows:
            return
        gaps = yield from self._between({*self.windows, at})
        room = self.room - self.tokens - self._least(gaps, self._left())
        read = yield from needs.messages(window.span.start, window.span.stop)
        shown = verbatim.in_window(window, read)
        piece = self.zone.in_full(window, shown)
        in_full = piece.tokens <= room
        if not in_full:
            revisions = yield from needs.revisions(
                [(window.id, window.revision)] * bool(window.revision)
            )
            if not revisions:
                return
            piece = yield from self.zone.whole(window, revisions[0])
        if piece.text and piece.tokens <= room:
            self.windows[at] = piece
            self.gaps = gaps
            if in_full:
                self.shown += [item for item in shown if not item.empty]

    def raise_open(self, index: int) -> None:
        """Show the exchange that holds an older message of an open window in full, if it fits."""
        held = [
            piece
            for piece in verbatim.pieces_of(self._left())
            if any(item.message.index == index for item in piece)
        ]
        block = self.zone.quoted(held[0]) if held else None
        if block is None:
            return
        going = {item.message.index for item in held[0]}
        left = [item for item in self._left() if item.message.index not in going]
        if block.tokens <= self.room - self.tokens - self._least(self.gaps, left):
            self.opened.append(block)
            self.raised |= going
            self.shown += [item for item in held[0] if not item.empty]

    def assembled(self) -> Reading[Cut]:
        """Make the views of the remaining parts, and put all blocks in order."""
        left = self._left()
        weights = [sum(item.tokens for item in gap) for gap in self.gaps]
        weights.append(sum(item.message.tokens for item in left))
        least = [self.zone.least(gap) for gap in self.gaps] + [self._least((), left)]
        before = sum(block.tokens for block in self.cut.blocks) - (self.at.budget - self.room)
        total = min(self.room - self.tokens, max(sum(least), before))
        spare = max(0, total - sum(least)) / max(1, sum(weights))
        shares = [low + int(spare * weight) for low, weight in zip(least, weights, strict=True)]
        pieces = list(self.windows.values())
        for gap, share in zip(self.gaps, shares, strict=False):
            pieces += yield from self.zone.pooled(gap, share)
        pieces.sort(key=lambda piece: piece.windows)
        if left:
            at = self.view.boundary
            pieces.append((yield from self.zone.of_messages(left, shares[-1], at=at)))
        blocks = [piece.block() for piece in pieces if piece.text]
        blocks += sorted(self.opened, key=lambda block: block.span.start)
        view = replace(self.view, pieces=tuple(pieces), serial=self.zone.serial)
        blocks[:0] = [piece.block() for piece in view.standing]
        blocks = [*blocks, *self.raw]
        return replace(self.cut, view=view, blocks=tuple(blocks), in_full=tuple(self.shown))

    def _left(self) -> list[Shown]:
        """Return the older messages of open windows that are still in a view."""
        return [item for item in self.older if item.message.index not in self.raised]

    def _least(self, gaps: Iterable[Sequence[Covered]], left: Sequence[Shown]) -> int:
        opened = VIEW_TOKENS // 2 + pool.PIECE if left else 0
        return sum(self.zone.least(gap) for gap in gaps) + opened

    def _between(self, ordinals: Iterable[int]) -> Reading[list[list[Covered]]]:
        """Return one cover for each stretch between these windows."""
        taken = [(at, at + 1) for at in ordinals]
        return (yield from cover.between(self.roots, taken, self.begin, self.view.boundary))
