"""Decides when a thread's open window is sealed: five rules as a fold, one message at a time.

An open window is three segments: the part before its last *safe* point, the part between that point
and its last *whole* point, and the rest, which is an open exchange group. Sizes only add up, so the
last safe point holds the most of all safe points, and the last whole point the most of all whole
points; no rule can ask for an earlier one. Hence a window's state has constant size however many
messages it holds, and adding a message costs the same at any length.

Every close goes through ``_close``, which moves the bounds forward and never back.

Where the specification leaves a choice:

- Sizes on a threshold count as the comparison sign says. Thresholds are rounded to a millionth, so
  that a tolerance of 0.1 is exactly that.
- An open window that shares a message or an exchange group with the one before is ``linked``.
- A system message after an assistant's answer makes the end unsafe (the assistant did not speak
  last).

This module does not know about threads, nodes or levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from hiermem.config import HierarchyConfig
from hiermem.core.tree.turns import Arrival, Boundary, Flag, Turns
from hiermem.types import Position, SizeUnit

#: Characters per token where a size in characters was never measured.
CHARS_A_TOKEN = 4

#: Why a window was closed. Rule 1: its age, a silence. Rule 2: an oversize message. Rule 3: the
#: room that a message needs. Rule 4: its size, its messages, being due, being overgrown. Rule 5:
#: the limit of messages. From outside: idleness, a flush, the close of the session.
Reason = Literal[
    "age", "silence", "oversize", "room", "size", "messages", "due", "overgrown", "limit",
    "idle", "flush", "close",
]  # fmt: skip

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return ``at`` as whole microseconds since 1970 UTC, exactly."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment(at: int) -> datetime:
    """Return the time, in UTC, of ``at`` microseconds since 1970: the inverse of ``micros``."""
    return _EPOCH + timedelta(microseconds=at)


def converted(size: int, tokens: int, unit: SizeUnit, to: SizeUnit) -> int:
    """Return a size that was measured in ``unit``, and as ``tokens``, converted to the unit ``to``.

    >>> converted(900, 210, "chars", "tokens"), converted(210, 210, "tokens", "chars")
    (210, 840)
    """
    if unit == to:
        return size
    return tokens if to == "tokens" else CHARS_A_TOKEN * tokens


class Limits(NamedTuple):
    """The computed thresholds of a configuration. Times are in microseconds."""

    target: int
    early: float
    overgrown: float
    hard: int
    full_messages: int | None
    most_messages: int | None
    max_age: int | None
    flush_after: int | None
    min_flush: int
    boundary: Boundary
    by_time: bool
    by_size: bool
    idle: int

    @classmethod
    def of(cls, config: HierarchyConfig) -> Limits:
        """Compute the thresholds of ``config``."""
        policy, count = config.seal_policy, config.max_messages
        return cls(
            target=config.target,
            early=round(config.target * (1 - config.tolerance), 6),
            overgrown=round(config.target * (1 + config.tolerance), 6),
            hard=config.hard_limit,
            full_messages=count if policy != "time" else None,
            most_messages=(3 * count + 1) // 2 if count is not None else None,
            max_age=config.max_age // _MICRO if config.max_age is not None else None,
            flush_after=config.flush_after // _MICRO if config.flush_after is not None else None,
            min_flush=config.min_flush,
            boundary=config.boundary,
            by_time=policy != "size",
            by_size=policy != "time",
            idle=10 * count if count is not None else 100,
        )


class Segment(NamedTuple):
    """A stretch of one thread's messages, as sums. Times are in microseconds."""

    messages: int = 0
    size: int = 0
    tokens: int = 0
    begin: int = 0
    last: int = 0
    first_at: int = 0
    min_at: int = 0
    max_at: int = 0

    def then(self, after: Segment) -> Segment:
        """Return this stretch joined with the stretch that follows it."""
        if not after.messages:
            return self
        if not self.messages:
            return after
        return Segment(
            self.messages + after.messages,
            self.size + after.size,
            self.tokens + after.tokens,
            self.begin,
            after.last,
            self.first_at,
            min(self.min_at, after.min_at),
            max(self.max_at, after.max_at),
        )


_NONE = Segment()


class Seal(NamedTuple):
    """A stretch that was closed: the content of one sealed window."""

    content: Segment
    begin: Position
    end: Position
    linked: bool
    reason: Reason


