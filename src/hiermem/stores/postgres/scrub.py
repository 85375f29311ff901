"""Removal of deleted rows from the files of the tables; deleting them alone is not enough.

A plain VACUUM frees the room of a removed row and may leave its bytes there. So the tables are
rewritten, one after the other. This needs the rights of their owner and blocks all other users of a
table while it is written. The write-ahead log, replicas and backups are beyond the reach of any
statement: the result says so, unless the operator has stated when those expire.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from psycopg import sql
from psycopg.errors import Diagnostic

from hiermem.stores.postgres.connections import Connection
from hiermem.types.transaction import Scrubbed

#: Seconds between two attempts at a table that is in use.
_PAUSE: Final = 0.1
_NUMBER: Final = re.compile(r"\d+")


async def scrub(
    connection: Connection, schema: str, *, lock_timeout: float, backups_expire: timedelta | None
) -> Scrubbed:
    """Rewrite every table; try each for up to ``lock_timeout`` seconds while it is in use."""
    found = await connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' "
        "ORDER BY relname",
        (f'"{schema}"',),
    )
    reasons = []
    for (table,) in await found.fetchall():
        until = time.monotonic() + lock_timeout
        while (reason := await _rewrite(connection, schema, table)) and time.monotonic() < until:
            if reason.startswith("its owner"):
                break
            await asyncio.sleep(_PAUSE)
        if reason:
            reasons.append(f"table {table}: {reason}")
    if reasons:
        return Scrubbed(done=False, reason="; ".join(reasons))
    row = await (await connection.execute("SELECT pg_current_wal_lsn()::text")).fetchone()
    upto = f"the tables were written anew, up to the position {row[0] if row else ''} of the log"
    if backups_expire is None:
        return Scrubbed(
            done=False,
            reason=f"{upto}; the log before it, replicas and backups may hold what was removed",
        )
    day = (datetime.now(UTC) + backups_expire).date()
    return Scrubbed(done=True, reason=f"{upto}; what lies before it expires by {day}")


async def _rewrite(connection: Connection, schema: str, table: str) -> str:
    """Rewrite a table; return why removed rows are left in it, or ""."""
    notices: list[tuple[str | None, str | None, str]] = []

    def keep(notice: Diagnostic) -> None:
        notices.append((notice.severity_nonlocalized, notice.sqlstate, notice.message_detail or ""))

    connection.add_notice_handler(keep)
    try:
        await connection.execute(
            sql.SQL("VACUUM (FULL, VERBOSE, SKIP_LOCKED) {}").format(sql.Identifier(schema, table))
        )
    finally:
        connection.remove_notice_handler(keep)
    for severity, state, _ in notices:
        if severity == "WARNING":
            return "it is in use" if state == "55P03" else "its owner alone may write it anew"
    # The detail begins with the number of removed rows that an older transaction may still read.
    kept = [_NUMBER.match(detail) for _, _, detail in notices]
    if any(number is not None and int(number[0]) for number in kept):
        return "an older transaction may still read what was removed"
    return ""
