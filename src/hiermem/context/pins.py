"""The pinned messages of a session, and the lines that keep them in sight of a context.

A message is pinned by an application, or because its user said a standing wish in it
(``text.wishes``). The lines show what no raw message beside them says: of a wish its
sentences, of another message an excerpt. The newer come first as far as the room allows; the lines
stand in the order in which they were said. ``cut`` decides which record begins with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hiermem.context.render import Block, Frame, Shown, Writer, requests_tokens
from hiermem.context.view import Piece
from hiermem.text.excerpt import excerpt
from hiermem.text.measure import body, day, speaker
from hiermem.text.wishes import PIN, WISH, wishes_in
from hiermem.types import Span, StoredMessage
from hiermem.types.brief import Brief

#: The newest pinned messages that are read; older ones are not known any more.
MOST: Final = 64
#: The number of the newest messages by which talk among people is known.
NEAR: Final = 16
#: The most tokens that a pinned message's excerpt takes.
_EXCERPT: Final = 100
#: The name of a record of pins alone.
NAME: Final = "pins"
#: The least tokens for pins, where their share of a small budget is less.
_LEAST: Final = 250


@dataclass(frozen=True, slots=True)
class Pin(Brief):
    """A message that contexts keep in sight.

    ``reason`` is "pinned" if an application pinned it, "wish" if its user said a standing wish in
    it. ``text`` is what contexts show of it while the message itself does not stand verbatim.
    """

    index: int
    reason: Literal["pinned", "wish"]
    text: str
    speaker: str
    day: str


def room_of(share: float, budget: int) -> int:
    """Return the most tokens for pins in a budget: a share of it, with a floor; 0 for none."""
    return max(_LEAST, int(share * budget)) if share else 0


def of_messages(
    messages: Iterable[StoredMessage],
    near: Sequence[StoredMessage],
    count: Callable[[str], int],
    *,
    also: Collection[int] = (),
) -> tuple[Pin, ...]:
    """Return the pins of messages, newest first; ``also`` are indices pinned besides.

    In talk among people, a sentence to another person is no wish to an assistant. That it is such
    talk is seen from the messages ``near`` the end of the session.
    """
    is_talk = among_people(near)
    found: dict[int, Pin] = {}
    for stored in sorted(messages, key=lambda stored: -stored.index):
        by_hand = stored.index in also or (PIN in stored.flags and WISH not in stored.flags)
        if stored.state != "live" or not (by_hand or PIN in stored.flags):
            continue
        if by_hand:
            text = " ".join(excerpt(body(stored.message), _EXCERPT, count).split())
        else:
            text = "" if is_talk else " ".join(wishes_in(body(stored.message)))
        if text:
            found[stored.index] = Pin(
                stored.index,
                "pinned" if by_hand else "wish",
                text,
                speaker(stored.message),
                day(stored.created_at),
            )
    return tuple(found.values())


def among_people(messages: Sequence[StoredMessage]) -> bool:
    """Return whether only users speak in messages, and several of them."""
    spoken = [stored for stored in messages if stored.state == "live"]
    only_users = all(stored.role == "user" for stored in spoken)
    return only_users and len({speaker(stored.message) for stored in spoken}) > 1


def hidden(pins: Sequence[Pin], shown: Sequence[Shown], named: Collection[int] = ()) -> list[Pin]:
    """Return the pins that neither stand raw and whole in ``shown`` nor are ``named``."""
    raw = {item.message.index for item in shown if not item.partial}
    return [pin for pin in pins if pin.index not in raw and pin.index not in named]


@dataclass(frozen=True, slots=True)
class Head:
    """The lines of pinned messages with which a record begins: the wishes, then the others by day.

    ``requests`` is the number of the wishes, each of which is one line; ``tokens`` is about what
    the lines add to the record.
    """

    pins: tuple[Pin, ...] = ()
    requests: int = 0
    text: str = ""
    tokens: int = 0

    @property
    def indices(self) -> tuple[int, ...]:
        """Return the pinned messages, in order."""
        return tuple(pin.index for pin in self.pins)


def head_of(pins: Iterable[Pin], room: int, count: Callable[[str], int]) -> Head:
    """Return the head with as many pins as fit ``room`` tokens; those that come first win."""
    head = Head()
    for pin in pins:
        if head.tokens + count(pin.text) > room:
            continue
        longer = _head([*head.pins, pin], count)
        head = longer if longer.tokens <= room else head
    return head


def _head(pins: Sequence[Pin], count: Callable[[str], int]) -> Head:
    """Return the head of pins, in the order in which they were said."""
    said = sorted(pins, key=lambda pin: pin.index)
    wishes = [pin for pin in said if pin.reason == "wish"]
    lines, today = [_line(pin) for pin in wishes], ""
    for pin in said:
        if pin.reason == "wish":
            continue
        # When a wish was said says nothing about whether it holds; of others it may matter.
        lines += [_line(pin)] if pin.day == today else [f"[{pin.day}]", _line(pin)]
        today = pin.day
    text, asked = "\n".join(lines), len(wishes)
    tokens = count(f"{text}\n") + requests_tokens(asked, count)
    return Head(tuple(said), asked, text, tokens)


def _line(pin: Pin) -> str:
    return " ".join(f"{pin.speaker}: {pin.text}".split())


def indices_of(pieces: Iterable[Piece]) -> tuple[int, ...]:
    """Return the pinned messages with lines in pieces, in their order."""
    return tuple(index for piece in pieces for index in piece.pins)


def record(writer: Writer, head: Head) -> Block | None:
    """Return a record of a head alone; None if that has no lines."""
    if not head.pins:
        return None
    span = Span(head.pins[0].index, head.pins[-1].index + 1)
    return writer.record("pins", Frame(NAME, span, requests=head.requests), head.text)
