"""The statements that dump a session, or what belongs to none.

A dump reads in one transaction that sees one state, row by row through a cursor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores import rows
from hiermem.stores.dump import Pages, missing
from hiermem.stores.postgres import reads
from hiermem.stores.postgres.connections import ONE_STATE, Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import NUMBER, Statement
from hiermem.types.transaction import StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are fetched at once.
_CHUNK: Final = 500
#: Which rows ``m`` are those of the session, by the owner of their table.
_OF: Final = {
    "log": f"m.message >= {NUMBER} << {rows.INDEX_BITS} "
    f"AND m.message < ({NUMBER} + 1) << {rows.INDEX_BITS}",
    "session": f"m.session = {NUMBER}",
    "tree": f"m.session = {NUMBER}",
}


def _selected(kind: str, session_id: str) -> Statement | None:
    """Return the query of all rows of a kind, None where none can belong to no session."""
    form = rows.KINDS[kind]
    columns = f"tree, {form.columns}" if form.owner == "tree" else form.columns
    order, values = form.order, [session_id]
    if session_id == NO_SESSION:
        if not form.named:
            return None
        values = []
        where = (
            "NOT EXISTS (SELECT FROM sessions s WHERE s.tenant = m.tenant "
            f"AND s.id = m.{form.named})"
        )
        order = "session_id, name" if kind == "view" else order
    elif form.named:
        name = form.named
        where = f"{name} = $2 AND hashtextextended({name}, 0) = hashtextextended($2, 0)"
    else:
        where = _OF[form.owner]
    selected = f"SELECT {columns} FROM {form.table} m WHERE m.tenant = $1 AND {where}"
    return Statement(f"{selected} ORDER BY {order}", tuple(values))


async def dump(scope: Scope, session_id: str) -> AsyncIterator[list[StoredRow]]:
    """Yield the pages of a dump of the session, or of what belongs to none where the id is "".

    Raises NotFoundError at the first one.
    """
    async with scope.connection() as connection:
        begin: list[Sent] = [
            ONE_STATE,
            scope.prologue(),
            scope.sent(reads.session(session_id)),
            scope.sent(reads.secret()),
        ]
        found = await scope.send(connection, begin)
        filling = Pages(tenant=scope.name, secret=reads.secret().read(found[3]))
        if session_id != NO_SESSION:
            record = reads.session(session_id).read(found[2])
            if record is None:
                raise missing(session_id)
            filling.add(("session", "", record))
        for kind in rows.KINDS:
            selected = _selected(kind, session_id)
            if selected is None:
                continue
            name = f"{kind}s_dumped"
            declare = f"DECLARE {name} NO SCROLL CURSOR FOR {selected.sql}"
            fetch: Sent = (f"FETCH {_CHUNK} FROM {name}", ())
            begun = [scope.sent(Statement(declare, selected.values)), fetch]
            chunk = (await scope.send(connection, begun))[1]
            while chunk:
                for item in rows.items(kind, chunk):
                    if page := filling.add(item):
                        yield page
                if len(chunk) < _CHUNK:
                    break
                (chunk,) = await scope.send(connection, [fetch])
        yield filling.end()
