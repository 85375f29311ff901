"""Cuts a message into the passages that are searched, ranked and returned.

A passage is a stretch of ``measure.body`` given by its offsets. All passages together are the body
without echoes, the memory that hiermem itself rendered and that came back, which is never found
again as if it had been said. A short message is one passage; a longer one is cut at line ends, so
that a search returns the relevant part and not the whole. ``ranking`` scores passages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hiermem.core.text.slices import Piece, token_points
from hiermem.tokens import stretch_counter

#: A message of at most this many tokens is not cut.
WHOLE: Final = 150
#: A passage of a longer one holds at most this many. Measured on chats with long answers: 100 finds
#: a message of the evidence more often than 200 (.83 to .79 within 4,000 tokens) and shows a little
#: less of it (.69 to .71 of its tokens).
SLICE: Final = 100
#: A longer text is probably cut.
_SHORT: Final = 3 * WHOLE


@dataclass(frozen=True, slots=True)
class Passage:
    """The characters ``begin`` to ``end`` of a body, with their tokens."""

    begin: int
    end: int
    text: str
    tokens: int


def passages(
    body: str, count: Callable[[str], int], *, echoes: Sequence[tuple[int, int]] = ()
) -> list[Passage]:
    """Cut a body; empty text and white space give no passage. Time is linear in the body."""
    found: list[Passage] = []
    for begin, end in _heard(len(body), sorted(echoes)):
        text = body[begin:end]
        if not text.strip():
            continue
        stretches = stretch_counter(text, count) if len(text) > _SHORT else None
        tokens = stretches(0, len(text)) if stretches else count(text)
        if tokens <= WHOLE:
            found.append(Passage(begin, end, text, tokens))
            continue
        stretches = stretches or stretch_counter(text, count)
        cuts = token_points([Piece(text)], SLICE, count, stretches=stretches)
        for low, high in pairwise((0, *cuts, len(text))):
            piece = text[low:high]
            if piece.strip():
                found.append(Passage(begin + low, begin + high, piece, stretches(low, high)))
    return found


def _heard(length: int, echoes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the stretches between the echoes."""
    place = 0
    for begin, end in echoes:
        if begin > place:
            yield place, begin
        place = max(place, end)
    if place < length:
        yield place, length
