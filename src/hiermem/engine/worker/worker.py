"""Works in the background: makes what has to be made in any session, as it comes up.

::

    scheduler (which session is next) -> place -> turn -> scheduler (when it is next)

The worker gives places to the sessions that its scheduler names. A session's update itself makes,
claims, pays for and commits. So a worker that dies leaves nothing but leases that expire, and
several workers, in one process or in many, share a store without knowing of each other.

There are three schedulers: ``engine.worker.session_scheduler`` looks for work in the sessions of
some tenants, ``engine.worker.due`` takes it from the list of what is due in a store, and
``engine.worker.update_all`` has a list of sessions and is drained once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self

from hiermem.core import arguments
from hiermem.core.calls.backoff import IDLE, back_off
from hiermem.core.summaries.reports import WorkerState, WorkerStatus
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.handle import Handle, Handles
from hiermem.engine.summaries.run import Shared
from hiermem.engine.worker.due import DueScheduler
from hiermem.engine.worker.pool import SessionUpdate, UpdatePool
from hiermem.engine.worker.session_scheduler import SessionScheduler
from hiermem.errors import UsageError

_log = logging.getLogger("hiermem.worker")
#: At most this share of the time is spent looking for work.
_LOOKING: Final = 0.1
#: Calls after which a session yields to others that wait: of a remote and of a local model.
_QUANTUM: Final = (24, 256)
#: Seconds between two checks whether a worker is done.
_LOOK: Final = 0.02


class AsyncWorker:
    """A background worker over the sessions of a memory; ``memory.worker()`` returns one.

    Use ``async with``, or start() and stop(). A worker may be started once.

    ``scheduler`` decides which session gets the next place in ``pool``. ``budget`` makes the caps
    on all the worker's work when it starts; without it, those of the pool hold. ``poll`` is the
    interval between two looks for work, in seconds. ``opened`` raises where the memory is closed.
    """

    def __init__(
        self,
        pool: UpdatePool,
        scheduler: SessionScheduler,
        *,
        budget: Callable[[], Budget] | None = None,
        poll: float = 1.0,
        opened: Callable[[], object] | None = None,
    ) -> None:
        self._pool, self._scheduler, self._clock = pool, scheduler, pool.shared.clock
        self._budget, self._poll, self._opened = budget, max(poll, _LOOK), opened
        self._quantum = _QUANTUM[0 if pool.shared.llm.remote else 1]
        scheduler.on_found = self._fill
        self._state: WorkerState = "new"
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._next_look = 0.0
        self._news = self._failures = self._turns = 0
        self._error: BaseException | None = None

    # -- what the application calls

    @property
    def status(self) -> WorkerStatus:
        """What the worker is doing, and has done."""
        total = self._pool.total
        return WorkerStatus(
            state=self._state,
            active=len(self._pool.updates),
            waiting=self._scheduler.waiting,
            resting=len(self._scheduler.backoff),
            in_flight=self._pool.limiter.in_flight,
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
            last_error=self._scheduler.last_error,
            cost=total.cost,
        )

    async def start(self) -> None:
        """Begin. Raises UsageError where it was started before, and where its memory is closed."""
        if self._opened is not None:
            self._opened()
        if self._state != "new":
            raise UsageError("this worker was started before; make another one")
        self._state = "running"
        if self._budget is not None:
            self._pool.budget = self._budget()
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._scheduler.start()

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
        it returns False; the worker continues either way. Raises an error that ended the worker.
        """
        self._check_alive()
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        begun, self._news = self._clock(), self._scheduler.begun
        self._scheduler.sweep_next()
        self.wake()
        while timeout is None or self._clock() - begun < timeout:
            if self._error is not None:
                raise self._error
            if self._state != "running" or self._serving is None or self._serving.done():
                return False
            waiting = self._scheduler.waiting
            idle = not self._pool.updates and (not waiting or self._halted() is not None)
            if idle and self._halted() is not None:
                return False
            if idle and self._scheduler.finished <= self._news:
                # The last look did not see what later turns left undone.
                if not self._failures:
                    self.wake()
            elif idle and not self._scheduler.backoff.leased:
                return not self._scheduler.left
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._changed.wait()
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
        drain = self._pool.policy.drain if timeout is None else timeout
        try:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.wait([self._serving])
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
            await self._scheduler.end()
        except Exception as error:  # noqa: BLE001 - the claims that are left expire
            self._scheduler.record_error(error)

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
        if self._error is not None:
            raise self._error
        if self._state not in ("running", "paused"):
            raise UsageError(f"this worker is {self._state}; it must be running")

    def _halted(self) -> str | None:
        """Return the name of the cap that keeps it from working, or None."""
        return self._pool.budget.stop_reason() or self._scheduler.halted()

    async def _serve(self) -> None:
        """Look for work and give it places, until the worker ends."""
        while self._state in ("running", "paused"):
            self._wake.clear()
            if self._state == "running" and self._halted() is None:
                if self._clock() >= self._next_look:
                    await self._look()
                self._fill()
            self._changed.set()
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
            self._scheduler.record_error(error)
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
        last = max(staying, key=lambda session_update: (session_update.level, session_update.calls))
        if (last.level > level and not contested) or last.calls >= self._quantum:
            last.end("turn")

    async def _run(self, session_update: SessionUpdate) -> None:
        """Run one session's turn. An error that its scheduler does not survive ends the worker."""
        try:
            await self._scheduler.turn(session_update)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - drain() raises it
            self._error, self._state = error, "stopping"
            self._scheduler.last_error = type(error).__name__
            _log.warning("a worker is ended by %s", self._scheduler.last_error)
        finally:
            self._turns += 1
            self._news = self._scheduler.begun
            self._wake.set()
            self._changed.set()


def background_worker(
    handle: Handle,
    shared: Shared,
    *,
    handles: Mapping[str, Handle] | None = None,
    due: Handles | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    poll: float = 1.0,
    name: str | None = None,
    opened: Callable[[], object] | None = None,
) -> AsyncWorker:
    """Return a worker, not started yet, that works until it is stopped.

    ``max_calls``, ``max_tokens`` and ``deadline`` (seconds after the start) cap all its work.
    ``handles`` are those of its tenants by name, of which there may be more later; without them, it
    works for the tenant of ``handle``. With ``due``, the handles of all tenants of a store, it
    works for them by the list of what is due there.
    """
    budget = partial(
        Budget, max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, clock=shared.clock
    )
    pool = UpdatePool(handle.update_policy, replace(shared, waits_for_leases=False), budget())
    name = name or uuid.uuid4().hex
    if due is None:
        known = {handle.store.tenant: handle} if handles is None else handles
        scheduler = SessionScheduler(pool, known, name=name)
    else:
        scheduler = DueScheduler(pool, due, name=name)
    return AsyncWorker(pool, scheduler, budget=budget, poll=poll, opened=opened)
