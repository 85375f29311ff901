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
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hiermem.calls.claim import read_claim
from hiermem.errors import ConflictError, HiermemError, NotFoundError, UsageError
from hiermem.records import rows
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
OWNER: Final = {kind: form.named for kind, form in rows.KINDS.items() if form.named}


@dataclass(slots=True)
class SessionDump:
    """Everything that a store keeps of one session, in the order in which it was written.

    ``record`` is None where it is of what belongs to no session. ``versions`` are the earlier
    versions of messages, ``keys`` the (key, entry) pairs, ``nodes`` and ``revisions`` those of all
    trees, each with the number of its tree.
    """

    tenant: str
    secret: bytes
    record: SessionRecord | None
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    versions: list[StoredMessage] = field(default_factory=list[StoredMessage])
    keys: list[tuple[str, tx.KeyEntry]] = field(default_factory=list[tuple[str, tx.KeyEntry]])
    events: list[tx.LogEvent] = field(default_factory=list[tx.LogEvent])
    nodes: list[tuple[int, Node]] = field(default_factory=list[tuple[int, Node]])
    revisions: list[tuple[int, Revision]] = field(default_factory=list[tuple[int, Revision]])
    views: list[tx.ViewRecord] = field(default_factory=list[tx.ViewRecord])
    records: list[tx.Record] = field(default_factory=list[tx.Record])
    runs: list[tx.RunRecord] = field(default_factory=list[tx.RunRecord])
    attempts: list[tx.Attempt] = field(default_factory=list[tx.Attempt])
    blocks: list[tx.Block] = field(default_factory=list[tx.Block])

    @property
    def session_id(self) -> str:
        """The id of the session, "" where it is of what belongs to none."""
        return tx.NO_SESSION if self.record is None else self.record.id


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


async def read(rows: AsyncIterable[Sequence[tx.StoredRow]], *, tenant: str) -> SessionDump:
    """Read all pages of a dump of ``tenant``.

    Raises UsageError if they are no complete dump of this format, or are of another tenant.
    """
    reader = RowReader(tenant)
    dump: SessionDump | None = None
    seen: set[tuple[Any, ...]] = set()
    async for page in rows:
        for row in page:
            item = reader.take(row)
            if item is None:
                continue
            kind, at, value = item
            if dump is None:
                dump = SessionDump(tenant, reader.secret, reader.record)
            if kind in _NAME:
                name = (kind, at, *_named(kind, value, whole=reader.record is None))
                if name in seen:
                    raise _refused("a row comes twice")
                seen.add(name)
            if kind != "session":
                getattr(dump, f"{kind}s").append((at, value) if kind in _PLACED else value)
    reader.end()
    return dump or SessionDump(tenant, reader.secret, None)


def _named(kind: str, value: Any, *, whole: bool) -> Iterator[Any]:
    """Yield what names a value among those of its kind; with ``whole``, in all of a tenant."""
    if whole and kind in OWNER:
        yield getattr(value, OWNER[kind])
    for part in _NAME[kind]:
        yield getattr(value, part)


class RowReader:
    """Reads rows one after the other, and knows what may follow; it keeps none of them.

    It does not notice a value that comes twice; ``read`` does.
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self._secret: bytes | None = None
        #: The session of the dump; None before its row, and where it has none.
        self.record: SessionRecord | None = None
        self._messages = 0
        self._last: str | None = None
        #: The number of items that were read.
        self.count = 0
        self._ended = False

    @property
    def secret(self) -> bytes:
        """The secret of the store from which the rows are. Raises UsageError before it came."""
        if self._secret is None:
            raise _refused("the first row is missing")
        return self._secret

    @property
    def session_id(self) -> str:
        """The id of the session, "" where the rows are of what belongs to none."""
        return tx.NO_SESSION if self.record is None else self.record.id

    def take(self, row: Any) -> Item | None:
        """Read one row; return its item, or None for the first and the last one."""
        try:
            return self._take(row)
        except UsageError:
            raise
        except (
            ValueError, TypeError, LookupError, ArithmeticError, RecursionError, HiermemError,
        ) as error:  # fmt: skip
            raise _refused(f"row {self.count} cannot be read ({type(error).__name__})") from None

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
        self._secret = secret

    def _take(self, row: Any) -> Item | None:
        kind = row["kind"]
        if self._ended:
            raise ValueError
        if self._secret is None:
            self._begin(row)
            return None
        if kind == "end":
            if row["rows"] != self.count:
                raise _refused("rows are missing")
            self._ended = True
            return None
        value = _reader(_KINDS[kind])(row["value"])
        first = self._last is None
        if kind == "session" and not first:
            raise ValueError
        if first and kind != "session" and kind not in OWNER:
            raise ValueError
        if self._last is not None and _ORDER[kind] < _ORDER[self._last]:
            raise ValueError
        self._last = kind
        self.count += 1
        if kind == "session":
            self.record = value
            return kind, "", value
        return kind, self._checked(kind, row["at"], value), value

    def _checked(self, kind: str, at: Any, value: Any) -> Any:
        """Return where the value stands; refuse one that belongs to something else."""
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
        return _PLACED[kind](at) if kind in _PLACED else ""


def missing(session_id: str) -> NotFoundError:
    """Return the error for a session that does not exist, so that there is nothing to dump."""
    return NotFoundError(f"session {session_id!r} does not exist")


def exists(session_id: str) -> ConflictError:
    """Return the error for a restore over a session of another version."""
    return ConflictError(
        f"session {session_id!r} exists already", kind="exists", session_id=session_id
    )


def check_secret(given: SessionDump | RowReader, secret: bytes, *, empty: bool) -> None:
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
