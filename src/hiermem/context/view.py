"""The sticky state of a selection: what it showed, so that the next one keeps it as a prefix.

Providers bill a cached prefix at a fraction of the price, so a cut stays unchanged until it must
move. The state stores the rendered bytes of the summary zone, so losing it costs a cache miss and
never a message. The state is data with a codec; ``cut`` decides when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache

from pydantic import TypeAdapter

from hiermem.context.cover import Covered, Natural, StoredSpan
from hiermem.context.render import Block, Kind
from hiermem.types import Trust
from hiermem.types.runs import Runs

#: The suffix of the name of a stored view that holds a ``Seen``.
SEEN = "/seen"

_FORMAT = 5
_STORED_KINDS = ("summary", "view")


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
    runs: Runs = ()
    excerpted: Runs = ()
    summarised: Runs = ()
    kept: str = ""
    trust: Trust = "conversation"
    pins: tuple[Natural, ...] = ()
    head: str = ""

    @classmethod
    def of(
        cls,
        block: Block,
        windows: tuple[int, int],
        *,
        covers: tuple[Covered, ...] = (),
        excerpted: Runs = (),
        kept: str = "",
        trust: Trust = "conversation",
    ) -> Piece:
        """Return a piece that renders as ``block``."""
        return cls(
            kind=block.kind,
            name=block.name,
            windows=windows,
            span=block.span,
            tokens=block.tokens,
            text=block.text,
            level=block.level,
            covers=covers,
            excerpted=excerpted,
            kept=kept,
            trust=trust,
        )

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
    a later erasure or quarantine outdates the view. Tool results from the message ``whole`` on
    stand whole, older ones as excerpts.
    """

    boundary: Natural
    pieces: tuple[Piece, ...]
    serial: Natural = 0
    gone: Runs = ()
    whole: Natural = 0

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
        known = all(piece.kind in _STORED_KINDS for piece in view.pieces)
        return view if known else None


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
