"""Decides the sticky state of a selection: what the next one keeps as its prefix.

Providers bill a cached prefix at a fraction of the price, so a cut stays unchanged until it must
move. The state stores the rendered bytes of the summary zone, so losing it costs a cache miss and
never a message. The state is data with a codec; ``cut`` decides when it changes.

Exact covers of sealed windows by the fewest nodes, and their refinement level by level.

Every node covers a contiguous half-open range of level-1 ordinals, so a cover is a sequence of
adjacent intervals. A cover contains exactly the requested windows, each of them once.

This module knows sizes and structure only; ``pool`` reads the text of the nodes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter

from hiermem import needs
from hiermem.context.render import Block, Kind
from hiermem.context.shared import SharedState
from hiermem.needs import Reading
from hiermem.text.measure import day
from hiermem.tree.fold import SessionState
from hiermem.tree.levels import Root
from hiermem.tree.windows import moment
from hiermem.types import Node, Span, Trust
from hiermem.types.ranges import Ranges

#: A refinement stops at this many nodes, however small they are.
MOST_NODES = 2_000


def _rising(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] >= ends[1]:
        raise ValueError("the range is empty")
    return ends


def _placed(span: Span) -> Span:
    if min(span.start, span.stop, span.start_char, span.stop_char or 0) < 0:
        raise ValueError("a place is negative")
    return span


# What a store's data must be; it is not trusted.
Natural: TypeAlias = Annotated[int, Field(ge=0)]
Range: TypeAlias = Annotated[tuple[Natural, Natural], AfterValidator(_rising)]
StoredSpan: TypeAlias = Annotated[Span, AfterValidator(_placed)]


@dataclass(frozen=True, slots=True)
class Covered:
    """A node as a cover sees it: its position and its size, without its text.

    ``days`` are the first and the last day that the node covers.
    """

    id: str
    level: Natural
    windows: Range
    span: StoredSpan
    messages: Natural
    tokens: Natural
    days: tuple[str, str]


def covered(node: Node) -> Covered:
    """Return the part of a node that a cover needs."""
    return _covered(node, node.first_at, node.last_at)


def _covered(node: Node | Root, first: datetime, last: datetime) -> Covered:
    return Covered(
        id=node.id,
        level=node.level,
        windows=node.windows,
        span=node.span,
        messages=node.messages,
        tokens=node.allotted_tokens,
        days=(day(first), day(last)),
    )


def cheapest(state: SessionState) -> list[Covered]:
    """Return the roots of the tree, oldest first; no read is needed."""
    return [_covered(root, moment(root.first), moment(root.last)) for root in state.roots()]


def within(item: Covered, windows: tuple[int, int]) -> bool:
    """Return whether the item lies inside the range of windows."""
    return windows[0] <= item.windows[0] and item.windows[1] <= windows[1]


def inside(roots: Sequence[Covered], begin: int, end: int) -> Reading[list[Covered]]:
    """Return the largest nodes that cover the windows from ``begin`` up to ``end`` exactly."""
    found: list[Covered] = []
    waiting = list(roots)
    while waiting:
        waiting = [item for item in waiting if item.windows[0] < end and begin < item.windows[1]]
        found += [item for item in waiting if within(item, (begin, end))]
        parted = [item for item in waiting if not within(item, (begin, end))]
        waiting = yield from children(parted)
    return sorted(found, key=lambda item: item.windows)


def refine(
    cover: Sequence[Covered], share: int, levels: Collection[int] | None = None
) -> Reading[list[list[Covered]]]:
    """Replace the topmost level by its children until the nodes together fill ``share`` tokens.

    Return every intermediate cover, the given cover first. The level that first reaches the share
    is used completely (summary_recipe section 4): a text that is trimmed from slightly too much
    material keeps more than a coarser text that happens to fit. With ``levels``, a level that is
    not among them is always replaced, and none below the lowest of them is reached.
    """
    lowest = min(levels) if levels else 1
    steps = [sorted(cover, key=lambda item: item.windows)]
    while len(steps[-1]) < MOST_NODES:
        top = max((item.level for item in steps[-1]), default=1)
        is_filled = sum(item.tokens for item in steps[-1]) >= share
        if top <= lowest or (is_filled and (levels is None or top in levels)):
            break
        parents = [item for item in steps[-1] if item.level == top]
        finer = [item for item in steps[-1] if item.level != top]
        finer += yield from children(parents)
        steps.append(sorted(finer, key=lambda item: item.windows))
    return steps


def children(parents: Sequence[Covered]) -> Reading[list[Covered]]:
    """Read the direct children of these nodes."""
    read = yield from needs.nodes([item.id for item in parents])
    found = yield from needs.nodes([child for node in read for child in node.children])
    return [covered(node) for node in found]


#: The suffix of the name of a stored view that holds a ``Seen``.
SEEN = "/seen"

_FORMAT = 6


@dataclass(frozen=True, slots=True)
class Piece:
    """One fenced record of the summary zone and the stretch of windows that it represents.

    ``kind`` is "summary" for one whole node and "view" for a trimmed view. ``text`` is "" if the
    windows have no content. In addition to its windows, of which there may be none, the piece
    represents the messages in ``runs``; these are in windows after the zone or in open windows.
    ``span`` is the hull of the messages that the piece shows and that no earlier piece represents.
    ``excerpted`` are the messages of which the piece has a line, ``summarised`` those under a
    model's text of which the piece shows a line. ``head`` are the lines of the pinned messages
    ``pins``; ``kept`` is the origin of the lines behind them (``lines.unpack``).
    """

    kind: Kind
    name: str
    windows: tuple[Natural, Natural]
    span: StoredSpan
    tokens: Natural
    text: str
    level: Natural | None
    covers: tuple[Covered, ...]
    trimmed: tuple[str, ...] = ()
    runs: Ranges = ()
    excerpted: Ranges = ()
    summarised: Ranges = ()
    kept: str = ""
    trust: Trust = "conversation"
    pins: tuple[Natural, ...] = ()
    head: str = ""

    @property
    def messages(self) -> int:
        """Return the approximate number of represented messages; each slice counts as one."""
        beside = sum(end - begin for begin, end in self.runs)
        return sum(item.messages for item in self.covers) + beside

    def block(self) -> Block:
        """Return the block that renders the piece."""
        return Block(self.kind, self.name, self.span, self.tokens, self.text, self.level)


@dataclass(frozen=True, slots=True)
class View:
    """The state of a cut: windows before ``boundary`` are in ``pieces``, the rest is verbatim.

    Messages of the rest that are in the ``runs`` of a piece are not verbatim; the piece represents
    them. ``gone`` are the messages that were erased or put in quarantine before the view was made;
    a later erasure or quarantine outdates the view. Of each tool result in ``results`` at most so
    many tokens are shown, or the excerpt that any context shows if they are 0. Images from the
    place ``images`` on stand, older ones by name. ``shared`` is what the context shows of its
    space. ``without`` is how much of what stands beside the cut yielded to it (``select``).
    """

    boundary: Natural
    pieces: tuple[Piece, ...]
    serial: Natural = 0
    gone: Ranges = ()
    results: tuple[tuple[Natural, Natural], ...] = ()
    images: tuple[Natural, Natural] = (0, 0)
    shared: SharedState | None = None
    without: Natural = 0

    @property
    def tokens(self) -> int:
        """Return the tokens of the summary zone."""
        return sum(piece.tokens for piece in self.pieces)

    def blocks(self) -> list[Block]:
        """Return the blocks of the summary zone, in order."""
        return [piece.block() for piece in self.pieces if piece.text]

    def holds(self, index: int) -> bool:
        """Return whether the message at ``index`` is in a piece's runs."""
        return any(begin <= index < end for piece in self.pieces for begin, end in piece.runs)

    def shows(self, index: int, windows: Iterable[int] = ()) -> bool:
        """Return whether it may show something of a message, or of level-1 nodes by ordinal.

        A piece is assumed to show everything between its ends.
        """
        ordinals = tuple(windows)
        return self.holds(index) or any(
            piece.span.start <= index < piece.span.stop
            or any(piece.windows[0] <= ordinal < piece.windows[1] for ordinal in ordinals)
            for piece in self.pieces
        )

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(
            {"format": _FORMAT, **asdict(self)}, ensure_ascii=False, separators=(",", ":")
        )

    @classmethod
    def from_json(cls, text: str) -> View | None:
        """Read the output of ``to_json``; return None if it is unreadable or of another format.

        Pieces that do not represent all windows before the boundary count as unreadable, because
        using them would lose messages.
        """
        try:
            if json.loads(text)["format"] != _FORMAT:
                return None
            view = _views().validate_json(text, strict=True)
            _check_row([piece.windows for piece in view.pieces], 0, view.boundary)
            for piece in view.pieces:
                _check_row([item.windows for item in piece.covers], *piece.windows)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return view if all(piece.kind in ("summary", "view") for piece in view.pieces) else None


