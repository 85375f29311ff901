"""Journals the update runs of a session: that one began, is alive, ended, or was cut off.

A run is cut off when its own heartbeat stops, never because another one began. What the run wrote
stays valid either way; calls that it had begun and not ended are unknown.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.plan import UpdateReport
from hiermem.engine.calls.cut_off import note_cut_off
from hiermem.engine.handle import state_from
from hiermem.engine.summaries.run import UpdateRun
from hiermem.errors import StoreError
from hiermem.types.transaction import RunRecord

_log = logging.getLogger("hiermem.update")
#: Heartbeats within one lease, so that two may fail before it ends.
_BEATS: Final = 3
#: At most this many waiting summaries of a level are counted when a run begins.
_COUNTED: Final = 4 * PAGE


class RunJournal:
    """The journal entry of one update; ``repack`` marks a full one."""

    def __init__(self, run: UpdateRun, *, repack: bool = False) -> None:
        self._run, self._repack = run, repack
        self._lease = timedelta(seconds=run.policy.lease)
        self._record = RunRecord(
            id=run.run_id, kind="update", subject=run.session_id, started_at=run.now()
        )
        self._begun = False
        self._backlog: dict[str, Any] = {}

    async def note_cut_off(self) -> None:
        """Journal earlier runs of this session that were cut off, and count their unknown calls."""
        run = self._run
        run.claims.unknown += await note_cut_off(
            run.store, run.session_id, kind="update", now=run.now()
        )

    async def begin(self) -> None:
        """Journal, once, that the run has work to do."""
        if not self._begun:
            self._backlog = await self._measure_backlog()
            await self._put(self._record)
            self._begun = True

    async def _measure_backlog(self) -> dict[str, Any]:
        """Return how many summaries wait to be made, and which share of all is dirty.

        The count of waiting summaries is bounded, so that a run of a long session costs what it
        makes. A summary that is stale by choice does not wait.
        """
        run = self._run
        counts = state_from(run.record.state).ordinals
        queue = dirty = 0
        for level in range(1, len(counts) + 1):
            after, counted = -1, 0
            while counted < _COUNTED:
                due = await run.tree.unfinished(level, after, PAGE)
                counted += len(due)
                dirty += sum(node.dirty for node in due)
                if len(due) < PAGE:
                    break
                after = due[-1].ordinal
            queue += counted
        return {"queue": queue, "dirty_share": dirty / sum(counts) if queue else 0.0}

    async def beat(self) -> None:
        """Renew the leases and the run's heartbeat until cancelled."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / _BEATS)
            try:
                await self._run.claims.renew()
                await self._put(self._record)
            except StoreError as error:
                # Missing a heartbeat is harmless; the next one, or the commit, meets the error
                # again.
                what = type(error).__name__
                _log.warning("run %s: a heartbeat failed: %s", self._run.run_id, what)

    async def end(self, report: UpdateReport) -> None:
        """Journal how the run ended; a run that had nothing to do is written once."""
        whole = not report.failed and not report.degraded and report.stopped is None
        await self._put_end("ok" if whole else "partial", report)
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
        await self._put_end(
            "interrupted" if cancelled else "error", report, reason=type(error).__name__
        )

    async def _put_end(self, outcome: Any, report: UpdateReport, **more: str) -> None:
        self._record = replace(
            self._record,
            outcome=outcome,
            ended_at=self._run.now(),
            detail={
                "model": self._run.llm.name,
                **self._backlog,
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
        await self._run.store.put_run(self._record)

    async def _put(self, record: RunRecord) -> None:
        alive = (self._run.now() + self._lease).isoformat()
        await self._run.store.put_run(
            replace(
                record,
                detail={"model": self._run.llm.name, **self._backlog, "alive_until": alive},
            )
        )
