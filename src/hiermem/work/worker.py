"""Runs in the background: makes what has to be made in any session, as it comes up.

::

    claim what is due, the longest due first -> a turn each -> settle -> claim more

A session's update itself makes, pays for and commits. So a worker that dies leaves nothing but
claims that end, and several workers, in one process or in many, share a store without knowing of
each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hiermem import arguments, types
from hiermem.calls import budget as budgets
from hiermem.calls.failures import IDLE, TROUBLE, back_off
from hiermem.calls.retry import shielded
from hiermem.errors import NotFoundError, UsageError
from hiermem.handle import Handle, Handles
from hiermem.protocols import Store
from hiermem.types.transaction import DueSession

if TYPE_CHECKING:
    from hiermem.summaries.claim import SessionClaim
    from hiermem.summaries.reports import WorkerState
    from hiermem.summaries.run import Shared
    from hiermem.work.due import SessionKey, SessionUpdate, UpdatePool

_log = logging.getLogger("hiermem.worker")
#: At most this share of the time is spent looking for work.
_LOOKING: Final = 0.1
#: Seconds between two checks whether a worker is done.
_LOOK: Final = 0.02
#: Seconds between two sweeps, of some tenants and of all, and the share of the time that those of
#: some take at most.
_SWEEP: Final = (60.0, 3600.0)
_SWEEPING: Final = 0.01
#: Entries that are looked at to see whether anything is left.
_LEFT: Final = 1000
#: Reasons to stop that hold for all sessions for a while.
_OF_ALL: Final = ("tenant_calls", "tenant_tokens", "model_down")


class AsyncWorker:
    """A background worker over the sessions of a memory; ``memory.worker()`` returns one.

    Use ``async with``, or start() and stop(). A worker may be started once.

    It works for the tenants of ``handles`` by name, of which there may be more later, and for every
    tenant of the ``store`` if ``all_tenants`` is given, which are the handles of them. ``budget``
    makes the caps on all the worker's work when it starts. ``poll`` is the interval between two
    looks for work, in seconds. ``opened`` raises where the memory is closed.
    """

    def __init__(
        self,
        pool: UpdatePool,
        store: Store,
        handles: Mapping[str, Handle],
        *,
        all_tenants: Handles | None,
        budget: Callable[[], budgets.Budget],
        poll: float = 1.0,
        opened: Callable[[], object] | None = None,
    ) -> None:
        self._pool, self._store, self._clock = pool, store, pool.shared.clock
        self._handles, self._all = handles, all_tenants
        self._budget, self._poll, self._opened = budget, max(poll, _LOOK), opened
        self._state: WorkerState = "new"
        self._wake, self._changed = asyncio.Event(), asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._next_look = 0.0
        self._looks = self._news = self._failures = self._turns = 0
        #: Whether the last look found nothing.
        self._idle = False
        self._halt: str | None = None
        self._halted_until = 0.0
        self._last_error: str | None = None
        self._error: BaseException | None = None
        #: How many turns of a session in a row ended in an error, or left vectors to make.
        self._in_row: Counter[SessionKey] = Counter()

    # -- what the application calls

    @property
    def status(self) -> types.WorkerStatus:
        """What the worker is doing, and has done."""
        from hiermem.summaries.reports import WorkerStatus

        doing = WorkerStatus(
            state=self._state,
            active=len(self._pool.updates),
            resting=len(self._in_row),
            in_flight=self._pool.limiter.in_flight,
            turns=self._turns,
            stopped=self._halted(),
            last_error=self._last_error,
        )
        return doing + self._pool.total

    async def start(self) -> None:
        """Begin. Raises UsageError where it was started before, and where its memory is closed."""
        if self._opened is not None:
            self._opened()
        if self._state != "new":
            raise UsageError("this worker was started already; make another one")
        self._state = "running"
        self._pool.budget = self._budget()
        self._serving = asyncio.get_running_loop().create_task(self._serve())
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep_for_ever())

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

        What is due later, after a failure for example, and what a cap forbids is not waited for;
        sessions that another run holds are, unless this worker works for all tenants. After
        ``timeout`` seconds it returns False; the worker continues either way. Raises an error that
        ended the worker.
        """
        self._check_alive()
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        begun = self._clock()
        if self._all is None and self._halted() is None:
            await self._sweep()
        self._news = self._looks
        self.wake()
        while timeout is None or self._clock() - begun < timeout:
            pause = _LOOK
            if self._error is not None:
                raise self._error
            if self._state != "running" or self._serving is None or self._serving.done():
                return False
            if not self._pool.updates:
                if self._halted() is not None:
                    return False
                if not self._idle or self._looks <= self._news:
                    # The last look did not see what later turns left undone.
                    if not self._failures:
                        self.wake()
                elif (left := await self._left()) is not None:
                    return not left
                else:
                    pause = self._poll  # no event tells that another run is done
            if timeout is not None:
                pause = min(pause, max(0.0, begun + timeout - self._clock()))
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
        return False

    async def _left(self) -> bool | None:
        """Return whether summaries are left to make later; None while some are to be made now.

        Those that others hold are made now, unless this worker works for all tenants.
        """
        from hiermem.work import due

        for tenant in [None] if self._all is not None else list(self._handles):
            if await self._store.claim_due(1, lease=0.0, tenant=tenant):
                self.wake()  # a claim has ended since the last look, for example
                return None
            for one in await self._store.claim_due(_LEFT, lease=0.0, tenant=tenant, ahead=None):
                if one.claimed:
                    if self._all is None:
                        return None
                    continue
                handle = self._handle(one.tenant)
                if [id_ async for id_ in due.unfinished(handle, [one.session_id])]:
                    return True
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
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        self._state = "stopped"

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
        if self._clock() >= self._halted_until:
            self._halt = None
        return self._pool.budget.stop_reason() or self._halt

    def _handle(self, tenant: str) -> Handle:
        return self._handles[tenant] if self._all is None else self._all.add(tenant)

    async def _serve(self) -> None:
        """Look for work and give it places, until the worker ends."""
        while self._state in ("running", "paused"):
            self._wake.clear()
            ready = self._state == "running" and self._halted() is None and self._pool.free > 0
            if ready and self._clock() >= self._next_look:
                await self._look()
            self._changed.set()
            try:
                pause = max(_LOOK, min(self._poll, self._next_look - self._clock()))
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        """Claim what is due, for the places that are free; where that fails, look again later."""
        begun, free = self._clock(), self._pool.free
        self._looks += 1
        try:
            found = await self._claim(free)
        except Exception as error:  # noqa: BLE001 - a worker outlives what its store meets
            self._failures += 1
            self._record(error)
            pause = back_off(self._failures, (self._poll, IDLE[1]))
        else:
            self._failures, self._idle = 0, not found
            # With every place taken, the next look is when one is free again.
            taken = (self._clock() - begun) / _LOOKING
            pause = taken if found == free else max(self._poll, taken)
        self._next_look = self._clock() + pause

    async def _claim(self, limit: int) -> int:
        """Claim up to ``limit`` sessions that are due, and begin their turns; return how many."""
        found = 0
        for tenant in [None] if self._all is not None else list(self._handles):
            if found >= limit:
                break
            handle = self._handle(tenant) if tenant is not None else None
            lease = self._pool.policy.lease
            if handle is not None:
                await handle.compare_clocks(lease=lease)
            # Shielded: what is claimed gets its turn, in which stop() ends it.
            found += await shielded(self._begin_due(limit - found, lease=lease, tenant=tenant))
        return found

    async def _begin_due(self, limit: int, *, lease: float, tenant: str | None) -> int:
        claimed = await self._store.claim_due(limit, lease=lease, tenant=tenant)
        for one in claimed:
            self._begin(one)
        return len(claimed)

    def _begin(self, one: DueSession) -> None:
        from hiermem.summaries.claim import SessionClaim

        handle = self._handle(one.tenant)
        claim = SessionClaim(handle, one.session_id, one)
        claim.keep()
        self._pool.run(self._pool.begin(handle, one.session_id, claim), self._turn)

    async def _turn(self, session_update: SessionUpdate) -> None:
        """Run one session's turn and settle its claim. An error ends only the turn."""
        from hiermem.work import due

        key, claim = session_update.key, session_update.claim
        assert claim is not None
        pause, again = 0.0, False
        try:
            await session_update.handle.compare_clocks(lease=self._pool.policy.lease)
            report = await due.take_turn(self._pool, session_update)
            again = session_update.embedded is False
            self._in_row[key] = self._in_row[key] + 1 if again else 0
            pause = due.pause_of(session_update, report, self._in_row[key])
            if report.stopped in _OF_ALL:
                self._halt, self._halted_until = report.stopped, self._clock() + pause
                self._last_error = report.last_error or self._last_error
        except NotFoundError:
            self._in_row.pop(key, None)
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            self._record(error)
            self._in_row[key] += 1
            pause, again = back_off(self._in_row[key], TROUBLE), True
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - drain() raises it
            self._error, self._state = error, "stopping"
            self._last_error = type(error).__name__
            _log.warning("a worker is ended by %s", self._last_error)
        finally:
            self._in_row += Counter()  # what is 0 goes
            await shielded(self._settle(claim, pause=pause, again=again))
            self._turns += 1
            self._news = self._looks
            self.wake()
            self._changed.set()

    async def _settle(self, claim: SessionClaim, *, pause: float, again: bool) -> None:
        try:
            await claim.settle(pause=pause, again=again)
        except Exception as error:  # noqa: BLE001 - a claim that is not settled ends by itself
            self._record(error)

    # -- what the list of what is due misses

    async def _sweep_for_ever(self) -> None:
        """Sweep again and again; workers for all tenants begin at a random time, so they spread."""
        pause = 0.0 if self._all is None else _SWEEP[1] * random.random()  # noqa: S311 - no secret
        while True:
            await asyncio.sleep(pause)
            begun = self._clock()
            try:
                await self._sweep()
            except Exception as error:  # noqa: BLE001 - the next sweep meets it again, or not
                self._record(error)
            spent = self._clock() - begun
            pause = _SWEEP[1] if self._all is not None else max(_SWEEP[0], spent / _SWEEPING)

    async def _sweep(self) -> None:
        """Make due what has something to make."""
        from hiermem.work import due

        if self._all is not None:
            await due.sweep(self._store, self._all)
            return
        for tenant in list(self._handles):
            if await due.sweep_tenant(self._handle(tenant), self._pool):
                self.wake()

    def _record(self, error: Exception) -> None:
        """Remember and log an error by its name only: its text may be confidential."""
        self._last_error = type(error).__name__
        _log.warning("a worker met %s; it goes on", self._last_error)


def background_worker(
    handle: Handle,
    shared: Shared,
    store: Store,
    *,
    handles: Mapping[str, Handle] | None = None,
    all_tenants: Handles | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    poll: float = 1.0,
    opened: Callable[[], object] | None = None,
) -> AsyncWorker:
    """Return a worker, not started yet, that works until it is stopped.

    ``max_calls``, ``max_tokens`` and ``deadline`` (seconds after the start) cap all its work.
    ``handles`` are those of its tenants by name, of which there may be more later; without them, it
    works for the tenant of ``handle``. With ``all_tenants``, the handles of all tenants of the
    ``store``, it works for them.
    """
    from hiermem.work import due

    budget = partial(
        budgets.Budget,
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=deadline,
        clock=shared.clock,
    )
    return AsyncWorker(
        due.UpdatePool(handle.update_policy, shared, budget()),
        store,
        {handle.store.tenant: handle} if handles is None else handles,
        all_tenants=all_tenants,
        budget=budget,
        poll=poll,
        opened=opened,
    )
