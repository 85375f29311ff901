"""The sticky state of a selection: what it showed, so that the next one keeps it as a prefix.

Providers bill a cached prefix at a fraction, so a cut stays as it was until it must move. The one
rule: the state pins the rendered bytes of the summary zone; losing it costs a cache miss, never a
message. It is data with a codec; ``cut`` decides when it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from hiermem.core.context.cover import Covered
from hiermem.core.context.render import Block
from hiermem.types import Span

#: What the name of a stored view ends with where it holds a ``Seen``.
SEEN = "/seen"

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Piece:
    """One fenced record of the summary zone and the stretch of windows that it stands for.

    ``kind`` is "summary" for one whole node, "view" for a trimmed one and "quote" for a window word
    for word, which no stored view has; ``text`` is "" where the windows hold nothing to say.
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
class OpenView:
    """A trimmed record of the older messages of open windows: ``runs`` are index ranges."""

    name: str
    runs: tuple[tuple[int, int], ...]
    span: Span
    tokens: int
    text: str

    def block(self) -> Block:
        """Give the block that renders it."""
        return Block("view", self.name, self.span, self.tokens, self.text)

    def holds(self, index: int) -> bool:
        """Say whether the message at ``index`` is represented here."""
        return any(begin <= index < end for begin, end in self.runs)


@dataclass(frozen=True, slots=True)
class View:
    """The cut as it stands: windows before ``boundary`` are in ``pieces``, the rest is verbatim."""

    boundary: int
    pieces: tuple[Piece, ...]
    opened: OpenView | None = None
    serial: int = 0

    def shows(self, index: int, windows: Iterable[int] = ()) -> bool:
        """Say whether it may show something of a message, or of level-1 nodes by their ordinals.

        A piece is taken to show all that lies between its ends.
        """
        if self.opened is not None and self.opened.holds(index):
            return True
        ordinals = tuple(windows)
        return any(
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
            opened = None if data["opened"] is None else _read_opened(data["opened"])
            view = cls(_number(data["boundary"]), pieces, opened, _number(data["serial"]))
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


def _range(value: Any) -> tuple[int, int]:
    begin, end = map(_number, _list(value))
    if begin >= end:
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
    )


def _read_piece(value: Any) -> Piece:
    data = _object(value)
    level = data["level"]
    piece = Piece(
        kind=_text(data["kind"]),
        name=_text(data["name"]),
        windows=_range(data["windows"]),
        span=_span(data["span"]),
        tokens=_number(data["tokens"]),
        text=_text(data["text"]),
        level=None if level is None else _number(level),
        covers=tuple(map(_read_covered, _list(data["covers"]))),
        trimmed=tuple(map(_text, _list(data["trimmed"]))),
    )
    if piece.kind not in ("summary", "view"):
        raise ValueError
    _check_row([item.windows for item in piece.covers], *piece.windows)
    return piece


def _read_opened(value: Any) -> OpenView:
    data = _object(value)
    return OpenView(
        name=_text(data["name"]),
        runs=tuple(map(_range, _list(data["runs"]))),
        span=_span(data["span"]),
        tokens=_number(data["tokens"]),
        text=_text(data["text"]),
    )
