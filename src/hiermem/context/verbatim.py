"""The verbatim zone: which messages are raw, and which messages may not be separated.

The windows of a thread are contiguous in it, so the raw part of a thread is everything from one
position on. Windows that share a message or an exchange group are either all raw or all
summarised. The part that is still open is the exception, because the newest messages must be raw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from hiermem import needs
from hiermem.context.render import Shown
from hiermem.needs import Reading
from hiermem.protocols import TokenCounter
from hiermem.text.excerpt import excerpt
from hiermem.text.measure import body, message_tokens
from hiermem.tree.state import OpenWindow, SessionState
from hiermem.tree.turns import Arrival, Flag, Turns
from hiermem.types import Node, Position, StoredMessage, TextPart
from hiermem.types.transaction import NeedMessages

T = TypeVar("T")


def with_excerpts(reading: Reading[T], shown: Excerpts) -> Reading[T]:
    """Run a decision that reads messages, with long tool results as excerpts.

    They count and render as what is shown of them.
    """
    reply: Any = None
    while True:
        try:
            need = reading.send(reply)
        except StopIteration as done:
            return cast("T", done.value)
        reply = yield need
        if isinstance(need, NeedMessages):
            reply = list(map(shown.of, reply))
        elif isinstance(need, tuple) and reply is not None:
            reply = [
                list(map(shown.of, answer)) if isinstance(one, NeedMessages) else answer
                for one, answer in zip(need, reply, strict=True)
            ]


@dataclass(slots=True)
class Excerpts:
    """What contexts show of tool results: at most ``most`` tokens, of message ``newest`` more.

    With ``most`` None all of them is shown. So is a result that has other parts than text, or that
    was cut under another configuration. ``shortened`` holds the messages of which an excerpt is
    shown, whole, by index.
    """

    counter: TokenCounter
    most: int | None
    newest: int
    newest_most: int
    shortened: dict[int, StoredMessage] = field(default_factory=dict[int, StoredMessage])

    def of(self, stored: StoredMessage) -> StoredMessage:
        """Return a message as it is shown."""
        most = self.most
        if most is None or stored.role != "tool" or stored.tokens <= most:
            return stored
        if stored.index == self.newest:
            most = max(most, self.newest_most)
        content = stored.content
        plain = isinstance(content, str) or all(isinstance(part, TextPart) for part in content)
        if stored.slices or stored.echoes or not plain:
            return stored
        short = excerpt(body(stored.message), most, self.counter.count)
        self.shortened[stored.index] = stored
        message = replace(stored.message, content=short)
        return replace(stored, message=message, tokens=message_tokens(message, self.counter))

    def lengthened(self, stored: StoredMessage, first: int) -> StoredMessage:
        """Return a shown message whole if it is from ``first`` on, unless it is too long for that.

        None is longer than the newest message may be.
        """
        whole = self.shortened.get(stored.index)
        if whole is None or stored.index < first or whole.tokens > self.newest_most:
            return stored
        return whole


def starts(windows: Iterable[Node], opened: Iterable[OpenWindow]) -> dict[str, Position]:
    """Return for each thread the position from which on the thread is raw."""
    found: dict[str, Position] = {}
    begins = [(w.thread, w.span.begin) for w in windows if w.thread is not None]
    begins += [(w.thread, w.begin) for w in opened]
    for thread, begin in begins:
        if thread not in found or begin < found[thread]:
            found[thread] = begin
    return found


def read(state: SessionState, windows: Iterable[Node]) -> Reading[list[Shown]]:
    """Read the messages of these windows and of all open windows."""
    begins = starts(windows, state.open_windows())
    if not begins:
        return []
    first = min(begin.index for begin in begins.values())
    return shown_from(begins, (yield from needs.messages(first, state.next_index)))


def shown_from(begins: dict[str, Position], messages: Iterable[StoredMessage]) -> list[Shown]:
    """Return the raw part of ``messages``; a thread's first message may begin at a slice."""
    found: list[Shown] = []
    for stored in messages:
        begin = begins.get(stored.thread)
        if begin is None or stored.index < begin.index:
            continue
        found.append(Shown(stored, begin.char if stored.index == begin.index else 0))
    return found


