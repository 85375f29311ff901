"""The read requests of decisions: the core yields them, the engine answers them.

Each request is bounded by the decision's own result, never by the size of the session. The answer
is a list in the order that the corresponding store method states.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from hiermem.errors import NotFoundError
from hiermem.types import Node, Revision, SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import (
    Asking,
    Need,
)

T = TypeVar("T")

#: A decision that reads as it goes: it yields needs, is sent the answers, returns its result. For a
#: tuple of needs it is sent the answers to all of them, in the same order.
Reading: TypeAlias = Generator[Need | tuple[Need, ...], Any, T]


def at_length() -> Reading[None]:
    """State that the rest of the decision may take more than 20 ms: it leaves the event loop."""
    yield ()


def messages(start: int, stop: int) -> Reading[list[StoredMessage]]:
    """Read messages by index; nothing is asked for an empty range."""
    if stop <= start:
        return []
    found: list[StoredMessage] = yield transaction.NeedMessages(start, stop)
    return found


def stretches(ranges: Sequence[tuple[int, int]]) -> Reading[list[list[StoredMessage]]]:
    """Read the messages of several ranges at once; nothing is asked for none."""
    if not ranges:
        return []
    found: Sequence[list[StoredMessage]] = yield tuple(
        transaction.NeedMessages(*one) for one in ranges
    )
    return list(found)


def nodes(ids: Sequence[str]) -> Reading[list[Node]]:
    """Read nodes by id; nothing is asked for none."""
    if not ids:
        return []
    found: list[Node] = yield transaction.NeedNodes(tuple(ids))
    return found


def level(number: int, start: int, stop: int) -> Reading[list[Node]]:
    """Read sealed nodes of a level by ordinal; nothing is asked for an empty range."""
    if stop <= start:
        return []
    found: list[Node] = yield transaction.NeedLevel(number, start, stop)
    return found


def windows(start: int, stop: int) -> Reading[list[Node]]:
    """Read level-1 nodes by ordinal."""
    return (yield from level(1, start, stop))


def revisions(wanted: Sequence[tuple[str, int]]) -> Reading[list[Revision]]:
    """Read revisions; nothing is asked for none."""
    if not wanted:
        return []
    found: list[Revision] = yield transaction.NeedRevisions(tuple(wanted))
    return found


def existing_session(session_id: str) -> Asking[SessionRecord]:
    """Read a session's record. Raises NotFoundError if the session does not exist."""
    record: SessionRecord | None = yield session_id, "session"
    return existing(session_id, record)


def existing(session_id: str, record: SessionRecord | None) -> SessionRecord:
    """Return the record that was read. Raises NotFoundError if the session does not exist."""
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    return record
