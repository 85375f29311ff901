"""Shapes, times and JSON, from which all rows are made.

A value of an unexpected shape raises, and ``decode`` turns that into a StoreCorruptError. This
module knows no table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

from hiermem.errors import StoreCorruptError
from hiermem.stores.sqlite.failures import DAMAGED

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BARE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the offset is added with the zone

# One letter a column: i integer, s text, f real (or integer), b bytes; capitals may be NULL.
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


def shape(letters: str) -> tuple[tuple[type, ...], ...]:
    """Give the allowed types of each column, one letter a column."""
    return tuple(_KINDS[letter] for letter in letters)


def decode(rows: Iterable[Sequence[Any]], read: Callable[[Sequence[Any]], T], what: str) -> list[T]:
    """Read all ``rows`` of ``what``.

    Raises StoreCorruptError where a row is not one that hiermem writes.
    """
    # All rows first, and the cursor let go whatever happens: a statement left half-way by an error
    # would hold its connection to the state that it saw, even when that is closed.
    try:
        complete = list(rows)
    finally:
        if isinstance(rows, sqlite3.Cursor):
            rows.close()
    try:
        return [read(row) for row in complete]
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise StoreCorruptError(
            f"the store is damaged: a row of {what} cannot be read ({type(error).__name__}); "
            f"{DAMAGED}"
        ) from None


def pack(value: Any) -> str:
    """Write a JSON value compactly."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Turn a read-only mapping, which json does not know, into one that it does."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def to_micros(at: datetime) -> int:
    """Give the whole microseconds from 1970 to ``at``, in UTC."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def optional_micros(at: datetime | None) -> int | None:
    """Give ``to_micros`` of a time that may be missing."""
    return None if at is None else to_micros(at)


def read_time(micros: int) -> datetime:
    """Read what ``to_micros`` wrote, as a time in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def read_optional_time(micros: int | None) -> datetime | None:
    """Read what ``optional_micros`` wrote."""
    return None if micros is None else read_time(micros)


def zone_of(at: datetime) -> int | None:
    """Give the offset of ``at`` from UTC in microseconds, None for none."""
    if at.tzinfo is UTC:
        return None
    offset = at.utcoffset()
    return (offset // timedelta(microseconds=1)) or None if offset else None


def read_zoned_time(micros: int, zone: int | None) -> datetime:
    """Read a time with the offset that ``zone_of`` wrote."""
    if zone is None:
        return _EPOCH + timedelta(microseconds=micros)
    # By way of the local reading: a time near the calendar's ends has none in UTC.
    return (_BARE_EPOCH + timedelta(microseconds=micros + zone)).replace(
        tzinfo=timezone(timedelta(microseconds=zone))
    )


def check(row: Sequence[Any], shape: tuple[tuple[type, ...], ...]) -> None:
    """Raise TypeError or ValueError where ``row`` does not have the types of ``shape``."""
    for value, kinds in zip(row, shape, strict=True):
        if type(value) not in kinds:
            raise TypeError


def texts(packed: str) -> tuple[str, ...]:
    """Read a JSON list of texts."""
    values = json.loads(packed) if packed != "[]" else ()
    if not all(type(value) is str for value in values):
        raise TypeError
    return tuple(values)


def mapping(packed: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = json.loads(packed)
    if type(value) is not dict:
        raise TypeError
    return value
