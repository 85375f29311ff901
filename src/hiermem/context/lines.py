"""Render kept units as the lines of a record, with a mark wherever text between two is left out.

Without the mark, two adjacent lines read as question and answer, whatever was said between them.
The rendered text can be parsed back into its units, so that the units of a record are available
when the record is pooled with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hiermem.context.render import LEFT_OUT
from hiermem.errors import StoreCorruptError
from hiermem.text import units
from hiermem.text.fence import unescape
from hiermem.types import Unit

#: The mark after a line if the next line is not its neighbour in the source.
GAP: Final = f" {LEFT_OUT}"


def render(kept: Sequence[Unit]) -> str:
    """Write units as text: ``[date]`` where the date changes, ``Speaker: ...`` per message."""
    return units.render(kept, gap=GAP)


def unpack(packed: str, text: str) -> tuple[Unit, ...]:
    """Return the units that ``render`` wrote as ``text`` and ``units.pack`` as ``packed``.

    The result is () if the two do not belong together.
    """
    try:
        return units.unpack(packed, text, gap=GAP)
    except StoreCorruptError:
        return ()


def body_of(record: str) -> str:
    """Return the body of a rendered record: the text between the lines of its frame."""
    inner = record.split("\n", 1)[1:]
    return unescape(inner[0].rpartition("\n")[0]) if inner else ""
