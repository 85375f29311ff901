"""Reads the record of a session that must exist."""

from __future__ import annotations

from hiermem.errors import NotFoundError
from hiermem.types import SessionRecord, transaction
from hiermem.types.transaction import Asking


def known_session(session_id: str) -> Asking[SessionRecord]:
    """Read a session's record. Raises NotFoundError if the session does not exist."""
    record: SessionRecord | None = yield session_id, transaction.NeedSession()
    return known(session_id, record)


def known(session_id: str, record: SessionRecord | None) -> SessionRecord:
    """Return the record that was read. Raises NotFoundError if the session does not exist."""
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    return record
