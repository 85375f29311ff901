"""The statements that write: what changes come to, in the order in which they are applied.

Nothing here waits. A statement that must hit a row, and does not, fails by itself, so that
everything may be sent together with the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hiermem.changes.receipts import STORE_COPY
from hiermem.stores import rows
from hiermem.stores.contract import successive
from hiermem.stores.postgres import due, segments
from hiermem.stores.postgres import due as tables
from hiermem.stores.postgres.due import NUMBER, OK, SESSION, TABLES, Statement, digest
from hiermem.stores.postgres.reads import RECORD, TreeOf
from hiermem.summaries.due import due_by_change
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The numbers of the session's messages with the indices $3 and $4.
_FIRST, _LAST = (f"({NUMBER} << {rows.INDEX_BITS}) + {index}" for index in ("$3", "$4"))
_HEAD: Final = rows.HEADS.columns.split(", ")
_FIXED: Final = rows.FIXED.columns.split(", ")
_COLUMNS: Final = rows.MESSAGES.columns.split(", ")[1:]

#: All tables that hold a tenant's data.
OF_TENANT: Final = (
    "messages", "versions", *rows.BY_NUMBER, *(table for table, _ in rows.BY_NAME), "segments",
    "pages", "replaced", "tenants",
)  # fmt: skip


def _sets(columns: Sequence[str], first: int) -> str:
    return ", ".join(f"{name} = ${number}" for number, name in enumerate(columns, first))


def _hits(change: str, count: str = "1") -> str:
    """Return the statement that fails unless ``change`` hits as many rows as ``count`` says."""
    return (
        f"WITH hit AS ({change} RETURNING 1) "
        f"SELECT 1 / (CASE WHEN count(*) = {count} OR NOT {OK} THEN 1 ELSE 0 END) FROM hit"
    )


# -- the record


_FOLLOWS: Final = (
    f"WITH hit AS (UPDATE heads SET {_sets(_HEAD, 5)} FROM sessions s WHERE s.tenant = $1 "
    "AND s.id = $2 AND s.session = $3 AND heads.tenant = $1 AND heads.session = s.session "
    "AND heads.version = $4 RETURNING 1) "
    "SELECT g.ok, x.* FROM "
    "(SELECT set_config('hiermem.ok', count(*)::text, true) AS ok FROM hit) g "
    f"LEFT JOIN LATERAL (SELECT {RECORD} FROM {SESSION} AND g.ok <> '1') x ON true"
)
_REPLACE_HEAD: Final = (
    f"UPDATE heads SET {_sets(_HEAD, 3)} WHERE tenant = $1 AND session = {NUMBER} AND {OK}"
)
_REPLACE_FIXED: Final = (
    f"UPDATE sessions SET {_sets(_FIXED, 3)} WHERE tenant = $1 AND id = $2 AND {OK}"
)


def follow(number: int, before: SessionRecord, after: SessionRecord) -> Statement:
    """Return the statement that writes ``after`` if ``before`` is what is stored.

    Its row is "1", or another text and the columns of the record that is stored instead. In that
    case, the statements after it change nothing.
    """
    return Statement(_FOLLOWS, (after.id, number, before.version, *rows.HEADS.row(after)))


def record(before: SessionRecord | None, after: SessionRecord) -> Iterator[Statement]:
    """Yield the statements that write the record; what an append leaves only where it differs."""
    if before is None:
        yield tables.SESSIONS.put([after])
        yield from record_of(after)
        return
    yield Statement(_REPLACE_HEAD, (after.id, *rows.HEADS.row(after)))
    if rows.same_fixed(before, after):
        return
    yield Statement(_REPLACE_FIXED, (after.id, *rows.FIXED.row(after)))
    if before.labels == after.labels:
        return
    yield _of_session("DELETE FROM session_metadata m", after.id)
    yield from _metadata(after)


def record_of(after: SessionRecord) -> Iterator[Statement]:
    """Yield the statements that write the rest of a new session's record."""
    yield tables.HEADS.put([after], after.id)
    yield from _metadata(after)


def _metadata(after: SessionRecord) -> Iterator[Statement]:
    if after.labels:
        yield tables.METADATA.put(after.labels.items(), after.id)


def _of_session(delete: str, session_id: str, where: str = "", *values: Any) -> Statement:
    """Return the statement that deletes rows ``m`` of the session."""
    return Statement(
        f"{delete} WHERE m.tenant = $1 AND m.session = {NUMBER} AND {OK}{where}",
        (session_id, *values),
    )


# -- changes


