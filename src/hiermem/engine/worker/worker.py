"""Works in the background: makes what has to be made in any session, as it comes up.

::

    scheduler (which session is next) -> place -> update -> scheduler (when it is next)

The worker only decides when a session's update runs. The update itself makes, claims, pays for and
commits. So a worker that dies leaves nothing but leases that expire, and several workers, in one
process or in many, share a store without knowing of each other. ``engine.worker.session_scheduler``
looks for work.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Self

from hiermem.core import arguments
from hiermem.core.calls.backoff import IDLE, back_off
from hiermem.core.summaries.due import pause_after
from hiermem.core.summaries.plan import UpdateReport
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.summaries.reports import BatchReport, WorkerState, WorkerStatus, add_report
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.handle import Handle, Handles
from hiermem.engine.worker.due import DueScheduler, sweep_for_ever
from hiermem.engine.worker.pool import SessionUpdate, UpdatePool
from hiermem.engine.worker.session_scheduler import SessionScheduler
from hiermem.errors import NotFoundError, UsageError
from hiermem.protocols import LLM

_log = logging.getLogger("hiermem.worker")
#: At most this share of the time is spent looking for work.
_LOOKING: Final = 0.1
#: Calls after which a session yields to others that wait: of a remote and of a local model.
_QUANTUM: Final = (24, 256)
#: Seconds between two checks whether a worker is done.
_LOOK: Final = 0.02


class AsyncWorker:
    """A background worker over the sessions of a memory's tenants.

    Use ``async with``, or start() and stop(). ``max_calls``, ``max_tokens`` and ``deadline``
    (seconds after the start) cap all its work; ``poll`` is the interval between two looks for work,
    in seconds. A worker may be started once. ``handles`` are those of the tenants by name, of which
    there may be more later; without them, it works for the tenant of ``handle``. With ``due``, the
    handles of all tenants of a store, it works for them by the list of what is due there.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        llm: LLM,
        fallback: LLM,
        prompts: Mapping[str, PromptTemplate | str] | None = None,
        handles: Mapping[str, Handle] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        poll: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        name: str | None = None,
        opened: Callable[[], object] | None = None,
        due: Handles | None = None,
    ) -> None:
        self._handle = handle
        self._clock, self._poll, self._opened = clock, max(poll, _LOOK), opened
        self._budget = partial(
            Budget, max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, clock=clock
        )
        self._state: WorkerState = "new"
        self._pool = UpdatePool(
            handle.update_policy,
            llm,
            fallback,
            prompts,
            self._budget(),
            clock,
            sleep=sleep,
            waits_for_leases=False,
        )
        self._quantum = _QUANTUM[0 if llm.remote else 1]
        name = name or uuid.uuid4().hex
        if due is None:
            known = {handle.store.tenant: handle} if handles is None else handles
            self._scheduler = SessionScheduler(
                self._pool, known, clock, name=name, on_found=self._fill
            )
        else:
            self._scheduler = DueScheduler(self._pool, due, clock, name=name, on_found=self._fill)
        self._due = due
        self._sweeping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._next_look = 0.0
        self._news = self._failures = self._turns = 0
        self._capped: str | None = None
        self._capped_until = 0.0
        self._total = BatchReport("")
        self._last_error: str | None = None

    # -- what the application calls

    @property
    def status(self) -> WorkerStatus:
        """What the worker is doing, and has done."""
        total = self._total
        return WorkerStatus(
            state=self._state,
            active=len(self._pool.updates),
            waiting=len(self._scheduler.queue),
            resting=len(self._scheduler.backoff),
            in_flight=self._pool.slots.in_use,
            turns=self._turns,
            made=total.made,
            reused=total.reused,
            failed=total.failed,
            degraded=total.degraded,
            calls=total.calls,
            tokens_in=total.tokens_in,
            tokens_out=total.tokens_out,
            unknown=total.unknown,
            stopped=self._halted(),
            last_error=self._last_error,
            cost=total.cost,
        )

    async def start(self) -> None:
        """Begin. Raises UsageError where it was started before, and where its memory is closed."""
        if self._opened is not None:
            self._opened()
        if self._state != "new":
            raise UsageError("this worker was started before; make another one")
        self._state = "running"
        self._pool.budget = self._budget()
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        if self._due is not None:
            sweeping = sweep_for_ever(self._due)
            self._sweeping = asyncio.get_running_loop().create_task(sweeping)

    def wake(self) -> None:
        """Look for work now rather than at the next interval."""
        self._next_look = 0.0
        self._wake.set()

    async def pause(self) -> None:
        """Begin nothing any more; returns when what was in flight is committed."""
        self._check_alive()
        self._state = "paused"
        await self._pool.end("pause")

    def resume(self) -> None:
        """Continue after a pause."""
        self._check_alive()
        self._state = "running"
        self.wake()

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - its own end
        """Wait until all that can be made now is made; return whether nothing at all is left.

        Nodes that back off after a failure, and what a cap forbids, are not waited for; nodes that
        another worker holds are, unless this one works for all tenants. After ``timeout`` seconds
        it returns False; the worker continues either way.
        """
        self._check_alive()
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        begun, self._news = self._clock(), self._scheduler.begun
        self._scheduler.sweep_next()
        self.wake()
        while timeout is None or self._clock() - begun < timeout:
            if self._state != "running" or self._serving is None or self._serving.done():
                return False
            waiting = len(self._scheduler.queue)
            idle = not self._pool.updates and (not waiting or self._halted() is not None)
            if idle and self._halted() is not None:
                return False
            if idle and self._scheduler.finished <= self._news:
                # The last look did not see what later turns left undone.
                if not self._failures:
                    self.wake()
            elif idle and not self._scheduler.backoff.leased:
                return not self._scheduler.left
            await asyncio.sleep(_LOOK)
        return False

    async def stop(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its own end
        """End. Wait for calls in flight up to ``timeout`` seconds, the drain time if None.

        Calls that are cut off then are reported as unknown; all that is not made stays pending.
        """
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return
        self._state = "stopping"
        drain = self._handle.update_policy.drain if timeout is None else timeout
        try:
            for task in (self._serving, self._sweeping):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            async with asyncio.timeout(drain):
                await self._pool.end("stop")
        except TimeoutError:
            _log.warning("a worker was stopped with %d updates unfinished", len(self._pool.updates))
        finally:
            # Also where stop() itself is cancelled: nothing may work on when the store is closed.
            await shielded(self._cut_off())

    async def _cut_off(self) -> None:
        """Cut off the turns that are left, and wait until they have cleaned up."""
        await self._pool.cut_off()
        self._state = "stopped"
        try:
            await self._scheduler.give_back()
        except Exception as error:  # noqa: BLE001 - the claims that are left expire
            self._record_error(error)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- the loop

    def _check_alive(self) -> None:
        if self._state not in ("running", "paused"):
            raise UsageError(f"this worker is {self._state}; it must be running")

    def _halted(self) -> str | None:
        """Return the name of the cap that keeps it from working, or None."""
        if self._capped is not None and self._clock() >= self._capped_until:
            self._capped = None
        return self._pool.budget.stop_reason() or self._capped

    async def _serve(self) -> None:
        """Look for work and give it places, until the worker ends."""
        while self._state in ("running", "paused"):
            self._wake.clear()
            if self._state == "running" and self._halted() is None:
                if self._clock() >= self._next_look:
                    await self._look()
                self._fill()
            try:
                pause = max(_LOOK, min(self._poll, self._next_look - self._clock()))
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """Look for work; where that fails, look again later."""
        begun = self._clock()
        try:
            await self._scheduler.look()
        except Exception as error:  # noqa: BLE001 - a worker outlives what its store meets
            self._failures += 1
            self._record_error(error)
            pause = back_off(self._failures, (self._poll, IDLE[1]))
        else:
            self._failures = 0
            pause = max(self._poll, (self._clock() - begun) / _LOOKING)
        self._next_look = self._clock() + pause

    def _fill(self) -> None:
        """Give the free places to the first in line; ask a session to yield where that is due."""
        if self._state != "running" or self._halted() is not None:
            return
        under_way = self._pool.fill(self._scheduler.begin_next, self._run)
        queue = self._scheduler.queue
        head = queue.head
        staying = [each for each in self._pool.updates.values() if not each.ending]
        if head is None or not staying or len(under_way) - len(staying) >= len(queue):
            return
        level, contested = head
        last = max(
            staying,
            key=lambda session_update: (session_update.slots.level, session_update.slots.acquired),
        )
        if (last.slots.level > level and not contested) or last.slots.acquired >= self._quantum:
            last.end("turn")

    async def _run(self, session_update: SessionUpdate) -> None:
        """Run one session's turn, and decide its next one."""
        report: UpdateReport | None = None
        try:
            if self._scheduler.is_bare(session_update.key):
                await self._pool.embed(session_update)
            else:
                report = await self._pool.work(session_update)
        except NotFoundError:
            self._scheduler.forget(session_update.key)
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            self._record_error(error)
            self._scheduler.trouble(session_update.key)
        finally:
            if report is not None:
                self._record_report(report)
                self._scheduler.settle(session_update, report)
            self._scheduler.settle_vectors(session_update)
            try:
                await self._scheduler.release(session_update, report)
            except Exception as error:  # noqa: BLE001 - a claim that is not given back expires
                self._record_error(error)
            self._turns += 1
            self._news = self._scheduler.begun
            self._wake.set()

    def _record_report(self, report: UpdateReport) -> None:
        """Count what a turn did; halt all sessions where a cap of all of them ended it."""
        self._total, stopped = add_report(self._total, report), report.stopped
        if stopped in ("tenant_calls", "tenant_tokens", "circuit_open"):
            self._capped, self._capped_until = stopped, self._clock() + pause_after(report)

    def _record_error(self, error: Exception) -> None:
        """Remember and log an error by its name only: its text may be confidential."""
        self._last_error = type(error).__name__
        _log.warning("a worker met %s; it goes on", self._last_error)
