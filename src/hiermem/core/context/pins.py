"""The pinned messages of a session, and the record that keeps them in sight of a context.

A message is pinned by an application, or because its user said a standing wish in it
(``core.text.wishes``). A record shows what no raw message beside it says: of a wish its sentences,
of another message an excerpt. The newer come first as far as the room allows; the lines stand in
the order in which they were said. ``cut`` decides where a record stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hiermem.core.context.render import Frame, Shown, Writer
from hiermem.core.context.view import Piece, runs_of
from hiermem.core.text.excerpt import excerpt
from hiermem.core.text.measure import body, day, speaker
from hiermem.core.text.wishes import PIN, WISH, wishes_in
from hiermem.types import Span, StoredMessage
from hiermem.types.brief import Brief

#: The newest pinned messages that are read; older ones are not known any more.
MOST: Final = 64
#: The number of the newest messages by which talk among people is known.
NEAR: Final = 16
#: The most tokens that a pinned message's excerpt takes.
_EXCERPT: Final = 100
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


def indices_of(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """Return the messages that records of pins show, in their order."""
    return tuple(int(index) for piece in pieces for index in piece.kept.split())


def records(
    writer: Writer, pins: Sequence[Pin], room: int, *, name: Callable[[], str], at: int
) -> tuple[Piece, ...]:
    """Return records of as many pins as fit ``room`` tokens: of the wishes, and of the others.

    ``name`` gives the name of each record.
    """
    made: list[Piece] = []
    for reason in ("wish", "pinned"):
        of_reason = [pin for pin in pins if pin.reason == reason]
        piece = _record(writer, of_reason, room, name=name(), at=at) if of_reason else None
        if piece is not None:
            made.append(piece)
            room -= piece.tokens
    return tuple(made)


def _record(writer: Writer, pins: Sequence[Pin], room: int, *, name: str, at: int) -> Piece | None:
    """Return a record of as many pins as fit, newest first; None if none does."""
    chosen: list[Pin] = []
    made: Piece | None = None
    spent = 0
    for pin in pins if room > 0 else ():
        cost = writer.count(_line(pin))
        if spent + cost > room:
            continue
        longer = _piece(writer, [*chosen, pin], name=name, at=at)
        if longer.tokens <= room:
            chosen.append(pin)
            made, spent = longer, spent + cost
    return made


def _line(pin: Pin) -> str:
    return f"{pin.speaker}: {pin.text}"


def _piece(writer: Writer, chosen: Sequence[Pin], *, name: str, at: int) -> Piece:
    said = sorted(chosen, key=lambda pin: pin.index)
    span, standing = Span(said[0].index, said[-1].index + 1), chosen[0].reason == "wish"
    # When a wish was said says nothing about whether it holds; the order of the lines does.
    dates = None if standing else (min(pin.day for pin in said), max(pin.day for pin in said))
    frame = Frame(name, span, dates, standing=standing)
    return Piece.of(
        writer.record("pins", frame, "\n".join(map(_line, said))),
        (at, at),
        excerpted=runs_of(pin.index for pin in said),
        kept=" ".join(str(pin.index) for pin in said),
    )
