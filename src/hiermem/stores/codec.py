"""Shapes, times and JSON, from which all rows are made.

A value of an unexpected shape raises, and ``decode`` turns that into a StoreCorruptError. This
module knows no table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Protocol, TypeVar, runtime_checkable

from hiermem.errors import StoreCorruptError

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BARE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the offset is added with the zone

# One letter per column: i integer, s text, f real (or integer), b bytes; a capital allows NULL.
_KINDS: dict[str, tuple[type, ...]] = {
    "i": (int,),
    "s": (str,),
    "f": (float, int),
    "F": (float, int, type(None)),
    "b": (bytes,),
    "I": (int, type(None)),
    "S": (str, type(None)),
}


OPTIONAL_TEXT = _KINDS["S"]


@runtime_checkable
class Closable(Protocol):
    """Rows that a statement still has to deliver, such as a cursor."""

    def close(self) -> None:
        """End the statement."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """The allowed types of each column; ``seen`` are the rows of types that were found to fit."""

    columns: tuple[tuple[type, ...], ...]
    seen: set[tuple[type, ...]] = field(default_factory=set)


def shape(letters: str) -> Shape:
    """Return the allowed types of each column; ``letters`` has one letter per column."""
    return Shape(tuple(_KINDS[letter] for letter in letters))


def decode(rows: Iterable[Sequence[Any]], read: Callable[[Sequence[Any]], T], what: str) -> list[T]:
    """Read all ``rows`` of the table ``what`` into values.

    Raises StoreCorruptError if hiermem could not have written one of the rows.
    """
    # All rows are fetched first, and the cursor is closed in any case. A statement that an error
    # left unfinished would keep its connection on the state that it saw, even after a close.
    try:
        complete = list(rows)
    finally:
        if isinstance(rows, Closable):
            rows.close()
    try:
        return [read(row) for row in complete]
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise StoreCorruptError(
            f"the store is damaged: a row of {what} cannot be read ({type(error).__name__}); "
            "it was left untouched; restore a copy of it"
        ) from None


def pack(value: Any) -> str:
    """Return ``value`` as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Return a read-only mapping, which ``json`` does not support, as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def to_micros(at: datetime) -> int:
    """Return the whole microseconds from 1970 (UTC) to ``at``."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def optional_micros(at: datetime | None) -> int | None:
    """Return ``to_micros(at)``, or None if there is no time."""
    return None if at is None else to_micros(at)


def read_time(micros: int) -> datetime:
    """Return the time in UTC that ``to_micros`` wrote."""
    return _EPOCH + timedelta(microseconds=micros)


def read_optional_time(micros: int | None) -> datetime | None:
    """Return the time in UTC, or None, that ``optional_micros`` wrote."""
    return None if micros is None else read_time(micros)


def zone_of(at: datetime) -> int | None:
    """Return the offset of ``at`` from UTC in microseconds, or None if it has no offset."""
    if at.tzinfo is UTC:
        return None
    offset = at.utcoffset()
    return (offset // timedelta(microseconds=1)) or None if offset else None


def read_zoned_time(micros: int, zone: int | None) -> datetime:
    """Return the time that ``to_micros`` wrote, with the offset that ``zone_of`` wrote."""
    if zone is None:
        return _EPOCH + timedelta(microseconds=micros)
    # The local time is computed first: near the ends of the calendar, a time has no value in UTC.
    return (_BARE_EPOCH + timedelta(microseconds=micros + zone)).replace(
        tzinfo=timezone(timedelta(microseconds=zone))
    )


def check(row: Sequence[Any], shape: Shape) -> None:
    """Raise TypeError or ValueError if ``row`` does not have the types of ``shape``."""
    types = tuple(map(type, row))
    if types in shape.seen:
        return
    for found, kinds in zip(types, shape.columns, strict=True):
        if found not in kinds:
            raise TypeError
    shape.seen.add(types)


def texts(packed: str) -> tuple[str, ...]:
    """Return the texts of a JSON list; raise if it holds anything but texts."""
    values = json.loads(packed) if packed != "[]" else ()
    if not all(type(value) is str for value in values):
        raise TypeError
    return tuple(values)


def mapping(packed: str) -> dict[str, Any]:
    """Return the mapping of a JSON object; raise if ``packed`` is no object."""
    value = json.loads(packed)
    if type(value) is not dict:
        raise TypeError
    return value
