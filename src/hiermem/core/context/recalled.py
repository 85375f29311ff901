"""Evidence next to a cut: which spans the cut already shows raw, and the record of the evidence.

Providers cache the beginning of a prompt, and another question would change the evidence. Therefore
the evidence is one record behind all but the newest turn, in which the question stands. The record
never repeats text that is raw beside it. ``core.search.search`` decides what answers a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hiermem.core.context.render import Block, Frame, Shown, Writer, frame_of
from hiermem.core.search.hits import Evidence
from hiermem.core.text.fence import unescape
from hiermem.types import Span

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
    dates = ("0000-00-00", "9999-99-99")
    widest = Frame(NAME, Span(0, max(1, messages)), dates, trust="tool")
    return writer.record("recall", widest, "").tokens + _SEAMS


def record(writer: Writer, evidence: Evidence) -> Block:
    """Fence evidence, which must not be empty, as a record of its own."""
    frame = frame_of(NAME, list(map(Shown, evidence.sources)))
    # The text is escaped already, for callers who read it without a fence.
    return writer.record("recall", frame, unescape(evidence.text))
