"""Applies the effects of a decision to the in-memory store; dumps a session and writes one back.

Everything is checked before anything is changed. Changes of several sessions are made on a draft
that replaces the tenant's data at the end, so a refused write leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from hiermem.changes.receipts import STORE_COPY
from hiermem.stores.contract import check_changes, check_record_writes, check_write, refuse
from hiermem.stores.dump import Item, SessionDump, exists, missing
from hiermem.stores.memory import reads
from hiermem.stores.memory.reads import (
    DueData,
    SessionData,
    TenantData,
    TreeData,
    fresh_message,
    fresh_revision,
    fresh_run,
)
from hiermem.summaries.due import AT_ONCE, due_by_change, due_by_nodes
from hiermem.types import Revision, SessionRecord
from hiermem.types import transaction as tx
from hiermem.types.transaction import NO_SESSION


def change(kept: TenantData, session_id: str, changes: tx.Changes[Any]) -> None:
    """Apply the changes to one session of ``kept``.

    Raises UsageError, changing nothing, if they contradict what is stored.
    """
    after = changes.session
    if after is None:
        return
    session = kept.sessions.get(session_id)
    before = session.record if session else None
    source = kept.sessions.get(changes.copy.source) if changes.copy else None
    check_changes(session_id, before, after, changes, source.record if source else None)
    copied = _copied(session_id, source, changes.copy)
    due = due_by_change(before, after, changes)
    session = session or SessionData(after)
    _check_references(session, copied or session, after, changes)
    session.record = after
    if changes.copy is not None and copied is not None:
        _fill(kept, session, copied, changes)
    _write_log(session, changes)
    for rewrite in changes.rewrites:
        kept.dissolve(session_id, rewrite.message.index)
    _write_structure(kept, session, changes)
    for name in changes.drop_views:
        kept.views.pop((session_id, name), None)
    for kind, key in changes.drop_records:
        kept.records.pop((kind, session_id, key), None)
    session.become_due(due, kept.clock())
    kept.sessions[session_id] = session


def change_all(kept: TenantData, batch: tx.Batch[Any]) -> None:
    """Apply ``batch``, in its order; raise UsageError, with nothing done, if that is impossible."""
    draft = kept.draft()
    own: set[str] = set()
    for session_id, changes in batch.sessions:
        if session_id in draft.sessions and session_id not in own:
            draft.sessions[session_id] = draft.sessions[session_id].copy()
        own.add(session_id)
        change(draft, session_id, changes)
    for session_id in batch.delete:
        delete(draft, session_id)
    for place in batch.drop_records:
        draft.records.pop(place, None)
    for subject in batch.drop_journals:
        _drop_journal(draft, subject)
    for run in batch.runs:
        put_run(draft, run)
    kept.become(draft)


def _copied(
    session_id: str, source: SessionData | None, copy: tx.Copy | None
) -> SessionData | None:
    """Return the part of the source that ``copy`` wants, with the revisions in its tree 0."""
    if copy is None or source is None:
        return None
    made = source.tree().revisions
    if any(place not in made for place in copy.revisions):
        raise refuse(session_id, f"a copy is of a revision that {copy.source!r} does not have")
    return SessionData(
        source.record,
        source.messages[: copy.stop],
        {index: list(old) for index, old in source.versions.items() if index < copy.stop},
        {key: entry for key, entry in source.keys.items() if entry.index < copy.stop},
        trees={0: TreeData({}, {place: made[place] for place in copy.revisions})},
    )


def _fill(
    kept: TenantData, session: SessionData, copied: SessionData, changes: tx.Changes[Any]
) -> None:
    session.messages = copied.messages
    session.versions = copied.versions
    session.keys = copied.keys
    tree = session.record.tree if changes.tree is None else changes.tree
    for place, revision in copied.trees[0].revisions.items():
        session.tree(tree).revisions[place] = revision
        kept.written.append((session.record.id, tree, revision))


def _check_references(
    session: SessionData, log: SessionData, after: SessionRecord, changes: tx.Changes[Any]
) -> None:
    """Refuse changes that name what does not exist, or claim what is taken.

    ``log`` holds the messages before the appended ones: the session, or the one it copies.
    """
    taken = [key for key, _ in changes.keys]
    if len(set(taken)) < len(taken) or not log.keys.keys().isdisjoint(taken):
        raise refuse(after.id, "a message key is claimed twice")
    tree = after.tree if changes.tree is None else changes.tree
    before = session.trees.get(tree)
    nodes = set(before.nodes) if before and changes.drop_tree != tree else set[str]()
    nodes |= {node.id for node in changes.nodes}
    if any(child not in nodes for child, _ in changes.parents):
        raise refuse(after.id, "a parent is for a node that does not exist")


def _write_log(session: SessionData, changes: tx.Changes[Any]) -> None:
    session.messages += [fresh_message(stored) for stored in changes.messages]
    session.keys.update(changes.keys)
    for index, flag in changes.flags:
        stored = session.messages[index]
        if flag not in stored.flags:
            session.messages[index] = replace(stored, flags=(*stored.flags, flag))
    for rewrite in changes.rewrites:
        _rewrite(session, rewrite)
    session.events += changes.events


def _rewrite(session: SessionData, rewrite: tx.Rewrite) -> None:
    index = rewrite.message.index
    if rewrite.kind == "edit":
        session.versions.setdefault(index, []).append(session.messages[index])
    elif rewrite.kind == "erase":
        session.versions.pop(index, None)
        key = session.messages[index].key
        if key is not None and key in session.keys and session.keys[key].index == index:
            session.keys[key] = tx.KeyEntry(index, None)
    session.messages[index] = fresh_message(rewrite.message)
    session.blocks = {
        place: block
        for place, block in session.blocks.items()
        if not block.start <= index < block.stop
    }


def _write_structure(kept: TenantData, session: SessionData, changes: tx.Changes[Any]) -> None:
    """Drop and forget first, then write nodes and parents."""
    owner = session.record.id
    if changes.drop_tree is not None:
        session.trees.pop(changes.drop_tree, None)
        kept.written = [entry for entry in kept.written if entry[:2] != (owner, changes.drop_tree)]
    number = session.record.tree if changes.tree is None else changes.tree
    tree = session.tree(number)
    gone = set(changes.forget)
    if gone:
        tree.revisions = {at: one for at, one in tree.revisions.items() if at[0] not in gone}
        kept.written = [
            entry
            for entry in kept.written
            if entry[:2] != (owner, number) or entry[2].node_id not in gone
        ]
    for node in changes.nodes:
        tree.nodes[node.id] = node
    for child, parent in changes.parents:
        node = tree.nodes[child]
        tree.nodes[child] = replace(node, parent=parent, version=node.version + 1)


def delete(kept: TenantData, session_id: str) -> None:
    """Remove everything stored of a session; of an unknown one, everything under its name."""
    kept.sessions.pop(session_id, None)
    kept.dissolve(session_id)
    kept.written = [entry for entry in kept.written if entry[0] != session_id]
    _drop_journal(kept, session_id)
    kept.views = {at: view for at, view in kept.views.items() if at[0] != session_id}
    kept.records = {at: one for at, one in kept.records.items() if at[1] != session_id}


def _drop_journal(kept: TenantData, subject: str) -> None:
    """Remove the runs of that subject and the calls charged to it."""
    kept.runs = {id_: run for id_, run in kept.runs.items() if run.subject != subject}
    kept.attempts = {
        id_: tried for id_, tried in kept.attempts.items() if tried.session_id != subject
    }


def write_nodes(
    kept: TenantData,
    session_id: str,
    tree: int | None,
    writes: Sequence[tx.NodeWrite],
    *,
    noted: bool,
) -> list[bool]:
    """Apply each write whose expectations hold; return which did.

    Where ``noted``, what they leave to make makes the session due.
    """
    for write in writes:
        check_write(write)
    found = kept.sessions.get(session_id)
    if found is None:
        return [False] * len(writes)
    # Done on a copy, so that a write refused half-way has no effect.
    number = found.record.tree if tree is None else tree
    draft = found.tree(number).copy()
    written: list[tuple[str, int, Revision]] = []
    applied: list[bool] = []
    for write in writes:
        before = draft.nodes.get(write.node.id)
        holds = (
            before is not None
            and before.version == write.expected
            and all(
                id_ in draft.nodes and draft.nodes[id_].revision == serving
                for id_, serving in write.inputs
            )
        )
        applied.append(holds)
        if not holds:
            continue
        draft.nodes[write.node.id] = write.node
        if write.revision is not None:
            place = (write.node.id, write.revision.number)
            if place in draft.revisions:
                raise refuse(session_id, f"revision {place[1]} of {place[0]} exists")
            draft.revisions[place] = fresh_revision(write.revision)
            written.append((session_id, number, draft.revisions[place]))
    found.trees[number] = draft
    kept.written += written
    if noted and number == found.record.tree and any(applied):
        found.become_due(due_by_nodes(write.node for write in writes), kept.clock())
    return applied


# -- writes without a decision


def erase_all(kept: TenantData) -> int:
    """Remove everything stored for this tenant; return the number of sessions."""
    count = len(kept.sessions)
    kept.become(TenantData())
    return count


def put_due(kept: TenantData, session_ids: Sequence[str]) -> None:
    """Make those of these sessions due now that have no entry."""
    for session_id in session_ids:
        found = kept.sessions.get(session_id)
        if found is not None and found.due is None:
            found.become_due(AT_ONCE, kept.clock())


def settle_due(kept: TenantData, claimed: tx.DueSession, *, at: datetime | None = None) -> bool:
    """End the claim, where it holds; remove the entry or set its next time."""
    found = kept.sessions.get(claimed.session_id)
    if found is None or found.due is None or not found.is_held(claimed):
        return False
    if found.due.noted:
        now = kept.clock()
        at = now if at is None else min(now, at)
    found.due = None if at is None else DueData(at, claimed.generation)
    return True


def put_run(kept: TenantData, run: tx.RunRecord) -> None:
    """Insert the run, or replace the one of the same id."""
    kept.runs[run.id] = fresh_run(run)


def put_view(kept: TenantData, view: tx.ViewRecord, *, epoch: int | None = None) -> bool:
    """Insert or replace the view of that session and name; return whether it did."""
    if epoch is not None and not kept.epoch_is(view.session_id, epoch):
        return False
    kept.views[view.session_id, view.name] = view
    return True


def put_records(
    kept: TenantData,
    writes: Sequence[tx.RecordWrite],
    *,
    epochs: Mapping[str, int] | None = None,
    standing: Sequence[tx.Record] = (),
    attempts: Sequence[tx.Attempt] = (),
) -> bool:
    """Apply all of the writes, or none if an expectation fails; return which."""
    check_record_writes(writes)
    if not all(kept.epoch_is(id_, epoch) for id_, epoch in (epochs or {}).items()):
        return False
    if any(kept.records.get((one.kind, one.scope, one.key)) != one for one in standing):
        return False
    before = {
        place: kept.records[place].version
        for write in writes
        if (place := (write.kind, write.scope, write.key)) in kept.records
    }
    for write in writes:
        version = before.get((write.kind, write.scope, write.key), 0)
        if write.expected not in (None, version):
            return False
    for write in writes:
        place = (write.kind, write.scope, write.key)
        kept.records.pop(place, None)
        if write.body is not None:
            kept.records[place] = tx.Record(*place, write.body, before.get(place, 0) + 1)
    kept.attempts.update((attempt.id, attempt) for attempt in attempts)
    return True


def put_blocks(
    kept: TenantData, session_id: str, blocks: Sequence[tx.Block], *, epoch: int
) -> bool:
    """Insert the blocks, or replace those of the same kind and start; return whether it did."""
    if not kept.epoch_is(session_id, epoch):
        return False
    own = kept.sessions[session_id].blocks
    # Store copies: a segment identifies its blocks by object identity, so a block that is put again
    # must be a new object.
    own.update(((block.kind, block.start), replace(block)) for block in blocks)
    return True


def drop_blocks(kept: TenantData, session_id: str, kind: str) -> None:
    """Remove all blocks of that kind."""
    found = kept.sessions.get(session_id)
    if found:
        found.blocks = {at: one for at, one in found.blocks.items() if at[0] != kind}
        if kind == tx.TERMS:
            kept.dissolve(session_id)


def put_segment(
    kept: TenantData,
    blocks: Sequence[tx.PlacedBlock],
    pages: Mapping[int, bytes],
    *,
    replaces: Sequence[int] = (),
) -> bool:
    """Dissolve the segments ``replaces`` and put one made of ``blocks``; return whether."""
    if not set(replaces) <= kept.segments.keys():
        return False
    left = {number: one for number, one in kept.segments.items() if number not in replaces}
    taken = {id(block) for members, _ in left.values() for _, block in members}
    claimed: list[tuple[str, tx.Block]] = []
    for one in blocks:
        owner = one.session.id
        if not kept.epoch_is(owner, one.session.epoch):
            return False
        block = kept.sessions[owner].blocks.get((tx.TERMS, one.block.start))
        if block is None or block.stop != one.block.stop or id(block) in taken:
            return False
        claimed.append((owner, block))
    kept.segments = left
    if claimed:
        kept.segments[next(kept.numbers)] = (tuple(claimed), dict(pages))
    return True


def items(kept: reads.TenantData, session_id: str) -> list[Item]:
    """Return everything kept of a session, or of what belongs to none, in the order of a dump."""
    if session_id == NO_SESSION:
        return _named(kept, lambda owner: owner not in kept.sessions)
    found = kept.sessions.get(session_id)
    if found is None:
        raise missing(session_id)
    everything: list[Item] = [("session", "", found.record)]
    everything += [("message", "", one) for one in found.messages]
    everything += [("version", "", one) for _, old in sorted(found.versions.items()) for one in old]
    everything += [("key", key, entry) for key, entry in sorted(found.keys.items())]
    everything += [("event", "", one) for one in found.events]
    for number, tree in sorted(found.trees.items()):
        everything += [("node", number, one) for _, one in sorted(tree.nodes.items())]
    everything += [
        ("revision", number, one) for owner, number, one in kept.written if owner == session_id
    ]
    everything += _named(kept, lambda owner: owner == session_id)
    return everything + [("block", "", one) for one in found.blocks.values()]


def _named(kept: reads.TenantData, wanted: Callable[[str], bool]) -> list[Item]:
    """Return what belongs to the sessions, or subjects, that are wanted by their name."""
    views = sorted(kept.views.items())
    found: list[Item] = [("view", "", one) for _, one in views if wanted(one.session_id)]
    found += [("record", "", one) for one in kept.records.values() if wanted(one.scope)]
    found += [("run", "", one) for one in kept.runs.values() if wanted(one.subject)]
    found += [("attempt", "", one) for one in kept.attempts.values() if wanted(one.session_id)]
    return found


def restored(kept: reads.TenantData, dump: SessionDump, replaces: int | None) -> reads.TenantData:
    """Return the tenant's data with the session in it, instead of one of version ``replaces``.

    Raises ConflictError, and UsageError where a name is taken.
    """
    owner, draft = dump.session_id, kept.draft()
    if owner in kept.sessions and kept.sessions[owner].record.version != replaces:
        raise exists(owner)
    if replaces is not None:
        _remove(draft, owner)
    if dump.record is not None:
        _write_session(draft, dump, dump.record)
        draft.sessions[owner].become_due(AT_ONCE, kept.clock())
    brought: tuple[tuple[dict[Any, Any], dict[Any, Any]], ...] = (
        (draft.views, {(one.session_id, one.name): one for one in dump.views}),
        (draft.records, {(one.kind, one.scope, one.key): one for one in dump.records}),
        (draft.runs, {one.id: reads.fresh_run(one) for one in dump.runs}),
        (draft.attempts, {one.id: one for one in dump.attempts}),
    )
    for held, added in brought:
        if held.keys() & added.keys():
            raise refuse(owner, "a view, record, run or call of the dump has a name that is taken")
        held.update(added)
    return draft


def _remove(draft: reads.TenantData, owner: str) -> None:
    """Remove a session, or what belongs to none."""
    if owner != NO_SESSION:
        delete(draft, owner)
        return
    known = draft.sessions
    draft.views = {at: one for at, one in draft.views.items() if one.session_id in known}
    draft.records = {
        at: one for at, one in draft.records.items() if one.scope in known or one.kind == STORE_COPY
    }
    draft.runs = {id_: one for id_, one in draft.runs.items() if one.subject in known}
    draft.attempts = {id_: one for id_, one in draft.attempts.items() if one.session_id in known}


def _write_session(draft: reads.TenantData, dump: SessionDump, record: SessionRecord) -> None:
    session = draft.sessions[record.id] = reads.SessionData(
        record,
        [reads.fresh_message(one) for one in dump.messages],
        keys=dict(dump.keys),
        events=dump.events,
        blocks={(one.kind, one.start): one for one in dump.blocks},
    )
    for earlier in dump.versions:
        session.versions.setdefault(earlier.index, []).append(reads.fresh_message(earlier))
    for number, node in dump.nodes:
        session.tree(number).nodes[node.id] = node
    for number, revision in dump.revisions:
        own = reads.fresh_revision(revision)
        session.tree(number).revisions[own.node_id, own.number] = own
        draft.written.append((record.id, number, own))