class Window(NamedTuple):
    """An open window; a window with 0 messages is empty.

    ``char`` is the offset in the first message at which the window begins. ``safe``, ``whole`` and
    ``rest`` are its segments in order. ``last_at`` is the time of its last message. The end of a
    window that is not empty is safe exactly where all of it is ``safe``.
    """

    safe: Segment = _NONE
    whole: Segment = _NONE
    rest: Segment = _NONE
    last_at: int = 0
    char: int = 0
    due: bool = False
    linked: bool = False

    @property
    def content(self) -> Segment:
        """Return the three segments as one."""
        return self.safe.then(self.whole).then(self.rest)

    @property
    def messages(self) -> int:
        """Return the number of messages; a slice counts as one."""
        return self.safe.messages + self.whole.messages + self.rest.messages

    @property
    def size(self) -> int:
        """Return the window's size in the session's unit."""
        return self.safe.size + self.whole.size + self.rest.size

    @property
    def end_safe(self) -> bool:
        """Return whether the window ends at a safe point."""
        return not self.whole.messages and not self.rest.messages and self.safe.messages > 0

    def settled(self, turns: Turns, boundary: Boundary) -> Window:
        """Return the window with its segments moved, where its end is now whole or safe."""
        safe, whole, rest = self.safe, self.whole, self.rest
        if turns.members or not rest.messages:
            return self
        whole = whole.then(rest)
        if turns.safe(boundary):
            safe, whole = safe.then(whole), _NONE
        return Window(safe, whole, _NONE, self.last_at, self.char, self.due, self.linked)

    def close_safe(self, reason: Reason, seals: list[Seal]) -> Window:
        """Close at the last safe point; nothing happens where there is none."""
        left = Window(_NONE, self.whole, self.rest, self.last_at)
        return self._close(self.safe, left, reason, seals)

    def close_whole(self, reason: Reason, seals: list[Seal]) -> Window:
        """Close at the last whole point; nothing happens where there is none."""
        left = Window(_NONE, _NONE, self.rest, self.last_at)
        return self._close(self.safe.then(self.whole), left, reason, seals)

    def close_all(self, reason: Reason, seals: list[Seal]) -> Window:
        """Close at the end, whole or not."""
        return self._close(self.content, Window(), reason, seals)

    def _close(self, content: Segment, left: Window, reason: Reason, seals: list[Seal]) -> Window:
        if not content.messages:
            return self
        begin, end = Position(content.begin, self.char), Position(content.last + 1)
        seals.append(Seal(content, begin, end, self.linked, reason))
        return left

    def timed(self, now: int, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rule 1 as if a message arrived ``now``."""
        if not limits.by_time or not self.messages:
            return self
        first_at = (self.safe if self.safe.messages else self.whole.then(self.rest)).first_at
        reason: Reason
        if limits.max_age is not None and now - first_at >= limits.max_age:
            reason = "age"
        elif (
            limits.flush_after is not None
            and now - self.last_at > limits.flush_after
            and self.size >= limits.min_flush
        ):
            reason = "silence"
        else:
            return self
        return self.close_safe(reason, seals) if self.end_safe else self._replace(due=True)

    def oversize(self, arrival: Arrival, *, grouped: bool, at: int, seals: list[Seal]) -> Window:
        """Apply rule 2: close, seal all slices but the last, begin a window with the last slice.

        The part before the message's exchange group is closed first, then the group's members so
        far.
        """
        self.close_whole("oversize", seals)
        if grouped:
            members = Window(rest=self.rest)
            if not (self.safe.messages or self.whole.messages):
                members = self
            members.close_all("oversize", seals)
        linked, index = grouped, arrival.index
        for piece, following in pairwise(arrival.slices):
            content = Segment(1, piece.size, piece.tokens, index, index, at, at, at)
            begin, end = Position(index, piece.begin_char), Position(index, following.begin_char)
            seals.append(Seal(content, begin, end, linked, "oversize"))
            linked = True
        last = arrival.slices[-1]
        content = Segment(1, last.size, last.tokens, index, index, at, at, at)
        return Window(rest=content, last_at=at, char=last.begin_char, linked=linked)

    def room(self, size: int, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rule 3 for a message of ``size``."""
        window = self
        while window.size + size > limits.hard:
            if 2 * window.safe.size >= limits.target:
                window = window.close_safe("room", seals)
            elif window.safe.messages or window.whole.messages:
                window = window.close_whole("room", seals)
            else:
                break
        return window

    def joined(self, arrival: Arrival, at: int) -> Window:
        """Return the window with ``arrival`` as its last message, its end not yet judged."""
        index = arrival.index
        more = Segment(1, arrival.size, arrival.tokens, index, index, at, at, at)
        rest = self.rest.then(more)
        return Window(self.safe, self.whole, rest, at, self.char, self.due, self.linked)

    def filled(self, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rules 4 and 5 to a window whose last message has just joined.

        After its second close rule 4 is checked once more, and finds no safe point left.
        """
        window, full = self, self._full(limits)
        if full and window.end_safe:
            return window.close_safe(full, seals)
        if (
            limits.by_size
            and window.size > limits.overgrown
            and window.safe.messages
            and window.safe.size >= limits.early
        ):
            window = window.close_safe("overgrown", seals)
        if limits.most_messages is not None and window.messages >= limits.most_messages:
            window = window.close_whole("limit", seals)
        return window

    def _full(self, limits: Limits) -> Reason | None:
        """Return why the window is full, None where it is not."""
        if limits.by_size and self.size >= limits.target:
            return "size"
        if limits.full_messages is not None and self.messages >= limits.full_messages:
            return "messages"
        return "due" if self.due else None

    def resized(self, index: int, *, size: int, tokens: int) -> Window:
        """Return the window with the sizes of message ``index`` changed by these amounts."""

        def grown(segment: Segment) -> Segment:
            if not segment.messages or not segment.begin <= index <= segment.last:
                return segment
            return segment._replace(
                size=max(0, segment.size + size), tokens=max(0, segment.tokens + tokens)
            )

        return self._replace(safe=grown(self.safe), whole=grown(self.whole), rest=grown(self.rest))

    def in_unit(self, before: SizeUnit, after: SizeUnit) -> Window:
        """Return the window with its sizes converted from the unit ``before`` to ``after``."""

        def measured(segment: Segment) -> Segment:
            return segment._replace(size=converted(segment.size, segment.tokens, before, after))

        return self._replace(
            safe=measured(self.safe), whole=measured(self.whole), rest=measured(self.rest)
        )

    def pack(self) -> tuple[Any, ...]:
        """Return the row that ``unpack`` reads, for JSON; empty segments take no room."""
        safe, whole, rest, *others = self
        return (
            safe if safe.messages else (),
            whole if whole.messages else (),
            rest if rest.messages else (),
            *others,
        )

    @classmethod
    def unpack(cls, row: Sequence[Any]) -> Window:
        """Read the JSON row that ``pack`` wrote."""
        safe, whole, rest, *others = row
        return cls(
            Segment(*safe) if safe else _NONE,
            Segment(*whole) if whole else _NONE,
            Segment(*rest) if rest else _NONE,
            *others,
        )


def follow(
    turns: Turns, window: Window, arrival: Arrival, limits: Limits, flags: list[Flag]
) -> tuple[Turns, Window]:
    """Add ``arrival`` to its thread and close nothing, for a session that seals nothing."""
    before = turns.before(arrival, flags)
    window = window.settled(before, limits.boundary).joined(arrival, micros(arrival.at))
    turns = before.after(arrival, flags)
    return turns, window.settled(turns, limits.boundary)


def receive(
    turns: Turns, window: Window, arrival: Arrival, limits: Limits
) -> tuple[Turns, Window, list[Seal], list[Flag]]:
    """Add ``arrival`` to its thread: rules 1 to 5, in order.

    Where the message ends an exchange group, the group ends before the rules are applied: rules 1
    to 3 see its end as a whole point.
    """
    seals: list[Seal] = []
    flags: list[Flag] = []
    if turns.members:
        turns = turns.before(arrival, flags)
        window = window.settled(turns, limits.boundary)
    at = micros(arrival.at)
    window = window.timed(at, limits, seals)
    if arrival.slices:
        window = window.oversize(arrival, grouped=turns.members > 0, at=at, seals=seals)
    else:
        window = window.room(arrival.size, limits, seals).joined(arrival, at)
    turns = turns.after(arrival, flags)
    window = window.settled(turns, limits.boundary).filled(limits, seals)
    return turns, window, seals, flags
