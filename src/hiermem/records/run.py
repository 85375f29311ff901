"""Runs the operations of a tenant on a store: each is tried until what it relied on holds.

Who was overtaken three times takes a turn on the sessions that he reads: a mark in their heads, on
which every other writer waits, and which ends by itself.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from hiermem import protocols
from hiermem.errors import ClosedError, HiermemError, StoreError
from hiermem.records import changes, due, index, journal, log, nodes, sessions
from hiermem.records.contract import named_after, to_micros
from hiermem.records.sessions import OvertakenError
from hiermem.records.store import Reading, Store
from hiermem.records.tables import Commit, Key, Row, Scan
from hiermem.records.transaction import ConflictingWrite, Remembered, Transaction, read, serial
from hiermem.types.transaction import Changes, DueSession, Scrubbed, Snapshot, StoredRow

T = TypeVar("T")
P = ParamSpec("P")

#: Tries after which a writer takes a turn, and after which it gives up.
_PATIENT: Final = 3
_MOST_TRIES: Final = 500
#: How long a turn lasts if its holder does not end it.
_TURN: Final = timedelta(seconds=2)
#: Operations that run at the same time on threads.
_THREADS: Final = 8
#: Sessions that are listed at a time, to be erased.
_ERASED: Final = 100
_SECRET: Final = Key("store", ("secret",))
#: The last number of a session that was reserved, and how many a process reserves at once.
_NUMBERS: Final = Key("store", ("numbers",))
_RESERVED: Final = 32


def records_of(store: Any) -> RecordStore:
    """Return the sessions that are kept in a store. Raises UsageError for what is none."""
    if hasattr(store, "claim_due"):  # or what stands in for them
        return cast("RecordStore", store)
    if not protocols.offers(store, Store):
        raise protocols.refused(store, Store, "store", "be a Store")
    return RecordStore(store)


def _spread(most: float) -> float:
    """Return a time in seconds up to ``most``, at random, so that writers do not meet again."""
    return random.random() * most  # noqa: S311


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends to its end."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        coroutine.close()
    raise AssertionError("a store with the capability on_thread suspended")


class RecordStore:
    """Sessions of all tenants, kept in a store of five operations."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._on_thread = "on_thread" in store.capabilities
        self._remembered = Remembered()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._numbers: Iterator[int] = iter(())
        self._parsed: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        # A store may offer more than the five operations: a check, a backup, its place.
        if name.startswith("_") or name == "store":
            raise AttributeError(name)
        offered = getattr(self.store, name)
        if not iscoroutinefunction(offered):
            return offered

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self.off(lambda: offered(*args, **kwargs))

        return call

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities.

        "durable": data survives the process. "shared": several processes may open the store at
        once. "concurrent": while a decision about some sessions runs, writes to other sessions of
        the tenant are committed.
        """
        return self.store.capabilities - {"on_thread"}

    def tenant(self, name: str) -> Tenant:
        """Return the handle bound to tenant ``name``; does no I/O."""
        return Tenant(self, name)

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, by name.

        Names are compared code point by code point. The list begins after the name ``after``, which
        need not exist. This is for the application that holds the store; nothing that is bound to a
        tenant can reach it.
        """

        async def work() -> list[str]:
            names: list[str] = []
            last: tuple[str, ...] = () if after is None else (after,)
            while len(names) < limit:
                scans = [Scan(table, (), last, limit=1) for table in changes.TABLES_OF_TENANT]
                found = await self.store.read([], scans)
                following = [str(row[0]) for rows in found.ranges for row in rows]
                if not following:
                    break
                names.append(min(following))
                last = (names[-1],)
            return names

        return await self.off(work)

    async def claim_due(
        self, limit: int, *, lease: float, tenant: str | None = None, ahead: float | None = 0.0
    ) -> list[DueSession]:
        """Claim up to ``limit`` sessions that are due now, the longest due first.

        They are of any tenant, or of ``tenant``. With ``lease`` 0 they are listed and not claimed,
        with those that are due ``ahead`` seconds from now; with those that are due at any time if
        it is None. A session that is claimed is due when its claim ends.

        Every transaction that leaves a session something to make writes its entry, as
        ``hiermem.summaries.due`` decides: by ``due_by_change`` where it changes the record, by
        ``due_by_nodes`` where ``write_nodes`` writes to the tree in use, and at once where the
        session is restored. An entry that is there gets the earlier of both times; a claimed one
        keeps the end of its claim, and ``settle_due`` makes it due. A write under the claim enters
        nothing: its holder settles what is left. An entry goes with its session.

        Every claim gets the next generation; a new entry has one that no earlier entry of the
        session had, also where the session was erased between. No two callers get the same
        session, and none waits for another. The cost is proportional to the result, whatever the
        number of tenants; with ``tenant``, to its entries. Where nothing is due, nothing is
        written. This is for the application that holds the store.
        """

        async def work() -> list[DueSession]:
            now = await self.store.now()
            until: datetime | None = now
            if not lease:
                until = None if ahead is None else now + timedelta(seconds=ahead)
            found: list[DueSession] = []
            after: tuple[int | str, ...] = ()
            while len(found) < limit:
                scan = due.page(tenant, after)
                (rows,) = (await read(self.store, [], [scan])).ranges
                ready = [
                    (row, entry)
                    for row, entry in zip(rows, map(due.entry_of, rows), strict=True)
                    if until is None
                    or entry.due_at <= to_micros(until)
                    or (entry.claimed and not entry.holds(now))
                ]
                if not lease:
                    for _, entry in ready[: limit - len(found)]:
                        name = (entry.tenant, entry.session_id, entry.generation)
                        found.append(DueSession(*name, claimed=entry.holds(now)))
                most = limit if self.store.capabilities >= {"shared"} else 1
                while lease and ready and len(found) < limit:
                    of = ready[0][1].tenant  # a commit is of one tenant
                    some = [one for one in ready if one[1].tenant == of]
                    some = some[: min(most, limit - len(found))]
                    ready = [one for one in ready if one not in some]
                    claims = await self._claim(some, now, lease)
                    found += claims
                    if not claims:  # another process claims in the same order: go on elsewhere
                        random.shuffle(ready)
                        most = max(1, most // 2)
                if scan.limit is None or len(rows) < scan.limit:
                    break
                of, id_, _, due_at, *_ = rows[-1]
                after = (due_at, of, id_) if tenant is None else (due_at, id_)
            return found

        return await self.off(work)

    async def _claim(
        self, some: Sequence[tuple[Row, due.Entry]], now: datetime, lease: float
    ) -> list[DueSession]:
        """Claim a tenant's entries as they were read, all or, if another was faster, none.

        A claim that a power loss takes away is one that has ended.
        """
        until = to_micros(now + timedelta(seconds=lease))
        change, claims = Commit(durable=False), list[DueSession]()
        for row, entry in some:
            generation = serial(entry.generation)
            key = Key("due", (entry.tenant, entry.session_id))
            change.expect[key] = row[2]
            written = (*key.columns, serial(row[2]), until, generation, 1)
            change.puts.setdefault("due", []).append(written)
            claims.append(DueSession(entry.tenant, entry.session_id, generation))
        if not await self.store.commit(change):
            return []
        for written in change.puts["due"]:
            self._remembered.put(Key("due", written[:2]), written)
        return claims

    async def secret(self) -> bytes:
        """Return the store's secret; make it if there is none."""

        async def work() -> bytes:
            while True:
                (row,) = (await self.store.read([_SECRET], [])).rows
                if row is not None:
                    value: bytes = row[2]
                    return value
                made = (*_SECRET.columns, serial(), secrets.token_bytes(32))
                await self.store.commit(Commit({_SECRET: None}, puts={"store": [made]}))

        return await self.off(work)

    async def close(self) -> None:
        """Finish operations in progress and release the resources. May be called twice."""
        self._closed = True
        if not self._on_thread:
            await self.store.close()
            return

        def work() -> None:
            if self._pool is not None:
                self._pool.shutdown()
            _finish(self.store.close())

        await asyncio.to_thread(work)

    # -- tries

    def ensure_open(self) -> None:
        """Raise ClosedError after ``close``."""
        if self._closed:
            raise ClosedError("the store is closed; open it again")

    async def off(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``work`` where the store may be called: on a thread, if it blocks."""
        if not self._on_thread:
            return await work()
        self.ensure_open()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="hiermem-store")
        running = self._pool.submit(lambda: _finish(work()))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            # What the caller does next must come after what has begun.
            while not running.cancel() and not running.done():
                await asyncio.wait([asyncio.wrap_future(running)])
            raise

    async def _pause(self, seconds: float) -> None:
        if self._on_thread:
            time.sleep(seconds)  # noqa: ASYNC251 - this coroutine has the thread for itself
        else:
            await asyncio.sleep(seconds)

    async def attempt(
        self,
        tenant: str,
        work: Callable[[Transaction], Coroutine[Any, Any, T]],
        *,
        decides: bool,
    ) -> T:
        """Run an operation until what it relied on holds, and return its result."""
        turn = _Turn(self.store)
        tries = 0
        t: Transaction
        result: T
        change: Commit

        def made(reading: Reading, remembered: Remembered | None) -> Transaction:
            return Transaction(
                reading,
                tenant,
                decides=decides,
                remembered=remembered,
                # Who is in his turn on one connection waits for no other.
                numbers=self._number if reading is self.store else _refuse,
                parsed=self._parsed,
                token=turn.token,
            )

        async def again(reading: Reading, guards: dict[Key, Row]) -> Commit | None:
            """Decide anew while the store keeps all others from what is expected."""
            nonlocal t, result
            for key in change.expect:
                self._remembered.put(key, guards.get(key))
            anew = made(reading, self._remembered)
            try:
                t, result = anew, await anew.drive(work(anew))
            except (OvertakenError, ConflictingWrite, HiermemError):
                return None  # the next try raises it, if it is raised again
            return t.commit(again=True) if t.changes else None

        try:
            while True:
                t = made(self.store, None if tries else self._remembered)
                try:
                    result = await self._decided(t, work)
                except OvertakenError:
                    self._remembered.forget(t.relied)
                    await self._pause(_spread(0.006))
                    tries = max(tries, 1)
                    continue
                except ConflictingWrite:
                    pass
                else:
                    # An error of the commit itself is raised: it may have been applied.
                    change = t.commit(again=not self._on_thread)
                    change.again = None if self._on_thread else again
                    if not t.changes or await self.store.commit(change):
                        for key, row in t.seen():
                            self._remembered.put(key, row)
                        return result
                self._remembered.forget(t.relied)
                tries += 1
                if tries > _MOST_TRIES:
                    raise StoreError("others write without end; call again", retryable=True)
                if decides and tries >= _PATIENT and await turn.take(t):
                    continue
                if tries > 1:
                    await self._pause(_spread(min(0.0005 * 2**tries, 0.01)))
        finally:
            await turn.end()

    async def _decided(
        self, t: Transaction, work: Callable[[Transaction], Coroutine[Any, Any, T]]
    ) -> T:
        """Return what is decided; raise ConflictingWrite if what was relied on is no longer so."""
        try:
            result = await t.drive(work(t))
            if not t.changes:
                await t.verify()
        except (OvertakenError, ConflictingWrite):
            raise
        except Exception:
            if await t.holds():
                raise
            raise ConflictingWrite from None
        return result

    async def _number(self) -> int:
        """Return the next of the numbers of sessions that this process reserved, or reserve more.

        Small numbers are short in keys. Those of a process that ends are never used.
        """
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is not None:
                return number
            (row,) = (await self.store.read([_NUMBERS], [])).rows
            first = row[1] if row else 0
            put = (*_NUMBERS.columns, first + _RESERVED, b"")
            change = Commit({_NUMBERS: first if row else None}, puts={"store": [put]})
            if await self.store.commit(change):
                self._numbers = iter(range(first + 1, first + 1 + _RESERVED))


async def _refuse() -> int:
    raise ConflictingWrite


class _Turn:
    """A writer's turn on sessions: all others wait until it ends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.token = ""
        self._heads: set[Key] = set()

    async def take(self, t: Transaction) -> bool:
        """Mark the heads that were read, all in one commit; return whether there are any."""
        heads = sorted({key for key in t.relied if key.table == "heads"} | self._heads)
        if not heads:
            return False
        self.token = self.token or secrets.token_hex(4)
        while True:
            now = to_micros(await self._store.now())
            rows = (await read(self._store, heads, [])).rows
            held = [row for row in rows if row is not None]
            if any(row[11] and sessions.is_anothers(row[11], self.token, now) for row in held):
                return False
            mark = f"{self.token}:{now + _TURN // timedelta(microseconds=1)}"
            expect = {key: row[2] if row else None for key, row in zip(heads, rows, strict=True)}
            puts = [(*row[:2], serial(row[2]), *row[3:11], mark, row[12]) for row in held]
            change = Commit(expect, puts={"heads": puts}, durable=False)
            if not puts or await self._store.commit(change):
                self._heads = {Key("heads", row[:2]) for row in puts}
                return True

    async def end(self) -> None:
        """Take the marks away that are still there."""
        for key in self._heads:
            while True:
                (row,) = (await self._store.read([key], [])).rows
                if row is None or not str(row[11]).startswith(f"{self.token}:"):
                    break
                put = (*row[:2], serial(row[2]), *row[3:11], None, row[12])
                change = Commit({key: row[2]}, puts={"heads": [put]}, durable=False)
                if await self._store.commit(change):
                    break


# -- handles


def _method(
    work: Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]], *, decides: bool
) -> Callable[Concatenate[Tenant, P], CoroutineType[Any, Any, T]]:
    """Return the method of a tenant that runs ``work``."""

    async def method(self: Tenant, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.operate(lambda t: work(t, *args, **kwargs), decides=decides)

    return named_after(work, method, given=1)


_reading = partial(_method, decides=False)
_writing = partial(_method, decides=True)


class Tenant:
    """One tenant's part of a store. Nothing here can reach another tenant's rows.

    Every write is one atomic, durable transaction: when the call returns, it survives a crash;
    when it raises, nothing of it is visible (unless the error's ``committed`` is None). Reads see
    all that was committed before they began. Lists come in the order stated. Returned values are
    frozen or fresh: changing them changes nothing stored. Two names are equal only if they are the
    same string, code point by code point.

    A session has one tree of summaries in use, whose number its record names, and sometimes another
    that is being built; ``tree`` returns a handle of one of them.

    Every operation that removes content raises the session's ``epoch``. A write computed from reads
    of an earlier epoch must not take effect: methods that take ``epoch`` (or ``epochs``, by session
    id) write nothing and return False if it is no longer the session's, or the session is gone.
    """

    def __init__(self, records: RecordStore, name: str) -> None:
        self._records = records
        self.tenant = name

    async def operate(
        self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, decides: bool
    ) -> T:
        """Run an operation on this tenant's rows."""
        records = self._records
        return await records.off(lambda: records.attempt(self.tenant, work, decides=decides))

    @property
    def place(self) -> str:
        """Return how the tenant's store is named to people."""
        return str(getattr(self._records.store, "place", type(self._records.store).__name__))

    async def secret(self) -> bytes:
        """Return the store's secret: 32 random bytes, made once, the same for every tenant."""
        return await self._records.secret()

    async def now(self) -> datetime:
        """Return the time of the store, timezone-aware; claims are made and judged by it.

        It is the same for all who share the store, whatever their own clocks show. A store in the
        process of its callers answers with the clock that it was given.
        """
        return await self._records.off(self._records.store.now)

    async def scrub(self) -> Scrubbed:
        """Remove deleted content from the store's bytes and from the backups that it made.

        If that is impossible now, because another process has the store open, the result says so;
        nothing is raised.
        """
        store = self._records.store
        if left := str(getattr(store, "unscrubbed", "")):  # it is too much for each erasure
            return Scrubbed(done=False, reason=left)
        return await self._records.off(store.scrub)

    mutate = _writing(changes.mutate)

    @property
    def mutate_here(self) -> Callable[..., Any] | None:
        """Return ``mutate`` for a thread that may block; None if the store suspends."""
        return self._mutate_here if self._records._on_thread else None  # noqa: SLF001

    def _mutate_here(
        self, session_id: str, decide: Callable[[Snapshot], Changes[T]], *, keys: Sequence[str] = ()
    ) -> T:
        records = self._records

        def work(t: Transaction) -> Coroutine[Any, Any, T]:
            return changes.mutate(t, session_id, decide, keys=keys)

        records.ensure_open()
        return _finish(records.attempt(self.tenant, work, decides=True))

    transact = _writing(changes.transact)
    read = _reading(changes.read)

    async def erase_all(self) -> int:
        """Remove everything that is kept for this tenant; return the number of sessions.

        It goes session by session; a session that is created meanwhile may stay.
        """
        count = 0
        while found := await self.sessions(limit=_ERASED):
            for record in found:
                await self.operate(partial(changes.delete, session_id=record.id), decides=True)
            count += len(found)
        await self.operate(changes.drop_unowned, decides=True)
        return count

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page: what deleting it would remove.

        With the id "", which no session has, it is everything that belongs to no session: the
        views, records, runs and attempts of other names. All pages show the state when the first
        one was read, whatever is written meanwhile. The rows are those of
        ``hiermem.records.dump_format``:
        JSON values that any store can restore, with all versions, revisions, trees, numbers and the
        store's secret, and without claims. Raises NotFoundError.
        """
        from hiermem.records import dump
        from hiermem.records.dump_format import pages

        items = await self.operate(lambda t: dump.items(t, session_id), decides=True)
        secret = await self.secret()

        async def paged() -> AsyncIterator[list[StoredRow]]:
            for page in pages(items, tenant=self.tenant, secret=secret):
                yield page

        return paged()

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned, of this store or another, as it was: all of it or nothing.

        A session of version ``replaces`` is replaced in the same moment. For rows that belong to no
        session, any ``replaces`` but None replaces all such rows, except the records of kind
        "store-copy", which every store has for itself.

        A store that holds nothing yet takes the secret of the rows over; handles that read the
        secret before must not be used further. Raises ConflictError where the session exists
        in another version or the store holds data under another secret, and UsageError where
        the rows are incomplete, of another tenant, or contradict what is stored.
        """
        from hiermem.records import dump
        from hiermem.records.dump_format import check_secret
        from hiermem.records.dump_format import read as read_dump

        given = await read_dump(rows, tenant=self.tenant)
        secret = await self.secret()

        async def work(t: Transaction) -> None:
            check_secret(given, secret, empty=await changes.is_empty(t))
            await dump.restore(t, given, replaces)
            await dump.exchange_secret(t, given.secret)

        await self.operate(work, decides=True)

    # -- sessions and their logs

    session = _reading(sessions.session)
    count_sessions = _reading(sessions.count_sessions)
    forks = _reading(sessions.forks)
    sessions = _reading(sessions.sessions)
    messages = _reading(log.messages)
    versions = _reading(log.versions)
    flagged = _reading(log.flagged)
    events = _reading(log.events)

    # -- trees and what is due

    def tree(self, session_id: str, number: int | None = None) -> Tree:
        """Return the handle bound to one of the session's trees; does no I/O.

        If ``number`` is None, it is the tree in use, looked up at each call of the handle. Neither
        the session nor the tree has to exist.
        """
        return Tree(self, (session_id, number))

    take_due = _writing(due.take_due)
    put_due = _writing(due.put_due)
    settle_due = _writing(due.settle_due)
    reusable = _reading(nodes.reusable)

    # -- journal, views, records and blocks

    put_run = _writing(journal.put_run)
    run = _reading(journal.run)
    runs = _reading(journal.runs)
    attempts = _reading(journal.attempts)
    spent = _reading(journal.spent)
    view = _reading(journal.view)
    put_view = _writing(journal.put_view)
    records = _reading(journal.records)
    put_records = _writing(journal.put_records)
    blocks = _reading(index.blocks)
    put_blocks = _writing(index.put_blocks)
    drop_blocks = _writing(index.drop_blocks)
    index_state = _reading(index.index_state)
    put_segment = _writing(index.put_segment)
    segment_blocks = _reading(index.segment_blocks)


def _tree_method(
    work: Callable[Concatenate[Transaction, tuple[str, int | None], P], Coroutine[Any, Any, T]],
    *,
    decides: bool = False,
) -> Callable[Concatenate[Tree, P], CoroutineType[Any, Any, T]]:
    """Return the method of a tree that runs ``work``."""

    async def method(self: Tree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.tenant.operate(
            lambda t: work(t, self.of, *args, **kwargs), decides=decides
        )

    return named_after(work, method, given=2)


class Tree:
    """One tree of summaries of one session, as ``Tenant.tree`` returns it.

    Its methods keep the rules of Tenant. A tree without nodes, and every tree of a session
    that does not exist, reads as empty.
    """

    def __init__(self, tenant: Tenant, of: tuple[str, int | None]) -> None:
        self.tenant = tenant
        self.of = of

    level = _tree_method(nodes.level)
    levels = _tree_method(nodes.levels)
    covering = _tree_method(nodes.covering)
    unfinished = _tree_method(nodes.unfinished)
    outdated = _tree_method(nodes.outdated)
    tally = _tree_method(nodes.tally)
    revisions = _tree_method(nodes.revisions)
    nodes = _tree_method(nodes.nodes)
    write_nodes = _tree_method(changes.write_nodes, decides=True)
