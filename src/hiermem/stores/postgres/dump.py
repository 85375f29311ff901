"""The statements that dump a session, or what belongs to none.

A dump reads in one transaction that sees one state, row by row through a cursor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeAlias

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode
from hiermem.stores.dump import Item, Pages, missing
from hiermem.stores.postgres import reads
from hiermem.stores.postgres.connections import Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import Statement
from hiermem.types.transaction import StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are fetched at once.
_CHUNK: Final = 500
_NUMBER: Final = "(SELECT session FROM sessions WHERE tenant = $1 AND id = $2)"
_LOG: Final = (
    f"message >= {_NUMBER} << {rows.INDEX_BITS} AND message < ({_NUMBER} + 1) << {rows.INDEX_BITS}"
)
_OF: Final = f"session = {_NUMBER}"
_NAMED: Final = "{0} = $2 AND hashtextextended({0}, 0) = hashtextextended($2, 0)"
_Reader: TypeAlias = Callable[[Sequence[Any]], Any]
#: The kinds of rows in the order of a dump: kind, table, columns, condition, order, reader.
_KINDS: Final[tuple[tuple[str, str, str, str, str, _Reader], ...]] = (
    ("message", "messages", rows.MESSAGE, _LOG, "message", rows.read_message),
    ("version", "versions", rows.MESSAGE, _LOG, "message, edit", rows.read_message),
    ("key", "keys", rows.KEY, _OF, "key", rows.read_key),
    ("event", "events", rows.EVENT, _OF, "event", rows.read_event),
    ("node", "nodes", f"tree, {tree_rows.NODE}", _OF, "tree, id",
     tree_rows.of_tree(tree_rows.read_node)),
    ("revision", "revisions", f"tree, {tree_rows.REVISION}", _OF, "written",
     tree_rows.of_tree(tree_rows.read_revision)),
    ("view", "views", rows.VIEW, _NAMED.format("session_id"), "name", rows.read_view),
    ("record", "records", rows.RECORD, _NAMED.format("scope"), "record", rows.read_record),
    ("run", "runs", tree_rows.RUN, _NAMED.format("subject"), "run", tree_rows.read_run),
    ("attempt", "attempts", tree_rows.ATTEMPT, _NAMED.format("session_id"), "attempt",
     tree_rows.read_attempt),
    ("block", "blocks", rows.BLOCK, _OF, "block", rows.read_block),
)  # fmt: skip


_FREE: Final = "NOT EXISTS (SELECT FROM sessions s WHERE s.tenant = m.tenant AND s.id = m.{0})"
_WITHOUT_SESSION: Final[tuple[tuple[str, str, str, str, str, _Reader], ...]] = (
    ("view", "views", rows.VIEW, _FREE.format("session_id"), "session_id, name", rows.read_view),
    ("record", "records", rows.RECORD, _FREE.format("scope"), "record", rows.read_record),
    ("run", "runs", tree_rows.RUN, _FREE.format("subject"), "run", tree_rows.read_run),
    ("attempt", "attempts", tree_rows.ATTEMPT, _FREE.format("session_id"), "attempt",
     tree_rows.read_attempt),
)  # fmt: skip


async def dump(scope: Scope, session_id: str) -> AsyncIterator[list[StoredRow]]:
    """Yield the pages of a dump of the session, or of what belongs to none where the id is "".

    Raises NotFoundError at the first one.
    """
    async with scope.connection() as connection:
        begin: list[Sent] = [
            ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", ()),
            scope.prologue(),
            scope.sent(reads.session(session_id)),
            scope.sent(reads.secret()),
        ]
        found = await scope.send(connection, begin)
        filling = Pages(tenant=scope.name, secret=reads.secret().read(found[3]))
        kinds = _WITHOUT_SESSION
        if session_id != NO_SESSION:
            kinds, record = _KINDS, reads.session(session_id).read(found[2])
            if record is None:
                raise missing(session_id)
            filling.add(("session", "", record))
        for kind, table, columns, where, order, read in kinds:
            declare = Statement(
                f"DECLARE {kind}s_dumped NO SCROLL CURSOR FOR SELECT {columns} FROM {table} m "
                f"WHERE m.tenant = $1 AND {where} ORDER BY {order}",
                () if kinds is _WITHOUT_SESSION else (session_id,),
            )
            fetch: Sent = (f"FETCH {_CHUNK} FROM {kind}s_dumped", ())
            chunk = (await scope.send(connection, [scope.sent(declare), fetch]))[1]
            while chunk:
                value: Any
                for value in decode(chunk, read, f"{kind}s"):
                    item: Item = (kind, *value) if isinstance(value, tuple) else (kind, "", value)
                    if page := filling.add(item):
                        yield page
                if len(chunk) < _CHUNK:
                    break
                (chunk,) = await scope.send(connection, [fetch])
        yield filling.end()