def changed(
    before: SessionRecord | None, after: SessionRecord, changes: tx.Changes[Any]
) -> Iterator[Statement]:
    """Yield the statements for everything in ``changes`` but the record itself."""
    session_id = after.id
    tree = after.tree if changes.tree is None else changes.tree
    if changes.copy is not None:
        yield from _copied(session_id, tree, changes.copy)
    if changes.messages:
        yield TABLES["message"].put(changes.messages, session_id)
    if changes.keys:
        yield TABLES["key"].put(changes.keys, session_id)
    for index, flag in changes.flags:
        yield _flagged(session_id, index, flag)
    for run in successive(changes.rewrites):
        yield from _rewritten(session_id, run)
    if changes.events:
        yield TABLES["event"].put(changes.events, session_id)
    yield from _structure(session_id, tree, changes)
    for name in changes.drop_views:
        yield _drop("views", session_id, name)
    for kind, key in changes.drop_records:
        yield _drop("records", kind, session_id, key)
    yield from due.note(session_id, due_by_change(before, after, changes))


def _copied(session_id: str, tree: int, copy: tx.Copy) -> Iterator[Statement]:
    """Yield the statements that copy messages, their versions, keys and texts from the source."""
    of = "o.tenant = $1 AND o.id = $3 AND s.tenant = $1 AND s.id = $2"
    columns = rows.prefixed("m", ", ".join(_COLUMNS))
    for table, order in (("messages", "m.message"), ("versions", "m.edit")):
        yield Statement(
            f"INSERT INTO {table} (tenant, {rows.MESSAGES.columns}) "
            f"SELECT $1, m.message + ((s.session - o.session) << {rows.INDEX_BITS}), {columns} "
            f"FROM sessions s, sessions o JOIN {table} m ON m.tenant = o.tenant "
            f"AND m.message >= o.session << {rows.INDEX_BITS} "
            f"AND m.message < (o.session << {rows.INDEX_BITS}) + $4 WHERE {of} ORDER BY {order}",
            (session_id, copy.source, copy.stop),
        )
    yield Statement(
        f"INSERT INTO keys (tenant, session, {rows.KEYS.columns}) "
        "SELECT $1, s.session, m.key, m.message_index, m.fingerprint FROM sessions s, sessions o "
        "JOIN keys m ON m.tenant = o.tenant AND m.session = o.session AND m.message_index < $4 "
        f"WHERE {of}",
        (session_id, copy.source, copy.stop),
    )
    wanted = list(dict.fromkeys(copy.revisions))
    if wanted:
        columns = rows.prefixed("r", rows.REVISIONS.columns)
        yield Statement(
            _hits(
                f"INSERT INTO revisions (tenant, session, tree, {rows.REVISIONS.columns}) "
                f"SELECT $1, s.session, $4, {columns} FROM sessions s, sessions o "
                "JOIN heads h ON h.tenant = o.tenant AND h.session = o.session "
                "JOIN revisions r ON r.tenant = o.tenant AND r.session = o.session "
                "AND r.tree = h.tree JOIN unnest($5::text[], $6::bigint[]) "
                "WITH ORDINALITY AS w(id, number, place) "
                f"ON w.id = r.node_id AND w.number = r.number WHERE {of} ORDER BY w.place",
                "cardinality($5::text[])",
            ),
            (session_id, copy.source, tree, *map(list, zip(*wanted, strict=True))),
        )


def _flagged(session_id: str, index: int, flag: str) -> Statement:
    return Statement(
        "UPDATE messages SET flags = CASE WHEN flags::jsonb ? $4 THEN flags "
        "ELSE (coalesce(flags, '[]')::jsonb || to_jsonb($4::text))::text END "
        f"WHERE tenant = $1 AND message = {_FIRST} AND {OK}",
        (session_id, index, flag),
    )


def _rewritten(session_id: str, run: Sequence[tx.Rewrite]) -> Iterator[Statement]:
    """Yield the statements that rewrite successive messages, all in the same way."""
    bounds = (session_id, run[0].message.index, run[-1].message.index)
    of_messages = f"WHERE tenant = $1 AND message BETWEEN {_FIRST} AND {_LAST} AND {OK}"
    if run[0].kind == "edit":
        yield Statement(
            f"INSERT INTO versions (tenant, {rows.MESSAGES.columns}) SELECT tenant, "
            f"{rows.MESSAGES.columns} FROM messages {of_messages} ORDER BY message",
            bounds,
        )
    elif run[0].kind == "erase":
        yield Statement(f"DELETE FROM versions {of_messages}", bounds)
        yield Statement(
            f"UPDATE keys SET fingerprint = NULL WHERE tenant = $1 AND session = {NUMBER} "
            "AND message_index BETWEEN $3 AND $4 "
            f"AND key IN (SELECT key FROM messages {of_messages} AND key IS NOT NULL)",
            bounds,
        )
    yield tables.REWRITTEN.put((rewrite.message for rewrite in run), session_id)
    holding = " AND m.stop > $3 AND m.start <= $4"
    yield segments.dissolved(session_id, holding, *bounds[1:])
    yield segments.dropped(session_id, holding, *bounds[1:])


