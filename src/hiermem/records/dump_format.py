"""The rows of a dump: everything that a store keeps of one session, as plain versioned values.

Data that belongs to no session is dumped in the same way, without the row of a session. A row is a
dict of JSON values, so that rows can be written to a file or sent elsewhere, and any store can
restore what another one dumped. The first row names the format, the tenant and the store's secret;
the last one counts the rows. Claims are left out, because they protect the original only.

``pages`` makes rows of values, and ``read`` reads them back. It refuses rows that are incomplete,
of another format or not written by this module. All rows are read before the first one is written,
in one transaction, which so waits for no other store and no network.
"""

from __future__ import annotations

import base64
import types
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hiermem.calls.claim import read_claim
from hiermem.errors import ConflictError, HiermemError, UsageError
from hiermem.types import Message, Node, Revision, SessionRecord, StoredMessage
from hiermem.types import transaction as tx

#: The number of this format; a later hiermem may write another one.
_FORMAT: Final = 3
#: The number of rows in a page.
_PAGE: Final = 500
#: One stored value: its kind, where it stands ("" for a kind that needs no more), and the value.
Item: TypeAlias = tuple[str, "int | str", Any]

#: The kinds of rows in the order of a dump, and the values that they hold.
_KINDS: Final[Mapping[str, type]] = {
    "session": SessionRecord,
    "message": StoredMessage,
    "version": StoredMessage,
    "key": tx.KeyEntry,
    "event": tx.LogEvent,
    "node": Node,
    "revision": Revision,
    "view": tx.ViewRecord,
    "record": tx.Record,
    "run": tx.RunRecord,
    "attempt": tx.Attempt,
    "block": tx.Block,
}
_ORDER: Final = {kind: place for place, kind in enumerate(_KINDS)}
#: The fields by which the values of a kind differ; each is stored once.
_NAME: Final[Mapping[str, tuple[str, ...]]] = {
    "key": (),
    "node": ("id",),
    "revision": ("node_id", "number"),
    "view": ("name",),
    "record": ("kind", "key"),
    "run": ("id",),
    "attempt": ("id",),
    "block": ("kind", "start"),
}
#: The kinds of what may belong to no session, and the field that names the session of a value.
OWNER: Final = {
    "view": "session_id", "record": "scope", "run": "subject", "attempt": "session_id",
}  # fmt: skip