@dataclass(frozen=True, slots=True)
class Seen:
    """A description of the last rendered selection, for comparison with the next selection.

    ``blocks`` are the (name, tokens) of its records before the verbatim zone. ``digest`` is a hash
    of its verbatim blocks; ``count`` is their number and ``tokens`` their total size. The last
    three fields are sums over all selections that differed from their predecessor: ``selections``
    is their number, ``rendered`` their tokens, and ``shared`` the tokens that they have in common
    with the beginning of their predecessor.
    """

    blocks: tuple[tuple[str, Natural], ...]
    count: Natural
    tokens: Natural
    digest: str
    selections: Natural = field(default=0, compare=False)
    rendered: Natural = field(default=0, compare=False)
    shared: Natural = field(default=0, compare=False)

    def after(self, before: Seen | None, *, rendered: int, shared: int) -> Seen:
        """Return this selection with its counts added to the sums in ``before``."""
        return replace(
            self,
            selections=(before.selections if before else 0) + 1,
            rendered=(before.rendered if before else 0) + rendered,
            shared=(before.shared if before else 0) + shared,
        )

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Seen | None:
        """Read the output of ``to_json``; return None if it is unreadable."""
        try:
            return _descriptions().validate_json(text, strict=True)
        except ValueError:
            return None


def outdated(stored: Mapping[str, str], index: int, windows: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the stored views that an edit of a message outdates.

    ``stored`` maps names to states. A view is outdated, together with its ``Seen``, if it shows the
    message or a window made from it, or if its state cannot be read. A view that only shows the
    message raw is kept, because raw messages are rendered from the store each time.
    """
    gone: list[str] = []
    for name, state in stored.items():
        if name.endswith(SEEN) and name.removesuffix(SEEN) in stored:
            continue
        view = View.from_json(state)
        if view is None or view.shows(index, windows):
            gone += [found for found in (name, name + SEEN) if found in stored]
    return tuple(gone)


def naming(stored: Mapping[str, str], session_id: str) -> tuple[str, ...]:
    """Return the names of the stored views that show a line of another session of the space."""
    views = {name: View.from_json(state) for name, state in stored.items()}
    shown = [
        name
        for name, view in views.items()
        if view and view.shared and any(each.name == session_id for each in view.shared.origins)
    ]
    return tuple(each for name in shown for each in (name, name + SEEN) if each in stored)


# Made where they are needed: that takes some milliseconds.


@cache
def _views() -> TypeAdapter[View]:
    return TypeAdapter(View)


@cache
def _descriptions() -> TypeAdapter[Seen]:
    return TypeAdapter(Seen)


def _check_row(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> None:
    """Refuse ranges that do not follow one another from ``begin`` to ``end``."""
    for first, last in ranges:
        if first != begin or last < first:
            raise ValueError
        begin = last
    if begin != end:
        raise ValueError
