"""Applies what was decided: the changes of sessions, batches of them, deletions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from hiermem.records import due, index, journal, log, nodes, sessions
from hiermem.records.contract import check_changes, refuse
from hiermem.records.sessions import Session
from hiermem.records.tables import Key, Scan
from hiermem.records.transaction import Transaction, gather
from hiermem.summaries.due import due_by_change, due_by_nodes
from hiermem.types import transaction as tx

T = TypeVar("T")
#: Of a tenant of which anything is stored, one of these tables has a row.
TABLES_OF_TENANT: Final = ("sessions", "records", "views", "runs", "attempts")


async def mutate(
    t: Transaction,
    session_id: str,
    decide: Callable[[tx.Snapshot], tx.Changes[T]],
    *,
    keys: Sequence[str] = (),
) -> T:
    """Read the snapshot, call ``decide`` with it and commit its changes, atomically.

    ``decide`` is synchronous and pure. If the snapshot may have changed since it was read, the
    store reads it again and calls ``decide`` again. Only the last call counts: its changes are
    written and its result returned, or its error is raised unchanged and nothing is written. No
    other write to this session happens between its snapshot and the commit, also where the
    session does not exist yet. Several mutations may share one commit if each is atomic by
    itself.
    """
    t.guess(sessions.head_key(t, session_id), sessions.place_key(t, session_id))
    found = await sessions.find(t, session_id)
    entries = await log.keys(t, found, keys)
    changes = decide(tx.Snapshot(None if found is None else found.record, entries))
    await change(t, session_id, changes)
    return changes.result


async def transact(t: Transaction, decide: Callable[[], tx.Deciding[T]]) -> T:
    """Run a decision that reads as it goes and commit what it decides, atomically.

    The generator yields a (session id, need) and is sent the answer, or a tuple of such pairs
    and is sent the tuple of their answers, in the same order. It is pure, it does not wait, and
    it may be run again, like the decision of ``mutate``; a run that is given up is closed. Only
    the last run counts, and only if every answer that it was given still holds when its changes
    are committed, or when it raises. Sessions that do not exist count as answers too. Other
    writes may be committed meanwhile.
    """
    deciding = decide()
    reply: Any = None
    try:
        while True:
            asked = deciding.send(reply)
            is_one = bool(asked) and isinstance(asked[0], str)
            needs = cast("tuple[tx.SessionNeed, ...]", (asked,) if is_one else asked)
            answers = await read(t, needs)
            reply = answers[0] if is_one else tuple(answers)
    except StopIteration as done:
        batch: tx.Batch[T] = done.value
    finally:
        deciding.close()
    for session_id, changes in batch.sessions:
        await change(t, session_id, changes)
    for session_id in batch.delete:
        await delete(t, session_id)
    changed = {id_ for id_, changes in batch.sessions if changes.session} | set(batch.delete)
    for _, changes in batch.sessions:
        # A copy is of the source as it was in its epoch: appends to it change nothing of that.
        if changes.copy is not None and changes.copy.source not in changed:
            t.release(sessions.head_key(t, changes.copy.source))
    for kind, scope, name in batch.drop_records:
        await journal.put_record(t, tx.RecordWrite(kind, scope, name, None))
    for subject in batch.drop_journals:
        journal.drop_journal(t, subject)
    for run in batch.runs:
        await journal.put_run(t, run)
    return batch.result


async def read(t: Transaction, needs: Sequence[tx.SessionNeed]) -> list[Any]:
    """Return the answers to these needs, in their order, all from one state of the store.

    Each is answered as in a decision of ``transact``; nothing is locked. A store on a server
    answers all of them in one round trip.
    """
    return await gather(answer(t, *need) for need in needs)


async def answer(t: Transaction, session_id: str, need: tx.Need) -> Any:  # noqa: PLR0911, PLR0912 - one a need
    """Return the answer to a need."""
    match need:
        case "session":
            return await sessions.session(t, session_id)
        case "forks":
            return await sessions.forks(t, session_id)
        case tx.NeedMessages(start, stop, thread):
            return await log.messages(t, session_id, start, stop, thread=thread)
        case "echoes":
            return await log.echoing(t, session_id)
        case tx.NeedFlagged(flag, limit, None):
            return await log.flagged(t, session_id, flag, limit=limit)
        case tx.NeedFlagged(flag, limit, str(space)):
            return await log.flagged_in(t, space, flag, limit=limit)
        case "events":
            return await log.events(t, session_id)
        case tx.NeedNodes(ids, tree):
            return await nodes.nodes(t, (session_id, tree), ids)
        case tx.NeedLevel(level, start, stop, tree):
            return await nodes.level(t, (session_id, tree), level, start, stop)
        case tx.NeedCovering(thread, at, tree, last):
            stop = at if last is None else last
            return await nodes.spanning(t, (session_id, tree), thread, at, stop)
        case tx.NeedRevisions(wanted, tree):
            return await nodes.revisions(t, (session_id, tree), wanted)
        case tx.NeedViews(names):
            return await journal.views(t, session_id, names=names)
        case tx.NeedRecords(kind, everywhere):
            scope = None if everywhere else session_id
            return await journal.records(t, kind, scope=scope, limit=1 << 60)


async def write_nodes(
    t: Transaction,
    of: tuple[str, int | None],
    writes: Sequence[tx.NodeWrite],
    *,
    attempts: Sequence[tx.Attempt] = (),
    claim: tx.DueSession | None = None,
) -> list[bool] | None:
    """Apply each write whose expectations hold; return for each, in order, whether it did.

    ``attempts`` are recorded (inserted, or replaced by id) in the same transaction in any case.
    With ``claim``, all of this is done only while that is the session's claim, whether or not
    its time is over; otherwise nothing is written and None is returned.
    """
    session_id = of[0]
    t.guess(sessions.place_key(t, session_id))
    if claim is not None:
        t.guess(due.key_of(t, session_id))
        entry = await due.find(t, session_id)
        if entry is None or not entry.is_held(claim):
            return None
    await t.want(await nodes.wanted(t, of, writes), journal.scans_of(t, attempts))
    applied = await nodes.write_nodes(t, of, writes)
    at = await nodes.find_tree(t, (session_id, None))
    if at and any(applied) and claim is None and of[1] in (None, at.tree):
        due_at = due_by_nodes(write.node for write in writes)
        if due_at is not None:
            await due.become_due(t, session_id, due_at)
    await journal.put_attempts(t, attempts if at else [*map(journal.without_session, attempts)])
    return applied


async def change(t: Transaction, session_id: str, changes: tx.Changes[Any]) -> None:
    """Apply the changes of one session.

    Raises UsageError, changing nothing, if they contradict what is stored.
    """
    after = changes.session
    if after is None:
        return
    found = await sessions.find(t, session_id)
    before = None if found is None else found.record
    copied = changes.copy
    source = await sessions.find(t, copied.source) if copied else None
    check_changes(session_id, before, after, changes, source.record if source else None)
    session = found._replace(record=after) if found else None
    number = session.number if session else await t.number()
    session = session or Session(number, after, unindexed=False)
    at = nodes.Tree(session_id, number, after.tree if changes.tree is None else changes.tree)
    if copied and source:
        log.copy(t, source, number, copied.stop)
        marked = [index for index, _ in changes.flags]
        marked += [rewrite.message.index for rewrite in changes.rewrites]
        await log.take_over(t, source, number, marked)
        served = nodes.Tree(copied.source, source.number, source.record.tree)
        wanted = list(dict.fromkeys(copied.revisions))
        if await nodes.copy_revisions(t, served, at, wanted) < len(wanted):
            raise refuse(
                session_id, f"a copy is of a revision that {copied.source!r} does not have"
            )
    if changes.keys:
        await _claim_keys(t, session, changes, source if copied else found)
    for stored in changes.messages:
        log.put_message(t, number, stored)
    dropped = False
    if changes.flags:
        await log.add_flags(t, session, changes.flags)
    if changes.rewrites:
        indices = [rewrite.message.index for rewrite in changes.rewrites]
        keys = [Key("messages", (t.tenant, number, at)) for at in indices]
        await t.want(keys, index.covering_scans(t, session))
        await log.rewrite(t, session, changes.rewrites)
        dropped = await index.drop_covering(t, session, indices)
    for event in changes.events:
        log.put_event(t, number, event)
    if changes.drop_tree is not None or changes.forget or changes.nodes or changes.parents:
        await _change_tree(t, at, changes, new=found is None)
    journal.drop_views(t, session_id, changes.drop_views)
    for kind, name in changes.drop_records:
        await journal.put_record(t, tx.RecordWrite(kind, session_id, name, None))
    grown = after.messages > (before.messages if before else 0)
    unindexed = session.unindexed or dropped or grown
    sessions.write(t, found, after, number=number, unindexed=unindexed)
    due_at = due_by_change(before, after, changes)
    if due_at is not None:
        await due.become_due(t, session_id, due_at)


async def _claim_keys(
    t: Transaction, session: Session, changes: tx.Changes[Any], before: Session | None
) -> None:
    """Write the entries of keys. Raises UsageError if one is taken in the session ``before``."""
    names = [name for name, _ in changes.keys]
    taken = await log.keys(t, before, names)
    stop = changes.copy.stop if changes.copy else session.record.messages
    if len(set(names)) < len(names) or any(entry.index < stop for entry in taken.values()):
        raise refuse(session.record.id, "a message key is claimed twice")
    for name, entry in changes.keys:
        log.put_key(t, session.number, name, entry)


async def _change_tree(
    t: Transaction, at: nodes.Tree, changes: tx.Changes[Any], *, new: bool
) -> None:
    """Drop and forget first, then write nodes and parents; of a ``new`` session nothing is read."""
    if not new:
        others = [*changes.forget, *(child for child, _ in changes.parents)]
        await nodes.want_known(t, at, changes.nodes, others)
    if changes.drop_tree is not None:
        nodes.drop_trees(t, at.session, changes.drop_tree)
    await nodes.forget(t, at, changes.forget)
    for node in changes.nodes:
        if new:
            nodes.add_node(t, at, node)
        else:
            await nodes.put_node(t, at, node)
    for child, parent in changes.parents:
        await nodes.set_parent(t, at, child, parent)


async def delete(t: Transaction, session_id: str) -> None:
    """Remove everything stored of a session; of an unknown one, everything under its name."""
    found = await sessions.find(t, session_id)
    t.delete(due.key_of(t, session_id))
    if found is not None:
        for table in log.TABLES_OF_LOG:
            t.wipe(Key(table, (t.tenant, found.number)))
        nodes.drop_trees(t, found.number)
        await index.delete(t, found.number)
        await sessions.delete(t, found)
    journal.drop_journal(t, session_id)
    journal.drop_scope(t, session_id)


async def drop_unowned(t: Transaction) -> None:
    """Remove what belongs to no session."""
    for table in TABLES_OF_TENANT[1:]:
        t.wipe(Key(table, (t.tenant,)))
    t.forget_counts(Key("counters", (t.tenant,)))


async def is_empty(t: Transaction) -> bool:
    """Return whether nothing is stored for any tenant."""
    scans = [Scan(table, (), limit=1) for table in TABLES_OF_TENANT]
    await t.want((), scans)
    return not any([await t.scan(scan) for scan in scans])
