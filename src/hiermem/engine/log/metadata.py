"""Sets the metadata of a session: the application's own labels, by which sessions are listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hiermem.engine.handle import Handle
from hiermem.errors import NotFoundError
from hiermem.types.transaction import Changes, Snapshot


async def set_metadata(handle: Handle, session_id: str, metadata: Mapping[str, str]) -> None:
    """Replace the session's metadata; equal ones write nothing. Raises NotFoundError."""
    await handle.record(session_id)

    def change(snapshot: Snapshot) -> Changes[None]:
        record = snapshot.session
        if record is None:
            raise NotFoundError(f"session {session_id!r} was erased meanwhile")
        if record.metadata == metadata:
            return Changes(None)
        return Changes(None, session=replace(record, metadata=metadata, version=record.version + 1))

    await handle.store.mutate(session_id, change)
