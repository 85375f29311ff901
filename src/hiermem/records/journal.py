"""Reads and writes what belongs to a name: runs, calls of models, views and records.

The name is that of a session, or of anything else. Whoever writes views or records adds to a
counter of the name, on which a decision relies that reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

from hiermem.records import rows, sessions
from hiermem.records.contract import check_record_writes, decode
from hiermem.records.tables import Key, Row, Scan
from hiermem.records.transaction import Transaction
from hiermem.types import transaction as tx

#: More rows than a tenant can have.
_ALL: Final = 1 << 60


# -- runs and calls


def _run(row: Row) -> tx.RunRecord:
    _, subject, id_, _, kind, *columns = row
    return rows.RUNS.read((id_, kind, subject, *columns))


async def run(t: Transaction, run_id: str) -> tx.RunRecord | None:
    """Return the run of that id, or None."""
    found = await t.scan(Scan("runs", (t.tenant, run_id), index="by_id"))
    runs = decode(found, _run, "runs")
    return runs[0] if runs else None


async def runs(
    t: Transaction, *, subject: str | None = None, limit: int = 100
) -> list[tx.RunRecord]:
    """Return the newest runs first, of one subject if given."""
    if limit <= 0:
        return []
    of = (t.tenant,) if subject is None else (t.tenant, subject)
    index = "newest" if subject is None else "of"
    found = await t.scan(Scan("runs", of, index=index, limit=min(limit, _ALL), reverse=True))
    return decode(found, _run, "runs")


async def put_run(t: Transaction, run: tx.RunRecord) -> None:
    """Insert the run, or replace the one of the same id."""
    (*before,) = await t.scan(Scan("runs", (t.tenant, run.id), index="by_id"))
    for row in before:
        if row[1] != run.subject:
            t.delete(Key("runs", row[:3]))
    number = before[0][3] if before else t.serial()
    id_, kind, subject, *columns = rows.RUNS.row(run)
    t.put("runs", (t.tenant, subject, id_, number, kind, *columns))


def _attempt(row: Row) -> tx.Attempt:
    _, session_id, id_, _, run_id, *columns = row
    return rows.ATTEMPTS.read((id_, run_id, session_id, *columns))


async def attempts(
    t: Transaction,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    limit: int = 1000,
) -> list[tx.Attempt]:
    """Return the journalled attempts in the order they started, filtered if requested."""
    if limit <= 0:
        return []
    most = None if run_id is not None and session_id is not None else min(limit, _ALL)
    if run_id is not None:
        scan = Scan("attempts", (t.tenant, run_id), index="of_run", limit=most)
    elif session_id is not None:
        scan = Scan("attempts", (t.tenant, session_id), index="of_session", limit=most)
    else:
        scan = Scan("attempts", (t.tenant,), index="started", limit=most)
    tried = decode(await t.scan(scan), _attempt, "attempts")
    return [each for each in tried if session_id in (None, each.session_id)][:limit]


def scans_of(t: Transaction, attempts: Sequence[tx.Attempt]) -> list[Scan]:
    """Return the scans of what calls may replace."""
    return [Scan("attempts", (t.tenant, each.id), index="by_id") for each in attempts]


async def put_attempts(t: Transaction, attempts: Sequence[tx.Attempt]) -> None:
    """Insert the calls, or replace those of the same ids."""
    scans = scans_of(t, attempts)
    await t.want((), scans)
    for each, scan in zip(attempts, scans, strict=True):
        (*before,) = await t.scan(scan)
        for row in before:
            if row[1] != each.session_id:
                t.delete(Key("attempts", row[:3]))
        number = before[0][3] if before else t.serial()
        id_, run_id, session_id, *columns = rows.ATTEMPTS.row(each)
        t.put("attempts", (t.tenant, session_id, id_, number, run_id, *columns))


def without_session(attempt: tx.Attempt) -> tx.Attempt:
    """Return a call without the name of its session, which was erased; a space's keeps its own."""
    is_space = attempt.session_id.startswith("space:")
    return attempt if is_space else replace(attempt, session_id=tx.NO_SESSION, node_id="")


async def spent(t: Transaction, session_id: str | None = None) -> tx.Spent:
    """Add up the journalled attempts of one session, or of the tenant."""
    tried = await attempts(t, session_id=session_id, limit=_ALL)
    total = tx.Spent(
        unknown=sum(each.outcome in ("started", "unknown") for each in tried),
        cached_tokens=sum(each.cached_tokens for each in tried),
        reasoning_tokens=sum(each.reasoning_tokens for each in tried),
    )
    return total + sum((each.spent for each in tried), tx.Cost())


def drop_journal(t: Transaction, subject: str) -> None:
    """Remove the runs of that subject, and the calls charged to it."""
    t.wipe(Key("runs", (t.tenant, subject)))
    t.wipe(Key("attempts", (t.tenant, subject)))


# -- views


async def view(t: Transaction, session_id: str, name: str) -> tx.ViewRecord | None:
    """Return the stored view, or None."""
    row = await t.get(Key("views", (t.tenant, session_id, name)))
    return None if row is None else decode([row[1:]], rows.VIEWS.read, "views")[0]


async def views(
    t: Transaction, session_id: str, *, names: Sequence[str] | None = None
) -> list[tx.ViewRecord]:
    """Return the views of the session, or those with these names, by name."""
    guard = Key("counters", (t.tenant, "views", session_id)) if t.decides else None
    found = await t.scan(Scan("views", (t.tenant, session_id)), guard)
    stored = decode([row[1:] for row in found], rows.VIEWS.read, "views")
    return [each for each in stored if names is None or each.name in names]


