"""The contract of a store: five operations over the declared tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

from hiermem import protocols
from hiermem.records.tables import Commit, Found, Key, Scan
from hiermem.types.transaction import Scrubbed


class Reading(Protocol):
    """What a decision may ask: rows, and the time. ``Store`` says what they do."""

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return rows by key and ranges."""
        ...

    async def now(self) -> datetime:
        """Return the time of the store."""
        ...


@runtime_checkable
class Store(Reading, Protocol):
    """Keeps rows of the tables of ``hiermem.records.tables``; decides nothing about them.

    All keys and prefixes of one call whose first column is ``tenant`` name the same tenant, unless
    they scan an index that does not begin with it.
    """

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities.

        "durable": rows survive the process. "shared": several processes may open the store at
        once. "on_thread": the operations block the thread that calls them and never suspend, so
        that they are called on a thread of their own, from several threads at once.
        """
        ...

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these whole keys, or None, and those of the scans, in their order.

        All of them are of one state, in which every commit that returned before is contained.
        """
        ...

    async def commit(self, change: Commit) -> bool:
        """Apply all of ``change`` if every expectation holds, and return whether it was applied.

        Commits are strictly serialisable: one conflicts with every other that expects, puts, adds
        to or deletes a key that it expects. An applied commit is durable when it returns, unless it
        need not be. If the connection is lost meanwhile, the store finds out whether the commit was
        applied; only if it cannot does it raise StoreError with ``committed`` None. Any other error
        means that nothing was applied. A commit that has begun ends before its caller goes on, even
        if he is cancelled.
        """
        ...

    async def now(self) -> datetime:
        """Return the time, timezone-aware; it is the same for all who share the store."""
        ...

    async def scrub(self) -> Scrubbed:
        """Remove the bytes of deleted rows from where the store keeps them, backups included."""
        ...

    async def close(self) -> None:
        """End what is under way and release what the store holds. May be called twice."""
        ...


#: A store, or sessions that are kept in one.
StoreLike: TypeAlias = Store | protocols.Store
