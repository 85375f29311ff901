"""Dumps a session of the in-memory store, and writes one back."""

from __future__ import annotations

from hiermem.errors import SessionExistsError
from hiermem.stores.contract import refuse
from hiermem.stores.dump import Item, SessionDump, missing
from hiermem.stores.memory.data import (
    SessionData,
    TenantData,
    fresh_message,
    fresh_revision,
    fresh_run,
)


def items(kept: TenantData, session_id: str) -> list[Item]:
    """Return everything kept of a session, in the order of a dump."""
    found = kept.sessions.get(session_id)
    if found is None:
        raise missing(session_id)
    everything: list[Item] = [("session", "", found.record)]
    everything += [("message", "", one) for one in found.messages]
    everything += [("version", "", one) for old in found.versions.values() for one in old]
    everything += [("key", key, entry) for key, entry in found.keys.items()]
    everything += [("event", "", one) for one in found.events]
    for number, tree in found.trees.items():
        everything += [("node", number, one) for one in tree.nodes.values()]
    everything += [
        ("revision", number, one) for owner, number, one in kept.written if owner == session_id
    ]
    everything += [("view", "", one) for one in kept.views.values() if one.session_id == session_id]
    everything += [("record", "", one) for one in kept.records.values() if one.scope == session_id]
    everything += [("run", "", one) for one in kept.runs.values() if one.subject == session_id]
    everything += [
        ("attempt", "", one) for one in kept.attempts.values() if one.session_id == session_id
    ]
    return everything + [("block", "", one) for one in found.blocks.values()]


def restored(kept: TenantData, dump: SessionDump) -> TenantData:
    """Return the tenant's data with the session in it.

    Raises SessionExistsError, and UsageError where a name is taken.
    """
    owner = dump.record.id
    if owner in kept.sessions:
        raise SessionExistsError(owner)
    draft = kept.draft()
    session = draft.sessions[owner] = SessionData(
        dump.record,
        [fresh_message(one) for one in dump.messages],
        keys=dict(dump.keys),
        events=list(dump.events),
        blocks={(one.kind, one.start): one for one in dump.blocks},
    )
    for earlier in dump.versions:
        session.versions.setdefault(earlier.index, []).append(fresh_message(earlier))
    for number, node in dump.nodes:
        session.tree(number).nodes[node.id] = node
    for number, revision in dump.revisions:
        own = fresh_revision(revision)
        session.tree(number).revisions[own.node_id, own.number] = own
        draft.written.append((owner, number, own))
    before = len(draft.views) + len(draft.records) + len(draft.runs) + len(draft.attempts)
    draft.views.update({(one.session_id, one.name): one for one in dump.views})
    draft.records.update({(one.kind, one.scope, one.key): one for one in dump.records})
    draft.runs.update({one.id: fresh_run(one) for one in dump.runs})
    draft.attempts.update({one.id: one for one in dump.attempts})
    after = len(draft.views) + len(draft.records) + len(draft.runs) + len(draft.attempts)
    added = len(dump.views) + len(dump.records) + len(dump.runs) + len(dump.attempts)
    if after != before + added:
        raise refuse(owner, "a view, record, run or call of the dump has a name that is taken")
    return draft