async def put_view(t: Transaction, view: tx.ViewRecord, *, epoch: int | None = None) -> bool:
    """Insert or replace the view; return False if ``epoch`` is over.

    A view can be made again, so it need not survive a power loss.
    """
    if epoch is not None:
        t.guess(sessions.place_key(t, view.session_id))
        if not await is_epoch(t, view.session_id, epoch):
            return False
    add_view(t, view)
    t.durable = False
    return True


def add_view(t: Transaction, view: tx.ViewRecord) -> None:
    """Write a view."""
    t.put("views", (t.tenant, *rows.VIEWS.row(view)))
    t.count("views", view.session_id)


def drop_views(t: Transaction, session_id: str, names: Sequence[str]) -> None:
    """Delete views of a session."""
    for name in names:
        t.delete(Key("views", (t.tenant, session_id, name)))
        t.count("views", session_id)


async def is_epoch(t: Transaction, session_id: str, epoch: int) -> bool:
    """Return whether the session exists and nothing was taken back since ``epoch``."""
    place = await sessions.place_of(t, session_id)
    return place is not None and place.epoch == epoch


# -- records


def _record(row: Row) -> tx.Record:
    _, scope, kind, key, _, _, body, version = row
    return rows.RECORDS.read((kind, scope, key, body, version))


def _key(t: Transaction, kind: str, scope: str, key: str) -> Key:
    return Key("records", (t.tenant, scope, kind, key))


async def records(
    t: Transaction,
    kind: str,
    *,
    scope: str | None = None,
    key: str | None = None,
    limit: int = 10_000,
) -> list[tx.Record]:
    """Return up to ``limit`` records of ``kind``, of one scope or one key if given.

    They come by scope, then key, each compared code point by code point. The cost of a query
    that names the scope or the key is proportional to the result, not to the tenant's data.
    """
    if limit <= 0:
        return []
    if scope is not None and key is not None:
        row = await t.get(_key(t, kind, scope, key))
        return decode([row] if row else [], _record, "records")
    most = min(limit, _ALL)
    if key is not None:
        scan = Scan("records", (t.tenant, kind, key), index="by_key", limit=most)
    elif scope is not None:
        scan = Scan("records", (t.tenant, scope, kind), limit=most)
    else:
        scan = Scan("records", (t.tenant, kind), index="by_kind", limit=most)
    guard = _counter(t, kind, scope) if t.decides and key is None else None
    return decode(await t.scan(scan, guard), _record, "records")


def _counter(t: Transaction, kind: str, scope: str | None) -> Key:
    of = ("kind", kind) if scope is None else ("scope", scope)
    return Key("counters", (t.tenant, *of))


async def put_record(t: Transaction, write: tx.RecordWrite) -> None:
    """Write a record, or delete it if there is no body."""
    key = _key(t, write.kind, write.scope, write.key)
    before = await t.get(key)
    if before is None and write.body is None:
        return
    t.count("scope", write.scope)
    t.count("kind", write.kind)
    if write.body is None:
        t.delete(key)
        return
    number, version = (before[5], before[7]) if before else (t.serial(), 0)
    t.put("records", (*key.columns, t.serial(), number, write.body, version + 1))


async def put_records(
    t: Transaction,
    writes: Sequence[tx.RecordWrite],
    *,
    epochs: Mapping[str, int] | None = None,
    standing: Sequence[tx.Record] = (),
    attempts: Sequence[tx.Attempt] = (),
) -> bool:
    """Apply all writes, or none if an expectation fails; return whether they were applied.

    Every expectation refers to the state before the call. The records of ``standing`` must be
    stored exactly as given, body and version. ``attempts`` are recorded in the same transaction
    if the writes are applied. Raises UsageError, writing nothing, if two writes
    are of one record or an expected version is below 0.
    """
    check_record_writes(writes)
    await t.want([
        *(sessions.place_key(t, id_) for id_ in epochs or ()),
        *(_key(t, write.kind, write.scope, write.key) for write in writes),
        *(_key(t, record.kind, record.scope, record.key) for record in standing),
    ])  # fmt: skip
    for id_, epoch in (epochs or {}).items():
        if not await is_epoch(t, id_, epoch):
            return False
    for record in standing:
        if await records(t, record.kind, scope=record.scope, key=record.key) != [record]:
            return False
    for write in writes:
        row = await t.get(_key(t, write.kind, write.scope, write.key))
        if write.expected not in (None, row[7] if row else 0):
            return False
    for write in writes:
        await put_record(t, write)
    await put_attempts(t, attempts)
    return True


def drop_scope(t: Transaction, scope: str) -> None:
    """Delete all views, records and counters of a name."""
    t.wipe(Key("views", (t.tenant, scope)))
    t.wipe(Key("records", (t.tenant, scope)))
    for kind in ("views", "scope"):
        t.forget_counts(Key("counters", (t.tenant, kind, scope)))


async def written_in(t: Transaction, scope: str) -> list[tx.Record]:
    """Return all records of a scope in the order in which they were first written."""
    found = sorted(await t.scan(Scan("records", (t.tenant, scope))), key=itemgetter(5))
    return decode(found, _record, "records")


def restore_record(t: Transaction, record: tx.Record) -> None:
    """Write a record with its version."""
    key = _key(t, record.kind, record.scope, record.key)
    t.put("records", (*key.columns, t.serial(), t.serial(), record.body, record.version))
    t.count("scope", record.scope)
    t.count("kind", record.kind)


#: What reads a row of each kind that may belong to no session.
READ: Final[Mapping[str, Callable[[Row], Any]]] = {
    "view": lambda row: rows.VIEWS.read(row[1:]),
    "record": _record,
    "run": _run,
    "attempt": _attempt,
}
