"""Plain values to write into a store, and the decisions that write them.

Everything here is deterministic and independent of how a session is folded: a store accepts config,
state, sizes and hashes as they come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hiermem.errors import UsageError
from hiermem.protocols import TenantStore, TreeStore
from hiermem.types import Message, Node, Revision, SessionRecord, Span, StoredMessage
from hiermem.types import transaction as tx

NOW = datetime(2024, 3, 15, 9, 30, 0, 123456, tzinfo=UTC)
#: The ``contents`` of a tenant of which nothing is stored.
NOTHING: dict[str, Any] = {
    "runs": [], "attempts": [], "spent": tx.Spent(),
    "records": [], "views": [], "reusable": {},
}  # fmt: skip


def stored(message: Message | str, **fields_: Any) -> StoredMessage:
    """Make a StoredMessage; its index is set when it is written. A text is a user's message."""
    if isinstance(message, str):
        message = Message.user(message)
    if message.created_at is None:
        message = replace(message, created_at=NOW)
    plain: dict[str, Any] = {"index": 0, "tokens": 7, "size": 9, "hash": "sha256:0f"}
    return StoredMessage(message=message, **(plain | fields_))


def node(ordinal: int, level: int = 1, **fields_: Any) -> Node:
    """Make a sealed, pending node; ``fields_`` are those of Node."""
    plain: dict[str, Any] = {
        "id": f"L{level}.{ordinal}",
        "level": level,
        "ordinal": ordinal,
        "thread": "main",
        "span": Span(ordinal * 10, ordinal * 10 + 10),
        "windows": (ordinal, ordinal + 1),
        "children": (),
        "messages": 10,
        "input_size": 400,
        "allotted": 200,
        "input_tokens": 400,
        "allotted_tokens": 200,
        "verbatim": False,
        "first_at": NOW,
        "last_at": NOW + timedelta(minutes=5),
    }
    return Node(**(plain | fields_))


def revision(node_id: str, number: int = 1, **fields_: Any) -> Revision:
    """Make a revision of a node; ``fields_`` are those of Revision."""
    plain: dict[str, Any] = {
        "text": f"what {node_id} says, {number}",
        "tokens": 5,
        "input_hash": f"sha256:in-{node_id}-{number}",
        "output_hash": f"sha256:out-{node_id}-{number}",
        "strategy": "sha256:strategy",
        "style": "detailed",
        "model": "scripted",
        "created_at": NOW,
    }
    return Revision(node_id=node_id, number=number, **(plain | fields_))


def remade(before: Node, **fields_: Any) -> tx.NodeWrite:
    """Make the write that gives ``before`` its next revision; ``fields_`` are the revision's."""
    number = before.revision + 1
    after = replace(before, version=before.version + 1, revision=number, status="active")
    return tx.NodeWrite(after, before.version, revision(before.id, number, **fields_))


def run(id_: str, **fields_: Any) -> tx.RunRecord:
    """Make a run; ``fields_`` are those of RunRecord."""
    plain: dict[str, Any] = {"kind": "update", "subject": "s", "started_at": NOW}
    return tx.RunRecord(id=id_, **(plain | fields_))


def attempt(id_: str, **fields_: Any) -> tx.Attempt:
    """Make an attempt; ``fields_`` are those of Attempt."""
    plain: dict[str, Any] = {
        "run_id": "run",
        "session_id": "s",
        "node_id": "L1.0",
        "number": 1,
        "model": "scripted",
        "started_at": NOW,
    }
    return tx.Attempt(id=id_, **(plain | fields_))