def _structure(session_id: str, tree: int, changes: tx.Changes[Any]) -> Iterator[Statement]:
    """Yield the statements for forgotten and new nodes and the parents of older nodes."""
    if changes.drop_tree is not None:
        for table in ("nodes", "revisions"):
            yield _of_session(
                f"DELETE FROM {table} m", session_id, " AND m.tree = $3", changes.drop_tree
            )
    if changes.forget:
        ids = " AND m.tree = $3 AND m.node_id = ANY($4::text[])"
        yield _of_session("DELETE FROM revisions m", session_id, ids, tree, list(changes.forget))
    if changes.nodes:
        yield TABLES["node"].put(changes.nodes, session_id, tree)
    for child, parent in changes.parents:
        yield Statement(
            _hits(
                "UPDATE nodes SET parent = $5, version = version + 1 WHERE tenant = $1 "
                f"AND session = {NUMBER} AND tree = $3 AND id = $4 AND {OK}"
            ),
            (session_id, tree, child, parent),
        )


# -- removal


def _drop(table: str, *names: str) -> Statement:
    return Statement(f"DELETE FROM {table} WHERE tenant = $1 AND place = $2 AND {OK}",
                     (digest(*names),))  # fmt: skip


def dropped_records(places: Iterable[tuple[str, str, str]]) -> Iterator[Statement]:
    """Yield the statements that delete the records with these (kind, scope, key)."""
    return (_drop("records", *place) for place in places)


def _named(tables: Sequence[tuple[str, str]], name: str) -> Iterator[Statement]:
    for table, column in tables:
        yield Statement(
            f"DELETE FROM {table} WHERE tenant = $1 AND {column} = $2 "
            f"AND hashtextextended({column}, 0) = hashtextextended($2, 0)",
            (name,),
        )


def dropped_journal(subject: str) -> Iterator[Statement]:
    """Yield the statements that delete the runs of this subject and the calls charged to it."""
    return _named(rows.JOURNAL, subject)


def deleted(session_id: str) -> Iterator[Statement]:
    """Yield the statements that delete all of a session, and all rows that hold its name.

    The empty id stands for what belongs to no session.
    """
    if session_id == tx.NO_SESSION:
        for table, column in rows.BY_NAME:
            kept = f" AND m.kind <> '{STORE_COPY}'" if table == "records" else ""
            yield Statement(
                f"DELETE FROM {table} m WHERE m.tenant = $1 AND NOT EXISTS (SELECT FROM sessions s "
                f"WHERE s.tenant = m.tenant AND s.id = m.{column}){kept}"
            )
        return
    yield segments.dissolved(session_id)
    for table in ("messages", "versions"):
        yield Statement(
            f"DELETE FROM {table} WHERE tenant = $1 AND message >= {NUMBER} << {rows.INDEX_BITS} "
            f"AND message < ({NUMBER} + 1) << {rows.INDEX_BITS}",
            (session_id,),
        )
    for table in rows.BY_NUMBER:
        yield _of_session(f"DELETE FROM {table} m", session_id)
    yield from _named(rows.BY_NAME, session_id)


# -- writes without a decision


def runs(given: Sequence[tx.RunRecord]) -> Statement:
    """Return the statement that inserts runs, or replaces those of the same ids."""
    return TABLES["run"].put(given)


def attempts(given: Sequence[tx.Attempt]) -> Iterator[Statement]:
    """Yield the statement that inserts attempts, or replaces those of the same ids."""
    if given:
        yield TABLES["attempt"].put(given)


_SAME_EPOCHS: Final = (
    "NOT EXISTS (SELECT FROM unnest($2::text[], $3::bigint[]) AS e(id, epoch) WHERE NOT EXISTS ("
    "SELECT FROM sessions s JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
    "WHERE s.tenant = $1 AND s.id = e.id AND h.epoch = e.epoch))"
)
_STANDING: Final = (
    "NOT EXISTS (SELECT FROM unnest($4::uuid[], $5::text[], $6::bigint[]) "
    "AS e(place, body, version) WHERE NOT EXISTS ("
    "SELECT FROM records r WHERE r.tenant = $1 AND r.place = e.place "
    "AND r.body = e.body AND r.version = e.version))"
)
_EXPECTED: Final = (
    "NOT EXISTS (SELECT FROM unnest($7::uuid[], $8::bigint[]) AS e(place, version) WHERE "
    "coalesce((SELECT r.version FROM records r WHERE r.tenant = $1 AND r.place = e.place), 0) "
    "<> e.version)"
)


