"""Decides the pieces of the summary zone: whole summaries and trimmed views, fenced and counted.

A view never takes more tokens than its share, frame included.

The pinned messages of a session, and the lines that keep them in sight of a context.

A message is pinned by an application, or because its user said a standing wish in it
(``text.wishes``). The lines show what no raw message beside them says: of a wish its
sentences, of another message an excerpt. The newer come first as far as the room allows; the lines
stand in the order in which they were said. ``cut`` decides which record begins with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from hiermem.context import lines, render
from hiermem.context import view as cover
from hiermem.context.render import Block, Frame, Kind, Shown, Writer, head_attributes
from hiermem.context.view import Covered, Piece
from hiermem.needs import Reading
from hiermem.summaries import salience
from hiermem.text import units
from hiermem.text.measure import body, day, speaker
from hiermem.text.policy import lowest
from hiermem.text.slices import excerpt
from hiermem.text.wishes import PIN, SYSTEM, WISH, speaks_as, wishes_in
from hiermem.types import Node, Revision, Span, StoredMessage, Unit
from hiermem.types.brief import Brief
from hiermem.types.ranges import each_of, ranges_of

#: The newest messages that are read of either flag; older ones are not known any more.
MOST: Final = 64
#: The most tokens that a pinned message's excerpt takes.
_EXCERPT: Final = 100
#: The name of a record of pins alone.
NAME: Final = "pins"
#: The least tokens for pins, where their share of a small budget is less.
_LEAST: Final = 250


@dataclass(frozen=True, slots=True)
class Pin(Brief):
    """A message that contexts keep in sight.

    ``reason`` is "pinned" if an application pinned it or wrote it as a system message, "wish" if
    its user said a standing wish in it. ``text`` is what contexts show of it while the message
    itself does not stand verbatim.
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
    count: Callable[[str], int],
    *,
    among_people: bool = False,
    person: str | None = None,
    also: Collection[int] = (),
) -> tuple[Pin, ...]:
    """Return the pins of messages, newest first; ``also`` are indices pinned besides.

    Among several people, only the wishes of the space's ``person`` count, if it has one.
    """
    found: dict[int, Pin] = {}
    for stored in sorted(messages, key=lambda stored: -stored.index):
        by_hand = stored.index in also or PIN in stored.flags or SYSTEM in stored.flags
        is_own = not among_people or (person is not None and speaks_as(stored.message, person))
        if stored.state != "live" or not (by_hand or (WISH in stored.flags and is_own)):
            continue
        if by_hand:
            text = " ".join(excerpt(body(stored.message), _EXCERPT, count).split())
        else:
            text = " ".join(wishes_in(stored.message))
        if text:
            found[stored.index] = Pin(
                stored.index,
                "pinned" if by_hand else "wish",
                text,
                speaker(stored.message),
                day(stored.created_at),
            )
    return tuple(found.values())


def hidden(pins: Sequence[Pin], shown: Sequence[Shown], named: Collection[int] = ()) -> list[Pin]:
    """Return the pins that neither stand raw and whole in ``shown`` nor are ``named``.

    Of equal ones it is the newest, if none of them stands.
    """
    raw = {item.message.index for item in shown if not item.partial}
    standing = {pin.text.casefold() for pin in pins if pin.index in raw or pin.index in named}
    newest = {pin.text.casefold(): pin for pin in reversed(pins)}
    return [
        pin for pin in pins if pin is newest[(text := pin.text.casefold())] and text not in standing
    ]


def head_of(pins: Iterable[Pin], room: int, count: Callable[[str], int]) -> tuple[Pin, ...]:
    """Return as many pins as fit ``room`` tokens as lines, in order; those that come first win."""
    head: tuple[Pin, ...] = ()
    for pin in pins:
        if tokens_of(head, count) + count(pin.text) <= room:
            longer = tuple(sorted((*head, pin), key=lambda pin: pin.index))
            head = longer if tokens_of(longer, count) <= room else head
    return head


def tokens_of(pins: Sequence[Pin], count: Callable[[str], int]) -> int:
    """Return about what the lines of pins add to the record that begins with them."""
    if not pins:
        return 0
    counted = head_attributes(*_numbers(pins)).items()
    return count(f"{text_of(pins)}\n") + count("".join(f' {key}="{of}"' for key, of in counted))


def text_of(pins: Iterable[Pin]) -> str:
    """Return the lines of pins: the wishes and then the others, each in the order of the talk."""
    return "\n".join(map(_line, sorted(pins, key=lambda pin: (pin.reason != "wish", pin.index))))


