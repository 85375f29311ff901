"""The record of the standing instructions in a context: which of them it names, in which bytes.

A record names what no raw message beside it says. What the user told the assistant to do comes
before what was said of the user, and the newer before the older, as far as the room allows. The
lines stand in the order in which they were said. ``cut`` decides where a record stands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hiermem.core.context.render import Frame, Shown, Writer
from hiermem.core.context.view import Piece, runs_of
from hiermem.core.text.instructions import Instruction
from hiermem.core.text.measure import day, speaker
from hiermem.types import Span


def hidden(
    instructions: Sequence[Instruction], shown: Sequence[Shown], named: Collection[str] = ()
) -> list[Instruction]:
    """Return the instructions that serve and that neither ``shown`` nor ``named`` holds.

    In talk among people, what they say of themselves tells no assistant how to answer. There only
    commands serve.
    """
    talk = _among_people(shown)
    raw: dict[int, list[Shown]] = {}
    for item in shown:
        raw.setdefault(item.message.index, []).append(item)
    return [
        one
        for one in instructions
        if one.superseded_by is None
        and one.id not in named
        and not (talk and one.kind == "preference")
        and not any(
            item.begin <= one.begin and (item.end is None or one.begin < item.end)
            for item in raw.get(one.index, ())
        )
    ]


def _among_people(shown: Sequence[Shown]) -> bool:
    """Return whether only users speak in messages, and several of them."""
    spoken = [item.message for item in shown if not item.empty]
    only_users = all(stored.role == "user" for stored in spoken)
    return only_users and len({speaker(stored.message) for stored in spoken}) > 1


def ids_of(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """Return the ids of the instructions that records of instructions name, in their order."""
    return tuple(one for piece in pieces for one in piece.kept.split())


def record(
    writer: Writer, instructions: Sequence[Instruction], room: int, *, name: str, at: int
) -> Piece | None:
    """Return a record of as many instructions as fit ``room`` tokens; None if none does."""
    chosen: list[Instruction] = []
    made: Piece | None = None
    spent = 0
    for one in sorted(instructions, key=lambda one: one.kind != "instruction"):
        cost = writer.count(_line(one))
        if spent + cost > room:
            continue
        longer = _piece(writer, [*chosen, one], name=name, at=at)
        if longer.tokens <= room:
            chosen.append(one)
            made, spent = longer, spent + cost
    return made


def _line(one: Instruction) -> str:
    return f"{one.speaker}: {one.text}"


def _piece(writer: Writer, chosen: Sequence[Instruction], *, name: str, at: int) -> Piece:
    said = sorted(chosen, key=lambda one: (one.index, one.begin))
    days = [day(one.since) for one in said]
    frame = Frame(
        name=name,
        span=Span(said[0].index, said[-1].index + 1),
        dates=(min(days), max(days)),
        standing=True,
    )
    text = "\n".join(map(_line, said))
    return Piece.of(
        writer.record("instructions", frame, text),
        (at, at),
        shown=runs_of(one.index for one in said),
        kept=" ".join(one.id for one in said),
    )
