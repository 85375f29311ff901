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
from typing import Any, Literal, TypeAlias, get_args

from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block
from hiermem.types import Span, Trust

#: What the name of a stored view ends with where it holds a ``Seen``.
SEEN = "/seen"

_FORMAT = 2

#: Increasing numbers as half-open ranges that do not touch.
Runs: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One fenced record of the summary zone and the stretch of windows that it stands for.

    ``kind`` is "summary" for one whole node, "view" for a trimmed one and "quote" for a window word
    for word, which no stored view has; ``text`` is "" where the windows hold nothing to say. Beside
    its windows, of which there may be none, it stands for the messages in ``runs``, which are in
    windows after all of the zone or in open ones. ``span`` is the hull of what it says something
    of that no piece before it stands for; ``shown`` are the messages of which a line stands in it,
    and ``kept`` is where its lines came from (``lines.unpack``).
    """

    kind: str
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
        """Return about how many messages it stands for; slices of one are counted each."""
        beside = sum(end - begin for begin, end in self.runs)
        return sum(item.messages for item in self.covers) + beside

    def block(self) -> Block:
        """Give the block that renders it."""
        return Block(
            kind=block_kind(self.kind),
            name=self.name,
            span=self.span,
            tokens=self.tokens,
            text=self.text,
            level=self.level,
        )


def block_kind(kind: str) -> Literal["summary", "view", "quote"]:
    """Give the kind of the block that renders a piece of this kind."""
    if kind == "quote":
        return "quote"
    return "summary" if kind == "summary" else "view"


@dataclass(frozen=True, slots=True)
class View:
    """The cut as it stands: windows before ``boundary`` are in ``pieces``, the rest is verbatim.

    Of the rest, what a piece holds in its ``runs`` stands there instead. ``gone`` are the messages
    that were erased or put in quarantine before the view was made; one that is later outdates it.
    """

    boundary: int
    pieces: tuple[Piece, ...]
    serial: int = 0
    gone: Runs = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of the summary zone."""
        return sum(piece.tokens for piece in self.pieces)

    def holds(self, index: int) -> bool:
        """Say whether the message at ``index`` is in a piece's runs."""
        return any(begin <= index < end for piece in self.pieces for begin, end in piece.runs)

    def shows(self, index: int, windows: Iterable[int] = ()) -> bool:
        """Say whether it may show something of a message, or of level-1 nodes by their ordinals.

        A piece is taken to show all that lies between its ends.
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
        """Read what ``to_json`` wrote; None where it is of another format or unreadable.

        That includes pieces that do not stand for all windows before the boundary: to believe them
        would lose messages.
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
            )
            _check_row([piece.windows for piece in pieces], 0, view.boundary)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return view


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last selection rendered, as far as the next one must know to compare.

    ``blocks`` are the (name, tokens) of its records before the verbatim zone; ``digest`` is a hash
    of its verbatim blocks, of which there were ``count`` with ``tokens`` together. ``selections``,
    ``rendered`` and ``shared`` add up, over the selections that differed from the one before, how
    many there were, what they held, and how much of that stood at the front of the one before.
    """

    blocks: tuple[tuple[str, int], ...]
    count: int
    tokens: int
    digest: str
    selections: int = field(default=0, compare=False)
    rendered: int = field(default=0, compare=False)
    shared: int = field(default=0, compare=False)

    def after(self, before: Seen | None, *, rendered: int, shared: int) -> Seen:
        """Count this selection on top of those that ``before`` has counted."""
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
        """Read what ``to_json`` wrote; None where it is unreadable."""
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
    """Write numbers, each of them once, as increasing half-open ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)


def outdated(stored: Mapping[str, str], index: int, windows: Sequence[int]) -> tuple[str, ...]:
    """Name the stored views, given by name with their states, that an edit of a message outdates.

    Those that show it or a window made from it go, with what was noted of them; so does a state
    that cannot be read. One that shows the message raw only, renders it afresh each time.
    """
    gone: list[str] = []
    for name, state in stored.items():
        if name.endswith(SEEN) and name.removesuffix(SEEN) in stored:
            continue
        view = View.from_json(state)
        if view is None or view.shows(index, windows):
            gone += [found for found in (name, name + SEEN) if found in stored]
    return tuple(gone)


# -- reading: a value of the wrong kind raises ValueError, as does one that is missing


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
    return Covered(
        id=_text(data["id"]),
        level=_number(data["level"]),
        windows=_range(data["windows"]),
        span=_span(data["span"]),
        messages=_number(data["messages"]),
        tokens=_number(data["tokens"]),
        days=_days(data["days"]),
    )


def _read_piece(value: Any) -> Piece:
    data = _object(value)
    level = data["level"]
    piece = Piece(
        kind=_text(data["kind"]),
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
        trust=_trust(data["trust"]),
    )
    if piece.kind not in ("summary", "view"):
        raise ValueError
    _check_row([item.windows for item in piece.covers], *piece.windows)
    return piece


def _days(value: Any) -> tuple[str, str]:
    first, last = map(_text, _list(value))
    return first, last


def _trust(value: Any) -> Trust:
    for known in get_args(Trust):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise ValueError


def _read_runs(value: Any) -> Runs:
    runs = tuple(map(_range, _list(value)))
    if any(before[1] >= after[0] for before, after in pairwise(runs)):
        raise ValueError
    return runs
