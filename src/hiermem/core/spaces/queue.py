"""Decides the order in which live notes are asked about.

Notes are asked about oldest first. A note that answers left out, or that failed alone, waits behind
all others, so that it holds up none of them; of such notes, those come first that were left out
least often. They never share a request with others, which they could make fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from hiermem.types.bank import Note

#: How often a note is left out before it waits behind the others.
LEFT_OUT: Final = 2


def waits_behind(note: Note) -> bool:
    """Return whether a note waits behind those that were never left out, or once."""
    return note.unplaced >= LEFT_OUT


def in_order(notes: Iterable[Note]) -> list[Note]:
    """Return notes in the order in which they are asked about."""
    return sorted(notes, key=lambda note: (note.unplaced if waits_behind(note) else 0, note.key))


def leading(notes: Sequence[Note], *, behind: int) -> Sequence[Note]:
    """Return the first notes that may share a request; ``behind`` is the most that wait behind."""
    first = list(takewhile(lambda note: not waits_behind(note), notes))
    return first or notes[:behind]
