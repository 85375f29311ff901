"""Runs the frame of a task: its journal entry, its heartbeat and tasks, its claim, however it ends.

::

    async with run:          runs of the same subject that were cut off are journalled as such
        await run.begin()    journalled as running; the heartbeat renews the entry
        ...                  the task's own work
                             at the end: tasks drained, the end journalled

``JournalledRun`` is a run that calls no model by itself; ``Run`` adds what a model call needs. What
a task decides, and what it commits, is its own.

``RecordClaim`` is the claim of a run on what is no session: an extraction, a space. The claim is a
record. Each write under it extends it in the same transaction, over the version that it was read
in. So a run that was taken over writes nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from hiermem import tracing
from hiermem.calls.budget import ALL_ATTEMPTS, Budget, CallJournal, cut_off
from hiermem.calls.claim import is_believed, read_claim, write_claim
from hiermem.calls.rate_limit import RateLimiter
from hiermem.calls.report import with_current_outcome
from hiermem.calls.retry import retry_store, shielded
from hiermem.errors import HiermemError, name_of
from hiermem.process import has_ended, process_mark
from hiermem.protocols import LLM, TenantStore, TokenCounter, TreeStore
from hiermem.types.transaction import (
    NO_COST,
    NO_SESSION,
    Attempt,
    Batch,
    Cost,
    Deciding,
    Record,
    RecordWrite,
    RunRecord,
)

RunKind: TypeAlias = Literal["update", "consolidation", "extraction", "embedding"]
RunOutcome: TypeAlias = Literal["ok", "partial", "error"]

#: Heartbeats within one lease, so that three may fail before it ends.
_BEATS: Final = 4
#: Seconds for a task that has its answer to judge and store it, once the run ends early.
_FINISHING: Final = 10.0
#: A text of so many tokens is read in a few milliseconds.
_SHORT: Final = 4_000
#: How many of the newest runs of a subject are searched for interrupted ones.
_NEWEST_RUNS: Final = 20
_LOGGERS: Final[Mapping[RunKind, str]] = {
    "update": "hiermem.update",
    "extraction": "hiermem.extract",
    "consolidation": "hiermem.bank",
    "embedding": "hiermem.search",
}


async def do_nothing() -> None:
    """Do nothing."""


def _journal(entry: RunRecord, *, nameless: bool = False) -> Deciding[bool]:
    """Journal a run of a session; return False, with nothing done, if the session was erased.

    With ``nameless`` the figures of such a run are journalled, and what the run wrote under the
    session's name since goes.
    """
    if (yield entry.subject, "session") is not None:
        return Batch(result=True, runs=(entry,))
    if not nameless:
        return Batch(result=False)
    kept = {
        name: value
        for name, value in entry.detail.items()
        if name in ("model", "alive_until") or isinstance(value, (int, float))
    }
    after = replace(entry, subject=NO_SESSION, detail=kept)
    return Batch(result=True, delete=(entry.subject,), runs=(after,))


@dataclass(kw_only=True, eq=False)
class JournalledRun:
    """One run of one subject, whose calls are journalled through ``tree``.

    ``lease`` is the seconds for which its heartbeat is believed. ``detail(outcome)`` returns what
    the journal says of the run, while it lasts ("running") and at its end. ``keep_finished``
    commits what is finished when the run ends early. ``compare_clocks`` makes sure that ``now`` is
    the store's time, before the run begins and at each heartbeat; it raises StoreError
    where that was not so. ``outcome`` is how the run ended if nothing is raised. ``claim_mark``
    returns what tells the run's claim from others, None where it has none. Once ``begun``, the
    journal shows the run.
    """

    store: TenantStore
    tree: TreeStore
    kind: RunKind
    subject: str
    lease: float
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    detail: Callable[[str], Mapping[str, Any]] = field(default=lambda _: {})
    keep_finished: Callable[[], Awaitable[None]] = field(default=do_nothing)
    compare_clocks: Callable[[], Awaitable[None]] = field(default=do_nothing)
    outcome: RunOutcome = "ok"
    claim_mark: Callable[[], int | None] = field(default=lambda: None)
    journal: CallJournal = field(init=False)
    begun: bool = field(init=False, default=False)
    _started_at: datetime = field(init=False)
    _heartbeat: asyncio.Task[None] | None = field(init=False, default=None)
    _span: AbstractContextManager[tracing.Note] = field(init=False)
    _note: tracing.Note = field(init=False)

    def __post_init__(self) -> None:
        self._started_at = self.now()
        self.journal = CallJournal(self.tree, now=self.now, sleep=self.sleep)

    async def __aenter__(self) -> Self:
        await self.compare_clocks()
        await self.note_cut_off()
        self._span = tracing.span("run", task=self.kind, subject=self.subject, run=self.run_id)
        self._note = self._span.__enter__()
        return self

    async def begin(self) -> None:
        """Journal that the run has work to do, and keep the entry alive from now on. Once only."""
        if not self.begun:
            self.begun = True
            # Shielded: an entry whose writing was cancelled has to be known, to be closed.
            await shielded(self.put())
            self._heartbeat = asyncio.create_task(self._beat())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # Shielded: a second cancellation must prevent neither the release nor the last entry.
            await shielded(self._close(error))
        except BaseException as failure:
            self._span.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._span.__exit__(kind, error, trace)

    async def put(self, *, whole: bool = False) -> None:
        """Journal the run as it is now; with ``whole`` as it would be if it ended now."""
        alive = (self.now() + timedelta(seconds=self.lease)).isoformat()
        detail = {**self.detail(self.outcome if whole else "running"), "alive_until": alive}
        if (mark := self.claim_mark()) is not None:
            # So that another run can tell whether this one was taken over, or has died.
            detail |= {"claim": mark, "process": process_mark()}
        await self.write_entry(
            RunRecord(self.run_id, self.kind, self.subject, self._started_at, detail=detail)
        )

    async def write_entry(self, entry: RunRecord) -> None:
        """Write the run's journal entry, without the name of a session that was erased."""

        async def write() -> None:
            if self.kind == "consolidation" or entry.subject == NO_SESSION:
                await self.store.put_run(entry)
                return
            is_written = await self.store.transact(lambda: _journal(entry))
            if is_written or entry.ended_at is None:
                return
            # The calls were paid for, and count in the tenant's totals.
            calls = await self.store.attempts(run_id=entry.id, limit=ALL_ATTEMPTS)
            nameless = [
                replace(each, id=f"{entry.id}/{number}", session_id=NO_SESSION, node_id="")
                for number, each in enumerate(calls)
                if each.session_id
            ]
            await self.store.tree(NO_SESSION).write_nodes([], attempts=nameless)
            await self.store.transact(lambda: _journal(entry, nameless=True))

        await retry_store(write, sleep=self.sleep)

    async def renew(self) -> None:
        """Renew what the run holds; called by the heartbeat."""

    async def drain(self, error: BaseException) -> None:
        """Let the run's tasks end, after ``error``."""

    async def release(self) -> None:
        """Give back what the run holds, and journal the calls that have no end yet."""
        await self.journal.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.lease / _BEATS)
            try:
                await self.compare_clocks()
                # Shielded: a renewal that is cut off may have taken effect, and has to be known.
                await shielded(self.renew())
                await shielded(self.put())
            except HiermemError as error:
                # Missing a heartbeat is harmless; the next one, or the commit, meets the error
                # again.
                self._warn("a heartbeat failed", error)

    async def _close(self, error: BaseException | None) -> None:
        if error is None:
            await self._stop_heartbeat()
            try:
                await self.release()
                await self._end(self.outcome)
            except BaseException as failure:
                await self._break_off(failure)
                raise
        else:
            await self._break_off(error)

    async def _break_off(self, error: BaseException) -> None:
        """End early. A failing store prevents none of the steps after the one that it failed."""
        await self.drain(error)
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        reason = name_of(error)
        for step in (
            self.keep_finished,
            self._stop_heartbeat,
            self.release,
            lambda: self._end("interrupted" if cancelled else "error", reason=reason),
        ):
            try:
                await step()
            except HiermemError as failure:
                # The claims will end, and readers see that the heartbeat stopped.
                self._warn("its end is not whole", failure)

    async def _stop_heartbeat(self) -> None:
        """End the heartbeat; a late one must not be the last write of the entry."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.wait([self._heartbeat])

    async def _end(
        self, outcome: Literal["ok", "partial", "error", "interrupted"], **more: str
    ) -> None:
        self._note(outcome=outcome)
        if not self.begun:
            return
        ended = RunRecord(
            self.run_id,
            self.kind,
            self.subject,
            self._started_at,
            self.now(),
            outcome,
            {**self.detail(outcome), **more},
        )
        self._note(**{k: v for k, v in ended.detail.items() if isinstance(v, (int, float))})
        await self.write_entry(ended)

    async def note_cut_off(self) -> None:
        """Journal that runs of this kind and subject were cut off, whose heartbeat has stopped.

        While this run has a claim, so were those of an earlier one. For a model whose calls take no
        claim, and for an answer that was stored before the end of its call was journalled, this is
        the only place that records the calls whose outcome is unknown. The time at which such a run
        ended is not known.
        """

        async def note() -> int:
            unknown, now, mine = 0, self.now(), self.claim_mark()
            for run in await self.store.runs(subject=self.subject, limit=_NEWEST_RUNS):
                if run.kind != self.kind or run.outcome != "running" or run.id == self.run_id:
                    continue
                current = with_current_outcome(run, now)
                if mine is not None and run.detail.get("claim", mine) != mine:
                    current = replace(run, outcome="interrupted")
                if current == run:
                    continue
                journalled = await self.store.attempts(run_id=run.id, limit=ALL_ATTEMPTS)
                calls = cut_off(journalled, now)
                # The run is written last: a process killed between the two writes leaves the rest
                # to the next.
                if calls:
                    await self.store.tree(self.subject).write_nodes([], attempts=calls)
                await self.store.put_run(current)
                unknown += len(calls)
            return unknown

        self.journal.unknown += await retry_store(note, sleep=self.sleep)

    def _warn(self, what: str, error: BaseException) -> None:
        log = logging.getLogger(_LOGGERS[self.kind])
        log.warning("run %s: %s: %s", self.run_id, what, type(error).__name__)


async def connect(llm: LLM) -> None:
    """Make sure that a model can be asked, before any work; raises ConfigError where it cannot."""
    make: Callable[[], Awaitable[None]] | None = getattr(llm, "connect", None)
    if make is not None:
        await make()


T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class Run(JournalledRun):
    """A run that calls a model.

    A call may take ``call_timeout`` seconds and is retried ``retries`` times. ``drain_time`` is the
    most seconds that calls in flight are awaited after an error, because they may be paid for
    already; a cancellation cuts them off.
    While the run ``is_cutting_off`` its tasks, no call is sent. ``faults`` are those of the model's
    own code that were logged.
    """

    llm: LLM
    counter: TokenCounter
    budget: Budget
    rate_limiter: RateLimiter
    call_timeout: float
    retries: int
    drain_time: float = 0.0
    _tasks: set[asyncio.Task[Any]] = field(init=False, default_factory=set["asyncio.Task[Any]"])
    _waiting: set[asyncio.Task[Any] | None] = field(
        init=False, default_factory=set["asyncio.Task[Any] | None"]
    )
    is_cutting_off: bool = field(init=False, default=False)
    faults: set[str] = field(init=False, default_factory=set[str])
    _computing: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def begin_call(self, calls: Sequence[Attempt]) -> bool:
        """Journal these calls, of which the last is about to be made; return whether.

        False where the run lost its claim: then none is journalled, and the call must not be made.
        """
        await self.journal.write(calls)
        return True

    async def begin(self) -> None:
        """Journal that there is work to do. Raises ConfigError where the model cannot be asked."""
        if not self.begun:
            await connect(self.llm)
        await super().begin()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of the run; the run does not end before it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the first error ends the run, and no other is told

    @property
    def is_deterministic(self) -> bool:
        """Whether the model answers in this process, and always the same: nothing is waited for."""
        return False

    async def compute(
        self, function: Callable[..., T], *arguments: object, tokens: int | None = None
    ) -> T:
        """Return the result of a pure function, which is computed in a thread.

        One is computed at a time, in the order of asking: several threads that share the
        interpreter would all end as late as the last. ``tokens`` is the length of what the function
        reads, where that is known. The work for a short text is done in place where no model is
        waited for: there is nothing else to begin meanwhile.
        """
        if tokens is not None and tokens <= _SHORT and self.is_deterministic:
            return function(*arguments)
        async with self._computing:
            return await asyncio.to_thread(function, *arguments)

    @contextmanager
    def mark_waiting(self) -> Iterator[None]:
        """Mark the running task as waiting: cutting it off now loses no answer."""
        if self.is_cutting_off:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    async def drain(self, error: BaseException) -> None:
        """Await the tasks; cut off those that only wait when the time is over.

        A task that has its answer finishes in a moment; no task is awaited for ever.
        """
        failed = isinstance(error, Exception)
        self.budget.close("error" if failed else "cancellation")
        if self._tasks and failed and self.drain_time:
            await asyncio.wait(self._tasks, timeout=self.drain_time)
        self.is_cutting_off = True
        for task in self._tasks & self._waiting:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_FINISHING)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@dataclass(slots=True)
class CallState:
    """The calls for one work item (a node, a chunk, a batch of notes), and what they took so far.

    ``attempts`` counts the answers that could not be used, and the failures that say something of
    the item. ``unanswered`` is the id of a call that ended without an answer and without such a
    sign, "" where there is none.
    """

    item_id: str
    input_tokens: int
    spent: Cost = NO_COST
    attempts: int = 0
    unanswered: str = ""
    ended: list[Attempt] = field(default_factory=list[Attempt])


#: Writes all or nothing, with the attempts that are charged with it; returns whether it did.
Put = Callable[[Sequence[RecordWrite], Sequence[Attempt]], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class RecordClaim:
    """The claim of the run ``run_id``, as the record that ``place`` writes over a version.

    ``read`` returns the record that is stored. The claim ends ``lease`` seconds after its last
    write. ``held``: it is held, as far as is known.
    """

    run_id: str
    lease: float
    now: Callable[[], datetime]
    read: Callable[[], Awaitable[Record | None]]
    put: Put
    place: Callable[[str | None, int], RecordWrite]
    #: What tells this claim from others of the same place.
    mark: int | None = field(init=False, default=None)
    #: The version of the record while it is held.
    _version: int | None = field(init=False, default=None)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def held(self) -> bool:
        """Whether the claim is held, as far as is known."""
        return self._version is not None

    async def take(self) -> bool:
        """Take the claim; return whether it was free, or held by a process that has ended."""
        async with self._lock:
            before = await self.read()
            if before and (claim := read_claim(before.body)):
                run_id, until, process = claim
                is_current = is_believed(until, now=self.now()) and not has_ended(process)
                if is_current and run_id != self.run_id:
                    return False
            taken = await self._extend(before.version if before else 0)
            self.mark = self._version if taken else None
            return taken

    async def renew(self) -> None:
        """Extend the claim; forget it where another run took it."""
        await self.commit(())

    async def commit(
        self, writes: Sequence[RecordWrite], *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write all of it while the claim is held, or nothing; return whether it was written."""
        async with self._lock:
            if self._version is None:
                return False
            if not await self._extend(self._version, writes, attempts):
                self._version = None
            return self._version is not None

    async def release(self) -> None:
        """Release the claim, so that nobody has to wait until it ends."""
        async with self._lock:
            version, self._version = self._version, None
            if version is not None:
                await self.put([self.place(None, version)], ())

    async def _extend(
        self,
        version: int,
        writes: Sequence[RecordWrite] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Write the claim over ``version``, together with ``writes``; return whether it was."""
        until = self.now() + timedelta(seconds=self.lease)
        # The random part tells a write that took effect although the store reported a failure.
        nonce = secrets.token_hex(8)
        body = write_claim(self.run_id, until, process=process_mark(), nonce=nonce)
        written = await self.put([*writes, self.place(body, version)], attempts)
        if not written:
            found = await self.read()
            written = found is not None and found.body == body
        if written:
            self._version = version + 1
        return written