def _numbers(pins: Sequence[Pin]) -> tuple[int, int]:
    """Return the numbers of the wishes and of the other pins, each of which is one line."""
    wishes = sum(pin.reason == "wish" for pin in pins)
    return wishes, len(pins) - wishes


def _line(pin: Pin) -> str:
    verb = "asked" if pin.reason == "wish" else "said"
    return " ".join(f"{pin.speaker} {verb} on {pin.day}: {pin.text}".split())


def indices_of(pieces: Iterable[Piece]) -> tuple[int, ...]:
    """Return the pinned messages with lines in pieces, in their order."""
    return tuple(index for piece in pieces for index in piece.pins)


def record(writer: Writer, pins: Sequence[Pin]) -> Block | None:
    """Return a record of pins alone; None without one."""
    if not pins:
        return None
    requests, pinned = _numbers(pins)
    span = Span(pins[0].index, pins[-1].index + 1)
    frame = Frame(NAME, span, requests=requests, pinned=pinned)
    return writer.record("pins", frame, text_of(pins))


#: Tokens that a minimal selection reserves for the frames of its two views and for the lines about
#: the older open messages; the units of the roots are added to this (spec section 8.2).
VIEW_TOKENS = 300
#: How views choose their lines: the first sentence of a message counts for more than in a summary,
#: so that more messages have a line.
_LINES = salience.Weights(lead=0.35, floor=0.35, questions=True)


