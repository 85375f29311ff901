"""The reference store: obvious, slow and right; what every other store is compared with.

The one rule: check everything first, then change anything, so that a refused write leaves no
trace. It keeps nothing when the process ends, and it makes no attempt to be fast.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hiermem.errors import MemoryClosedError
from hiermem.protocols import (
    Attempt,
    Changes,
    KeyEntry,
    LogEvent,
    NodeWrite,
    Record,
    RecordWrite,
    RunRecord,
    Snapshot,
    ViewRecord,
)
from hiermem.stores.contract import check_changes, check_record_writes, check_write, refuse
from hiermem.types import JsonPart, Message, Node, Revision, SessionRecord, StoredMessage

__all__ = ["MemoryStore", "MemoryTenant"]

T = TypeVar("T")


@dataclass
class _Session:
    """All that is kept of one session."""

    record: SessionRecord
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    keys: dict[str, KeyEntry] = field(default_factory=dict[str, KeyEntry])
    events: list[LogEvent] = field(default_factory=list[LogEvent])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    revisions: dict[tuple[str, int], Revision] = field(
        default_factory=dict[tuple[str, int], Revision]
    )


@dataclass
class _Tenant:
    """All that is kept of one tenant; dicts remember the order of first insertion."""

    sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])
    written: list[tuple[str, Revision]] = field(default_factory=list[tuple[str, Revision]])
    runs: dict[str, RunRecord] = field(default_factory=dict[str, RunRecord])
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    views: dict[tuple[str, str], ViewRecord] = field(
        default_factory=dict[tuple[str, str], ViewRecord]
    )
    records: dict[tuple[str, str, str], Record] = field(
        default_factory=dict[tuple[str, str, str], Record]
    )


class MemoryStore:
    """A store that lives in this process and ends with it."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._tenants: dict[str, _Tenant] = {}
        self._lock = threading.RLock()
        self._closed = False

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities; it has none."""
        return frozenset()

    def tenant(self, name: str) -> MemoryTenant:
        """Give the handle bound to tenant ``name``."""
        return MemoryTenant(self, name)

    async def close(self) -> None:
        """Refuse every later call."""
        self._closed = True

    def open_tenant(self, name: str) -> tuple[threading.RLock, _Tenant]:
        """Give what is kept of ``name`` and the lock that guards it, for the tenant's handle.

        Raises MemoryClosedError after ``close``.
        """
        if self._closed:
            raise MemoryClosedError("the store is closed; open a new one")
        with self._lock:
            return self._lock, self._tenants.setdefault(name, _Tenant())

    def open_secret(self) -> bytes:
        """Give the store's secret, for the tenant's handle."""
        self.open_tenant("")
        return self._secret


class MemoryTenant:
    """One tenant's part of a MemoryStore; see ``hiermem.protocols.TenantStore``."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def tenant(self) -> str:
        """Give the tenant's name."""
        return self._name

    async def secret(self) -> bytes:
        """Give the store's secret."""
        return self._store.open_secret()

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Give the session's record, or None."""
        found = self._session(session_id)
        return found.record if found else None

    async def sessions(self) -> list[SessionRecord]:
        """Give all sessions, in the order of their creation."""
        _, kept = self._store.open_tenant(self._name)
        return [session.record for session in kept.sessions.values()]

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` once with it and commit its changes, atomically."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            session = kept.sessions.get(session_id)
            known = session.keys if session else {}
            before = session.record if session else None
            changes = decide(Snapshot(before, {key: known[key] for key in keys if key in known}))
            if changes.session is None:
                return changes.result
            check_changes(session_id, before, changes.session, changes)
            session = session or _Session(changes.session)
            _check_references(session, changes)
            kept.sessions[session_id] = session
            _apply(kept, session, changes.session, changes)
            return changes.result

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Give the messages with ``start <= index < stop``, of ``thread`` where given, by index."""
        found = self._session(session_id)
        return [
            _fresh_stored(stored)
            for stored in (found.messages if found else ())
            if start <= stored.index < stop and thread in (None, stored.thread)
        ]

    async def events(self, session_id: str) -> list[LogEvent]:
        """Give the log's events that are not messages, in the order they were written."""
        found = self._session(session_id)
        return list(found.events) if found else []

    # -- nodes and revisions

    async def nodes(self, session_id: str, ids: Sequence[str]) -> list[Node]:
        """Give the nodes with these ids that exist, in the order of ``ids``."""
        found = self._session(session_id)
        return [found.nodes[id_] for id_ in ids if id_ in found.nodes] if found else []

    async def level(
        self, session_id: str, level: int, start: int, stop: int | None = None
    ) -> list[Node]:
        """Give the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        return [
            node
            for node in self._sealed(session_id)
            if node.level == level
            and node.ordinal >= start
            and (stop is None or node.ordinal < stop)
        ]

    async def levels(self, session_id: str) -> dict[int, int]:
        """Give the number of sealed nodes of each level that has any."""
        counts: dict[int, int] = {}
        for node in self._sealed(session_id):
            counts[node.level] = counts.get(node.level, 0) + 1
        return dict(sorted(counts.items()))

    async def provisional(self, session_id: str) -> list[Node]:
        """Give the nodes that are not sealed, by level, then id."""
        found = self._session(session_id)
        loose = [node for node in found.nodes.values() if not node.sealed] if found else []
        return sorted(loose, key=lambda node: (node.level, node.id))

    async def unfinished(self, session_id: str, level: int, after: int, limit: int) -> list[Node]:
        """Give up to ``limit`` sealed nodes of ``level`` after ``after`` with work left to do."""
        due = [
            node
            for node in self._sealed(session_id)
            if node.level == level
            and node.ordinal > after
            and (node.status != "active" or node.degraded or node.dirty)
        ]
        return due[: max(limit, 0)]

    async def revisions(self, session_id: str, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Give the revisions with these (node id, number) that exist, in the order wanted."""
        found = self._session(session_id)
        made = found.revisions if found else {}
        return [
            _fresh_revision(made[id_, number]) for id_, number in wanted if (id_, number) in made
        ]

    async def reusable(self, input_hash: str) -> Revision | None:
        """Give the newest revision of this tenant, not degraded, with that input hash, or None."""
        _, kept = self._store.open_tenant(self._name)
        for _session_id, revision in reversed(kept.written):
            if revision.input_hash == input_hash and not revision.degraded:
                return _fresh_revision(revision)
        return None

    async def write_nodes(
        self,
        session_id: str,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold and tell which did; record ``attempts``."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            for write in writes:
                check_write(write)
            found = kept.sessions.get(session_id)
            # Worked out on copies, so that a write refused half-way leaves the first half undone.
            nodes = dict(found.nodes) if found else {}
            revisions = dict(found.revisions) if found else {}
            written: list[tuple[str, Revision]] = []
            applied: list[bool] = []
            for write in writes:
                before = nodes.get(write.node.id)
                holds = (
                    before is not None
                    and before.version == write.expected
                    and all(
                        id_ in nodes and nodes[id_].revision == number
                        for id_, number in write.inputs
                    )
                )
                applied.append(holds)
                if not holds:
                    continue
                nodes[write.node.id] = write.node
                if write.revision is not None:
                    place = (write.node.id, write.revision.number)
                    if place in revisions:
                        raise refuse(session_id, f"revision {place[1]} of {place[0]} exists")
                    revisions[place] = _fresh_revision(write.revision)
                    written.append((session_id, revisions[place]))
            if found:
                found.nodes, found.revisions = nodes, revisions
            kept.written += written
            for attempt in attempts:
                kept.attempts[attempt.id] = attempt
            return applied

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        _, kept = self._store.open_tenant(self._name)
        kept.runs[run.id] = replace(run, detail=_fresh(run.detail))

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give the newest runs first, of one subject where given."""
        _, kept = self._store.open_tenant(self._name)
        found = [run for run in kept.runs.values() if subject in (None, run.subject)]
        newest = found[::-1][: max(limit, 0)]
        return [replace(run, detail=_fresh(run.detail)) for run in newest]

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Give the journalled attempts in the order they started, filtered where asked."""
        _, kept = self._store.open_tenant(self._name)
        return [
            attempt
            for attempt in kept.attempts.values()
            if run_id in (None, attempt.run_id) and session_id in (None, attempt.session_id)
        ][: max(limit, 0)]

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Give the stored view, or None."""
        _, kept = self._store.open_tenant(self._name)
        return kept.views.get((session_id, name))

    async def put_view(self, view: ViewRecord) -> None:
        """Insert the view, or replace the one of the same session and name."""
        _, kept = self._store.open_tenant(self._name)
        kept.views[view.session_id, view.name] = view

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Give up to ``limit`` records of ``kind``, filtered where asked, by scope, then key."""
        _, kept = self._store.open_tenant(self._name)
        found = [
            record
            for record in kept.records.values()
            if record.kind == kind and scope in (None, record.scope) and key in (None, record.key)
        ]
        found.sort(key=lambda record: (record.scope, record.key))
        return found[: max(limit, 0)]

    async def put_records(self, writes: Sequence[RecordWrite]) -> bool:
        """Apply all of the writes, or none where an expectation fails; say which."""
        lock, kept = self._store.open_tenant(self._name)
        check_record_writes(writes)
        with lock:
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
                    kept.records[place] = Record(*place, write.body, before.get(place, 0) + 1)
            return True

    def _session(self, session_id: str) -> _Session | None:
        _, kept = self._store.open_tenant(self._name)
        return kept.sessions.get(session_id)

    def _sealed(self, session_id: str) -> list[Node]:
        found = self._session(session_id)
        sealed = [node for node in found.nodes.values() if node.sealed] if found else []
        return sorted(sealed, key=lambda node: (node.level, node.ordinal))


def _check_references(session: _Session, changes: Changes[Any]) -> None:
    """Refuse changes that name what does not exist, or claim what is taken."""
    id_ = session.record.id
    taken = [key for key, _ in changes.keys]
    if len(set(taken)) < len(taken) or not session.keys.keys().isdisjoint(taken):
        raise refuse(id_, "a message key is claimed twice")
    stop = len(session.messages) + len(changes.messages)
    if any(not 0 <= index < stop for index, _ in changes.flags):
        raise refuse(id_, "a flag is for a message that does not exist")
    nodes = (session.nodes.keys() - set(changes.drop)) | {node.id for node in changes.nodes}
    if any(child not in nodes for child, _ in changes.parents):
        raise refuse(id_, "a parent is for a node that does not exist")


def _apply(kept: _Tenant, session: _Session, record: SessionRecord, changes: Changes[Any]) -> None:
    """Make the checked ``changes``, dropping nodes before new ones are written."""
    session.record = record
    session.messages += [_fresh_stored(stored) for stored in changes.messages]
    session.keys.update(changes.keys)
    for index, flag in changes.flags:
        stored = session.messages[index]
        if flag not in stored.flags:
            session.messages[index] = replace(stored, flags=(*stored.flags, flag))
    for id_ in changes.drop:
        session.nodes.pop(id_, None)
        for place in [place for place in session.revisions if place[0] == id_]:
            del session.revisions[place]
        kept.written = [
            (owner, revision)
            for owner, revision in kept.written
            if (owner, revision.node_id) != (record.id, id_)
        ]
    for node in changes.nodes:
        session.nodes[node.id] = node
    for child, parent in changes.parents:
        node = session.nodes[child]
        session.nodes[child] = replace(node, parent=parent, version=node.version + 1)
    session.events += changes.events


def _fresh(value: Any) -> Any:
    """Copy a JSON value, so that a caller who changes his copy changes nothing stored."""
    if isinstance(value, Mapping):
        return {key: _fresh(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fresh(inner) for inner in value]
    return value


def _fresh_stored(stored: StoredMessage) -> StoredMessage:
    return replace(stored, message=_fresh_message(stored.message))


def _fresh_message(message: Message) -> Message:
    content = message.content
    if not isinstance(content, str):
        content = tuple(
            JsonPart(_fresh(part.data)) if isinstance(part, JsonPart) else part for part in content
        )
    return replace(message, content=content, metadata=_fresh(message.metadata))


def _fresh_revision(revision: Revision) -> Revision:
    return replace(revision, extras=_fresh(revision.extras))
