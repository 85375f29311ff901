"""Declares the tables of a store, what is read from them and what is committed to them.

A store keeps rows: tuples in the order of a table's columns, the key columns first. It compares
text by code points, integers by value, and never interprets a row otherwise. ::

    read(gets, scans)   rows by key, and ranges of rows, all of one state of the store
    commit(change)      whole and durable if every expectation holds, otherwise nothing

A guard is a row with a column ``guard``: an integer that no two writes of the row set alike.
Whoever decides by rows under a guard expects its number when he commits, so that the commit fails
if somebody wrote below the guard since. A counter is a guard that every such writer adds to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

Value: TypeAlias = str | int | float | bytes | None
#: The columns of one row, the key first.
Row: TypeAlias = tuple[Any, ...]


class Key(NamedTuple):
    """A row of a table by the columns of its key; with fewer, all rows that begin so."""

    table: str
    columns: tuple[Value, ...]


class Scan(NamedTuple):
    """A range of the rows of a table, in the order of its key or of an index.

    The order is that of ``Table.order(index)``. The first columns of the order equal ``prefix``;
    the columns that follow are above ``after`` and below ``below``, as far as each of them states
    columns (() is no bound). ``limit`` None is no limit; ``reverse`` begins with the last row.
    """

    table: str
    prefix: tuple[Value, ...]
    after: tuple[Value, ...] = ()
    below: tuple[Value, ...] = ()
    index: str = ""  # type: ignore[assignment]  # a tuple has a method of that name
    limit: int | None = None
    reverse: bool = False


class Copies(NamedTuple):
    """The rows whose key begins with ``prefix``, to be written again under the prefix ``to``.

    Only those are taken whose column ``column`` is below ``below``.
    """

    table: str
    prefix: tuple[Value, ...]
    to: tuple[Value, ...]
    column: str
    below: int


class Found(NamedTuple):
    """The answers of one read: a row or None for each key, and the rows of each scan."""

    rows: Sequence[Row | None]
    ranges: Sequence[Sequence[Row]]


#: Decides a commit anew, by guards by key and by what the object of the store reads.
Again: TypeAlias = "Callable[[Any, dict[Key, Row]], Awaitable[Commit | None]]"


@dataclass(slots=True)
class Commit:
    """What is written together if every expectation holds, in this order.

    ``expect`` are the guards by key, with the number that each must have; None: no such row exists.
    ``deletes`` are rows, or all rows whose key begins so. ``copies`` are stored rows, none of them
    deleted here, that are also written under a prefix that no row has. ``puts`` are whole rows by
    table, which replace a row of the same key. ``adds`` are counters and what is added; one that
    does not exist counts as 0. A commit that is not ``durable`` may be lost in a power loss.
    Instead of refusing it, a store may keep all others from what it expects, and commit what
    ``again`` then decides, which gets the guards as they are and may read; None: it is refused.
    """

    expect: dict[Key, int | None] = field(default_factory=dict[Key, "int | None"])
    deletes: list[Key] = field(default_factory=list[Key])
    copies: list[Copies] = field(default_factory=list[Copies])
    puts: dict[str, list[Row]] = field(default_factory=dict[str, "list[Row]"])
    adds: dict[Key, int] = field(default_factory=dict[Key, int])
    durable: bool = True
    again: Again | None = None


@dataclass(frozen=True)
class Table:
    """A table: its columns, of which the first ``keys`` are its key, and its indexes.

    ``letters`` has a letter a column: i integer of 64 bits, s text, f real, b bytes; a capital
    allows None, which no key holds. ``indexes`` are the columns of each index; a row with None in
    one of them is not in it. ``shared``: the rows are of all tenants, or the index ``shared`` is.
    """

    name: str
    columns: tuple[str, ...]
    letters: str
    keys: int
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    @property
    def key(self) -> tuple[str, ...]:
        """Return the names of the columns of the key."""
        return self.columns[: self.keys]

    @cached_property
    def guard(self) -> int | None:
        """Return the place of the column ``guard``, or None."""
        return self.columns.index("guard") if "guard" in self.columns else None

    @cached_property
    def orders(self) -> Mapping[str, tuple[int, ...]]:
        """Return the places of the columns that each index sorts by; "" is the key."""
        own = tuple(range(self.keys))
        orders = {"": own}
        for name, columns in self.indexes.items():
            first = tuple(self.columns.index(column) for column in columns)
            orders[name] = (*first, *(place for place in own if place not in first))
        return orders

    def order(self, index: str) -> tuple[str, ...]:
        """Return the names of the columns that an index sorts by."""
        return tuple(self.columns[place] for place in self.orders[index])

    def optional(self, index: str) -> list[str]:
        """Return those of them that may be None: a row with such a value is not in the index."""
        places = self.orders[index]
        return [self.columns[place] for place in places if self.letters[place].isupper()]

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return Key(self.name, row[: self.keys])


def _table(name: str, key: str, columns: str = "", **indexes: str) -> Table:
    """Return a table; a column is a name and, unless it is text, a colon and its letter."""
    pairs = [column.partition(":") for column in (*key.split(), *columns.split())]
    return Table(
        name,
        tuple(column for column, _, _ in pairs),
        "".join(letter or "s" for _, _, letter in pairs),
        len(key.split()),
        {index: tuple(order.split()) for index, order in indexes.items()},
    )


_SESSION: Final = "tenant session:i"
_MESSAGE: Final = (
    "role thread name:S content:S created_at:i zone:I tokens:i size:i hash key:S state flags:S "
    "rest:S"
)

_ALL: Final = (
    #: What belongs to no tenant: the store's secret and its format.
    _table("store", "name", "guard:i value:b"),
    # -- sessions. ``session`` is a number that no other session has; what an append leaves as it is
    # stands in ``sessions``, the rest in ``heads``. ``created`` rises with time.
    _table(
        "sessions", "tenant id",
        "guard:i session:i title:S participants config counter created_at:i forked_from:S "
        "forked_at:i epoch:i tree:i metadata created:i",
        by_creation="tenant created", forked="tenant forked_from created",
    ),
    _table(
        "heads", "tenant id",
        "guard:i session:i messages:i closed:i version:i state build last_activity:i unindexed:I "
        "turn:S created:i",
        active="tenant last_activity created", unindexed="tenant unindexed",
    ),
    _table("labels", "tenant label value created:i", "session:i id"),
    # -- logs
    _table("messages", f"{_SESSION} message:i", _MESSAGE),
    _table("versions", f"{_SESSION} message:i edit:i", _MESSAGE),
    _table("flags", f"{_SESSION} flag message:i"),
    _table("echoes", f"{_SESSION} message:i"),
    _table("keys", f"{_SESSION} key", "message:i fingerprint:S"),
    _table("events", f"{_SESSION} event:i", "kind at:i happened_at:i detail"),
    # -- trees. ``unfinished`` is the level of a node that an update may have to make, ``window``
    # the thread of a window, ``made`` figures of the serving revision, ``reuse`` the hash of the
    # inputs of a revision that others may take over.
    _table(
        "nodes", f"{_SESSION} tree:i id",
        "guard:i level:i ordinal:i thread:S start:i stop:i start_char:i stop_char:I first_window:i "
        "stop_window:i children messages:i input_size:i allotted:i input_tokens:i "
        "allotted_tokens:i verbatim:i first_at:i last_at:i linked:i parent:S status revision:i "
        "version:i attempts:i error:S degraded:i dirty:i unit forced:i since:I "
        "unfinished:I window:S made:S",
        by_level="tenant session tree level ordinal",
        unfinished="tenant session tree unfinished ordinal",
        covering="tenant session tree window stop",
    ),
    _table(
        "revisions", f"{_SESSION} tree:i node_id number:i",
        "written:i text tokens:i input_hash output_hash strategy style model created_at:i "
        "provenance anchors tags entities fidelity:F unsupported trust degraded:i reused:i "
        "tokens_in:i tokens_out:i calls:i duration_ms:i extras reuse:S",
        reusable="tenant reuse written",
    ),
    # -- what is due. The index ``next`` is over all tenants.
    _table(
        "due", "tenant id", "guard:i due_at:i generation:i claimed:i",
        next="due_at", of_tenant="tenant due_at",
    ),
    # -- journal, views, records
    _table(
        "runs", "tenant subject id",
        "run:i kind started_at:i ended_at:I outcome detail",
        by_id="tenant id", newest="tenant run", of="tenant subject run",
    ),
    _table(
        "attempts", "tenant session_id id",
        "attempt:i run_id node_id number:i model started_at:i outcome reason "
        "tokens_in:i tokens_out:i ended_at:I cached_tokens:i reasoning_tokens:i cost:F",
        by_id="tenant id", started="tenant attempt", of_run="tenant run_id attempt",
        of_session="tenant session_id attempt",
    ),
    _table("views", "tenant session_id name", "state"),
    _table(
        "records", "tenant scope kind key", "guard:i record:i body version:i",
        by_kind="tenant kind scope key", by_key="tenant kind key scope",
    ),
    # -- the index over messages. A block of terms has a place, which says in which segment it is;
    # ``loose`` is 1 if in none. ``members`` are the blocks of a segment, ``sources`` its sessions,
    # ``dead`` the places of the blocks that were replaced since. ``coverage`` is the guard of a
    # session's blocks, with the number of messages that its blocks of terms cover.
    _table("coverage", _SESSION, "guard:i covered:i"),
    _table("kinds", f"{_SESSION} kind"),
    _table("blocks", f"{_SESSION} kind start:i", "stop:i block:i data:b"),
    _table(
        "places", f"{_SESSION} start:i", "stop:i block:i segment:i place:i loose:I id",
        loose="tenant loose session start",
    ),
    _table("segments", "tenant segment:i", "members"),
    _table("sources", f"{_SESSION} segment:i"),
    _table("dead", "tenant segment:i place:i"),
    _table("pages", "tenant segment:i page:i", "data:b"),
    # -- counters
    _table("counters", "tenant kind name", "guard:i"),
)  # fmt: skip
#: All tables by name.
TABLES: Final[Mapping[str, Table]] = {table.name: table for table in _ALL}
