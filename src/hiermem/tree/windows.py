"""Decides when a thread's open window is sealed: five rules as a fold, one message at a time.

An open window is a row of at most four segments. They end at its last *safe* point, at its last
*whole* point, at the last point before a user's message, and at its end; a last segment that ends
at no point is an open exchange group. Sizes only add up, so the last point of a kind holds the most
of all points of that kind; no rule can ask for an earlier one. Hence a window's state has constant
size however many messages it holds, and adding a message costs the same at any length.

Every close goes through ``_close``, which moves the bounds forward and never back.

Where the specification leaves a choice:

- Sizes on a threshold count as the comparison sign says. Thresholds are rounded to a millionth, so
  that a tolerance of 0.1 is exactly that.
- An open window that shares a message or an exchange group with the one before is ``linked``.
- A system message after an assistant's answer makes the end unsafe (the assistant did not speak
  last).

- A message over the hard limit is cut into slices of at most the target. This holds even where the
  message cannot be cut: an indivisible message, such as an image, is one slice, and it still closes
  the window before it.

This module does not know about threads, nodes or levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from math import ceil
from typing import Any, Final, Literal, NamedTuple

from hiermem.config import HierarchyConfig
from hiermem.protocols import TokenCounter
from hiermem.text import measure
from hiermem.tree.turns import Arrival, Boundary, Flag, Slice, Turns, check_types
from hiermem.types import Message, Position, SizeUnit, StoredMessage

#: Characters per token where a size in characters was never measured.
CHARS_A_TOKEN = 4

#: Why a window was closed. Rule 1: its age, a silence. Rule 2: an oversize message. Rule 3: the
#: room that a message needs. Rule 4: its size, its messages, being due, being overgrown. Rule 5:
#: the limit of messages. From outside: idleness, a flush, the close of the session.
Reason = Literal[
    "age", "silence", "oversize", "room", "size", "messages", "due", "overgrown", "limit",
    "idle", "flush", "close",
]  # fmt: skip

#: What the end of a segment is, as bits: a whole point, a safe one, one before a user's message.
WHOLE: Final = 1
_SAFE: Final = 2
_TURN: Final = 4

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return ``at`` as whole microseconds since 1970 UTC, exactly."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment(at: int) -> datetime:
    """Return the time, in UTC, of ``at`` microseconds since 1970: the inverse of ``micros``."""
    return _EPOCH + timedelta(microseconds=at)


#: The first and the last microsecond of the calendar.
_FIRST: Final = micros(datetime.min.replace(tzinfo=UTC))
_LAST: Final = micros(datetime.max.replace(tzinfo=UTC))


def check_times(*times: int) -> None:
    """Raise OverflowError where one of the times is out of the calendar."""
    if not all(_FIRST <= at <= _LAST for at in times):
        raise OverflowError


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
    """A stretch of one thread's messages, as sums. Times are in microseconds.

    ``ends`` says what points its end is, as bits; 0 is none.
    """

    messages: int = 0
    size: int = 0
    tokens: int = 0
    begin: int = 0
    last: int = 0
    first_at: int = 0
    min_at: int = 0
    max_at: int = 0
    ends: int = 0

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
            after.ends,
        )


def _joined(segments: Sequence[Segment]) -> Segment:
    """Return segments as one."""
    content = Segment()
    for segment in segments:
        content = content.then(segment)
    return content


def _ended(segments: Sequence[Segment], ends: int) -> tuple[Segment, ...]:
    """Return segments, the last of which now ends at the points ``ends`` too.

    A point that is no more the last of any kind is dropped.
    """
    last = segments[-1]
    ends |= last.ends
    # Three times as fast as ``_replace``.
    last = Segment(*last[:-1], ends)
    remaining: tuple[Segment, ...] = ()
    for segment in reversed(segments[:-1]):
        still = segment.ends & ~ends
        if still:
            remaining = (last, *remaining)
            last = segment if still == segment.ends else Segment(*segment[:-1], still)
            ends |= still
        else:
            last = segment.then(last)
    return (last, *remaining)


class Seal(NamedTuple):
    """A stretch that was closed: the content of one sealed window."""

    content: Segment
    begin: Position
    end: Position
    linked: bool
    reason: Reason


class Window(NamedTuple):
    """An open window; a window without segments is empty.

    ``char`` is the offset in the first message at which the window begins. ``last_at`` is the time
    of its last message. Of the segments each ends at the last point of some kind.
    """

    segments: tuple[Segment, ...] = ()
    last_at: int = 0
    char: int = 0
    due: bool = False
    linked: bool = False

    @property
    def content(self) -> Segment:
        """Return the segments as one."""
        return _joined(self.segments)

    @property
    def safe(self) -> Segment:
        """Return the part before the last safe point."""
        return _joined(self.segments[: self._count(_SAFE)])

    @property
    def messages(self) -> int:
        """Return the number of messages; a slice counts as one."""
        messages = 0
        for segment in self.segments:
            messages += segment.messages
        return messages

    @property
    def size(self) -> int:
        """Return the window's size in the session's unit."""
        size = 0
        for segment in self.segments:
            size += segment.size
        return size

    @property
    def end_safe(self) -> bool:
        """Return whether the window ends at a safe point."""
        return bool(self.segments and self.segments[-1].ends & _SAFE)

    def settled(self, turns: Turns, boundary: Boundary) -> Window:
        """Return the window with its end marked as a point, where it now is whole or safe."""
        segments = self.segments
        if turns.members or not segments or segments[-1].ends:
            return self
        ends = WHOLE | _SAFE if turns.safe(boundary) else WHOLE
        return Window(_ended(segments, ends), self.last_at, self.char, self.due, self.linked)

    def close_at(self, point: int, reason: Reason, seals: list[Seal]) -> Window:
        """Close at the last point of a kind, such as WHOLE; nothing happens where there is none."""
        segments = self.segments
        count = self._count(point)
        return self._close(_joined(segments[:count]), segments[count:], reason, seals)

    def close_all(self, reason: Reason, seals: list[Seal]) -> Window:
        """Close at the end, whole or not."""
        return self._close(self.content, (), reason, seals)

    def _count(self, point: int) -> int:
        """Return the number of segments before the last point of a kind, 0 where there is none."""
        for count in range(len(self.segments), 0, -1):
            if self.segments[count - 1].ends & point:
                return count
        return 0

    def _close(
        self, content: Segment, left: tuple[Segment, ...], reason: Reason, seals: list[Seal]
    ) -> Window:
        if not content.messages:
            return self
        begin, end = Position(content.begin, self.char), Position(content.last + 1)
        seals.append(Seal(content._replace(ends=0), begin, end, self.linked, reason))
        return Window(left, self.last_at) if left else Window()

    def timed(self, now: int, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rule 1 as if a message arrived ``now``."""
        if not limits.by_time or not self.segments:
            return self
        first_at = self.segments[0].first_at
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
        return self.close_all(reason, seals) if self.end_safe else self._replace(due=True)

    def oversize(self, arrival: Arrival, *, grouped: bool, at: int, seals: list[Seal]) -> Window:
        """Apply rule 2: close, seal all slices but the last, begin a window with the last slice.

        The part before the message's exchange group is closed first, then the group's members so
        far.
        """
        window = self.close_at(WHOLE, "oversize", seals)
        window.close_all("oversize", seals)
        linked, index = grouped, arrival.index
        for piece, following in pairwise(arrival.slices):
            content = Segment(1, piece.size, piece.tokens, index, index, at, at, at)
            begin, end = Position(index, piece.begin_char), Position(index, following.begin_char)
            seals.append(Seal(content, begin, end, linked, "oversize"))
            linked = True
        last = arrival.slices[-1]
        content = Segment(1, last.size, last.tokens, index, index, at, at, at)
        return Window((content,), at, last.begin_char, linked=linked)

    def room(self, size: int, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rule 3 for a message of ``size``."""
        window = self
        while window.size + size > limits.hard:
            point = _SAFE if 2 * window.safe.size >= limits.target else WHOLE
            closed = window.close_at(point, "room", seals)
            if closed is window:
                break
            window = closed
        return window

    def joined(self, arrival: Arrival, at: int) -> Window:
        """Return the window with ``arrival`` as its last message, its end not yet judged."""
        index, segments = arrival.index, self.segments
        more = Segment(1, arrival.size, arrival.tokens, index, index, at, at, at)
        if segments and not segments[-1].ends:
            segments = (*segments[:-1], segments[-1].then(more))
        elif segments and arrival.role == "user":
            segments = (*_ended(segments, _TURN), more)
        else:
            segments = (*segments, more)
        return Window(segments, at, self.char, self.due, self.linked)

    def filled(self, limits: Limits, seals: list[Seal]) -> Window:
        """Apply rules 4 and 5 to a window whose last message has just joined.

        After its second close rule 4 is checked once more, and finds no safe point left.
        """
        window, size, messages = self, self.size, self.messages
        full = self._full(size, messages, limits)
        if full and window.end_safe:
            return window.close_all(full, seals)
        if (
            limits.by_size
            and size > limits.overgrown
            and (safe := window.safe).messages
            and safe.size >= limits.early
        ):
            window = window.close_at(_SAFE, "overgrown", seals)
            messages = window.messages
        if limits.most_messages is not None and messages >= limits.most_messages:
            for point in (_TURN, _SAFE, WHOLE):
                closed = window.close_at(point, "limit", seals)
                if closed is not window:
                    return closed
        return window

    def _full(self, size: int, messages: int, limits: Limits) -> Reason | None:
        """Return why a window of this size is full, None where it is not."""
        if limits.by_size and size >= limits.target:
            return "size"
        if limits.full_messages is not None and messages >= limits.full_messages:
            return "messages"
        return "due" if self.due else None

    def resized(self, index: int, *, size: int, tokens: int) -> Window:
        """Return the window with the sizes of message ``index`` changed by these amounts."""

        def grown(segment: Segment) -> Segment:
            if not segment.begin <= index <= segment.last:
                return segment
            return segment._replace(
                size=max(0, segment.size + size), tokens=max(0, segment.tokens + tokens)
            )

        return self._replace(segments=tuple(map(grown, self.segments)))

    @classmethod
    def unpack(cls, row: Sequence[Any]) -> Window:
        """Read the JSON row of a window; raises for a row that no window has."""
        segments, last_at, char, due, linked = row
        read = tuple([Segment(*segment) for segment in segments])
        check_types(last_at, char, *chain.from_iterable(read), kind=int)
        check_types(due, linked, kind=bool)
        for segment in read:
            check_times(segment.first_at, segment.min_at, segment.max_at)
        check_times(last_at)
        return cls(read, last_at, char, due, linked)


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


# -- the weight of a message, and oversize messages


class Weight(NamedTuple):
    """The weight of a message or slice as summariser input, in code points and in tokens."""

    chars: int
    tokens: int

    def size(self, unit: SizeUnit) -> int:
        """Return the weight in ``unit``."""
        return self.tokens if unit == "tokens" else self.chars


#: The weight of a message that was taken out of the tree.
NOTHING = Weight(0, 0)


class Weigher:
    """Weighs messages and caches the results.

    Weights are computed before a transaction; the decision inside it looks them up and counts
    nothing twice. The cache key includes the message's hash, never its index alone.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self._weights: dict[tuple[Any, ...], tuple[Weight, ...]] = {}
        self._points: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def weigh(
        self, stored: StoredMessage, config: HierarchyConfig, points: Sequence[int] = ()
    ) -> tuple[Weight, ...]:
        """Return the weight of each slice that ``points`` make, or of the whole message."""
        if stored.state != "live":
            return (NOTHING,) * (len(points) + 1)
        message, echoes = stored.message, stored.echoes
        if not points:
            return (weigh(message, stored.tokens, config, counter=self.counter, echoes=echoes),)
        cache_key = (stored.index, stored.hash, tuple(points))
        if cache_key not in self._weights:
            sizes = measure.slice_sizes(message, points, unit="chars", counter=self.counter)
            self._weights[cache_key] = tuple(Weight(chars, tokens) for chars, tokens in sizes)
        return self._weights[cache_key]

    def points(
        self, stored: StoredMessage, count: int, *, unit: SizeUnit, target: int
    ) -> tuple[int, ...]:
        """Return the offsets that cut a live message into exactly ``count`` slices.

        Slices are of at most ``target`` if that many slices can hold the text. A longer text is cut
        evenly, and the last slice takes the remainder; of a short text the last slices are empty.
        """
        if count == 1:
            return ()
        cache_key = (stored.index, stored.hash, count, unit, target)
        if cache_key not in self._points:
            message, counter = stored.message, self.counter
            whole = measure.message_size(message, unit=unit, counter=counter)
            most = max(target, ceil(whole / count))
            cuts = measure.slice_points(message, unit=unit, target=most, counter=counter)
            cuts = cuts[: count - 1]
            end = len(measure.body(message))
            self._points[cache_key] = (*cuts, *(end for _ in range(count - 1 - len(cuts))))
        return self._points[cache_key]


def _at_most(weight: Weight, role: str, config: HierarchyConfig) -> Weight:
    """Return a weight; a tool's result has that of an excerpt at most, all that a summary takes."""
    most = config.tool_result_tokens
    if role != "tool" or most is None or weight.tokens <= most:
        return weight
    return Weight(min(weight.chars, CHARS_A_TOKEN * most), most)


def weigh(
    message: Message,
    tokens: int,
    config: HierarchyConfig,
    *,
    counter: TokenCounter,
    echoes: Sequence[tuple[int, int]] = (),
) -> Weight:
    """Return what a message of ``tokens`` weighs in sealing.

    Text that hiermem rendered (``echoes``) weighs nothing, because it is never summarised.
    """
    chars = measure.message_size(message, unit="chars", counter=counter, echoes=echoes)
    if echoes:
        tokens = measure.message_size(message, unit="tokens", counter=counter, echoes=echoes)
    return _at_most(Weight(chars, tokens), message.role, config)


def cut(
    message: Message,
    size: int,
    config: HierarchyConfig,
    *,
    counter: TokenCounter,
) -> tuple[tuple[int, ...], tuple[Slice, ...]]:
    """Return the inner offsets at which a message is cut, and its slices; both () if not cut.

    A tool's result is not cut if a summary takes an excerpt of it. In the slices of a message, text
    that hiermem rendered weighs as any other.
    """
    whole = message.role == "tool" and config.tool_result_tokens is not None
    if whole or not config.enabled or size <= config.hard_limit:
        return (), ()
    unit = config.unit
    points = measure.slice_points(message, unit=unit, target=config.target, counter=counter)
    sizes = measure.slice_sizes(message, points, unit=unit, counter=counter)
    begins = zip((0, *points), sizes, strict=True)
    return points, tuple(Slice(begin, size, tokens) for begin, (size, tokens) in begins)
