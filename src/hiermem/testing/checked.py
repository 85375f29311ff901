"""Runs a condition and says what broke it; a store runs beside the dict of rows that is right."""

from __future__ import annotations

import asyncio
import inspect
import re
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from hiermem import protocols
from hiermem.records import store as contract
from hiermem.records import tables
from hiermem.records.store import Store
from hiermem.records.tables import Commit, Found, Key, Row, Scan
from hiermem.testing import rows as shown
from hiermem.testing.rows import Model

_SENTENCE_END: Final = re.compile(r'(?<=\.) (?=[A-Z`"])|"""| :: ')
#: The steps that a failure shows at most.
_STEPS: Final = 10


class Check:
    """One run of a condition: what it says, the contract's words, and the steps so far."""

    def __init__(self, suite: Any, path: Path, condition: str, rule: str) -> None:
        self.suite, self.path, self.condition, self.rule = suite, path, condition, rule
        self.steps: list[str] = []

    async def begin(self, needs: str) -> None:
        """Prepare the run; skip it if what is tested cannot do what it ``needs``."""

    async def end(self) -> None:
        """End the run, whether or not it failed."""

    def skip(self, why: str) -> NoReturn:
        """Skip the condition, with its name."""
        pytest.skip(f"{self.condition.partition(':')[0]}: {why}")

    def same(self, operation: str, was: object, right: object) -> None:
        """Fail unless an answer of ``operation`` is what is right."""
        if was != right:
            what = f"was there  {shown.brief(was)}\nshould be  {shown.brief(right)}"
            self.broken(operation, what)

    def sure(self, operation: str, was: object, should: str, holds: object) -> None:
        """Fail unless what must hold of an answer of ``operation`` is true."""
        if not holds:
            self.broken(operation, f"was there  {shown.brief(was)}\nshould be  {should}")

    @contextmanager
    def stated(self, operation: str) -> Iterator[None]:
        """Fail in one screen if ``operation`` raises."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever an author's code raises
            frames = reversed(traceback.extract_tb(error.__traceback__)[-5:])
            where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames)
            was = f"{type(error).__name__}: {str(error)[:200]}\n           at {where}"
            self.broken(operation, f"was there  {was}\nshould be  no error")

    def broken(self, operation: str, what: str) -> NoReturn:
        """Fail with the condition, the rule, what was there, what should be, and the steps."""
        lines = [self.condition, f'rule       "{self.rule}"', f"operation  {operation[:300]}", what]
        last = self.steps[-_STEPS:]
        lines += [f"steps      {len(last)} of {len(self.steps)}"] if last else []
        lines += [f"  {step[:160]}" for step in last]
        raise pytest.fail.Exception("\n".join(lines), pytrace=False) from None


class Checked(Check):
    """A store and the dict of rows that was driven by the same steps."""

    def __init__(self, suite: Any, path: Path, condition: str, rule: str) -> None:
        super().__init__(suite, path, condition, rule)
        self.model = Model()
        self.touched: dict[tuple[str, str], None] = {}
        self.store: Store

    async def begin(self, needs: str) -> None:
        """Open the store; skip the run if it has not the capability that it ``needs``."""
        self.store = await self.open()
        if needs and needs not in self.store.capabilities:
            await self.store.close()
            self.skip(f"the store does not claim to be {needs}")

    async def end(self) -> None:
        """Close the store; what is wrong with that, a condition of its own says."""
        with suppress(Exception):
            await self.store.close()

    async def open(self) -> Store:
        """Open another store at the same path."""
        with self.stated("open_store(path)"):
            store: Store = await self.suite.open_store(self.path)
            return store

    async def reopen(self) -> None:
        """Close the store and open it again."""
        with self.stated("close()"):
            await self.store.close()
        self.steps.append("close, open again")
        self.store = await self.open()

    async def commit(self, change: Commit, store: Store | None = None) -> bool:
        """Commit to both and compare whether it was applied; return whether it is right to."""
        held = {key: self.model.guard(key) for key in change.expect}
        self.touch(change)
        right = self.model.commit(change)
        applied = await self.apply(change, store)
        if applied is not right:
            guards = ", ".join(f"{shown.key(key)} has {guard}" for key, guard in held.items())
            what = f"key        {guards or '-'}\nwas there  {applied}\nshould be  {right}"
            self.broken(f"commit {shown.commit(change)}", what)
        return right

    async def apply(self, change: Commit, store: Store | None = None) -> bool:
        """Commit to the store alone."""
        with self.stated(f"commit {shown.commit(change)}"):
            applied = await (store or self.store).commit(change)
        self.steps.append(f"commit {shown.commit(change)} -> {applied}")
        return applied

    async def attempt(self, change: Commit, refusal: type[Exception]) -> None:
        """Commit what the store may refuse with such an error; then nothing of it is there."""
        self.touch(change)
        with self.stated(f"commit {shown.commit(change)}"):
            try:
                await self.store.commit(change)
            except refusal as error:
                self.steps.append(f"commit {shown.commit(change)} -> {type(error).__name__}")
            else:
                self.model.commit(change)
        await self.look()

    async def put(self, *rows: tuple[str, Row], **rest: Any) -> bool:
        """Commit these rows, each with its table."""
        return await self.commit(shown.put(*rows, **rest))

    async def delete(self, *keys: Key, **rest: Any) -> bool:
        """Commit the deletion of these rows, or of all whose keys begin so."""
        return await self.commit(Commit(deletes=list(keys), **rest))

    async def read(
        self, gets: Sequence[Key] = (), scans: Sequence[Scan] = (), store: Store | None = None
    ) -> None:
        """Read from both and compare every row."""
        right = self.model.read(gets, scans)
        rows, ranges = await self.found(gets, scans, store)
        stated = [
            *((f"read {shown.key(key)}", key.table) for key in gets),
            *((f"read scan {shown.scan(scan)}", scan.table) for scan in scans),
        ]
        counts = f"{len(gets)} rows and {len(scans)} ranges"
        self.same("read", f"{len(rows)} rows and {len(ranges)} ranges", counts)
        pairs = [*(([was], [want]) for was, want in zip(rows, right.rows, strict=True))]
        pairs += zip(ranges, right.ranges, strict=True)  # type: ignore[arg-type]
        for (operation, table), (was, want) in zip(stated, pairs, strict=True):
            wrong = shown.difference(table, was, want)
            if wrong:
                self.broken(operation, wrong)

    async def scan(self, table: str, *prefix: Any, **rest: Any) -> None:
        """Read one range forwards and backwards, from both, and compare them."""
        scans = [Scan(table, prefix, reverse=reverse, **rest) for reverse in (False, True)]
        await self.read((), scans)

    async def found(
        self, gets: Sequence[Key], scans: Sequence[Scan] = (), store: Store | None = None
    ) -> Found:
        """Read from the store alone."""
        stated = [shown.key(key) for key in gets] + [f"scan {shown.scan(scan)}" for scan in scans]
        with self.stated(f"read {'; '.join(stated[:2])}{' …' * (len(stated) > 2)}"):
            rows, ranges = await (store or self.store).read(gets, scans)
            return Found(list(rows), [list(range_) for range_ in ranges])

    async def look(self, store: Store | None = None) -> None:
        """Read all that the steps can have changed, in every order, of every tenant."""
        for tenant in dict.fromkeys(tenant for _, tenant in self.touched):
            tables = [table for table, of in self.touched if of == tenant]
            keys = [key for key in self.model.rows if key.columns[0] == tenant]
            await self.read(keys, shown.everything(tables, tenant), store)

    def touch(self, change: Commit) -> None:
        """Remember where the change may have left something."""
        keys = [*change.expect, *change.deletes, *change.adds]
        keys += [Key(copies.table, copies.to) for copies in change.copies]
        keys += [Key(table, row) for table, rows in change.puts.items() for row in rows]
        self.touched |= dict.fromkeys((key.table, str(key.columns[0])) for key in keys)


@cache
def _sentences() -> Sequence[str]:
    text = " ".join(inspect.getsource(module) for module in (tables, contract, protocols))
    return _SENTENCE_END.split(" ".join(text.split()))


def rule_of(words: str) -> str:
    """Return the sentence of the contract that holds these words."""
    found = next((sentence for sentence in _sentences() if words in sentence), "")
    assert found, f"the contract has no sentence with {words!r}"
    return found


def condition(
    words: str, *, needs: str = ""
) -> Callable[[Callable[[Any, Any], Awaitable[None]]], Callable[[Any, Path], None]]:
    """Make a test of a function, whose docstring is what the contract demands.

    Its failure quotes the sentence of the contract that holds these ``words``.
    The test is skipped if what is tested has not the ability that it ``needs``.
    """
    rule = rule_of(words)

    def made(body: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Path], None]:
        said = f"{body.__name__}: {' '.join((body.__doc__ or '').split())}"

        def test(self: Any, tmp_path: Path) -> None:
            async def run() -> None:
                check = self.checks(self, tmp_path / "store", said, rule)
                await check.begin(needs)
                try:
                    await asyncio.wait_for(body(self, check), self.patience)
                except TimeoutError:
                    check.same("any", f"no answer in {self.patience:.0f} seconds", "an answer")
                finally:
                    await check.end()

            asyncio.run(run())

        test.__name__, test.__qualname__ = body.__name__, body.__qualname__
        test.__doc__, test.__module__ = body.__doc__, body.__module__
        return test

    return made
