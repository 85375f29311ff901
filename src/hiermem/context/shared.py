"""Decides what the context of a conversation shows of its space, in one record before its zone.

The record has the standing wishes of the space's person in other conversations, what the bank says,
and a dated line for each earlier conversation. The sticky state keeps where each line comes from,
never its text. So every context reads the lines anew: what was erased or has left the space is gone
at once, and the bytes stay the same while the sources do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hiermem.context.render import Block, Frame, Writer
from hiermem.text.measure import body, day
from hiermem.text.wishes import WISH, lasting_wishes, speaks_as, wishes_in
from hiermem.types import Span, StoredMessage

Place: TypeAlias = Literal["wish", "file", "conversation"]
#: The name of the record in its fence.
NAME: Final = "space"
#: The most tokens of the wishes, and of one line about a conversation.
_WISHES: Final = 300
_LINE: Final = 110
#: The least tokens of the record in budgets of ``_MIDDLE`` and more; below ``_SMALL`` it has none.
_LEAST: Final = 300
_MIDDLE: Final = 2_000
_SMALL: Final = 1_000
#: The most words besides its wishes of a message whose line says all of it.
_BESIDES: Final = 3
_WORD: Final = re.compile(r"\w+")
_KNOWN: Final = "What is known:"
_EARLIER: Final = "Earlier conversations, the newest first:"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a line comes from.

    A wish is in message ``index`` of session ``name``. A line of the bank is line ``index`` of file
    ``name``, of the synthesis if that is "", at ``revision``. The line of conversation ``name`` is
    its title; without one it is the first line of ``revision`` of ``node``, or that of message
    ``index`` if ``node`` is "". ``day`` is when it was said.
    """

    place: Place
    name: str
    index: int = 0
    node: str = ""
    revision: int = 0
    day: str = ""


@dataclass(frozen=True, slots=True)
class SharedState:
    """The lines that a view shows of its space: their origins, whose they are, and since when.

    ``identity`` tells the space from an erased one of its name.
    """

    space: str
    person: str
    as_of: str
    origins: tuple[Origin, ...] = ()
    identity: str = ""


@dataclass(frozen=True, slots=True)
class SharedLine:
    """A line of the record; ``is_whole`` if it says all that its message says."""

    origin: Origin
    text: str
    is_whole: bool = False

    @property
    def source(self) -> tuple[str, int]:
        """Return the session and the message that a wish or a conversation's line is from."""
        return (self.origin.name, self.origin.index)


#: A conversation that stands verbatim leaves the record this share of the budget, up to a page of
#: the bank with its wishes.
_ALONE: Final = 0.45
_PAGE: Final = 2_000


def room_of(share: float, budget: int) -> int:
    """Return the most tokens of the record in a budget.

    >>> room_of(0.15, 999), room_of(0.15, 1_000), room_of(0.15, 2_000), room_of(0.15, 8_000)
    (0, 150, 300, 1200)
    """
    if budget < _SMALL or not share:
        return 0
    return max(int(share * budget), _LEAST if budget >= _MIDDLE else 0)


def room_alone(room: int, budget: int) -> int:
    """Return the most tokens of the record while all of its conversation stands verbatim.

    >>> room_alone(600, 4_000), room_alone(2_400, 16_000), room_alone(0, 4_000)
    (1800, 2400, 0)
    """
    return room and max(room, min(int(_ALONE * budget), _PAGE))


