"""The pieces of the summary zone: whole summaries and trimmed views, fenced and counted.

The one rule: a piece never takes more tokens than the share it was given, frame included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hiermem.core.context import cover, pool
from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block, Frame, Shown, memory_block
from hiermem.core.context.view import OpenView, Piece, block_kind
from hiermem.core.needs import Reading
from hiermem.core.summaries import salience
from hiermem.core.text.measure import body, day, speaker
from hiermem.core.text.trust import lowest, trust_of
from hiermem.types import Node, Revision, Span

#: Tokens that a minimal selection reserves for the frames of its two views and for what is said of
#: the older open messages; the roots' pieces come on top (spec section 8.2).
VIEW_TOKENS = 300


@dataclass(slots=True)
class ZoneMaker:
    """Makes pieces for one selection; ``serial`` numbers the views, each has its own name."""

    count: Callable[[str], int]
    key: bytes
    weights: salience.Weights = field(default_factory=salience.Weights)
    serial: int = 0
    view: str = ""

    def least(self, below: Sequence[Covered]) -> int:
        """Give the fewest tokens in which these nodes can be represented, one unit each."""
        return VIEW_TOKENS // 2 + pool.PIECE * len(below) if below else 0

    def whole(self, window: Node, revision: Revision) -> Piece:
        """Show a made summary as it is."""
        frame = Frame(
            name=window.id,
            span=window.span,
            dates=(day(window.first_at), day(window.last_at)),
            level=window.level,
            trust=revision.trust,
        )
        return self._piece("summary", frame, revision.text, (cover.covered(window),))

    def stand_in(self, window: Node, shown: Sequence[Shown]) -> Piece:
        """Show a window whose summary is not made yet by a trimmed view of its messages."""
        made = pool.of_messages(
            shown, max(window.allotted_tokens, 1), count=self.count, weights=self.weights
        )
        frame = Frame(self._name(), window.span, made.dates, window.level, made.trust)
        return self._piece("view", frame, made.text, (cover.covered(window),), (window.id,))

    def in_full(self, window: Node, shown: Sequence[Shown]) -> Piece:
        """Show a window by what was said in it, word for word."""
        block = self.quoted(shown)
        return Piece(
            kind="quote",
            name=block.name if block else window.id,
            windows=window.windows,
            span=window.span,
            tokens=block.tokens if block else 0,
            text=block.text if block else "",
            level=None,
            covers=(cover.covered(window),),
        )

    def quoted(self, shown: Sequence[Shown]) -> Block | None:
        """Quote messages word for word in one record; None where they say nothing."""
        spoken = [item for item in shown if not item.silent]
        if not spoken:
            return None
        lines: list[str] = []
        today = ""
        for item in spoken:
            stored = item.message
            if day(stored.created_at) != today:
                today = day(stored.created_at)
                lines.append(f"[{today}]")
            lines.append(
                f"{speaker(stored.message)}: {body(stored.message)[item.begin : item.end]}"
            )
        first, last = spoken[0].message.index, spoken[-1].message.index
        days = [day(item.message.created_at) for item in spoken]
        frame = Frame(
            name=f"m{first}-{last}" if last > first else f"m{first}",
            span=Span(first, last + 1, spoken[0].begin, spoken[-1].end),
            dates=(min(days), max(days)),
            trust=lowest(trust_of(item.message) for item in spoken),
        )
        return memory_block("quote", frame, "\n".join(lines), key=self.key, count=self.count)

    def pooled(
        self, below: Sequence[Covered], share: int, *, beside: Sequence[Shown] = ()
    ) -> Reading[tuple[Piece, ...]]:
        """Show all of ``below`` in one view of at most ``share`` tokens; () for nothing.

        Messages ``beside`` them, newer than all of them, join the view.
        """
        if not below:
            return ()
        ends = [item.span.stop for item in below] + [item.message.index + 1 for item in beside]
        span = Span(min(item.span.start for item in below), max(ends))
        name = self._name()
        room = share - self._frame_tokens(
            Frame(name, span, ("0000-00-00", "9999-99-99"), 1, "tool")
        )
        while True:
            made = yield from pool.pooled(
                below, max(room, 1), count=self.count, weights=self.weights, beside=beside
            )
            frame = Frame(name, span, made.dates, None, made.trust)
            piece = self._piece("view", frame, made.text, tuple(below), made.trimmed)
            if piece.tokens <= share or room <= 1:
                return (piece,)
            # Tokens join differently inside the fence; give back what it took too much.
            room -= piece.tokens - share

    def of_open(self, shown: Sequence[Shown], share: int) -> OpenView:
        """Show the older messages of open windows in one view of at most ``share`` tokens."""
        indices = [item.message.index for item in shown]
        span = Span(indices[0], indices[-1] + 1)
        name = self._name()
        room = share - self._frame_tokens(
            Frame(name, span, ("0000-00-00", "9999-99-99"), None, "tool")
        )
        while True:
            made = pool.of_messages(shown, max(room, 1), count=self.count, weights=self.weights)
            frame = Frame(name, span, made.dates, None, made.trust)
            block = memory_block("view", frame, made.text, key=self.key, count=self.count)
            if block.tokens <= share or room <= 1:
                tokens, text = (block.tokens, block.text) if made.text else (0, "")
                return OpenView(name, _runs(indices), span, tokens, text)
            room -= block.tokens - share

    def silent(self, shown: Sequence[Shown]) -> OpenView:
        """Note that a pooled view represents these messages: they need none of their own."""
        indices = [item.message.index for item in shown]
        return OpenView(self._name(), _runs(indices), Span(indices[0], indices[-1] + 1), 0, "")

    def _piece(
        self,
        kind: str,
        frame: Frame,
        text: str,
        covers: tuple[Covered, ...],
        trimmed: tuple[str, ...] = (),
    ) -> Piece:
        windows = (covers[0].windows[0], covers[-1].windows[1])
        if not text:
            return Piece(kind, frame.name, windows, frame.span, 0, "", frame.level, covers)
        block = memory_block(block_kind(kind), frame, text, key=self.key, count=self.count)
        return Piece(
            kind=kind,
            name=frame.name,
            windows=windows,
            span=frame.span,
            tokens=block.tokens,
            text=block.text,
            level=frame.level,
            covers=covers,
            trimmed=trimmed,
        )

    def _frame_tokens(self, frame: Frame) -> int:
        return memory_block("view", frame, "", key=self.key, count=self.count).tokens

    def _name(self) -> str:
        self.serial += 1
        return f"{self.view}/V{self.serial}" if self.view else f"V{self.serial}"


def _runs(indices: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Write increasing indices as half-open ranges."""
    found: list[list[int]] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1][1] = index + 1
        else:
            found.append([index, index + 1])
    return tuple((begin, end) for begin, end in found)