def only_if(
    epochs: Mapping[str, int],
    standing: Sequence[tx.Record] = (),
    writes: Sequence[tx.RecordWrite] = (),
) -> Statement:
    """Return the statement after which nothing is changed unless all of this holds.

    Its row is "1" where it does.
    """
    expected = [
        (digest(one.kind, one.scope, one.key), one.expected)
        for one in writes
        if one.expected is not None
    ]
    held = [(digest(one.kind, one.scope, one.key), one.body, one.version) for one in standing]
    return Statement(
        "SELECT set_config('hiermem.ok', "
        f"CASE WHEN {_SAME_EPOCHS} AND {_STANDING} AND {_EXPECTED} THEN '1' ELSE '' END, true)",
        (
            list(epochs),
            list(epochs.values()),
            *([one[place] for one in held] for place in range(3)),
            *([one[place] for one in expected] for place in range(2)),
        ),
    )


def put_records(writes: Sequence[tx.RecordWrite]) -> Iterator[Statement]:
    """Yield the statements that insert, replace or delete the records."""
    for write in writes:
        if write.body is None:
            yield _drop("records", write.kind, write.scope, write.key)
            continue
        place = digest(write.kind, write.scope, write.key)
        yield Statement(
            f"INSERT INTO records (tenant, place, {rows.RECORDS.columns}) "
            f"SELECT $1, $2, $3, $4, $5, $6, 1 WHERE {OK} ON CONFLICT (tenant, place) "
            "DO UPDATE SET body = excluded.body, version = records.version + 1",
            (place, write.kind, write.scope, write.key, write.body),
        )


def put_view(view: tx.ViewRecord) -> Statement:
    """Return the statement that inserts the view, or replaces it."""
    return TABLES["view"].put([view])


def put_blocks(session_id: str, blocks: Sequence[tx.Block]) -> Iterator[Statement]:
    """Yield the statements that insert the blocks, or replace those of the same start."""
    yield from segments.noted(session_id, blocks)
    yield TABLES["block"].put(blocks, session_id)


def drop_blocks(session_id: str, kind: str) -> Iterator[Statement]:
    """Yield the statements that remove all blocks of ``kind``."""
    if kind == tx.TERMS:
        yield segments.dissolved(session_id)
    yield segments.dropped(session_id, " AND m.kind = $3", kind)


_NODE: Final = rows.NODES.columns.split(", ")
_REVISION: Final = rows.REVISIONS.columns.split(", ")
#: The revision's columns come first, so that a write without one leaves them out.
_COUNT_APPLIED: Final = (
    "SELECT set_config('hiermem.applied', "
    "(current_setting('hiermem.applied')::bigint + count(*))::text, true), count(*) FROM hit"
)
_INPUTS_SERVE: Final = (
    "NOT EXISTS (SELECT FROM unnest($5::text[], $6::bigint[]) AS i(id, revision) "
    "WHERE NOT EXISTS (SELECT FROM nodes o WHERE o.tenant = $1 AND o.session = n.session "
    "AND o.tree = n.tree AND o.id = i.id AND o.revision = i.revision))"
)
_WRITE_NODE: Final = (
    f"WITH hit AS (UPDATE nodes n SET {_sets(_NODE, 7)} FROM {SESSION} AND n.tenant = $1 "
    "AND n.session = s.session AND n.tree = coalesce($3::bigint, h.tree) AND n.id = $7 "
    f"AND n.version = $4 AND {OK} AND {_INPUTS_SERVE} RETURNING n.session, n.tree)"
)
_WRITE_REVISION: Final = (
    f", made AS (INSERT INTO revisions (tenant, session, tree, {rows.REVISIONS.columns}) "
    "SELECT $1, hit.session, hit.tree, "
    + ", ".join(f"${number}" for number in range(7 + len(_NODE), 7 + len(_NODE) + len(_REVISION)))
    + " FROM hit)"
)


def write_node(of: TreeOf, write: tx.NodeWrite) -> Statement:
    """Return the statement that writes one node by compare-and-swap, with its text.

    Its row is (…, 1) where the node was written, and (…, 0) where it was not.
    """
    values = (
        *of,
        write.expected,
        [id_ for id_, _ in write.inputs],
        [number for _, number in write.inputs],
        *rows.NODES.row(write.node),
    )
    if write.revision is None:
        return Statement(f"{_WRITE_NODE} {_COUNT_APPLIED}", values)
    return Statement(
        f"{_WRITE_NODE}{_WRITE_REVISION} {_COUNT_APPLIED}",
        (*values, *rows.REVISIONS.row(write.revision)),
    )
