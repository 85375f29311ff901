"""Journals the runs of a session: that one began, is alive, ended, or was seen to be cut off.

The one rule: a run is cut off when its own heartbeat says so, never because another one began. What
a run wrote stays valid either way; the calls that it had begun and not ended are unknown.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hiermem.core.calls import run_report
from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.plan import UpdateReport
from hiermem.engine.handle import state_from
from hiermem.engine.summaries.commit import ALL_ATTEMPTS
from hiermem.engine.summaries.run import Workshop
from hiermem.errors import StoreError
from hiermem.protocols import RunRecord, TenantStore

__all__ = ["Run", "note_cut_off"]

_log = logging.getLogger("hiermem.update")
#: Beats within one lease, so that two may fail before it ends.
_BEATS: Final = 3
#: How many of the newest runs are looked at for one that was cut off.
_LOOKED_AT: Final = 20
#: So many waiting summaries of a level are counted when a run begins; there may be more.
_COUNTED: Final = 4 * PAGE


async def note_cut_off(store: TenantStore, subject: str, *, kind: str, now: datetime) -> int:
    """Journal that runs of that kind and subject were cut off, where they ceased to beat.

    Gives the number of their calls that are unknown by it. Those of a model that takes no leases,
    and of an answer that was kept before its end was journalled, are noted nowhere else. When such
    a run ended is not known.
    """
    unknown = 0
    for run in await store.runs(subject=subject, limit=_LOOKED_AT):
        as_seen = run_report.seen(run, now)
        if run.kind != kind or as_seen == run:
            continue
        calls = run_report.cut_off(await store.attempts(run_id=run.id, limit=ALL_ATTEMPTS), now)
        # The run last: whoever is cut off between the two leaves it to the next.
        if calls:
            await store.write_nodes(subject, [], attempts=calls)
        await store.put_run(as_seen)
        unknown += len(calls)
    return unknown


class Run:
    """The journal's record of one update; ``repack`` says that it is a full one."""

    def __init__(self, shop: Workshop, *, repack: bool = False) -> None:
        self._shop, self._repack = shop, repack
        self._lease = timedelta(seconds=shop.policy.lease)
        self._record = RunRecord(
            id=shop.run_id, kind="update", subject=shop.session_id, started_at=shop.now()
        )
        self._begun = False
        self._found: dict[str, Any] = {}

    async def note_cut_off(self) -> None:
        """Journal that runs of this session were cut off; their calls are reported as unknown."""
        shop = self._shop
        shop.ledger.unknown += await note_cut_off(
            shop.store, shop.session_id, kind="update", now=shop.now()
        )

    async def begin(self) -> None:
        """Journal, once, that the run has work to do."""
        if not self._begun:
            self._found = await self._look()
            await self._put(self._record)
            self._begun = True

    async def _look(self) -> dict[str, Any]:
        """Say how much waits to be made, and which share of the summaries is out of date.

        What waits is counted up to a bound, so that a run of a long session costs what it makes. A
        summary that is stale by choice does not wait.
        """
        shop = self._shop
        counts = state_from(shop.record.state).ordinals
        queue = dirty = 0
        for level in range(1, len(counts) + 1):
            after, counted = -1, 0
            while counted < _COUNTED:
                due = await shop.store.unfinished(shop.session_id, level, after, PAGE)
                counted += len(due)
                dirty += sum(node.dirty for node in due)
                if len(due) < PAGE:
                    break
                after = due[-1].ordinal
            queue += counted
        return {"queue": queue, "dirty_share": dirty / sum(counts) if queue else 0.0}

    async def beat(self) -> None:
        """Renew the leases and the run's own sign of life until cancelled."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / _BEATS)
            try:
                await self._shop.ledger.renew()
                await self._put(self._record)
            except StoreError as error:
                # Missing a beat is harmless; the next one, or the commit, will tell.
                what = type(error).__name__
                _log.warning("run %s: a heartbeat failed: %s", self._shop.run_id, what)

    async def end(self, report: UpdateReport) -> None:
        """Journal how the run ended; one that had nothing to do is written once."""
        whole = not report.failed and not report.degraded and report.stopped is None
        await self._finish("ok" if whole else "partial", report)
        _log.info(
            "run %s: made %d, reused %d, degraded %d, failed %d, calls %d, tokens %d",
            report.run_id, report.made, report.reused, report.degraded, report.failed,
            report.calls, report.tokens,
        )  # fmt: skip

    async def break_off(self, report: UpdateReport, error: BaseException) -> None:
        """Journal that the run was cancelled or met an error."""
        if not self._begun:
            return
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        await self._finish(
            "interrupted" if cancelled else "error", report, reason=type(error).__name__
        )

    async def _finish(self, outcome: Any, report: UpdateReport, **more: str) -> None:
        self._record = replace(
            self._record,
            outcome=outcome,
            ended_at=self._shop.now(),
            detail={
                "model": self._shop.llm.name,
                **self._found,
                "made": report.made,
                "reused": report.reused,
                "failed": report.failed,
                "degraded": report.degraded,
                "by_level": {str(level): count for level, count in report.by_level.items()},
                "calls": report.calls,
                "tokens_in": report.tokens_in,
                "tokens_out": report.tokens_out,
                "cost": report.cost,
                "unknown": report.unknown,
                "stopped": report.stopped,
                **({"strategy": "full", "swapped": report.swapped} if self._repack else {}),
                **more,
            },
        )
        await self._shop.store.put_run(self._record)

    async def _put(self, record: RunRecord) -> None:
        alive = (self._shop.now() + self._lease).isoformat()
        await self._shop.store.put_run(
            replace(
                record,
                detail={"model": self._shop.llm.name, **self._found, "alive_until": alive},
            )
        )
