"""Keeps the index of long sessions with their summaries, so that no search has to build it.

This module is imported with every session, so it loads the index only where one is worth keeping.
"""

from __future__ import annotations

from typing import Final

from hiermem.engine.handle import Handle

#: A search indexes fewer messages as fast as it reads what was kept; it keeps blocks of so many.
_LONG: Final = 256


async def store_index(handle: Handle, session_id: str) -> None:
    """Store what an index of the session lacks after an update."""
    record = await handle.store.session(session_id)
    if record is None or record.messages < _LONG or record.counter != handle.counter.name:
        return
    from hiermem.engine.search.summary_index import store_ahead

    await store_ahead(handle, record)
