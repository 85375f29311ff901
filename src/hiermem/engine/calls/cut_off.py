"""Journals that a run was cut off, when its heartbeat says so."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from hiermem.core.calls import run_report
from hiermem.engine.calls.call_journal import ALL_ATTEMPTS
from hiermem.protocols import TenantStore

#: How many of the newest runs are looked at for one that was cut off.
_NEWEST_RUNS: Final = 20


async def note_cut_off(store: TenantStore, subject: str, *, kind: str, now: datetime) -> int:
    """Journal that runs of that kind and subject were cut off, where they ceased to beat.

    Gives the number of their calls that are unknown by it. Those of a model that takes no leases,
    and of an answer that was kept before its end was journalled, are noted nowhere else. When such
    a run ended is not known.
    """
    unknown = 0
    for run in await store.runs(subject=subject, limit=_NEWEST_RUNS):
        current = run_report.with_current_outcome(run, now)
        if run.kind != kind or current == run:
            continue
        calls = run_report.cut_off(await store.attempts(run_id=run.id, limit=ALL_ATTEMPTS), now)
        # The run last: whoever is cut off between the two leaves it to the next.
        if calls:
            await store.write_nodes(subject, [], attempts=calls)
        await store.put_run(current)
        unknown += len(calls)
    return unknown
