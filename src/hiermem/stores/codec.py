"""Shapes, times and JSON, from which all rows are made.

A value of an unexpected shape raises, and ``decode`` turns that into a StoreCorruptError. This
module knows no table; a ``Format`` says how the values of one are written and read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from operator import attrgetter
from typing import Any, Generic, TypeVar

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
        if (close := getattr(rows, "close", None)) is not None:
            close()
    try:
        return [read(row) for row in complete]
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise StoreCorruptError(
            f"the store is damaged: a row of {what} cannot be read ({type(error).__name__}); "
            "it was left untouched; restore a copy of it"
        ) from None


def _plain(value: Any) -> Any:
    """Return a read-only mapping, which ``json`` does not support, as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)


def pack(value: Any) -> str:
    """Return ``value`` as compact JSON."""
    return _ENCODER.encode(value)


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
    if packed == "[]":
        return ()
    values = json.loads(packed)
    if not all(type(value) is str for value in values):
        raise TypeError
    return tuple(values)


def mapping(packed: str) -> dict[str, Any]:
    """Return the mapping of a JSON object; raise if ``packed`` is no object."""
    value = json.loads(packed)
    if type(value) is not dict:
        raise TypeError
    return value


#: The letters of a Format for what is stored as something else: its kind, and its two functions.
_CONVERTED: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "t": ("i", to_micros, read_time),
    "T": ("I", optional_micros, read_optional_time),
    "o": ("i", int, bool),
    "l": ("s", pack, texts),
    "m": ("s", pack, mapping),
}


class Format(Generic[T]):
    """How values of one class become rows of a table, and rows values.

    ``letters`` has one letter per column. In addition to the letters of a shape, t is a time, T a
    time that may be NULL, o a truth value, l a list of texts and m a mapping. ``make`` gets the
    columns, and ``get`` returns them; by default they are the attributes of their names. ``owner``
    says what else names a row: the tenant alone, or also the session, or also the tree; of a log,
    the session is in the number of the message. ``named`` is the column that holds the name of a
    session or subject, and ``order`` is the order of a dump.
    """

    def __init__(
        self,
        table: str,
        columns: str,
        letters: str,
        make: Callable[..., T],
        get: Callable[[T], Sequence[Any]] | None = None,
        *,
        owner: str = "tenant",
        named: str = "",
        order: str = "",
    ) -> None:
        self.table, self.columns, self.letters = table, columns, letters
        self.owner, self.named, self.order = owner, named, order
        self.types = "".join(_CONVERTED.get(letter, letter)[0] for letter in letters)
        self._shape = shape(self.types)
        self._make = make
        self._get: Callable[[T], Sequence[Any]] = get or attrgetter(*columns.split(", "))
        converted = [
            (n, *_CONVERTED[one][1:]) for n, one in enumerate(letters) if one in _CONVERTED
        ]
        self._writing = [(place, write) for place, write, _ in converted]
        self._reading = [(place, read) for place, _, read in converted]

    def row(self, value: T) -> tuple[Any, ...]:
        """Return the columns of ``value``."""
        row = list(self._get(value))
        for place, write in self._writing:
            row[place] = write(row[place])
        return tuple(row)

    def read(self, row: Sequence[Any]) -> T:
        """Return the value of the columns. Raises for a row that ``row`` could not have made."""
        check(row, self._shape)
        values = list(row)
        for place, read in self._reading:
            values[place] = read(values[place])
        return self._make(*values)

    def read_of_tree(self, row: Sequence[Any]) -> tuple[int, T]:
        """Return the number of a tree, which comes first, and the value of the columns."""
        check(row[:1], _TREE)
        return row[0], self.read(row[1:])


_TREE = shape("i")
