"""The sticky state of a selection: what it showed, so that the next one keeps it as a prefix.

Providers bill a cached prefix at a fraction of the price, so a cut stays unchanged until it must
move. The state stores the rendered bytes of the summary zone, so losing it costs a cache miss and
never a message. The state is data with a codec; ``cut`` decides when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block
from hiermem.types import Span, Trust

#: The suffix of the name of a stored view that holds a ``Seen``.
SEEN = "/seen"

_FORMAT = 3

T = TypeVar("T")
PieceKind: TypeAlias = Literal["summary", "view", "quote", "instructions"]
_STORED_KINDS: tuple[PieceKind, ...] = ("summary", "view", "instructions")
#: A set of numbers as increasing half-open ranges that do not touch.
Runs: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One fenced record of the summary zone and the stretch of windows that it represents.

    ``kind`` is "summary" for one whole node, "view" for a trimmed view, "instructions" for a record
    of standing instructions, which represents nothing, and "quote" for a window word for word,
    which no stored view contains. ``text`` is "" if the windows have no content. In addition to its
    windows, of which there may be none, the piece represents the messages in ``runs``; these are in
    windows after the zone or in open windows. ``span`` is the hull of the messages that the piece
    shows and that no earlier piece represents. ``shown`` are the messages of which the piece has a
    line. ``kept`` is the origin of its lines (``lines.unpack``), or the ids of instructions.
    """

    kind: PieceKind
    name: str
    windows: tuple[int, int]
    span: Span
    tokens: int
    text: str
    level: int | None
    covers: tuple[Covered, ...]
    trimmed: tuple[str, ...] = ()
    runs: Runs = ()
    shown: Runs = ()
    kept: str = ""
    trust: Trust = "conversation"

    @property
    def messages(self) -> int:
        """Return the approximate number of represented messages; each slice counts as one."""
        beside = sum(end - begin for begin, end in self.runs)
        return sum(item.messages for item in self.covers) + beside

    def block(self) -> Block:
        """Return the block that renders the piece."""
        return Block(
            kind=self.kind,
            name=self.name,
            span=self.span,
            tokens=self.tokens,
            text=self.text,
            level=self.level,
        )


@dataclass(frozen=True, slots=True)
class View:
    """The state of a cut: windows before ``boundary`` are in ``pieces``, the rest is verbatim.

    Messages of the rest that are in the ``runs`` of a piece are not verbatim; the piece represents
    them. ``gone`` are the messages that were erased or put in quarantine before the view was made;
    a later erasure or quarantine outdates the view. ``standing`` are the records of the standing
    instructions that the rest does not say, in order; ``windows`` of such a record is the number of
    pieces before it, twice.
    """

    boundary: int
    pieces: tuple[Piece, ...]
    serial: int = 0
    gone: Runs = ()
    standing: tuple[Piece, ...] = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of the summary zone."""
        return sum(piece.tokens for piece in (*self.standing, *self.pieces))

    def blocks(self) -> list[Block]:
        """Return the blocks of the summary zone, in order."""
        found = list(self.pieces)
        for record in reversed(self.standing):
            found.insert(record.windows[0], record)
        return [piece.block() for piece in found if piece.text]

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
            for piece in (*self.standing, *self.pieces)
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
            data = _object(json.loads(text))
            if data["format"] != _FORMAT:
                return None
            pieces = tuple(_read_piece(item) for item in _list(data["pieces"]))
            view = cls(
                _number(data["boundary"]),
                pieces,
                _number(data["serial"]),
                _read_runs(data["gone"]),
                tuple(_read_piece(item) for item in _list(data["standing"])),
            )
            _check_row([piece.windows for piece in pieces], 0, view.boundary)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return view


@dataclass(frozen=True, slots=True)
class Seen:
    """A description of the last rendered selection, for comparison with the next selection.

    ``blocks`` are the (name, tokens) of its records before the verbatim zone. ``digest`` is a hash
    of its verbatim blocks; ``count`` is their number and ``tokens`` their total size. The last
    three fields are sums over all selections that differed from their predecessor: ``selections``
    is their number, ``rendered`` their tokens, and ``shared`` the tokens that they have in common
    with the beginning of their predecessor.
    """

    blocks: tuple[tuple[str, int], ...]
    count: int
    tokens: int
    digest: str
    selections: int = field(default=0, compare=False)
    rendered: int = field(default=0, compare=False)
    shared: int = field(default=0, compare=False)

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
            data = _object(json.loads(text))
            blocks = tuple(
                (_text(name), _number(tokens)) for name, tokens in map(_list, _list(data["blocks"]))
            )
            count, tokens = _number(data["count"]), _number(data["tokens"])
            sums = (_number(data[name]) for name in ("selections", "rendered", "shared"))
            return cls(blocks, count, tokens, _text(data["digest"]), *sums)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None


def runs_of(numbers: Iterable[int]) -> Runs:
    """Return numbers as increasing half-open ranges, each number once."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)


def each_of(runs: Runs) -> Iterable[int]:
    """Return the numbers in half-open ranges, in order."""
    return (number for begin, end in runs for number in range(begin, end))


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


# -- reading: a value of the wrong type raises ValueError; a missing key raises KeyError


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _stretch(value: Any) -> tuple[int, int]:
    begin, end = map(_number, _list(value))
    if begin > end:
        raise ValueError
    return begin, end


def _range(value: Any) -> tuple[int, int]:
    begin, end = _stretch(value)
    if begin == end:
        raise ValueError
    return begin, end


def _span(value: Any) -> Span:
    data = _object(value)
    stop_char = data["stop_char"]
    return Span(
        _number(data["start"]),
        _number(data["stop"]),
        _number(data["start_char"]),
        None if stop_char is None else _number(stop_char),
    )


def _check_row(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> None:
    """Refuse ranges that do not follow one another from ``begin`` to ``end``."""
    for first, last in ranges:
        if first != begin:
            raise ValueError
        begin = last
    if begin != end:
        raise ValueError


def _read_covered(value: Any) -> Covered:
    data = _object(value)
    first, last = _list(data["days"])
    return Covered(
        id=_text(data["id"]),
        level=_number(data["level"]),
        windows=_range(data["windows"]),
        span=_span(data["span"]),
        messages=_number(data["messages"]),
        tokens=_number(data["tokens"]),
        days=(_text(first), _text(last)),
    )


def _read_piece(value: Any) -> Piece:
    data = _object(value)
    level = data["level"]
    piece = Piece(
        kind=_one_of(data["kind"], _STORED_KINDS),
        name=_text(data["name"]),
        windows=_stretch(data["windows"]),
        span=_span(data["span"]),
        tokens=_number(data["tokens"]),
        text=_text(data["text"]),
        level=None if level is None else _number(level),
        covers=tuple(map(_read_covered, _list(data["covers"]))),
        trimmed=tuple(map(_text, _list(data["trimmed"]))),
        runs=_read_runs(data["runs"]),
        shown=_read_runs(data["shown"]),
        kept=_text(data["kept"]),
        trust=_one_of(data["trust"], get_args(Trust)),
    )
    _check_row([item.windows for item in piece.covers], *piece.windows)
    return piece


def _one_of(value: Any, known: tuple[T, ...]) -> T:
    return known[known.index(value)]


def _read_runs(value: Any) -> Runs:
    runs = tuple(map(_range, _list(value)))
    if any(before[1] >= after[0] for before, after in pairwise(runs)):
        raise ValueError
    return runs
