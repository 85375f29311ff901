"""Plain sessions to change: their texts, the earlier texts, and everything stored besides.

Everything is deterministic and independent of how a session is folded, as in ``samples``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hiermem.protocols import TenantStore
from hiermem.testing.samples import attempt, run, stored
from hiermem.types import Message, StoredMessage
from hiermem.types.transaction import Block, RecordWrite, Rewrite, ViewRecord

__all__ = ["derive", "keyed", "rewriting", "said", "to", "was"]


def keyed(*texts: str) -> list[Message]:
    """Make messages with the keys key-0, key-1 and so on."""
    return [Message.user(text, key=f"key-{place}") for place, text in enumerate(texts)]


def to(index: int, text: str, **fields_: Any) -> StoredMessage:
    """Make the replacement of one of the messages of ``keyed``."""
    return replace(stored(Message.user(text, key=f"key-{index}"), **fields_), index=index)


def rewriting(index: int, text: str, kind: Any, **fields_: Any) -> tuple[Rewrite, ...]:
    """Make the rewrite that replaces one of the messages of ``keyed`` by ``text``."""
    return (Rewrite(to(index, text, **fields_), kind),)


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
    await tenant.put_view(ViewRecord(session, "v", "state"))
    await tenant.put_view(ViewRecord(session, "w", "state"))
    await tenant.put_records([RecordWrite("k", session, key, "body") for key in "ab"])
    assert await tenant.put_blocks(session, [Block("index", 0, 2, b"x")], epoch=0) is True
