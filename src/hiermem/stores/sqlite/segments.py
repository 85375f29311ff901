"""The statements of the index over all sessions of a tenant: segments, their pages, their blocks.

A replaced block stays in its segment until the segment is dissolved; an erased message dissolves
the segment. The blocks themselves are written in ``trees``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from hiermem.stores import rows
from hiermem.stores.contract import decode
from hiermem.stores.sqlite import reads
from hiermem.stores.sqlite.reads import Tenant, one_state
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord
from hiermem.types.transaction import TERMS, IndexState, PlacedBlock, Segment

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: A page's key is its segment's number, shifted by this many bits, plus its own number.
_PAGE_BITS: Final = 16
_PLACED: Final = (
    f"SELECT p.segment, p.place, b.kind, b.start, b.stop, b.data, {reads.SESSION} FROM places p "
    f"{{}} JOIN blocks b ON b.session = p.session AND b.kind = '{TERMS}' AND b.start = p.start "
    "JOIN heads h ON h.session = p.session JOIN sessions s ON s.session = p.session "
)
LOOSE: Final = (
    _PLACED.format("INDEXED BY places_loose")
    + "WHERE p.tenant = ? AND p.segment = 0 ORDER BY p.session, p.start LIMIT ?"
)
AT: Final = (
    _PLACED.format("INDEXED BY places_in")
    + "WHERE p.tenant = ? AND p.segment > 0 AND p.segment = ? AND p.place = ? AND p.live = 1"
)
UNINDEXED: Final = (
    f"SELECT {reads.SESSION} FROM heads h INDEXED BY heads_unindexed "
    "JOIN sessions s ON s.session = h.session "
    "WHERE h.tenant = ? AND h.indexed < h.messages ORDER BY h.session LIMIT ?"
)
_DEAD: Final = (
    "SELECT segment, place FROM places INDEXED BY places_dead "
    "WHERE tenant = ? AND live = 0 ORDER BY segment, place"
)
_COVERED: Final = (
    "SELECT start, stop FROM places WHERE session = ? AND live = 1 ORDER BY start, stop"
)


def index_state(part: Tenant, pages: Sequence[int] = (), *, limit: int | None = 100) -> IndexState:
    """Return the segments with these pages, the loose blocks, and the sessions with gaps."""
    most = -1 if limit is None else max(limit, 0)
    with one_state(part.connection):
        dead: dict[int, list[int]] = {}
        for segment, place in part.connection.execute(_DEAD, (part.of,)):
            dead.setdefault(segment, []).append(place)
        found = part.connection.execute(
            "SELECT segment, blocks FROM segments WHERE tenant = ? ORDER BY segment", (part.of,)
        ).fetchall()
        segments = tuple(
            Segment(
                number, blocks, tuple(dead.get(number, ())), _pages(part.connection, number, pages)
            )
            for number, blocks in found
        )
        loose = decode(part.connection.execute(LOOSE, (part.of, most)), rows.read_placed, "blocks")
        behind = decode(
            part.connection.execute(UNINDEXED, (part.of, most)), rows.SESSIONS.read, "sessions"
        )
        gaps = tuple(
            (
                record,
                rows.gaps(part.connection.execute(_COVERED, (number,)).fetchall(), record.messages),
            )
            for number, record in behind
        )
    return IndexState(segments, tuple(loose), gaps)


def _pages(
    connection: sqlite3.Connection, segment: int, pages: Sequence[int]
) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    for number in pages:
        key = (segment << _PAGE_BITS | number,)
        row = connection.execute("SELECT data FROM pages WHERE page = ?", key).fetchone()
        if row is not None and isinstance(row[0], bytes):
            found[number] = row[0]
    return found


def segment_blocks(part: Tenant, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
    """Return the live blocks at these places of segments."""
    with one_state(part.connection):
        found = [
            row
            for place in places
            for row in part.connection.execute(AT, (part.of, *place)).fetchall()
        ]
    return decode(found, rows.read_placed, "blocks")


def put_segment(
    transaction: Transaction,
    tenant: str,
    blocks: Sequence[PlacedBlock],
    pages: Mapping[int, bytes],
    *,
    replaces: Sequence[int] = (),
) -> bool:
    """Dissolve ``replaces`` and put a segment, or do nothing and return False."""
    connection = transaction.connection
    own = connection.execute("SELECT segment FROM segments WHERE tenant = ?", (tenant,)).fetchall()
    if not {(number,) for number in replaces} <= set(own):
        return False
    claimed: list[int] = []
    known: dict[str, tuple[int, SessionRecord] | None] = {}
    for one in blocks:
        name = one.session.id
        if name not in known:
            known[name] = reads.find(transaction, tenant, name)
        head = known[name]
        if head is None or head[1].epoch != one.session.epoch:
            return False
        found = connection.execute(
            "SELECT id, stop, segment FROM places WHERE session = ? AND start = ? AND live = 1",
            (head[0], one.block.start),
        ).fetchone()
        if found is None or found[1] != one.block.stop or found[2] not in (0, *replaces):
            return False
        claimed.append(found[0])
    transaction.writing()
    for number in replaces:
        _dissolve(connection, number)
    if not blocks:
        return True
    cursor = connection.execute(
        "INSERT INTO segments (tenant, blocks) VALUES (?, ?)", (tenant, len(blocks))
    )
    made = cursor.lastrowid or 0
    connection.executemany(
        "UPDATE places SET segment = ?, place = ? WHERE id = ?",
        [(made, place, id_) for place, id_ in enumerate(claimed)],
    )
    connection.executemany(
        "INSERT INTO pages (page, data) VALUES (?, ?)",
        [(made << _PAGE_BITS | number, data) for number, data in sorted(pages.items())],
    )
    return True


def place(connection: sqlite3.Connection, session: int, start: int, stop: int) -> None:
    """Note that a block of terms was put: as a loose one, instead of one with the same start."""
    known = connection.execute(
        "SELECT id, stop, segment FROM places WHERE session = ? AND start = ? AND live = 1",
        (session, start),
    ).fetchone()
    grown = stop - start
    if known is not None:
        id_, end, segment = known
        grown -= end - start
        then = "UPDATE places SET live = 0" if segment else "DELETE FROM places"
        connection.execute(f"{then} WHERE id = ?", (id_,))
    connection.execute(
        "INSERT INTO places (tenant, session, start, stop) "
        "SELECT tenant, session, ?, ? FROM heads WHERE session = ?",
        (start, stop, session),
    )
    _count(connection, session, grown)


def drop(connection: sqlite3.Connection, session: int, over: tuple[int, int] | None = None) -> None:
    """Note that a session's blocks of terms are gone: all, or those over any of some messages.

    ``over`` is the first and the last of these.

    The segments that hold one of them, dead or not, are dissolved.
    """
    where, bound = ("", ()) if over is None else (" AND stop > ? AND start <= ?", over)
    found = connection.execute(
        f"SELECT segment, live * (stop - start) FROM places WHERE session = ?{where}",
        (session, *bound),
    ).fetchall()
    if not found:
        return
    for segment in {segment for segment, _ in found if segment}:
        _dissolve(connection, segment)
    connection.execute(f"DELETE FROM places WHERE session = ?{where}", (session, *bound))
    _count(connection, session, -sum(size for _, size in found))


def drop_all(connection: sqlite3.Connection, tenant: str) -> None:
    """Remove everything of a tenant."""
    found = connection.execute("SELECT segment FROM segments WHERE tenant = ?", (tenant,))
    for (number,) in found.fetchall():
        _drop_pages(connection, number)
    for table in ("segments", "places"):
        connection.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))


def _count(connection: sqlite3.Connection, session: int, more: int) -> None:
    if more:
        connection.execute(
            "UPDATE heads SET indexed = indexed + ? WHERE session = ?", (more, session)
        )


def _dissolve(connection: sqlite3.Connection, number: int) -> None:
    _drop_pages(connection, number)
    for statement in (
        "DELETE FROM segments WHERE segment = ?",
        "DELETE FROM places WHERE segment > 0 AND segment = ? AND live = 0",
        "UPDATE places SET segment = 0, place = 0 WHERE segment > 0 AND segment = ?",
    ):
        connection.execute(statement, (number,))


def _drop_pages(connection: sqlite3.Connection, number: int) -> None:
    bounds = (number << _PAGE_BITS, number + 1 << _PAGE_BITS)
    connection.execute("DELETE FROM pages WHERE page >= ? AND page < ?", bounds)
