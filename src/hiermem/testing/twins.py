"""Drives a store and the in-memory reference in the same way, and compares their answers.

Both get the same calls, and every result, every error and every read must agree. ``machine``
decides the calls; this module makes them, and reads what can be read.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hiermem.errors import HiermemError
from hiermem.protocols import Store, TenantStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.samples import contents
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import Node
from hiermem.types.transaction import Record

TENANTS = st.sampled_from(HOSTILE_NAMES[:6])
SESSIONS = st.sampled_from(("s", "S", "s%", "s "))
SMALL = st.integers(0, 7)


class Twins(RuleBasedStateMachine):
    """Two stores that must stay alike; a subclass adds the rules that write to them.

    ``open_store`` opens the store under test; ``root`` is an empty directory for its files.
    """

    def __init__(self, open_store: Callable[[Path], Awaitable[Store]], root: Path) -> None:
        super().__init__()
        self._open_store = open_store
        self._path = _fresh_path(root)
        self._runner = asyncio.Runner()
        self._reference = MemoryStore()
        self._store: Store | None = None

    # -- both stores alike

    def both(self, tenant: str, act: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        """Run ``act`` on both stores, compare the outcomes and return that of the reference."""
        assert self._store is not None
        expected = self._outcome(self._reference.tenant(tenant), act)
        found = self._outcome(self._store.tenant(tenant), act)
        assert found == expected
        return expected

    def _outcome(self, tenant: TenantStore, act: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        async def run_it() -> Any:
            return await act(tenant)

        try:
            return self._runner.run(run_it())
        except HiermemError as error:
            return type(error)

    def nodes(self, tenant: str, session: str) -> list[Node]:
        """Return the reference's nodes of a session, sealed ones first."""

        async def all_of(handle: TenantStore) -> list[Node]:
            tree = handle.tree(session)
            found = [one for level in await tree.levels() for one in await tree.level(level, 0)]
            return found + await tree.provisional()

        return self._outcome(self._reference.tenant(tenant), all_of)  # type: ignore[no-any-return]

    @initialize()
    def open(self) -> None:
        """Open the store under test."""
        self._store = self._runner.run(self._opened())

    async def _opened(self) -> Store:
        return await self._open_store(self._path)

    # -- reading

    @rule(tenant=TENANTS)
    def compare(self, tenant: str) -> None:
        """Compare everything that the tenant's handle can read."""
        self.both(tenant, contents)
        for kind in ("k", "K"):
            self.both(tenant, partial(_of_kind, kind))

    @rule(tenant=TENANTS, session=SESSIONS, start=SMALL, length=SMALL, level=st.integers(0, 3))
    def read(self, tenant: str, session: str, start: int, length: int, level: int) -> None:
        """Compare ranges of messages and nodes."""
        self.both(tenant, lambda handle: handle.session(session))
        self.both(tenant, lambda handle: handle.messages(session, start, start + length))
        self.both(tenant, lambda handle: handle.messages(session, 0, 99, thread="main"))
        self.both(tenant, lambda handle: handle.tree(session).level(level, start, start + length))
        self.both(tenant, lambda handle: handle.tree(session).unfinished(level, start, length))
        self.both(tenant, lambda handle: handle.tree(session).outdated(level, ["s"], start, length))
        self.both(tenant, lambda handle: handle.tree(session).covering("main", 10 * start + length))
        self.both(tenant, lambda handle: handle.backlog(after=session, limit=length))

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again; nothing may be missing."""
        assert self._store is not None
        self._runner.run(self._store.close())
        self.open()

    @property
    def durable(self) -> bool:
        """Return whether the store survives being closed."""
        return self._store is not None and "durable" in self._store.capabilities

    def teardown(self) -> None:
        """Compare everything once more, then close the store."""
        try:
            if self._store is not None:
                for tenant in HOSTILE_NAMES[:6]:
                    self.compare(tenant)
        finally:
            if self._store is not None:
                self._runner.run(self._store.close())
            self._runner.close()


async def _of_kind(kind: str, handle: TenantStore) -> list[Record]:
    return await handle.records(kind)


def _fresh_path(root: Path) -> Path:
    """Return an unused path in ``root``; Hypothesis runs many machines in one test."""
    for number in itertools.count():
        room = root / f"machine-{number}"
        if not room.exists():
            room.mkdir(parents=True)
            return room / "store"
    raise AssertionError