def pages(items: Iterable[Item], *, tenant: str, secret: bytes) -> Iterator[list[tx.StoredRow]]:
    """Yield the pages of a dump; ``items`` come in the order of the kinds, the session first."""
    page: list[tx.StoredRow] = [
        {"kind": "dump", "format": _FORMAT, "tenant": tenant, "secret": _encoded(secret)}
    ]
    count = 0
    for kind, at, value in items:
        if isinstance(value, tx.Record) and read_claim(value.body) is not None:
            continue  # a claim is of a run at this store
        page.append({"kind": kind, "at": at, "value": _plain(value)})
        count += 1
        if len(page) == _PAGE:
            yield page
            page = []
    yield [*page, {"kind": "end", "rows": count}]


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON values."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes):
        return _encoded(value)
    if isinstance(value, Mapping):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(held) for held in value]
    held = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Message) and value.created_at is not None:
        held["created_at"] = value.created_at.isoformat()  # the zone is the author's
    return {"class": type(value).__name__, **held}


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class SessionDump:
    """Everything that a store keeps of one session, or of what belongs to none, row by row."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        #: The secret of the store from which the rows are; empty before the first row.
        self.secret = b""
        #: The session of the dump; None where it has none.
        self.record: SessionRecord | None = None
        self._items: list[Item] = []
        self._names: set[tuple[Any, ...]] = set()
        self._messages = 0
        self._ended = False

    @property
    def session_id(self) -> str:
        """The id of the session, "" where the rows are of what belongs to none."""
        return tx.NO_SESSION if self.record is None else self.record.id

    def of(self, kind: str) -> list[Any]:
        """Return the values of a kind, in the order in which they were written."""
        return [value for _, value in self.placed(kind)]

    def placed(self, kind: str) -> list[tuple[Any, Any]]:
        """Return the values of a kind, each with its key or the number of its tree."""
        return [(at, value) for of, at, value in self._items if of == kind]

    def take(self, row: Any) -> None:
        """Read one row. Raises UsageError for one that cannot follow those before it."""
        try:
            self._take(row)
        except UsageError:
            raise
        except (
            ValueError, TypeError, LookupError, ArithmeticError, RecursionError, HiermemError,
        ) as error:  # fmt: skip
            why = f"row {len(self._items)} cannot be read ({type(error).__name__})"
            raise _refused(why) from None

    def end(self) -> None:
        """Refuse rows that are not all there."""
        if not self._ended:
            raise _refused("the last row is missing")
        if self.record is not None and self._messages != self.record.messages:
            raise _refused("messages are missing")

    def _begin(self, row: Any) -> None:
        if row["kind"] != "dump":
            raise ValueError
        if row["format"] != _FORMAT:
            raise _refused(f"they are not of format {_FORMAT}, which this hiermem reads")
        if row["tenant"] != self.tenant:
            raise UsageError("the rows are of another tenant; restore them under the same name")
        secret = base64.b64decode(row["secret"], validate=True)
        if len(secret) != 32:
            raise ValueError
        self.secret = secret

    def _take(self, row: Any) -> None:
        kind = row["kind"]
        if self._ended:
            raise ValueError
        if not self.secret:
            self._begin(row)
            return
        if kind == "end":
            if row["rows"] != len(self._items):
                raise _refused("rows are missing")
            self._ended = True
            return
        value = _reader(_KINDS[kind])(row["value"])
        last = self._items[-1][0] if self._items else None
        if last is not None and (kind == "session" or _ORDER[kind] < _ORDER[last]):
            raise ValueError
        if kind == "session":
            self.record = value
        self._check(kind, value)
        at = _PLACED[kind](row["at"]) if kind in _PLACED else ""
        if kind in _NAME:
            # What belongs to no session is named in all of a tenant.
            owner = [OWNER[kind]] if self.record is None else []
            name = (kind, at, *(getattr(value, part) for part in (*owner, *_NAME[kind])))
            if name in self._names:
                raise _refused("a row comes twice")
            self._names.add(name)
        self._items.append((kind, at, value))

    def _check(self, kind: str, value: Any) -> None:
        """Refuse a value that belongs to something else."""
        if self.record is None and kind not in OWNER:
            raise ValueError
        if kind == "message":
            if value.index != self._messages:
                raise ValueError
            self._messages += 1
        if kind == "version" and not 0 <= value.index < self._messages:
            raise ValueError
        owned = self.record is not None and kind in OWNER
        if owned and getattr(value, OWNER[kind]) != self.session_id:
            raise ValueError


async def read(rows: AsyncIterable[Sequence[tx.StoredRow]], *, tenant: str) -> SessionDump:
    """Read all pages of a dump of ``tenant``.

    Raises UsageError if they are no complete dump of this format, or are of another tenant.
    """
    dump = SessionDump(tenant)
    async for page in rows:
        for row in page:
            dump.take(row)
    dump.end()
    return dump


def check_secret(given: SessionDump, secret: bytes, *, empty: bool) -> None:
    """Refuse a dump that cannot go into a store with this secret; ``empty`` if it holds nothing.

    A store that holds nothing takes the dump's secret over. Raises ConflictError.
    """
    if given.secret != secret and not empty:
        raise ConflictError(
            "the target has data under another secret; use an empty store, or one "
            "with the source's",
            kind="secret",
        )


def _refused(why: str) -> UsageError:
    return UsageError(f"these rows are no complete dump of a session: {why}; nothing was written")


def _exactly(kind: type) -> Callable[[Any], Any]:
    def read_exactly(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return read_exactly


_text, _whole = _exactly(str), _exactly(int)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    if found.utcoffset() is None:
        raise ValueError
    return found


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


#: The fields of a row besides its value: a key, or the number of a tree.
_PLACED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "key": _text,
    "node": _whole,
    "revision": _whole,
}
_SIMPLE: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text,
    int: _whole,
    bool: _exactly(bool),
    float: _number,
    datetime: _time,
    bytes: _bytes,
    type(None): _exactly(type(None)),
    Any: lambda value: value,
}


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that reads a value of a type; it raises for any other value."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return lambda value: _one_of(value, args)
    if origin in (Union, types.UnionType):
        readers = [_reader(arg) for arg in args]
        return lambda value: _first_that_reads(value, readers)
    if origin is tuple:
        return lambda value: _sequence(value, args)
    if origin is not None and issubclass(origin, Mapping):
        inner = _reader(args[1])
        return lambda value: {_text(key): inner(held) for key, held in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        parts = {one.name: _reader(hints[one.name]) for one in fields(hint)}
        return lambda value: _dataclass(value, hint, parts)
    raise TypeError(f"no reader for {hint}")


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if type(value) is not str or value not in allowed:
        raise ValueError
    return value


def _first_that_reads(value: Any, readers: Sequence[Callable[[Any], Any]]) -> Any:
    for read_one in readers:
        try:
            return read_one(value)
        except (ValueError, TypeError, LookupError):
            continue
    raise TypeError


def _sequence(value: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(map(_reader(args[0]), value))
    return tuple(_reader(arg)(held) for arg, held in zip(args, value, strict=True))


def _dataclass(value: Any, made: type, parts: Mapping[str, Callable[[Any], Any]]) -> Any:
    held = dict(value)
    if held.pop("class") != made.__name__ or held.keys() != parts.keys():
        raise TypeError
    return made(**{name: parts[name](inner) for name, inner in held.items()})
