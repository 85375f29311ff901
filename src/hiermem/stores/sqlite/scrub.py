"""Removal of deleted data from the bytes of the file; the rows alone are not enough.

A deleted cell is overwritten with zeros, because ``secure_delete`` is on. That does not remove
every copy. When a page is split, a cell that moves to another page leaves a copy in the gap of the
old page. Frames of the write-ahead log hold pages in their earlier state. So the file is rewritten
from its content, and the log is checkpointed into the file and truncated to zero length. SQLite
does not sync that truncation, so it is synced here: a power loss would bring the log back. The
result never claims more than was done.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from hiermem.errors import StoreBusyError, StoreCorruptError
from hiermem.stores.sqlite.failures import FAILURES, translate
from hiermem.stores.sqlite.files import connect, sync
from hiermem.types.transaction import Scrubbed

_BACKUP = re.compile(r"\.v\d+\.bak(\.part)?(-journal|-wal|-shm)?")


def scrub(path: Path, *, busy_timeout: float) -> Scrubbed:
    """Rewrite the file, empty its log and remove the backups in its folder.

    Every step is tried, whether or not the step before it succeeded. If another connection holds a
    lock for longer than ``busy_timeout`` seconds, or if a step fails, the result gives the reason.
    Raises StoreCorruptError if the file is damaged.
    """
    removed, reasons = _remove_backups(path)
    try:
        with closing(connect(path, busy_timeout=busy_timeout)) as connection:
            reasons += _rewrite(connection)
            sync(path.with_name(path.name + "-wal"))
        sync(path.parent)
    except FAILURES as error:
        reasons.append(_reason(error))
    except OSError as error:
        reasons.append(f"the emptied log cannot be synced: {error.strerror}")
    return Scrubbed(done=not reasons, reason="; ".join(reasons), removed=tuple(removed))


def _remove_backups(path: Path) -> tuple[list[str], list[str]]:
    """Remove the backups; return the removed names, and the reasons why others remain."""
    removed: list[str] = []
    reasons: list[str] = []
    for beside in sorted(path.parent.iterdir()):
        rest = beside.name.removeprefix(path.name)
        if rest == beside.name or not _BACKUP.fullmatch(rest):
            continue
        try:
            beside.unlink(missing_ok=True)
        except OSError as error:
            reasons.append(f"the backup {beside.name} cannot be removed: {error.strerror}")
        else:
            removed.append(beside.name)
    return removed, reasons


def _rewrite(connection: sqlite3.Connection) -> list[str]:
    """Rewrite the file and empty the log; return the reasons for what failed."""
    reasons: list[str] = []
    try:
        connection.execute("VACUUM")
    except FAILURES as error:
        reasons.append(_reason(error))
    # This runs even if VACUUM failed, because it removes data that is only in the log.
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except FAILURES as error:
        return [*reasons, _reason(error)]
    if busy:
        reasons.append("another connection is reading the file")
    return reasons


def _reason(error: Exception) -> str:
    found = translate(error)
    if isinstance(found, StoreCorruptError):
        raise found from None
    if isinstance(found, StoreBusyError):
        return "another process is writing to the file"
    return f"the file cannot be written anew: {found}"
