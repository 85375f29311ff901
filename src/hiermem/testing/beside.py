"""Runs what several do to one store at once, and verifies what must hold of it at the end."""

from __future__ import annotations

import asyncio
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

import pytest

from hiermem.records.store import Store
from hiermem.records.tables import Commit, Found, Key, Row, Scan
from hiermem.testing import rows as shown
from hiermem.testing.checked import Checked
from hiermem.testing.rows import column, put, row

#: How many work at once, and how often each does.
_WORKERS, _ROUNDS = 4, 30


#: What each of several does, by a number; it returns how often it did what ``_verify`` counts.
Work: TypeAlias = Callable[[Checked, Store, int], Awaitable[Counter[str]]]


async def beside(check: Checked, work: Work) -> None:
    """Run a work in tasks, in threads and by two openers, as the store allows, and verify."""
    total: Counter[str] = Counter()

    async def tasks(*stores: Store) -> None:
        runs = (work(check, stores[n % len(stores)], n) for n in range(_WORKERS))
        for done in await asyncio.gather(*runs):
            total.update(done)

    async def task(n: int) -> Counter[str]:
        return await work(check, check.store, n)

    await tasks(check.store)
    if "on_thread" in check.store.capabilities:
        with ThreadPoolExecutor(_WORKERS) as pool:
            for done in pool.map(lambda n: asyncio.run(task(n)), range(_WORKERS)):
                total.update(done)
    if "shared" in check.store.capabilities:
        other = await check.open()
        try:
            await tasks(check.store, other)
        finally:
            await other.close()
    await _verify(check, total)


async def _opened(check: Checked, work: Callable[[], Awaitable[Counter[str]]]) -> Counter[str]:
    check.store = await check.open()
    try:
        return await work()
    finally:
        await check.store.close()


def in_processes(check: Checked) -> None:
    """Run all works in processes, each of which opens the store, and verify.

    Skip if the store is not shared, or if processes cannot be forked.
    """

    async def abilities() -> Counter[str]:
        return Counter(check.store.capabilities)

    async def works(n: int) -> Counter[str]:
        return sum([await each(check, check.store, n) for each in WORKS], Counter[str]())

    def child(n: int, out: Connection) -> None:
        try:
            out.send(asyncio.run(_opened(check, lambda: works(n))))
        except BaseException as error:  # noqa: BLE001 - the parent tells it
            out.send(str(getattr(error, "msg", repr(error))))

    total: Counter[str] = Counter()

    async def verify() -> Counter[str]:
        await _verify(check, total)
        return total

    forks = "fork" in multiprocessing.get_all_start_methods()
    if not forks or "shared" not in asyncio.run(_opened(check, abilities)):
        check.skip("the store does not claim to be shared")
    for answer in _forked(child, check.suite.patience):
        if isinstance(answer, str):
            pytest.fail(f"in a process of its own: {answer}", pytrace=False)
        total.update(answer)
    asyncio.run(_opened(check, verify))


