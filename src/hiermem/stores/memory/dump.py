"""Dumps a session of the in-memory store, and writes one back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hiermem.core.log.copies import KIND as STORE_COPY
from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import AT_ONCE
from hiermem.errors import SessionExistsError
from hiermem.stores.contract import refuse
from hiermem.stores.dump import OWNER, Item, Read, missing, refused
from hiermem.stores.memory import changes
from hiermem.stores.memory.data import (
    SessionData,
    TenantData,
    fresh_message,
    fresh_revision,
    fresh_run,
)


def items(kept: TenantData, session_id: str) -> list[Item]:
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


def _named(kept: TenantData, wanted: Callable[[str], bool]) -> list[Item]:
    """Return what belongs to the sessions, or subjects, that are wanted by their name."""
    views = sorted(kept.views.items())
    found: list[Item] = [("view", "", one) for _, one in views if wanted(one.session_id)]
    found += [("record", "", one) for one in kept.records.values() if wanted(one.scope)]
    found += [("run", "", one) for one in kept.runs.values() if wanted(one.subject)]
    found += [("attempt", "", one) for one in kept.attempts.values() if wanted(one.session_id)]
    return found


def restored(kept: TenantData, dump: Read, replaces: int | None) -> TenantData:
    """Return the tenant's data with the session in it, instead of one of version ``replaces``.

    Raises SessionExistsError, and UsageError where a name is taken or a row comes twice.
    """
    reader, found, digest = dump
    owner, draft = reader.session_id, kept.draft()
    if owner in kept.sessions and kept.sessions[owner].record.version != replaces:
        raise SessionExistsError(owner)
    if replaces is not None:
        _remove(draft, owner)
    draft.arrived[owner] = digest
    if reader.record is not None:
        draft.sessions[owner] = SessionData(reader.record)
        draft.sessions[owner].become_due(AT_ONCE, kept.clock())
    session = draft.sessions[owner] if reader.record is not None else None
    for kind, at, value in found:
        if kind in OWNER:
            held, name = _named_place(draft, kind, value)
            if name in held:
                what = "a view, record, run or call of the dump has a name that is taken"
                raise refuse(owner, what)
            held[name] = fresh_run(value) if kind == "run" else value
        elif session is not None and kind != "session":
            _put(draft, session, kind, at, value)
    return draft


def _named_place(draft: TenantData, kind: str, value: Any) -> tuple[dict[Any, Any], Any]:
    """Return where a value that is found by its name is kept, and under which name."""
    match kind:
        case "view":
            return draft.views, (value.session_id, value.name)
        case "record":
            return draft.records, (value.kind, value.scope, value.key)
        case "run":
            return draft.runs, value.id
        case _:
            return draft.attempts, value.id


def _put(draft: TenantData, session: SessionData, kind: str, at: Any, value: Any) -> None:
    held: dict[Any, Any]
    match kind:
        case "message":
            session.messages.append(fresh_message(value))
            return
        case "version":
            session.versions.setdefault(value.index, []).append(fresh_message(value))
            return
        case "event":
            session.events.append(value)
            return
        case "key":
            held, name = session.keys, at
        case "node":
            held, name = session.tree(at).nodes, value.id
        case "revision":
            value = fresh_revision(value)
            held, name = session.tree(at).revisions, (value.node_id, value.number)
            draft.written.append((session.record.id, at, value))
        case _:
            held, name = session.blocks, (value.kind, value.start)
    if name in held:
        raise refused("a row comes twice")
    held[name] = value


def _remove(draft: TenantData, owner: str) -> None:
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
