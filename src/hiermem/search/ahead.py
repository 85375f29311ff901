"""Runs an update, and then stores what search indexes lack, so that no search has to build them.

It keeps the indexes of long sessions and the one over all sessions. Every session imports this
module, so it loads the index only if one is worth keeping.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from hiermem.errors import HiermemError
from hiermem.handle import Handle
from hiermem.summaries.reports import UpdateReport

_log = logging.getLogger("hiermem.search")

#: A search indexes fewer messages as fast as it would read their stored index.
_LONG: Final = 256
#: One in this many updates of short sessions looks at the index over all sessions.
_UPDATES: Final = 16


async def with_index(
    handle: Handle,
    session_id: str,
    update: Awaitable[UpdateReport],
    *,
    within: float | None = None,
) -> UpdateReport:
    """Run an update and store the missing parts of the session's index.

    If a cap ends the update, or both take longer than ``within`` seconds, the rest is left to the
    next update or search. An update does not fail because of an index.
    """
    until = None if within is None else asyncio.get_running_loop().time() + within
    report = await update
    if report.stopped is None:
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout_at(until):
                    await _keep(handle, session_id)
            except HiermemError as error:
                _log.info("an index was not stored: %s", type(error).__name__)
    return report


async def _keep(handle: Handle, session_id: str) -> None:
    record = await handle.store.session(session_id)
    is_long = record is not None and record.messages >= _LONG
    if record is not None and is_long and record.counter == handle.counter.name:
        await handle.indexes.store_ahead(record)
    handle.indexes.updates += 1
    if is_long or not handle.indexes.updates % _UPDATES:
        from hiermem.search.tenant_index import keep

        await keep(handle)