def _forked(child: Callable[[int, Connection], None], patience: float) -> list[Counter[str] | str]:
    """Return what each child process sends; those that hang are killed."""
    context = multiprocessing.get_context("fork")
    ends = [context.Pipe(duplex=False) for _ in range(_WORKERS)]
    children = [context.Process(target=child, args=(n, out)) for n, (_, out) in enumerate(ends)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for each in children:
            each.start()
    answers = [end.recv() if end.poll(patience) else "no answer" for end, _ in ends]
    for each in children:
        if "no answer" in answers:
            each.kill()
        each.join()
    return answers


def _key(scope: str, key: str) -> Key:
    return Key("records", ("a", scope, "k", key))


def _put(scope: str, key: str, **columns: int) -> tuple[str, Row]:
    return "records", row("records", "a", scope, "k", key, **columns)


def _counter(name: str) -> Key:
    return Key("counters", ("a", "k", name))


def _number(of: Row | None, table: str = "records", name: str = "version") -> int:
    return int(column(of, table, name) or 0)


def _guard(of: Row | None) -> int:
    return _number(of, "counters", "guard")


async def _found(check: Checked, store: Store, gets: Sequence[Key], *scans: Scan) -> Found:
    found = await check.found(gets, scans, store)
    # Others come between what is read and what is written by it.
    await asyncio.sleep(0)
    return found


async def write_twins(check: Checked, store: Store, n: int) -> Counter[str]:
    """Write rows with one number together, and read them together."""
    gets = [_key("twin", "x"), Key("heads", ("a", "twin")), _key("own", str(n))]
    scans = [Scan("records", ("a", "k", "twin"), index="by_kind"), Scan("heads", ("a",))]
    for at in range(_ROUNDS):
        number = n * _ROUNDS + at
        head = ("heads", row("heads", "a", "twin", version=number))
        own = _put("own", str(n), version=at + 1)
        await check.apply(put(_put("twin", "x", version=number), own, head), store)
        (twin, other, mine), (twins, others) = await _found(check, store, gets, *scans)
        what = f"read {shown.key(gets[2])} after its commit returned: version"
        check.same(what, _number(mine), at + 1)
        numbers = [_number(twin), _number(other, "heads")]
        numbers += [*map(_number, twins), *(_number(each, "heads") for each in others)]
        what = "read and scan of records('a', 'twin', 'k', 'x') and heads('a', 'twin')"
        check.same(f"{what}, always put with one number", numbers, [numbers[0]] * 4)
    return Counter()


async def update(check: Checked, store: Store, n: int) -> Counter[str]:
    """Add 1 to a row under an expectation of its guard."""
    key, done = _key("sum", "x"), Counter[str]()
    for _ in range(_ROUNDS):
        (was,), _ = await _found(check, store, [key])
        number = _number(was) + 1
        made = _put("sum", "x", guard=number, version=number, record=n)
        expect = {key: column(was, "records", "guard")}
        done["updates"] += await check.apply(put(made, expect=expect), store)
    return done


async def switch(check: Checked, store: Store, n: int) -> Counter[str]:
    """Turn one of two rows on, while the other is off and expected to stay so."""
    keys = [_key("on", "a"), _key("on", "b")]
    for at in range(_ROUNDS):
        rows, _ = await _found(check, store, keys)
        on = [_number(each) for each in rows]
        what = "read of two rows of which each is set to 1 only by who expects the other at 0"
        check.sure(what, on, "not both 1", on != [1, 1])
        mine, other = (n + at) % 2, (n + at + 1) % 2
        turned = other if on[other] else mine
        guard = _number(rows[turned], name="guard") + 1
        made = _put("on", "ab"[turned], guard=guard, version=1 - on[turned])
        expect = {key: column(was, "records", "guard") for key, was in zip(keys, rows, strict=True)}
        await check.apply(put(made, expect=expect), store)
    return Counter()


async def sweep(check: Checked, store: Store, n: int) -> Counter[str]:
    """Put rows and count them by an add; now and then delete all, expecting the count."""
    counter, swept, done = _counter("items"), _key("swept", "x"), Counter[str]()
    for at in range(_ROUNDS):
        change = put(("blocks", row("blocks", "a", 1, "item", n * _ROUNDS + at)))
        if at % 4 == 0:
            gets, scan = [counter, swept], Scan("blocks", ("a", 1, "item"))
            (guard, before), (items,) = await _found(check, store, gets, scan)
            gone, number = len(items) + _number(before), column(guard, "counters", "guard")
            check.same("read of a counter and, in one call, the rows it counts", gone, number or 0)
            change = put(_put("swept", "x", version=gone + 1), expect={counter: number})
            change.deletes = [Key("blocks", ("a", 1, "item"))]
        change.adds = {counter: 1}
        done["items"] += await check.apply(change, store)
        await asyncio.sleep(0)
    return done


async def live(check: Checked, store: Store, n: int) -> Counter[str]:
    """Put rows under one that is expected; now and then delete it with all of them."""
    gate, all_items = _key("gate", "x"), Key("messages", ("a", 7))
    for at in range(_ROUNDS):
        number = n * _ROUNDS + at + 1
        (held,), (items,) = await _found(check, store, [gate], Scan(*all_items))
        guard = column(held, "records", "guard")
        lives = {column(each, "messages", "tokens") for each in items}
        what = "read of a row and, in one call, of those put by who expects its guard: guards"
        check.sure(what, lives, f"{guard!r} alone, or no row", lives <= {guard})
        if held is None:
            change = put(_put("gate", "x", guard=number), expect={gate: None})
        elif at % 5 == n:
            change = Commit(deletes=[Key("records", ("a", "gate")), all_items])
        else:
            item = row("messages", *all_items.columns, number, tokens=guard)
            change = put(("messages", item), expect={gate: guard})
        await check.apply(change, store)
    return Counter()


async def add(check: Checked, store: Store, n: int) -> Counter[str]:
    """Add to counters, expecting nothing."""
    for at in range(_ROUNDS):
        adds = {_counter("sum"): at, _counter("n"): 1, _counter(f"{n}"): 1}
        await check.apply(Commit(adds=adds), store)
        await asyncio.sleep(0)
    return Counter(sum=sum(range(_ROUNDS)), n=_ROUNDS)


WORKS: Final = (write_twins, update, switch, sweep, live, add)


async def _verify(check: Checked, total: Counter[str]) -> None:
    """Verify what must be there after all that was counted; nothing of works that did not run."""
    gets = [_key("sum", "x"), _counter("items"), _key("swept", "x"), _counter("sum"), _counter("n")]
    rows, (items,) = await check.found(gets, [Scan("blocks", ("a", 1, "item"))])
    updated, counted, swept, added, adds = rows
    what = "read records('a', 'sum', 'k', 'x'), to which 1 was added under an expectation"
    check.same(f"{what}: version", _number(updated), total["updates"])
    check.same("counter after that many adds", _guard(counted), total["items"])
    there = len(items) + _number(swept)
    what = "rows put, less those deleted by who expected the counter"
    check.same(what, there, total["items"])
    sums = [_guard(added), _guard(adds)]
    check.same("counters after all adds", sums, [total["sum"], total["n"]])