def wish_lines(
    flagged: Iterable[tuple[str, StoredMessage]],
    withdrawn: Iterable[tuple[str, StoredMessage]],
    person: str,
    *,
    own: str = "",
) -> list[SharedLine]:
    """Return the lines of wishes that hold in other conversations, of equal ones the first.

    What was ``withdrawn`` in any conversation is left out, and what session ``own`` states itself.
    """
    stated = [
        (name, each)
        for name, each in flagged
        if speaks_as(each.message, person) and each.state == "live" and WISH in each.flags
    ]
    said = {
        _words(wish) for name, each in stated if name == own for wish in wishes_in(each.message)
    }
    left_out = {
        _words(wish)
        for _, each in withdrawn
        if speaks_as(each.message, person)
        for wish in wishes_in(each.message)
    }
    lines: list[SharedLine] = []
    for name, stored in stated:
        wishes = {_words(wish): wish for wish in lasting_wishes(stored.message)}
        new = wishes.keys() - left_out
        if name == own or new <= said:
            continue
        left_out |= new
        date = day(stored.created_at)
        text = " ".join(wish for words, wish in wishes.items() if words in new)
        besides = len(_words(body(stored.message))) - len(_words(text))
        lines.append(
            SharedLine(
                Origin("wish", name, stored.index, day=date),
                _one_line(f"{person or 'The user'} asked on {date}: {text}"),
                is_whole=besides <= _BESIDES,
            )
        )
    return lines


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


def file_lines(name: str, text: str, revision: int) -> list[SharedLine]:
    """Return the lines of a file of the bank, without its headings and empty lines."""
    return [
        SharedLine(Origin("file", name, number, revision=revision), line.strip(" \t-*"))
        for number, line in enumerate(text.splitlines())
        if line.strip(" \t-*") and not line.lstrip().startswith("#")
    ]


def conversation_line(origin: Origin, text: str) -> SharedLine | None:
    """Return the line about a conversation; None if nothing is left to say of it."""
    words = _one_line(text)
    if len(words) > _LINE:
        words = words[:_LINE].rsplit(" ", 1)[0] + " …"
    return SharedLine(origin, f"[{origin.day}] {words}") if words else None


def choose(
    wishes: Sequence[SharedLine],
    files: Sequence[SharedLine],
    synthesis: Sequence[SharedLine],
    conversations: Sequence[SharedLine],
    *,
    room: int,
    count: Callable[[str], int],
) -> list[SharedLine]:
    """Return the lines that fit ``room`` tokens: wishes, then the bank, then conversations.

    Each list begins with what matters most. The synthesis stands for the files if they do not fit.
    """
    chosen = _fitting(wishes, min(room, _WISHES), count)
    left = room - tokens_of(chosen, count)
    known = [*files] if tokens_of(files, count) + count(_KNOWN) <= left else [*(synthesis or files)]
    chosen += _fitting(known, left - count(_KNOWN), count)
    left = room - tokens_of(chosen, count) - count(_KNOWN) - count(_EARLIER)
    return [*chosen, *_fitting(conversations, left, count)]


def tokens_of(lines: Iterable[SharedLine], count: Callable[[str], int]) -> int:
    """Return the tokens of lines, their ends included."""
    return sum(count(f"{line.text}\n") for line in lines)


def _fitting(
    lines: Iterable[SharedLine], room: int, count: Callable[[str], int]
) -> list[SharedLine]:
    """Return the lines that fit ``room``, the first of the list before the later ones."""
    fitting: list[SharedLine] = []
    for line in lines:
        tokens = count(f"{line.text}\n")
        if tokens <= room:
            fitting.append(line)
            room -= tokens
    return fitting


def record(writer: Writer, state: SharedState, lines: Sequence[SharedLine]) -> Block | None:
    """Return the record of the lines; None without one.

    Wishes stand oldest first, as the later one holds.
    """
    if not lines:
        return None
    wishes = [line for line in lines if line.origin.place == "wish"]
    wishes.sort(key=lambda line: line.origin.day)
    parts = [line.text for line in wishes]
    for place, heading in (("file", _KNOWN), ("conversation", _EARLIER)):
        texts = [line.text for line in lines if line.origin.place == place]
        parts += [heading, *texts] if texts else []
    whose = f"{state.person or state.space}: other conversations, as of {state.as_of}"
    frame = Frame(NAME, Span(0, 0), requests=len(wishes), whose=_one_line(whose))
    return writer.record("space", frame, "\n".join(parts))


def _one_line(text: str) -> str:
    return " ".join(text.split())
