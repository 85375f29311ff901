"""The statements of the index over all sessions of a tenant: segments, their pages, their blocks.

The row of a block of terms names its segment. A replaced block stays in its segment until the
segment is dissolved, and ``replaced`` lists it; an erased message dissolves the segment.

A transaction that dissolves a segment changes rows of sessions that it has not locked. So all of
this is written under a separate lock (``Scope.index_lock``), which is taken after every other lock:
a transaction that holds it waits for no lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hiermem.stores import rows
from hiermem.stores.contract import decode
from hiermem.stores.postgres.due import NUMBER, OK, Query, Statement
from hiermem.stores.postgres.reads import RECORD
from hiermem.types import SessionRecord
from hiermem.types.transaction import TERMS, Block, IndexState, PlacedBlock, Segment

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_BLOCK: Final = rows.prefixed("b", rows.BLOCKS.columns)
_PLACED: Final = f"SELECT b.segment, b.place, {_BLOCK}, {RECORD} FROM "
_RECORDS: Final = (
    "JOIN sessions s ON s.tenant = b.tenant AND s.session = b.session "
    "JOIN heads h ON h.tenant = b.tenant AND h.session = b.session "
)


def state(pages: Sequence[int], limit: int | None) -> tuple[Query[Any], ...]:
    """Return the queries of ``IndexState``; they must read one state. See ``read_state``."""
    most = None if limit is None else max(limit, 0)
    return (
        Query("SELECT segment, blocks FROM segments WHERE tenant = $1 ORDER BY segment", (), list),
        Query(
            "SELECT segment, place FROM replaced WHERE tenant = $1 ORDER BY segment, place",
            (),
            list,
        ),
        Query(
            "SELECT p.segment, p.page, p.data FROM segments s JOIN pages p ON p.tenant = s.tenant "
            "AND p.segment = s.segment AND p.page = ANY($2::bigint[]) WHERE s.tenant = $1",
            (list(pages),),
            list,
        ),
        _placed(
            f"{_PLACED} blocks b {_RECORDS} WHERE b.tenant = $1 AND b.kind = '{TERMS}' "
            "AND b.segment = 0 ORDER BY b.session, b.start LIMIT $2",
            most,
        ),
        Query(
            f"SELECT {RECORD}, coalesce((SELECT json_agg(json_build_array(b.start, b.stop) "
            "ORDER BY b.start, b.stop)::text FROM blocks b WHERE b.tenant = h.tenant "
            f"AND b.session = h.session AND b.kind = '{TERMS}'), '[]') FROM heads h "
            "JOIN sessions s ON s.tenant = h.tenant AND s.session = h.session "
            "WHERE h.tenant = $1 AND h.indexed < h.messages ORDER BY h.session LIMIT $2",
            (most,),
            lambda found: decode(found, _read_gaps, "sessions"),
        ),
    )


def _placed(sql: str, *values: Any) -> Query[list[PlacedBlock]]:
    return Query(sql, values, lambda found: decode(found, rows.read_placed, "blocks"))


def _read_gaps(row: Sequence[Any]) -> tuple[SessionRecord, tuple[tuple[int, int], ...]]:
    _, record = rows.SESSIONS.read(row[:-1])
    return record, rows.gaps(json.loads(row[-1]), record.messages)


def read_state(found: Sequence[Any]) -> IndexState:
    """Return what the queries of ``state`` found."""
    segments, replaced, pages, loose, behind = found
    dead: dict[int, list[int]] = {}
    for segment, place in replaced:
        dead.setdefault(segment, []).append(place)
    held: dict[int, dict[int, bytes]] = {}
    for segment, page, data in pages:
        held.setdefault(segment, {})[page] = data
    return IndexState(
        tuple(
            Segment(number, blocks, tuple(dead.get(number, ())), held.get(number, {}))
            for number, blocks in segments
        ),
        tuple(loose),
        tuple(behind),
    )


def segment_blocks(places: Sequence[tuple[int, int]]) -> Query[list[PlacedBlock]]:
    """Return the live blocks at these places of segments."""
    return _placed(
        f"{_PLACED} unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS w(segment, place, wanted)"
        " JOIN blocks b ON b.tenant = $1 AND b.segment > 0 AND b.segment = w.segment "
        f"AND b.place = w.place {_RECORDS} ORDER BY w.wanted",
        [segment for segment, _ in places],
        [place for _, place in places],
    )


def put(
    blocks: Sequence[PlacedBlock], pages: Mapping[int, bytes], replaces: Sequence[int]
) -> Iterator[Statement]:
    """Yield the statements that dissolve ``replaces`` and put a segment; the first says whether."""
    claims = ([one.session.id for one in blocks], [one.block.start for one in blocks])
    yield Statement(
        _MAY_PUT,
        (
            *claims,
            [one.block.stop for one in blocks],
            [one.session.epoch for one in blocks],
            list(replaces),
        ),
    )
    if replaces:
        yield _dissolved("SELECT unnest($2::bigint[])", list(replaces))
    if blocks:
        numbers = sorted(pages)
        held = [pages[number] for number in numbers]
        yield Statement(_PUT, (*claims, len(blocks), numbers, held))


_CLAIMED: Final = (
    "JOIN sessions s ON s.tenant = $1 AND s.id = g.id "
    "JOIN heads h ON h.tenant = $1 AND h.session = s.session "
    f"JOIN blocks b ON b.tenant = $1 AND b.session = s.session AND b.kind = '{TERMS}' "
    "AND b.start = g.start"
)
_MAY_PUT: Final = (
    "SELECT set_config('hiermem.ok', CASE WHEN "
    "NOT EXISTS (SELECT FROM unnest($6::bigint[]) AS o(number) WHERE NOT EXISTS "
    "(SELECT FROM segments WHERE tenant = $1 AND segment = o.number)) "
    "AND (SELECT count(*) FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) "
    f"AS g(id, start, stop, epoch) {_CLAIMED} AND b.stop = g.stop AND h.epoch = g.epoch "
    "AND (b.segment = 0 OR b.segment = ANY($6::bigint[]))) = cardinality($2::text[]) "
    "THEN '1' ELSE '' END, true)"
)
_PUT: Final = (
    "WITH made AS (INSERT INTO segments (tenant, blocks) SELECT $1, $4::bigint "
    f"WHERE {OK} RETURNING segment), claimed AS (UPDATE blocks t "
    "SET segment = made.segment, place = w.place FROM made, (SELECT b.session, b.start, "
    "g.number - 1 AS place FROM unnest($2::text[], $3::bigint[]) "
    f"WITH ORDINALITY AS g(id, start, number) {_CLAIMED}) w WHERE t.tenant = $1 "
    f"AND t.session = w.session AND t.kind = '{TERMS}' AND t.start = w.start) "
    "INSERT INTO pages (tenant, segment, page, data) SELECT $1, made.segment, p.page, p.data "
    "FROM made, unnest($5::bigint[], $6::bytea[]) AS p(page, data)"
)


def _dissolved(numbers: str, *values: Any) -> Statement:
    """Return the statement that dissolves the segments that the query ``numbers`` finds."""
    gone = "tenant = $1 AND segment > 0 AND segment IN (SELECT segment FROM gone)"
    return Statement(
        f"WITH gone(segment) AS MATERIALIZED (SELECT * FROM ({numbers}) q WHERE {OK}), "
        f"dropped AS (DELETE FROM pages WHERE {gone}), "
        f"forgotten AS (DELETE FROM replaced WHERE {gone}), "
        f"loose AS (UPDATE blocks SET segment = 0, place = 0 WHERE {gone}) "
        f"DELETE FROM segments WHERE {gone}",
        values,
    )


def noted(session_id: str, blocks: Sequence[Block]) -> Iterator[Statement]:
    """Yield the statement that prepares for blocks of terms that are put next.

    It lists the blocks in segments that they replace, and counts the messages that they cover.
    """
    stops = {one.start: one.stop for one in blocks if one.kind == TERMS}
    if stops:
        yield Statement(_NOTED, (session_id, [*stops], [*stops.values()]))


_NOTED: Final = (
    "WITH old AS (SELECT b.segment, b.place, b.session, b.start, b.stop FROM blocks b "
    f"WHERE b.tenant = $1 AND b.session = {NUMBER} AND b.kind = '{TERMS}' "
    f"AND b.start = ANY($3::bigint[]) AND {OK}), "
    "dead AS (INSERT INTO replaced (tenant, segment, place, session, start, stop) "
    "SELECT $1, segment, place, session, start, stop FROM old WHERE segment > 0) "
    "UPDATE heads SET indexed = indexed "
    "+ (SELECT coalesce(sum(stop - start), 0) FROM unnest($3::bigint[], $4::bigint[]) "
    "AS g(start, stop)) - (SELECT coalesce(sum(stop - start), 0) FROM old) "
    f"WHERE tenant = $1 AND session = {NUMBER} AND {OK}"
)


def dissolved(session_id: str, where: str = "", *values: Any) -> Statement:
    """Return the statement that dissolves the segments that hold blocks ``m`` of the session.

    These are also the blocks that were replaced since. The values of ``where`` begin with $3.
    """
    of = f"m WHERE m.tenant = $1 AND m.session = {NUMBER}"
    return _dissolved(
        f"SELECT m.segment FROM blocks {of} AND m.segment > 0{where} "
        f"UNION SELECT m.segment FROM replaced {of}{where}",
        session_id,
        *values,
    )


def dropped(session_id: str, where: str, *values: Any) -> Statement:
    """Return the statement that deletes blocks ``m`` of the session, after ``dissolved``."""
    return Statement(
        f"WITH hit AS (DELETE FROM blocks m WHERE m.tenant = $1 AND m.session = {NUMBER}"
        f"{where} AND {OK} RETURNING m.kind, m.stop - m.start AS size) "
        f"UPDATE heads SET indexed = indexed - (SELECT sum(size) FROM hit WHERE kind = '{TERMS}') "
        f"WHERE tenant = $1 AND session = {NUMBER} "
        f"AND EXISTS (SELECT FROM hit WHERE kind = '{TERMS}')",
        (session_id, *values),
    )
