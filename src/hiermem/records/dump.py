"""Reads everything that is kept of a session as items of a dump, and writes such items."""

from __future__ import annotations

from typing import Any

from hiermem.changes.receipts import STORE_COPY
from hiermem.errors import ConflictError, NotFoundError
from hiermem.records import changes, due, index, journal, log, nodes, rows, sessions
from hiermem.records.contract import decode, refuse
from hiermem.records.dump_format import Item, SessionDump
from hiermem.records.sessions import Session
from hiermem.records.tables import Key, Scan
from hiermem.records.transaction import Transaction
from hiermem.summaries.due import AT_ONCE
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx

_ALL = 1 << 60


async def items(t: Transaction, session_id: str) -> list[Item]:
    """Return everything kept of a session, or of what belongs to none, in the order of a dump."""
    if session_id == tx.NO_SESSION:
        return await _of_no_session(t)
    found = await sessions.find(t, session_id)
    if found is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    of = (t.tenant, found.number)
    everything: list[Item] = [("session", "", found.record)]
    messages = await log.messages(t, session_id, 0, found.record.messages)
    everything += [("message", "", message) for message in messages]
    versions = log.read_versions(await t.scan(Scan("versions", of)))
    everything += [("version", "", version) for version in versions]
    keys = decode(await t.scan(Scan("keys", of)), lambda row: rows.KEYS.read(row[2:]), "keys")
    everything += [("key", name, entry) for name, entry in keys]
    everything += [("event", "", event) for event in await log.events(t, session_id)]
    everything += await _trees(t, found)
    everything += [("view", "", view) for view in await journal.views(t, session_id)]
    everything += [("record", "", record) for record in await journal.written_in(t, session_id)]
    runs = await journal.runs(t, subject=session_id, limit=_ALL)
    everything += [("run", "", run) for run in reversed(runs)]
    attempts = await journal.attempts(t, session_id=session_id, limit=_ALL)
    everything += [("attempt", "", attempt) for attempt in attempts]
    return everything + [("block", "", block) for block in await index.every_block(t, found.number)]


async def _trees(t: Transaction, found: Session) -> list[Item]:
    sealed = await t.scan(Scan("nodes", (t.tenant, found.number)))
    placed = zip(sealed, decode(sealed, nodes.read_node, "nodes"), strict=True)
    made = sorted(await t.scan(Scan("revisions", (t.tenant, found.number))), key=lambda row: row[5])
    texts = zip(made, decode(made, nodes.read_revision, "revisions"), strict=True)
    trees: list[Item] = [("node", row[2], node) for row, node in placed]
    return trees + [("revision", row[2], text) for row, text in texts]


async def _of_no_session(t: Transaction) -> list[Item]:
    scans = {
        "view": Scan("views", (t.tenant,)),
        "record": Scan("records", (t.tenant,)),
        "run": Scan("runs", (t.tenant,), index="newest"),
        "attempt": Scan("attempts", (t.tenant,), index="started"),
    }
    await t.want((), scans.values())
    found = {kind: await t.scan(scan) for kind, scan in scans.items()}
    names = {row[1] for stored in found.values() for row in stored}
    await t.want(sessions.place_key(t, str(name)) for name in names)
    free = {name for name in names if await sessions.place_of(t, str(name)) is None}
    everything: list[Item] = []
    for kind, stored in found.items():
        own = [row for row in stored if row[1] in free]
        if kind == "record":
            own.sort(key=lambda row: row[5])
        everything += [(kind, "", value) for value in decode(own, journal.READ[kind], f"{kind}s")]
    return everything


async def restore(t: Transaction, dump: SessionDump, replaces: int | None) -> None:
    """Write a session as it was, instead of one of version ``replaces``.

    Raises ConflictError, and UsageError where a name is taken.
    """
    owner = dump.session_id
    held = await sessions.find(t, owner) if owner != tx.NO_SESSION else None
    if held is not None and held.record.version != replaces:
        what = f"session {owner!r} exists already"
        raise ConflictError(what, kind="exists", session_id=owner)
    if replaces is not None:
        await _remove(t, owner)
    await _refuse_taken(t, dump)
    if dump.record is not None:
        await _write_session(t, dump, dump.record, held.created if held else None)
    for view in dump.of("view"):
        journal.add_view(t, view)
    for record in dump.of("record"):
        journal.restore_record(t, record)
    for run in dump.of("run"):
        await journal.put_run(t, run)
    await journal.put_attempts(t, dump.of("attempt"))


async def _refuse_taken(t: Transaction, dump: SessionDump) -> None:
    views = dump.of("view")
    taken: list[Any] = [await journal.view(t, view.session_id, view.name) for view in views]
    for record in dump.of("record"):
        taken += await journal.records(t, record.kind, scope=record.scope, key=record.key)
    taken += [await journal.run(t, run.id) for run in dump.of("run")]
    taken += [await t.scan(scan) or None for scan in journal.scans_of(t, dump.of("attempt"))]
    if any(value is not None for value in taken):
        raise refuse(
            dump.session_id, "a view, record, run or call of the dump has a name that is taken"
        )


async def _remove(t: Transaction, owner: str) -> None:
    """Remove a session, or what belongs to none."""
    if owner != tx.NO_SESSION:
        await changes.delete(t, owner)
        return
    for kind, _, value in await _of_no_session(t):
        if kind == "view":
            journal.drop_views(t, value.session_id, [value.name])
        elif kind == "record" and value.kind != STORE_COPY:
            write = tx.RecordWrite(value.kind, value.scope, value.key, None)
            await journal.put_record(t, write)
        elif kind in ("run", "attempt"):
            journal.drop_journal(t, value.subject if kind == "run" else value.session_id)


async def _write_session(
    t: Transaction, dump: SessionDump, record: SessionRecord, created: int | None
) -> None:
    number = await t.number()
    for stored in dump.of("message"):
        log.put_message(t, number, stored)
    for stored in dump.of("version"):
        log.put_version(t, number, stored)
    for name, entry in dump.placed("key"):
        log.put_key(t, number, name, entry)
    for event in dump.of("event"):
        log.put_event(t, number, event)
    for tree, revision in dump.placed("revision"):
        nodes.add_revision(t, nodes.Tree(record.id, number, tree), revision)
    for tree, node in dump.placed("node"):
        nodes.add_node(t, nodes.Tree(record.id, number, tree), node)
    unindexed = bool(record.messages)
    sessions.write(t, None, record, number=number, unindexed=unindexed, created=created)
    await index.put_blocks(t, record.id, dump.of("block"), epoch=record.epoch)
    await due.become_due(t, record.id, AT_ONCE)


async def exchange_secret(t: Transaction, secret: bytes) -> None:
    """Make ``secret`` that of the store."""
    row = await t.get(Key("store", ("secret",)))
    if row is None or row[2] != secret:
        t.put("store", ("secret", t.serial(), secret))
