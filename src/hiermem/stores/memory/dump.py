"""Dumps a session of the in-memory store, and writes one back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hiermem.changes.receipts import STORE_COPY
from hiermem.errors import SessionExistsError
from hiermem.stores.contract import refuse
from hiermem.stores.dump import Item, SessionDump, missing
from hiermem.stores.memory import changes, data
from hiermem.summaries.due import AT_ONCE
from hiermem.types import SessionRecord
from hiermem.types.transaction import NO_SESSION


def items(kept: data.TenantData, session_id: str) -> list[Item]:
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


def _named(kept: data.TenantData, wanted: Callable[[str], bool]) -> list[Item]:
    """Return what belongs to the sessions, or subjects, that are wanted by their name."""
    views = sorted(kept.views.items())
    found: list[Item] = [("view", "", one) for _, one in views if wanted(one.session_id)]
    found += [("record", "", one) for one in kept.records.values() if wanted(one.scope)]
    found += [("run", "", one) for one in kept.runs.values() if wanted(one.subject)]
    found += [("attempt", "", one) for one in kept.attempts.values() if wanted(one.session_id)]
    return found


def restored(kept: data.TenantData, dump: SessionDump, replaces: int | None) -> data.TenantData:
    """Return the tenant's data with the session in it, instead of one of version ``replaces``.

    Raises SessionExistsError, and UsageError where a name is taken.
    """
    owner, draft = dump.session_id, kept.draft()
    if owner in kept.sessions and kept.sessions[owner].record.version != replaces:
        raise SessionExistsError(owner)
    if replaces is not None:
        _remove(draft, owner)
    if dump.record is not None:
        _write_session(draft, dump, dump.record)
        draft.sessions[owner].become_due(AT_ONCE, kept.clock())
    brought: tuple[tuple[dict[Any, Any], dict[Any, Any]], ...] = (
        (draft.views, {(one.session_id, one.name): one for one in dump.views}),
        (draft.records, {(one.kind, one.scope, one.key): one for one in dump.records}),
        (draft.runs, {one.id: data.fresh_run(one) for one in dump.runs}),
        (draft.attempts, {one.id: one for one in dump.attempts}),
    )
    for held, added in brought:
        if held.keys() & added.keys():
            raise refuse(owner, "a view, record, run or call of the dump has a name that is taken")
        held.update(added)
    return draft


def _remove(draft: data.TenantData, owner: str) -> None:
    """Remove a session, or what belongs to none."""
    if owner != NO_SESSION:
        changes.delete(draft, owner)
        return
    known = draft.sessions
    draft.views = {at: one for at, one in draft.views.items() if one.session_id in known}
    draft.records = {
        at: one for at, one in draft.records.items() if one.scope in known or one.kind == STORE_COPY
    }
    draft.runs = {id_: one for id_, one in draft.runs.items() if one.subject in known}
    draft.attempts = {id_: one for id_, one in draft.attempts.items() if one.session_id in known}


def _write_session(draft: data.TenantData, dump: SessionDump, record: SessionRecord) -> None:
    session = draft.sessions[record.id] = data.SessionData(
        record,
        [data.fresh_message(one) for one in dump.messages],
        keys=dict(dump.keys),
        events=dump.events,
        blocks={(one.kind, one.start): one for one in dump.blocks},
    )
    for earlier in dump.versions:
        session.versions.setdefault(earlier.index, []).append(data.fresh_message(earlier))
    for number, node in dump.nodes:
        session.tree(number).nodes[node.id] = node
    for number, revision in dump.revisions:
        own = data.fresh_revision(revision)
        session.tree(number).revisions[own.node_id, own.number] = own
        draft.written.append((record.id, number, own))