def in_window(window: Node, messages: Iterable[StoredMessage]) -> list[Shown]:
    """Return the part of ``messages`` that a level-1 node covers, slices at its ends included."""
    span = window.span
    found: list[Shown] = []
    for stored in messages:
        if stored.thread != window.thread or not span.start <= stored.index < span.stop:
            continue
        begin = span.start_char if stored.index == span.start else 0
        end = span.stop_char if stored.index == span.stop - 1 else None
        found.append(Shown(stored, begin, end))
    return found


def allowed_boundaries(
    windows: Sequence[Node], opened: Iterable[OpenWindow], total: int
) -> set[int]:
    """Return the ordinals at which the zones may meet without separating linked windows.

    ``windows`` are consecutive level-1 nodes up to ``total``, the number of sealed windows. The
    boundary ``total`` is always allowed: an open part can be raw without its sealed part.
    """
    if not windows:
        return {total}
    first = windows[0].ordinal
    parted: set[int] = set()
    last_of: dict[str | None, int] = {}
    for window in windows:
        if window.linked:
            parted.update(range(last_of.get(window.thread, first - 1) + 1, window.ordinal + 1))
        last_of[window.thread] = window.ordinal
    for still_open in opened:
        if still_open.linked and still_open.thread in last_of:
            parted.update(range(last_of[still_open.thread] + 1, total))
    return {at for at in range(first, total + 1) if at not in parted} | {total}


def window_of_each(windows: Sequence[Node], shown: Sequence[Shown]) -> list[int | None]:
    """Return for each raw message the ordinal of the window in which it ends; None if open."""
    by_thread: dict[str | None, list[Node]] = {}
    for window in windows:
        by_thread.setdefault(window.thread, []).append(window)
    places: dict[str, int] = {}
    found: list[int | None] = []
    for item in shown:
        thread, index = item.message.thread, item.message.index
        own = by_thread.get(thread, [])
        place = places.get(thread, 0)
        while place < len(own) and own[place].span.end <= Position(index, 1):
            place += 1
        # A message that continues in later slices ends where its last slice ends.
        while place < len(own) and own[place].span.stop_char and own[place].span.stop - 1 == index:
            place += 1
        places[thread] = place
        found.append(own[place].ordinal if place < len(own) else None)
    return found


def pieces_of(shown: Sequence[Shown]) -> list[list[Shown]]:
    """Divide raw messages into inseparable pieces: exchange groups and single messages.

    The pieces are ordered by their last messages, so that the last piece is the newest exchange
    group. Groups begin and end by the same rules as for sealing.
    """
    pieces: list[list[Shown]] = []
    ends: dict[str, Turns] = {}
    groups: dict[str, list[Shown]] = {}
    noted: list[Flag] = []
    for item in shown:
        thread, arrival = item.message.thread, Arrival.of(item.message)
        turns = ends.get(thread, Turns()).before(arrival, noted)
        if not turns.members:
            groups[thread] = []
            pieces.append(groups[thread])
        groups[thread].append(item)
        ends[thread] = turns.after(arrival, noted)
    return sorted(pieces, key=lambda members: members[-1].message.index)


def newest(pieces: Sequence[Sequence[Shown]], turns: int) -> int:
    """Return how many of the last ``pieces`` make up the newest ``turns`` turns, at least one.

    A turn begins with a user message and lasts until the user speaks again. If only users speak,
    two messages are a turn.
    """
    spoken = [piece for piece in pieces if not all(item.empty for item in piece)]
    if not any(item.message.role != "user" for piece in spoken for item in piece):
        first = spoken[-2 * turns :][:1]
        return len(pieces) - pieces.index(first[0]) if first else 1
    found, asked = 0, False
    for number, piece in enumerate(reversed(pieces)):
        role = piece[0].message.role
        if asked and role != "user":
            found += 1
            asked = False
        if found == turns:
            return max(1, number)
        asked = asked or role == "user"
    return max(1, len(pieces))