def writing(
    session_id: str,
    messages: Sequence[str | Message | StoredMessage] = (),
    *,
    record: dict[str, Any] | None = None,
    claim: bool = True,
    **effects: Any,
) -> Callable[[tx.Snapshot], tx.Changes[tx.Snapshot]]:
    """Make a decision that appends ``messages`` and returns the snapshot that it saw.

    A text among the messages is a user's message. ``record`` are fields of the session's record to
    change; ``effects`` are those of Changes. With ``claim`` the messages' keys are claimed.
    """

    def decide(snapshot: tx.Snapshot) -> tx.Changes[tx.Snapshot]:
        before = snapshot.session or SessionRecord(
            session_id, None, (), "{}", "tiktoken:o200k_base", NOW, NOW
        )
        copy = effects.get("copy")
        if snapshot.session is None and copy is not None:
            before = replace(before, messages=copy.stop)
        new = [one if isinstance(one, StoredMessage) else stored(one) for one in messages]
        placed = tuple(replace(one, index=before.messages + place) for place, one in enumerate(new))
        keys = tuple(
            (one.key, tx.KeyEntry(one.index, f"print-{one.index}")) for one in placed if one.key
        )
        version = before.version + 1
        written: dict[str, Any] = {
            "messages": before.messages + len(placed), "version": version, "state": f"[{version}]",
        }  # fmt: skip
        after = replace(before, **(written | (record or {})))
        given = {"keys": keys if claim else (), **effects}
        return tx.Changes(snapshot, session=after, messages=placed, **given)

    return decide


async def write(
    tenant: TenantStore,
    session_id: str,
    messages: Sequence[str | Message | StoredMessage] = (),
    *,
    keys: Sequence[str] = (),
    **how: Any,
) -> tx.Snapshot:
    """Write to a session what ``writing`` decides; return the snapshot of that decision."""
    return await tenant.mutate(session_id, writing(session_id, messages, **how), keys=keys)


def changed(
    session_id: str,
    seen: SessionRecord | None,
    messages: Sequence[str | Message | StoredMessage] = (),
    **how: Any,
) -> tuple[str, tx.Changes[Any]]:
    """Make what a batch holds of a session: the changes that ``writing`` decides on a record."""
    changes: tx.Changes[Any] = writing(session_id, messages, **how)(tx.Snapshot(seen, {}))
    return session_id, replace(changes, result=None)


def deciding(
    *steps: tuple[str, Callable[[tx.Snapshot], tx.Changes[Any]]],
    delete: Sequence[str] = (),
    runs: Sequence[tx.RunRecord] = (),
) -> Callable[[], tx.Deciding[str]]:
    """Make a decision for ``transact`` from decisions for ``mutate``, one after the other.

    It reads each session's record, and its result is "decided".
    """

    def decide() -> tx.Deciding[str]:
        records: dict[str, SessionRecord | None] = {}
        sessions: list[tuple[str, tx.Changes[None]]] = []
        for session_id, step in steps:
            if session_id not in records:
                records[session_id] = yield session_id, "session"
            changes = step(tx.Snapshot(records[session_id], {}))
            records[session_id] = changes.session or records[session_id]
            sessions.append((session_id, replace(changes, result=None)))
        return tx.Batch("decided", tuple(sessions), tuple(delete), tuple(runs))

    return decide


async def delete(tenant: TenantStore, *sessions: str) -> None:
    """Delete sessions."""
    await tenant.transact(deciding(delete=sessions))


@asynccontextmanager
async def refused(
    tenant: TenantStore, error: type[Exception] = UsageError
) -> AsyncIterator[pytest.ExceptionInfo[Exception]]:
    """Expect that what is done inside raises ``error`` and changes nothing that is stored."""
    before = await contents(tenant)
    with pytest.raises(error) as caught:
        yield caught
    assert await contents(tenant) == before


async def contents(tenant: TenantStore) -> dict[str, Any]:
    """Read everything that a tenant's handle can reach, in a form that can be compared.

    Revisions are looked up by the numbers up to each node's serving one; records by their kinds,
    reusable texts by their hashes, and the views of "s" also where there is no such session.
    """
    hashes = ("h", "h0", "h1", "h2", "same")
    kept: dict[str, Any] = {
        "runs": await tenant.runs(limit=10_000),
        "attempts": await tenant.attempts(limit=10_000),
        "spent": await tenant.spent(),
        "records": [one for kind in ("k", "K", "chunk") for one in await tenant.records(kind)],
        "views": [view for name in "vw" if (view := await tenant.view("s", name))],
        "reusable": {one: text for one in hashes if (text := await tenant.reusable(one))},
    }
    for record in await tenant.sessions(limit=10_000):
        kept[f"session {record.id}"] = await _session(tenant, record)
    return kept


