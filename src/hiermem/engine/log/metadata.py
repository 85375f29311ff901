"""Sets what an application says of a session: its title, and the labels it is listed by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict, Unpack

from hiermem.engine.handle import Handle
from hiermem.errors import NotFoundError
from hiermem.types.transaction import Changes, Snapshot


class Said(TypedDict, total=False):
    """What an application may say of a session, by the fields of its record."""

    title: str | None
    metadata: Mapping[str, str]


async def describe(handle: Handle, session_id: str, **said: Unpack[Said]) -> None:
    """Replace fields of the session's record; equal ones write nothing. Raises NotFoundError."""
    await handle.record(session_id)

    def change(snapshot: Snapshot) -> Changes[None]:
        record = snapshot.session
        if record is None:
            raise NotFoundError(f"session {session_id!r} was erased meanwhile")
        after = replace(record, **said)
        if after == record:
            return Changes(None)
        return Changes(None, session=replace(after, version=record.version + 1))

    await handle.store.mutate(session_id, change)
