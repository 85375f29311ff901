"""Render kept units as the lines of a record, with a mark wherever text between two is left out.

Without the mark, two adjacent lines read as question and answer, whatever was said between them.
The rendered text can be parsed back into its units, so that the units of a record are available
when the record is pooled with others.

Two units alone show whether there is a gap between them: another message lies between their
messages, the second unit is not the first piece of its message, or pieces between the two units
are missing. Slices of a message number their pieces anew, so between two slices a gap is assumed.
Units of a text that no message backs have no gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from hiermem.core.context.render import LEFT_OUT
from hiermem.core.text.fence import unescape
from hiermem.core.text.units import continues
from hiermem.types import Unit

#: The mark after a line if the next line is not its neighbour in the source.
GAP: Final = f" {LEFT_OUT}"


def render(units: Sequence[Unit]) -> str:
    """Write units as text: ``[date]`` where the date changes, ``Speaker: ...`` per message."""
    out: list[str] = []
    before, shown = None, ""
    for unit in units:
        out += (_lead(unit, before=before, shown=shown), unit.text)
        before, shown = unit, unit.date or shown
    return "".join(out)


def unpack(packed: str, text: str) -> tuple[Unit, ...]:
    """Return the units that ``render`` wrote as ``text`` and ``pack`` as ``packed``.

    The result is () if the two do not belong together.
    """
    try:
        units = tuple(_read(json.loads(packed), text)) if packed else ()
    except (ValueError, TypeError, LookupError, RecursionError):
        return ()
    return units if render(units) == text else ()


def body_of(record: str) -> str:
    """Return the body of a rendered record: the text between the lines of its frame."""
    inner = record.split("\n", 2)[2:]
    return unescape(inner[0].rpartition("\n")[0]) if inner else ""


def _lead(unit: Unit, *, before: Unit | None, shown: str) -> str:
    """Return the text before ``unit``; ``shown`` is the last date written above it."""
    if before is None:
        line = ""
    elif _parted(before, unit):
        line = f"{GAP}\n"
    else:
        line = "\n"
    if unit.date and unit.date != shown:
        line += f"[{unit.date}]\n"
    elif before is not None and (continues(before, unit) or _in_later_slice(before, unit)):
        return f"{line[:-1]} "
    return f"{line}{unit.speaker}: " if unit.speaker else line


def _parted(before: Unit, unit: Unit) -> bool:
    """Return whether something was left out between two units."""
    if before.index is None or unit.index is None:
        return False
    if before.index == unit.index:
        return unit.ordinal != before.ordinal + 1
    return unit.index != before.index + 1 or unit.ordinal > 0


def _in_later_slice(before: Unit, unit: Unit) -> bool:
    """Return whether ``unit`` is of the same message as ``before``, but not of the same slice."""
    same = before.index is not None and before.index == unit.index
    return same and (before.role, before.speaker) == (unit.role, unit.speaker)


def _read(data: Any, text: str) -> Iterator[Unit]:
    """Yield the units of a packed value; each text is located by repeating the layout."""
    who, dates, rows = data
    at = 0
    before, shown = None, ""
    for index, speaker, day, *marks in rows:
        role, name = who[speaker]
        for ordinal, length in zip(marks[::2], marks[1::2], strict=True):
            unit = Unit(index, ordinal, role, name, dates[day], "", length < 0)
            at += len(_lead(unit, before=before, shown=shown))
            yield (unit := replace(unit, text=text[at : at + abs(length)]))
            at += abs(length)
            before, shown = unit, unit.date or shown
