"""Turns a condition of the contract into a test of an adapter author's suite.

The test's docstring is the condition. It needs only pytest's ``tmp_path``, no plugin for async
tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiermem.protocols import Store, TenantStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class DecisionError(Exception):
    """The error of a decision under test; it must come out unchanged."""


class Conditions:
    """A group of conditions; ``open_store`` opens the store that they test."""

    async def open_store(self, path: Path) -> Store:
        """Open the store at ``path``, which does not exist before the first time.

        Opening the same path again after ``close`` must return the same store, if it is durable.
        """
        raise NotImplementedError("a conformance suite must define open_store(self, path)")

    @asynccontextmanager
    async def opened(self, path: Path) -> AsyncGenerator[Store]:
        """Open the store and close it at the end."""
        store = await self.open_store(path)
        try:
            yield store
        finally:
            await store.close()


def path_condition(
    body: Callable[[Any, Path], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives a path and opens the store itself."""

    def test(self: Conditions, tmp_path: Path) -> None:
        async def run() -> None:
            await body(self, tmp_path / "store")

        asyncio.run(run())

    update_wrapper(test, body)
    del test.__wrapped__  # type: ignore[attr-defined] # pytest would request the body's arguments
    return test


def store_condition(
    body: Callable[[Any, Store], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives a fresh store."""

    async def with_store(self: Conditions, path: Path) -> None:
        async with self.opened(path) as store:
            await body(self, store)

    return path_condition(update_wrapper(with_store, body))


def condition(
    body: Callable[[Any, TenantStore], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives the handle of one tenant of a fresh store."""

    async def with_tenant(self: Conditions, store: Store) -> None:
        await body(self, store.tenant("tenant"))

    return store_condition(update_wrapper(with_tenant, body))
