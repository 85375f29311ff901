"""Works in the background: whatever has to be made in any session of a tenant, as it comes up.

::

    backlog -> probe -> queue -> place -> update -> (backlog again | rest for a while)

The one rule: it only decides when a session's update runs. What is made, claimed, paid for and
committed is that update's business, so a worker that dies leaves nothing but leases that end by
themselves, and several workers, in one process or in many, share a store without knowing of each
other.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self

from hiermem.core import arguments
from hiermem.core.generation.batch import BatchReport, WorkerState, WorkerStatus, add_report
from hiermem.core.generation.plan import UpdateReport
from hiermem.core.generation.prompt import PromptTemplate
from hiermem.core.generation.schedule import (
    BACK_OFF,
    LONGEST,
    Parking,
    SessionQueue,
    back_off,
)
from hiermem.engine.allowance import Allowances
from hiermem.engine.crew import Crew, Stint
from hiermem.engine.handle import Handle
from hiermem.engine.scout import backlog, bare, follows, grows, probe
from hiermem.engine.sharing import Rests
from hiermem.engine.spending import Purse
from hiermem.errors import NotFoundError, UsageError
from hiermem.protocols import LLM
from hiermem.types import SessionRecord

__all__ = ["AsyncWorker"]

_log = logging.getLogger("hiermem.worker")
#: Of the time, at most this part is spent looking for work.
_LOOKING: Final = 0.1
#: Seconds between two looks for sessions in which something is to be made that no backlog shows,
#: and the most of the time that these take: they read every session's record.
_SWEEP: Final = 60.0
_SWEEPING: Final = 0.01
#: Provisional texts are made after all others.
_GROWTH: Final = 1_000_000
#: Vectors alone come last of all.
_VECTORS: Final = _GROWTH + 1
#: Calls after which a session makes room where others wait: of a remote and of a local model.
_QUANTUM: Final = (24, 256)
#: Seconds that something is left alone which only a raised cap or a repair will change.
_LONG_PARK: Final = 300.0
#: Seconds that a session is left alone after an error, at first; doubled at each further one.
_TROUBLE: Final = 2.0
#: Turns without result after which a session is not taken for another worker's any more.
_SURE: Final = 6
#: Seconds between two looks at whether a worker is done.
_LOOK: Final = 0.02


class AsyncWorker:
    """A background worker over one tenant's sessions.

    Use ``async with``, or start() and stop(). ``max_calls``, ``max_tokens`` and ``deadline``
    (seconds after the start) cap what it does in all; ``poll`` is how often it looks for new work,
    in seconds. It may be started once.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        llm: LLM,
        fallback: LLM,
        prompts: Mapping[str, PromptTemplate | str] | None = None,
        allowances: Allowances | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        poll: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        name: str | None = None,
        opened: Callable[[], object] | None = None,
    ) -> None:
        self._handle, self._store = handle, handle.store
        self._clock, self._poll, self._opened = clock, max(poll, _LOOK), opened
        self._limits = (max_calls, max_tokens, deadline)
        self._state: WorkerState = "new"
        self._rests = Rests(clock)
        self._crew = Crew(
            handle,
            llm,
            fallback,
            prompts,
            self._purse(),
            clock,
            sleep=sleep,
            allowances=allowances,
            rests=self._rests,
            patient=False,
        )
        self._quantum = _QUANTUM[0 if llm.remote else 1]
        self._queue = SessionQueue(name or uuid.uuid4().hex)
        self._stints: dict[str, Stint] = {}
        self._parking = Parking()
        #: The sessions whose turn is for vectors alone, and those in which some could not be made.
        self._bare: set[str] = set()
        self._embedded = Parking()
        self._grown: dict[str, int] = {}
        #: The (tree, configuration's hash) under which a session's texts were found to be made in
        #: the present way; what is made later under them is.
        self._followed: dict[str, tuple[int, int]] = {}
        self._wake = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._next_look = self._next_sweep = 0.0
        self._looks_begun = self._looked = self._news = self._left = 0
        self._failures = self._turns = 0
        self._capped: str | None = None
        self._capped_until = 0.0
        self._total = BatchReport("")
        self._last_error: str | None = None

    def _purse(self) -> Purse:
        max_calls, max_tokens, deadline = self._limits
        until = None if deadline is None else self._clock() + deadline
        return Purse(max_calls=max_calls, max_tokens=max_tokens, deadline=until, clock=self._clock)

    # -- what the application calls

    @property
    def status(self) -> WorkerStatus:
        """Tell what it is doing, and has done."""
        total = self._total
        return WorkerStatus(
            state=self._state,
            active=len(self._stints),
            waiting=len(self._queue),
            resting=len(self._parking),
            in_flight=self._crew.hands.in_use,
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
        self._crew.purse = self._purse()
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    def wake(self) -> None:
        """Look for work now rather than at the next look."""
        self._next_look = 0.0
        self._wake.set()

    async def pause(self) -> None:
        """Begin nothing any more; returns when what was in flight is committed."""
        self._check_alive()
        self._state = "paused"
        await self._end_all("pause")

    def resume(self) -> None:
        """Go on after a pause."""
        self._check_alive()
        self._state = "running"
        self.wake()

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - its own end
        """Wait until all that can be made now is made; say whether nothing at all is left.

        What failed and rests, or what a cap forbids, is not waited for; nodes in another worker's
        hands are. After ``timeout`` seconds it gives False; the worker goes on either way.
        """
        self._check_alive()
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        begun, self._news = self._clock(), self._looks_begun
        self._next_sweep = 0.0
        self.wake()
        while timeout is None or self._clock() - begun < timeout:
            if self._state != "running" or self._serving is None or self._serving.done():
                return False
            idle = not self._stints and (not len(self._queue) or self._halted() is not None)
            if idle and self._halted() is not None:
                return False
            if idle and self._looked <= self._news:
                # What the turns since the last look left undone, that look did not see.
                if not self._failures:
                    self.wake()
            elif idle and not self._parking.leased:
                return not self._left
            await asyncio.sleep(_LOOK)
        return False

    async def stop(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its own end
        """End. Calls in flight are waited for up to ``timeout`` seconds, the drain time if None.

        What is cut off then is reported as unknown, and all that is not made stays pending.
        """
        if timeout is not None:
            arguments.seconds(timeout, "timeout")
        if self._state in ("new", "stopped"):
            self._state = "stopped"
            return
        self._state = "stopping"
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        drain = self._handle.update_policy.drain if timeout is None else timeout
        try:
            async with asyncio.timeout(drain):
                await self._end_all("stop")
        except TimeoutError:
            tasks = [stint.task for stint in self._stints.values() if stint.task is not None]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            _log.warning("a worker was stopped with %d updates unfinished", len(tasks))
        finally:
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
        if self._state not in ("running", "paused"):
            raise UsageError(f"this worker is {self._state}; it must be running")

    def _halted(self) -> str | None:
        """Name the cap that keeps it from working, or None."""
        if self._capped is not None and self._clock() >= self._capped_until:
            self._capped = None
        return self._crew.purse.is_over() or self._capped

    async def _serve(self) -> None:
        """Look for work and give it places, until the worker ends."""
        while self._state in ("running", "paused"):
            self._wake.clear()
            if self._state == "running" and self._halted() is None:
                if self._clock() >= self._next_look:
                    await self._look_or_wait()
                self._fill()
            try:
                rest = max(_LOOK, min(self._poll, self._next_look - self._clock()))
                async with asyncio.timeout(rest):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look_or_wait(self) -> None:
        """Look for work; where that fails, look again later."""
        begun = self._clock()
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 - a worker outlives what its store meets
            self._failures += 1
            self._note_error(error)
            self._next_look = self._clock() + back_off(
                self._failures, first=self._poll, most=LONGEST
            )
            return
        self._failures = 0
        now = self._clock()
        self._next_look = now + max(self._poll, (now - begun) / _LOOKING)

    async def _look(self) -> None:
        """Go through the backlog once, and put in the queue what can be worked on."""
        self._looks_begun += 1
        number, seen = self._looks_begun, set[str]()
        async for session_id in backlog(self._store):
            seen.add(session_id)
            if session_id in self._stints or session_id in self._queue:
                continue
            if await self._is_due(session_id):
                await self._consider(session_id)
                self._fill()
        if self._clock() >= self._next_sweep:
            begun = self._clock()
            await self._sweep()
            now = self._clock()
            self._next_sweep = now + max(_SWEEP, (now - begun) / _SWEEPING)
        for session_id in self._parking:
            if session_id not in seen:
                self._parking.drop(session_id)
                self._rests.forget(session_id)
        self._looked, self._left = number, len(seen)

    async def _sweep(self) -> None:
        """Put in the queue the sessions in which something is to be made that no backlog shows.

        That is a provisional text out of date, and, where the policy is to follow the present way
        of making, one that was made in another. For that a session's tree is looked through once,
        and again only after a re-pack, or under another configuration. And it is vectors, where
        nothing else is missing.
        """
        for record in await self._store.sessions():
            known = record.id in self._stints or record.id in self._queue
            if known or record.id in self._parking:
                continue
            if grows(record) and self._grown.get(record.id) != record.version:
                self._queue.put(record.id, _GROWTH)
            elif self._followed.get(record.id) != _shape(record):
                if await follows(self._crew, record):
                    self._queue.put(record.id, _GROWTH)
                    self._fill()
                    continue
                self._followed[record.id] = _shape(record)
            await self._look_for_vectors(record)

    async def _look_for_vectors(self, record: SessionRecord) -> None:
        """Queue a session that has nothing else to make and may lack vectors."""
        parked = self._embedded.get(record.id)
        if parked is not None and self._clock() < parked.until:
            return
        if record.id not in self._queue and await bare(self._handle, record):
            self._bare.add(record.id)
            self._queue.put(record.id, _VECTORS)
            self._fill()

    async def _is_due(self, session_id: str) -> bool:
        """Say whether a session is to be looked at: not where it is parked, unless it changed."""
        parked = self._parking.get(session_id)
        if parked is None or self._clock() >= parked.until:
            return True
        if parked.version is None:
            return False
        record = await self._store.session(session_id)
        if record is not None and record.version == parked.version:
            return False
        self._parking.drop(session_id)
        return True

    async def _consider(self, session_id: str) -> None:
        """Queue a session that has something to make; leave it alone for a while else."""
        found = await probe(self._store, session_id, rests=self._rests, now=self._handle.clock())
        if found.level is not None:
            self._queue.put(session_id, found.level, contested=found.leased)
            return
        record = await self._store.session(session_id)
        version = record.version if record else None
        self._parking.put(session_id, self._clock(), version=version, leased=found.leased)

    def _fill(self) -> None:
        """Give the free places to those first in line, and ask for one where it is due."""
        if self._state != "running" or self._halted() is not None:
            return
        while len(self._stints) < self._crew.places:
            session_id = self._queue.take()
            if session_id is None:
                return
            stint = self._crew.begin(session_id)
            stint.seat.on_level = self._fill
            self._stints[session_id] = stint
            stint.task = asyncio.get_running_loop().create_task(self._run(stint))
        head = self._queue.head
        staying = [stint for stint in self._stints.values() if not stint.ending]
        if head is None or not staying or len(self._stints) - len(staying) >= len(self._queue):
            return
        level, contested = head
        last = max(staying, key=lambda stint: (stint.seat.level, stint.seat.taken))
        if (last.seat.level > level and not contested) or last.seat.taken >= self._quantum:
            last.end("turn")

    async def _run(self, stint: Stint) -> None:
        """Do one session's turn, and note what is to become of it."""
        try:
            if stint.session_id in self._bare:
                self._bare.discard(stint.session_id)
                await self._crew.embed(stint)
                return
            report: UpdateReport = await self._crew.work(stint)
        except NotFoundError:
            self._forget(stint.session_id)
        except Exception as error:  # noqa: BLE001 - one session's trouble is not the others'
            self._note_error(error)
            self._parking.put(stint.session_id, self._clock(), first=_TROUBLE, most=_LONG_PARK)
        else:
            self._note(stint, report)
        finally:
            self._note_vectors(stint)
            self._turns += 1
            self._news = self._looks_begun
            self._stints.pop(stint.session_id, None)
            self._wake.set()

    def _note_vectors(self, stint: Stint) -> None:
        """Leave a session be for a while that still lacks vectors, longer each time."""
        if stint.embedded:
            self._embedded.drop(stint.session_id)
        elif stint.embedded is not None:
            self._embedded.put(stint.session_id, self._clock(), first=_SWEEP, most=BACK_OFF)

    def _note(self, stint: Stint, report: UpdateReport) -> None:
        """Count what a turn did and decide when the session has its next one."""
        session_id, stopped = stint.session_id, report.stopped
        self._total = add_report(self._total, report)
        if stint.record is not None:
            self._grown[session_id] = stint.record.version
            # An update marks what is to follow before it makes anything.
            self._followed[session_id] = _shape(stint.record)
        if stopped in ("turn", "pause", "stop"):
            if stopped == "turn":
                self._queue.put(session_id, stint.seat.level)
        elif stopped in ("tenant_calls", "tenant_tokens"):
            self._capped, self._capped_until = stopped, self._clock() + _LONG_PARK
        elif stopped == "circuit_open":
            pause = report.retry_after or _TROUBLE
            self._capped, self._capped_until = stopped, self._clock() + pause
        elif stopped in ("session_calls", "session_tokens"):
            self._parking.put(session_id, self._clock(), first=_LONG_PARK, most=_LONG_PARK)
        elif report.by_level:
            self._parking.drop(session_id)
        elif stopped is None:
            # Most likely another worker was faster; the next look will tell.
            before = self._parking.get(session_id)
            leased = before is None or before.times < _SURE
            version = stint.record.version if stint.record else None
            self._parking.put(session_id, self._clock(), version=version, leased=leased)

    def _forget(self, session_id: str) -> None:
        """Drop all that is remembered of a session that is gone."""
        self._queue.drop(session_id)
        self._parking.drop(session_id)
        self._embedded.drop(session_id)
        self._bare.discard(session_id)
        self._grown.pop(session_id, None)
        self._followed.pop(session_id, None)
        self._rests.forget(session_id)

    def _note_error(self, error: Exception) -> None:
        """Remember and log an error by its name: its words may hold what nobody should read."""
        self._last_error = type(error).__name__
        _log.warning("a worker met %s; it goes on", self._last_error)

    async def _end_all(self, why: str) -> None:
        """Ask every session's turn to end, and wait until they have."""
        for stint in self._stints.values():
            stint.end(why)
        tasks = [stint.task for stint in self._stints.values() if stint.task is not None]
        if tasks:
            await asyncio.wait(tasks)


def _shape(record: SessionRecord) -> tuple[int, int]:
    """Name the tree of a session and the configuration that its texts are made under."""
    return record.tree, hash(record.config)
