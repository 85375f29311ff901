"""Decides what all stores do alike: refuse contradictory changes, write values.

The checks look at the arguments alone, never at stored values, so that all stores refuse the same
writes for the same reasons and at no cost. Such a write is the caller's fault; refusing it keeps
the fault from damaging the session.

A ``Format`` says how the values of one table are written as shapes, times and JSON, and read. A
value of an unexpected shape raises, and ``decode`` turns that into a StoreCorruptError.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import update_wrapper
from operator import attrgetter
from types import CoroutineType
from typing import Any, Generic, ParamSpec, TypeVar, cast

from hiermem.errors import StoreCorruptError, UsageError
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx
from hiermem.types.tree import named_subject

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


def decode(rows: Iterable[Sequence[Any]], read: Callable[[Any], T], what: str) -> list[T]:
    """Read all ``rows`` of the table ``what`` into values.

    Raises StoreCorruptError if hiermem could not have written one of the rows.
    """
    try:
        return [read(row) for row in rows]
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise StoreCorruptError(
            f"a row of {what} is unreadable ({type(error).__name__}); the store was left "
            "untouched, restore a copy"
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
    columns, and ``get`` returns them; by default they are the attributes of their names.
    """

    def __init__(
        self,
        columns: str,
        letters: str,
        make: Callable[..., T],
        get: Callable[[T], Sequence[Any]] | None = None,
    ) -> None:
        self.columns, self.letters = columns, letters
        self._shape = shape("".join(_CONVERTED.get(letter, letter)[0] for letter in letters))
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


P = ParamSpec("P")


def named_after(
    work: Callable[..., Any], method: Callable[P, Coroutine[Any, Any, T]], *, given: int
) -> Callable[P, CoroutineType[Any, Any, T]]:
    """Return ``method`` with the name, docstring and signature of the function that does its work.

    ``given`` is the number of the function's first arguments that the method fills in.
    """
    update_wrapper(method, work)
    signature = inspect.signature(work)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = list(signature.parameters.values())[given:]
    method.__signature__ = signature.replace(parameters=[own, *rest])  # type: ignore[attr-defined]
    # An ``async def`` returns a CoroutineType, but not every type checker says so.
    return cast("Callable[P, CoroutineType[Any, Any, T]]", method)


def refuse(session_id: str, what: str) -> UsageError:
    """Return the error for a write that contradicts stored values; nothing of it is written."""
    subject = named_subject(session_id)
    return UsageError(f"{subject}: the write contradicts what is stored: {what}")


def check_changes(
    session_id: str,
    before: SessionRecord | None,
    after: SessionRecord,
    changes: tx.Changes[Any],
    source: SessionRecord | None = None,
) -> None:
    """Check that ``changes`` may write the record ``after`` over ``before``.

    ``source`` is the record of the session that is copied, if there is one. Raises UsageError where
    ``after`` is of another session, its version is not the next one, the appended messages are not
    numbered from the last one on, a flag or rewrite is of a message that does not exist, or a copy
    is impossible.
    """
    if after.id != session_id:
        raise refuse(session_id, f"the record is that of {after.id!r}")
    if before is not None and after.version != before.version + 1:
        raise refuse(session_id, f"version {after.version} does not follow {before.version}")
    if before is None and changes.copy is not None:
        count = changes.copy.stop
    else:
        count = before.messages if before else 0
    for stored in changes.messages:
        if stored.index != count:
            raise refuse(session_id, f"message {stored.index} is not the next, {count}")
        count += 1
    if after.messages != count:
        raise refuse(session_id, f"the record says {after.messages} messages, there are {count}")
    changed = [index for index, _ in changes.flags]
    changed += [rewrite.message.index for rewrite in changes.rewrites]
    if any(not 0 <= index < count for index in changed):
        raise refuse(session_id, "a flag or a rewrite is of a message that does not exist")
    copy = changes.copy
    if copy is not None and before is not None:
        raise refuse(session_id, "a copy is for a session that exists already")
    if copy is not None and (source is None or not 0 <= copy.stop <= source.messages):
        raise refuse(session_id, f"a copy is of what {copy.source!r} does not have")


def check_write(write: tx.NodeWrite) -> None:
    """Refuse a NodeWrite that does not agree with itself (version, revision number, node)."""
    node, revision = write.node, write.revision
    if node.version != write.expected + 1:
        raise UsageError(f"node {node.id}: version {node.version} does not follow {write.expected}")
    if revision is not None and (revision.node_id, revision.number) != (node.id, node.revision):
        raise UsageError(
            f"node {node.id} serves revision {node.revision}, but the write has "
            f"{revision.number} of {revision.node_id}"
        )


def check_record_writes(writes: Sequence[tx.RecordWrite]) -> None:
    """Refuse two writes of one record, and a write that expects a version below 0."""
    if len({(write.kind, write.scope, write.key) for write in writes}) < len(writes):
        raise UsageError("two writes of one call are of the same record; join them")
    for write in writes:
        if write.expected is not None and write.expected < 0:
            raise UsageError(
                f"record {write.key!r} of {write.kind!r}: expected is {write.expected}; pass a "
                "version, 0 for none, or None"
            )