@dataclass(slots=True)
class ZoneMaker:
    """Makes pieces for one selection; ``serial`` numbers the views, so each name is unique."""

    writer: Writer
    serial: int = 0
    view: str = ""
    #: What stands beside the views, by message, None for all of it.
    said: dict[int | None, str | None] = field(default_factory=dict[int | None, str | None])

    def whole(self, window: Node, revision: Revision) -> Piece:
        """Return a piece that shows a made summary whole."""
        item = cover.covered(window)
        kept = units.unpack(revision.provenance, revision.text)
        text = revision.text
        # Units that contain line ends are not rendered again, so that the line ends are kept.
        if not any("\n" in unit.text for unit in kept):
            text = render.render(kept) or text
        frame = Frame(
            name=window.id,
            span=window.span,
            dates=item.days,
            level=window.level,
            trust=revision.trust,
        )
        piece = self._piece("summary", frame, text, (item,))
        if kept:
            return replace(piece, excerpted=ranges_of(u.index for u in kept if u.index is not None))
        return replace(piece, summarised=ranges_of(range(item.span.start, item.span.stop)))

    def pooled(
        self,
        below: Sequence[Covered],
        share: int,
        *,
        beside: Sequence[Shown] = (),
        raw: Sequence[Shown] = (),
        levels: Collection[int] | None = None,
        head: Sequence[Pin] = (),
        at: int = 0,
    ) -> Reading[tuple[Piece, ...]]:
        """Show all of ``below`` in one view of at most ``share`` tokens; () if there is nothing.

        The messages ``beside``, which are newer than all nodes, join the view. Without nodes they
        are of windows from ``at`` on, where the zone ends. ``raw`` are further available messages
        of ``below`` (``lines.gather``). The lines are those of summaries of the ``levels``, as far
        as there are such, behind those of the ``head``.
        """
        if not below and not beside:
            return ()
        gathered = lines.Pool()
        if below:
            gathered = yield from lines.gather(
                below, share, count=self.writer.count, raw=raw, levels=levels
            )
        gathered.beside(beside)
        span = _hull([item.span for item in below], beside)
        covers = tuple(gathered.cover)
        return (self._view(gathered, covers, beside, span, share, at=at, head=head),)

    def appended(
        self,
        windows: Sequence[Node],
        raw: Sequence[Shown],
        share: int,
        *,
        covers: Sequence[Covered],
        at: int,
        beside: Sequence[Shown],
        others: Sequence[Piece],
        joined: Sequence[Piece],
        head: Sequence[Pin],
    ) -> Reading[Piece]:
        """Show windows by their messages in ``raw``, in a view of ``share`` tokens.

        An earlier piece represents the messages that are not in ``raw``. The zone ends before
        ``at``. The view covers all of ``covers``, and replaces the pieces ``joined``. ``others``
        are the pieces that stay before it.
        """
        kept = [unit for piece in joined for unit in self.lines_of(piece)]
        gathered = yield from lines.fresh(
            windows, raw, share, covers=covers, count=self.writer.count, kept=kept
        )
        gathered.beside(beside)
        gathered.known = tuple(unit for piece in others for unit in self.lines_of(piece))
        gathered.trusts.extend(piece.trust for piece in joined)
        spans = [piece.span for piece in joined]
        if not (raw or beside):
            spans += [window.span for window in windows]
        span = _hull(spans, [*raw, *beside])
        piece = self._view(gathered, tuple(covers), beside, span, share, at=at, head=head)
        if not joined:
            return piece
        held = (index for each in (*joined, piece) for index in each_of(each.runs))
        return replace(piece, runs=ranges_of(held))

    def joins(self, piece: Piece) -> bool:
        """Return whether all lines of a piece can be pooled again.

        Those of messages can, and those of texts are read from the tree, which has no texts of
        messages in open windows.
        """
        held = self.lines_of(piece)
        return bool(held) and (not piece.runs or all(unit.index is not None for unit in held))

    def lines_of(self, piece: Piece) -> tuple[Unit, ...]:
        """Return the units that a piece shows."""
        shown = render.body_of(piece.text)[len(piece.head) :].removeprefix("\n")
        kept = render.unpack(piece.kept, shown)
        return kept or render.unpack(piece.kept, shown.removesuffix(render.GAP))

    def _view(
        self,
        gathered: lines.Pool,
        covers: tuple[Covered, ...],
        beside: Sequence[Shown],
        span: Span,
        share: int,
        *,
        head: Sequence[Pin],
        at: int = 0,
    ) -> Piece:
        """Return a view of as many units of a pool as fit ``share``, frame and head included."""
        indices, head_text = tuple(pin.index for pin in head), text_of(head)
        for index in indices:
            span = replace(span, start=min(span.start, index), stop=max(span.stop, index + 1))
        self.serial += 1  # no other view of the session has the name
        name = f"{self.view}/V{self.serial}" if self.view else f"V{self.serial}"
        requests, pinned = _numbers(head)
        trust = lowest(gathered.trusts)
        frame = Frame(name, span, trust=trust, requests=requests, pinned=pinned)
        gathered.said = self.said | {pin.index: pin.text for pin in head}
        most = share - self.writer.record("view", frame, head_text).tokens

        def made(room: int) -> tuple[tuple[Unit, ...], Piece]:
            count = self.writer.count
            chosen, trimmed = gathered.choose(max(room, 1), count=count, weights=_LINES)
            text = "\n".join(filter(None, (head_text, render.render(chosen))))
            ends = {(unit.index, unit.ordinal) for unit in (*chosen[-1:], *gathered.units[-1:])}
            text += render.GAP * (len(ends) > 1 and not text.endswith(render.LEFT_OUT))
            piece = self._piece("view", frame, text, covers, at=at)
            return chosen, replace(piece, trimmed=trimmed)

        # The marks of omitted text are not part of the chosen units and need room of their own.
        room = most - most // 25
        chosen, piece = made(room)
        while piece.tokens > share and room > 1:
            room = max(1, room - (piece.tokens - share) - share // 100)
            chosen, piece = made(room)
        spare = share - piece.tokens
        if spare > share // 40 and len(chosen) < len(gathered.units):
            wider = made(room + spare - share // 100)
            if piece.tokens < wider[1].tokens <= share:
                chosen, piece = wider
        return replace(
            piece,
            runs=ranges_of(item.message.index for item in beside),
            excerpted=ranges_of(
                (*(unit.index for unit in chosen if unit.index is not None), *indices)
            ),
            pins=indices,
            head=head_text,
            summarised=gathered.summarised(chosen),
            kept=units.pack(chosen),
        )

    def _piece(
        self, kind: Kind, frame: Frame, text: str, covers: tuple[Covered, ...], *, at: int = 0
    ) -> Piece:
        windows = (covers[0].windows[0], covers[-1].windows[1]) if covers else (at, at)
        name, span, level = frame.name, frame.span, frame.level
        if not text:
            return Piece(kind, name, windows, span, 0, "", level, covers)
        block = self.writer.record(kind, frame, text)
        return Piece(
            kind, name, windows, span, block.tokens, block.text, level, covers, trust=frame.trust
        )


def _hull(spans: Iterable[Span], shown: Iterable[Shown]) -> Span:
    """Return the smallest range of messages that contains all of these."""
    ends = [(span.start, span.stop) for span in spans]
    ends += [(item.message.index, item.message.index + 1) for item in shown]
    return Span(min(begin for begin, _ in ends), max(end for _, end in ends))
