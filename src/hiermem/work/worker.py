"""Runs in the background: takes turns of the sessions that are due, until it is stopped.

::

    claim what is due, the longest due first -> a turn each, which settles -> claim more

A session's update itself makes, pays for and commits. So a worker that dies leaves nothing but
leases, which expire, and several workers, in one process or in many, share a store without knowing
of each other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hiermem import arguments, types
from hiermem.calls.budget import Budget
from hiermem.calls.failures import IDLE, TROUBLE, back_off
from hiermem.calls.retry import shielded
from hiermem.config import Limits
from hiermem.errors import UsageError
from hiermem.handle import Handle, Handles
from hiermem.protocols import Store

if TYPE_CHECKING:
    from hiermem.summaries.claim import SessionClaim
    from hiermem.summaries.node import Shared
    from hiermem.summaries.reports import WorkerState
    from hiermem.work.turns import Turns

_log = logging.getLogger("hiermem.worker")
#: At most this share of the time is spent looking for work.
_LOOKING: Final = 0.1
#: Seconds between two checks whether a worker is done.
_LOOK: Final = 0.02
#: Entries that are looked at to see whether anything is left.
_LEFT: Final = 1000
#: Seconds between two looks at the spaces of its tenants, and of all tenants.
_SPACES: Final = (60.0, 3_600.0)
#: Reasons to stop that hold for all sessions for a while.
_OF_ALL: Final = ("tenant_calls", "tenant_tokens", "model_down")


class AsyncWorker:
    """A background worker over the sessions of a memory; ``memory.worker()`` returns one.

    Use ``async with``, or start() and stop(). A worker may be started once.

    It works for the tenants of ``handles`` by name, of which there may be more later; without them,
    for the tenant of ``handle``. With ``all_tenants``, the handles of all tenants of the ``store``,
    it works for them. ``limits`` are those of all its work, from its start. ``poll`` is
    the interval between two looks for work, in seconds. ``opened`` raises where the memory is
    closed.
    """

    def __init__(
        self,
        handle: Handle,
        shared: Shared,
        store: Store,
        *,
        handles: Mapping[str, Handle] | None = None,
        all_tenants: Handles | None = None,
        poll: float = 1.0,
        opened: Callable[[], object] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._policy, self._shared, self._limits = handle.update_policy, shared, limits
        self._clock, self._store = shared.clock, store
        self._handles = {handle.store.tenant: handle} if handles is None else handles
        self._all, self._poll, self._opened = all_tenants, max(poll, _LOOK), opened
        self._turns = self._new_turns()
        self._state: WorkerState = "new"
        self._wake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._next_look = self._next_spaces = 0.0
        #: Looks so far, and the last one that found nothing while no turn was running.
        self._looks = self._idle = 0
        self._failures = self._ended = 0
        self._halt: str | None = None
        self._halted_until = 0.0
        self._last_error: str | None = None
        self._error: BaseException | None = None

    def _new_turns(self) -> Turns:
        from hiermem.work.turns import Turns

        budget = Budget(limits=self._limits, clock=self._clock)
        return Turns(self._shared, self._policy, budget)

    @property
    def status(self) -> types.WorkerStatus:
        """What the worker is doing, and has done."""
        from hiermem.summaries.reports import WorkerStatus

        doing = WorkerStatus(
            state=self._state,
            active=len(self._turns.tasks),
            resting=len(self._turns.failed),
            in_flight=self._turns.limiter.in_flight,
            turns=self._ended,
            stopped=self._halted(),
            last_error=self._last_error,
        )
        return doing + self._turns.total

    async def start(self) -> None:
        """Begin. Raises UsageError where it was started before, and where its memory is closed."""
        if self._opened is not None:
            self._opened()
        if self._state != "new":
            raise UsageError("this worker was started already; make another one")
        self._state = "running"
        self._turns = self._new_turns()
        # Workers for all tenants begin at a random time, so they spread.
        late = 0.0 if self._all is None else _SPACES[1] * random.random()  # noqa: S311 - no secret
        self._next_spaces = self._clock() + late
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    def wake(self) -> None:
        """Look for work now rather than at the next interval."""
        self._next_look = 0.0
        self._wake.set()

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
        begun, looks = self._clock(), self._looks
        if self._all is None:
            self._next_spaces = 0.0
        self.wake()
        while timeout is None or self._clock() - begun < timeout:
            if self._error is not None:
                raise self._error
            if self._state != "running" or self._serving is None or self._serving.done():
                return False
            if not self._turns.tasks:
                if self._halted() is not None:
                    return False
                # The last look was begun after this call and after the last turn ended.
                if self._looks == self._idle > looks:
                    left = await self._left()
                    if left is not None:
                        return not left
                    looks = self._looks
            pause = _LOOK
            if timeout is not None:
                pause = min(pause, max(0.0, begun + timeout - self._clock()))
            await asyncio.sleep(pause)
        return False

    async def _left(self) -> bool | None:
        """Return whether summaries are left to make later; None while some are to be made now.

        Those that others hold are made now, unless this worker works for all tenants.
        """
        from hiermem.work.turns import unfinished

        for tenant in self._tenants():
            if await self._store.claim_due(1, lease=0.0, tenant=tenant):
                self.wake()  # a claim has ended since the last look, for example
                return None
            for entry in await self._store.claim_due(_LEFT, lease=0.0, tenant=tenant, ahead=None):
                if entry.claimed and self._all is None:
                    return None
                handle = self._handle(entry.tenant)
                if not entry.claimed and await unfinished(handle, [entry.session_id]):
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
        turns = self._turns
        try:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.wait([self._serving])
            turns.ending.close("stop")
            if turns.tasks:
                await asyncio.wait(
                    turns.tasks, timeout=turns.policy.drain if timeout is None else timeout
                )
            if turns.tasks:
                _log.warning("a worker was stopped with %d updates unfinished", len(turns.tasks))
        finally:
            # Also where stop() itself is cancelled: nothing may work on when the store is closed.
            await shielded(turns.cut_off())
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

    def _check_alive(self) -> None:
        if self._error is not None:
            raise self._error
        if self._state != "running":
            raise UsageError(f"this worker is {self._state}; it must be running")

    def _halted(self) -> str | None:
        """Return the name of the cap that keeps it from working, or None."""
        if self._clock() >= self._halted_until:
            self._halt = None
        return self._turns.budget.stop_reason() or self._halt

    def _handle(self, tenant: str) -> Handle:
        return self._handles[tenant] if self._all is None else self._all.add(tenant)

    def _tenants(self) -> list[str | None]:
        """Return the tenants whose entries are claimed one after the other; None for all."""
        return [None] if self._all is not None else list(self._handles)

    async def _serve(self) -> None:
        """Poll for due sessions and start their turns, until the worker ends."""
        while self._state == "running":
            self._wake.clear()
            is_ready = self._halted() is None and self._turns.free > 0
            if is_ready and self._clock() >= self._next_spaces:
                self._next_spaces = self._clock() + _SPACES[self._all is not None]
                self._turns.start(self._learn())
            if is_ready and self._clock() >= self._next_look:
                await self._look()
            with suppress(TimeoutError):
                pause = max(_LOOK, min(self._poll, self._next_look - self._clock()))
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _look(self) -> None:
        """Claim what is due, for the places that are free; where that fails, look again later."""
        begun, free = self._clock(), self._turns.free
        self._looks += 1
        look = self._looks
        try:
            claimed = await self._claim(free)
        except Exception as error:  # noqa: BLE001 - a worker outlives what its store meets
            self._failures += 1
            self._record(error)
            pause = back_off(self._failures, (self._poll, IDLE[1]))
        else:
            self._failures = 0
            if not claimed and not self._turns.tasks:
                self._idle = look
            # With every place taken, the next look is when one is free again.
            taken = (self._clock() - begun) / _LOOKING
            pause = taken if claimed == free else max(self._poll, taken)
        self._next_look = self._clock() + pause

    async def _claim(self, limit: int) -> int:
        """Claim up to ``limit`` sessions that are due, and begin their turns; return how many."""
        claimed = 0
        lease = self._turns.policy.lease
        for tenant in self._tenants():
            if claimed >= limit:
                break
            if tenant is not None:
                await self._handle(tenant).compare_clocks(lease=lease)
            # Shielded: what is claimed gets its turn, in which stop() ends it.
            claimed += await shielded(self._begin_due(limit - claimed, lease=lease, tenant=tenant))
        return claimed

    async def _begin_due(self, limit: int, *, lease: float, tenant: str | None) -> int:
        from hiermem.summaries.claim import SessionClaim

        entries = await self._store.claim_due(limit, lease=lease, tenant=tenant)
        for entry in entries:
            handle = self._handle(entry.tenant)
            claim = SessionClaim(handle, entry.session_id, entry)
            claim.keep()
            self._turns.start(self._turn(handle, claim), claim)
        return len(entries)

    async def _turn(self, handle: Handle, claim: SessionClaim) -> None:
        """Take one session's turn. An error ends only the turn."""
        from hiermem.summaries.due import pause_after

        try:
            report = await self._turns.take(handle, claim)
            if report.stopped in _OF_ALL:
                self._halt = report.stopped
                self._halted_until = self._clock() + pause_after(report)
                self._last_error = report.last_error or self._last_error
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            self._record(error)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - drain() raises it
            self._error, self._state = error, "stopping"
            self._last_error = type(error).__name__
            _log.warning("a worker is ended by %s", self._last_error)
        finally:
            self._ended += 1
            self.wake()

    async def _learn(self) -> None:
        """Have the spaces that are due learn, one after the other. An error ends only that one."""
        from hiermem.work.turns import due_spaces

        failures = 0
        try:
            async for handle in self._every_handle():
                for space in await due_spaces(handle, self._turns.shared.bank_policy):
                    if self._turns.ending.stop_reason() is None:
                        failures += (await self._turns.learn(space)).status == "error"
        except Exception as error:  # noqa: BLE001 - the next look meets it again, or not
            failures += 1
            self._record(error)
        if failures:
            self._next_spaces = max(self._next_spaces, self._clock() + TROUBLE[1])
        self.wake()

    async def _every_handle(self) -> AsyncIterator[Handle]:
        if self._all is None:
            for handle in list(self._handles.values()):
                yield handle
            return
        last = None
        while tenants := await self._store.tenants(after=last, limit=_LEFT):
            for last in tenants:
                yield self._all.add(last)

    def _record(self, error: Exception) -> None:
        """Remember and log an error by its name only: its text may be confidential."""
        self._last_error = type(error).__name__
        _log.warning("a worker met %s; it goes on", self._last_error)