async def _session(tenant: TenantStore, record: SessionRecord) -> dict[str, Any]:
    id_ = record.id
    messages = await tenant.messages(id_, 0, record.messages + 1)
    keys = [one.key for one in messages if one.key is not None]

    def peek(snapshot: tx.Snapshot) -> tx.Changes[tx.Snapshot]:
        return tx.Changes(snapshot)

    seen = await tenant.mutate(id_, peek, keys=keys)
    derived = await tenant.transact(lambda: _derived(id_))
    versions = [await tenant.versions(id_, index) for index in range(record.messages)]
    return {
        "record": record,
        "messages": [plain(one) for one in messages],
        "versions": [[plain(one) for one in earlier] for earlier in versions],
        "keys": dict(seen.keys),
        "events": await tenant.events(id_),
        "forks": await tenant.forks(id_),
        "spent": await tenant.spent(id_),
        "derived": derived,
        "trees": {number: await _tree(tenant.tree(id_, number)) for number in {0, 1, record.tree}},
        "serving": await _tree(tenant.tree(id_)),
        "blocks": {kind: await tenant.blocks(id_, kind) for kind in ("index", "other")},
    }


def _derived(id_: str) -> tx.Deciding[list[Any]]:
    """Read, as a decision may, what no method lists by session."""
    found: list[Any] = [(yield id_, tx.NeedViews())]
    found.append((yield id_, tx.NeedRecords("k")))
    found.append((yield id_, "echoes"))
    return tx.Batch(found)


async def _tree(tree: TreeStore) -> dict[str, Any]:
    counts = await tree.levels()
    sealed = {level: await tree.level(level, 0) for level in counts}
    nodes = [node for level in sealed.values() for node in level]
    wanted = [(node.id, number) for node in nodes for number in range(node.revision + 1)]
    return {
        "levels": counts,
        "nodes": nodes,
        "unfinished": {level: await tree.unfinished(level, -1, 10_000) for level in counts},
        "tally": [rounded(one) for one in await tree.tally()],
        "revisions": [plain(one) for one in await tree.revisions(wanted)],
    }


def rounded(tally: tx.NodeTally) -> tx.NodeTally:
    """Return a tally for a comparison: a sum of fractions depends on the order of addition."""
    return replace(tally, fidelity=round(tally.fidelity, 6))


def plain(value: StoredMessage | Revision | tx.LogEvent) -> dict[str, Any]:
    """Return the fields of a value for a comparison that also sees offsets of times."""
    shown = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, StoredMessage):
        shown["offset"] = value.created_at.utcoffset()
        shown["kinds"] = (type(value.content), type(value.message.tool_calls))
    return shown


# -- sessions to change: their texts, the earlier texts, and everything stored besides


def keyed(*texts: str) -> list[Message]:
    """Make messages with the keys key-0, key-1 and so on."""
    return [Message.user(text, key=f"key-{place}") for place, text in enumerate(texts)]


def to(index: int, text: str, **fields_: Any) -> StoredMessage:
    """Make the replacement of one of the messages of ``keyed``."""
    return replace(stored(Message.user(text, key=f"key-{index}"), **fields_), index=index)


def rewriting(index: int, text: str, kind: Any, **fields_: Any) -> tuple[tx.Rewrite, ...]:
    """Make the rewrite that replaces one of the messages of ``keyed`` by ``text``."""
    return (tx.Rewrite(to(index, text, **fields_), kind),)


async def said(tenant: TenantStore, session: str = "s") -> list[Any]:
    """Return the texts of a session's messages."""
    return [one.content for one in await tenant.messages(session, 0, 99)]


async def was(tenant: TenantStore, index: int, session: str = "s") -> list[Any]:
    """Return the texts of a message's earlier versions."""
    return [one.content for one in await tenant.versions(session, index)]


async def derive(tenant: TenantStore, session: str) -> None:
    """Write, for an existing session, one of everything that can be stored besides its log."""
    await tenant.tree(session).write_nodes(
        [], attempts=[attempt(f"a-{session}", session_id=session)]
    )
    await tenant.put_run(run(f"r-{session}", subject=session))
    await tenant.put_view(tx.ViewRecord(session, "v", "state"))
    await tenant.put_view(tx.ViewRecord(session, "w", "state"))
    await tenant.put_records([tx.RecordWrite("k", session, key, "body") for key in "ab"])
    assert await tenant.put_blocks(session, [tx.Block("index", 0, 2, b"x")], epoch=0) is True
