"""Evidence next to a cut: which spans the cut already shows raw, and the record of the evidence.

Providers cache the beginning of a prompt, and another question would change the evidence. Therefore
the evidence is one record behind all but the newest turn, in which the question stands. The record
never repeats text that is raw beside it. What the evidence leaves of its room goes to the newest
messages that are not raw, in the same record. ``search.select`` decides what answers.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from hiermem.context.render import Block, Frame, Shown, Writer, frame_of, in_order
from hiermem.search.hits import Evidence
from hiermem.text.fence import unescape
from hiermem.text.measure import body, day
from hiermem.types import Span, StoredMessage

#: The name of the record.
NAME: Final = "recall"
#: A margin, because a tokenizer may merge tokens where the text meets its frame.
_SEAMS: Final = 4


def shown_spans(shown: Sequence[Shown]) -> tuple[Span, ...]:
    """Return one span for each raw message; for a partial message, the span of its part."""
    return tuple(
        Span(item.message.index, item.message.index + 1, item.begin, item.end)
        for item in shown
        if not item.empty
    )


def frame_tokens(writer: Writer, messages: int) -> int:
    """Return the cost of a record without its text, in a session of so many messages."""
    widest = Frame(NAME, Span(0, max(1, messages)), trust="tool")
    return writer.record("recall", widest, "").tokens + _SEAMS


def record(writer: Writer, evidence: Evidence | None, beside: Sequence[Shown] = ()) -> Block:
    """Fence evidence and the messages ``beside`` it, of which there is at least one, as a record.

    The messages are in order of index and none is evidence. They stand whole, under their dates.
    """
    said = [Shown(message) for message in evidence.sources] if evidence else []
    # The text is escaped already, for callers who read it without a fence.
    lines = [unescape(evidence.text)] if evidence else []
    today = ""
    for item in beside:
        date = day(item.message.created_at)
        lines += [item.line] if date == today else [f"[{date}]", item.line]
        today = date
    return writer.record("recall", frame_of(NAME, in_order([*said, *beside])), "\n".join(lines))


def may_stand_beside(stored: StoredMessage, said: Container[int]) -> bool:
    """Return whether a message is spoken text, of which nothing stands in the context yet."""
    is_spoken = stored.state == "live" and stored.role != "tool"
    return is_spoken and stored.index not in said and bool(body(stored.message).strip())


def filled(
    writer: Writer, evidence: Evidence | None, messages: Sequence[StoredMessage], room: int
) -> tuple[Shown, ...]:
    """Return as many messages as fit a record beside the evidence, the newest first.

    ``messages`` are in order of index, and ``room`` is the size of the record in tokens.
    """
    left = room - (evidence.total_tokens if evidence else 0)
    left -= frame_tokens(writer, messages[-1].index + 1) if messages else 0
    chosen: list[Shown] = []
    for stored in reversed(messages):
        item, date = Shown(stored), day(stored.created_at)
        dated = not chosen or day(chosen[0].message.created_at) != date
        cost = writer.count(f"[{date}]\n{item.line}\n" if dated else f"{item.line}\n")
        if cost <= left:
            chosen.insert(0, item)
            left -= cost
    while chosen and record(writer, evidence, chosen).tokens > room:
        del chosen[0]
    return tuple(chosen)
