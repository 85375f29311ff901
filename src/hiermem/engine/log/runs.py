"""Reads the journal: which runs there were, and what each of them did.

Reading writes nothing. A run that was cut off is shown as such; the next run of its subject records
it as such.
"""

from __future__ import annotations

from typing import Any, Final

from hiermem.core import arguments
from hiermem.core.calls.run_report import RunReport, report, with_current_outcome
from hiermem.core.text.policy import check_name
from hiermem.engine.handle import Handle
from hiermem.errors import NotFoundError
from hiermem.types.transaction import RunRecord

#: The most runs of one read; a store's own numbers have a limit.
_MOST: Final = 2**31 - 1


async def runs(handle: Handle, limit: Any, *, subject: str | None = None) -> list[RunRecord]:
    """List the newest runs first, of one subject if given."""
    most = min(arguments.whole(limit, "limit"), _MOST)
    found = await handle.store.runs(subject=subject, limit=most)
    now = await handle.store.now()
    return [with_current_outcome(run, now) for run in found]


async def one(handle: Handle, run_id: str) -> RunReport:
    """Return a run with the state of each of its items. Raises NotFoundError for an unknown id."""
    found = await handle.store.run(check_name(run_id, what="run id"))
    if found is None:
        raise NotFoundError(f"there is no run {run_id!r}")
    attempts = await handle.store.attempts(run_id=run_id, limit=_MOST)
    return report(found, attempts, await handle.store.now())
