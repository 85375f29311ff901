"""Journals runs that were cut off, as shown by their last heartbeat."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from hiermem.core.calls import run_report
from hiermem.engine.calls.call_journal import ALL_ATTEMPTS
from hiermem.protocols import TenantStore

#: How many of the newest runs are searched for interrupted ones.
_NEWEST_RUNS: Final = 20


async def note_cut_off(store: TenantStore, subject: str, *, kind: str, now: datetime) -> int:
    """Journal that runs of this kind and subject were cut off, where their heartbeat has stopped.

    Returns the number of their calls whose outcome is unknown. For a model that takes no leases,
    and for an answer that was stored before the end of its call was journalled, this is the only
    place that records it. The time at which such a run ended is not known.
    """
    unknown = 0
    for run in await store.runs(subject=subject, limit=_NEWEST_RUNS):
        current = run_report.with_current_outcome(run, now)
        if run.kind != kind or current == run:
            continue
        calls = run_report.cut_off(await store.attempts(run_id=run.id, limit=ALL_ATTEMPTS), now)
        # The run is written last: a process killed between the two writes leaves the rest to the
        # next.
        if calls:
            await store.tree(subject).write_nodes([], attempts=calls)
        await store.put_run(current)
        unknown += len(calls)
    return unknown
