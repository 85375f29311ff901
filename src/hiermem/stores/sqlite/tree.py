"""The handle of one tree of a session in an SQLite store.

Each method names the function that does the work; the statements are in ``tree_reads`` and
``tree_writes``.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem.stores.sqlite import tree_reads, tree_writes
from hiermem.stores.sqlite.workers import Connections
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, NodeTally, NodeWrite


class SQLiteTree:
    """One tree of a session in a SQLiteStore; see ``hiermem.protocols.TreeStore``."""

    def __init__(
        self, store: Connections, tenant: str, session_id: str, number: int | None
    ) -> None:
        self._store = store
        self._of = (tenant, session_id)
        self._number = number

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the nodes with these ids that exist, in the order of ``ids``."""
        return await self._store.read(tree_reads.nodes, *self._of, tuple(ids), tree=self._number)

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the sealed nodes of ``level`` with ``start <= ordinal < stop``.

        They are ordered by ordinal.
        """
        return await self._store.read(
            tree_reads.level, *self._of, level, start=start, stop=stop, tree=self._number
        )

    async def levels(self) -> dict[int, int]:
        """Return the number of sealed nodes for each level that has any."""
        return await self._store.read(tree_reads.levels, *self._of, tree=self._number)

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the sealed level-1 nodes of ``thread`` that hold the message, by ordinal."""
        return await self._store.read(
            tree_reads.covering, *self._of, thread, index, tree=self._number
        )

    async def provisional(self) -> list[Node]:
        """Return the nodes that are not sealed, ordered by level, then id."""
        return await self._store.read(tree_reads.provisional, *self._of, tree=self._number)

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` that have work left, ordered by ordinal.

        Only nodes with an ordinal above ``after`` are returned.
        """
        return await self._store.read(
            tree_reads.unfinished,
            *self._of,
            level,
            after=after,
            limit=limit,
            tree=self._number,
        )

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` with a strategy outside ``strategies``.

        Only nodes with an ordinal above ``after`` are returned, ordered by ordinal.
        """
        return await self._store.read(
            tree_reads.outdated,
            *self._of,
            level,
            strategies=tuple(strategies),
            after=after,
            limit=limit,
            tree=self._number,
        )

    async def tally(self) -> list[NodeTally]:
        """Return the totals of the sealed nodes for each level and status, in that order."""
        return await self._store.read(tree_reads.tally, *self._of, tree=self._number)

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the revisions with these (node id, number) that exist, in this order."""
        return await self._store.read(
            tree_reads.revisions, *self._of, tuple(wanted), tree=self._number
        )

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        attempts_if_applied: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold, and record the attempts.

        Return for each write whether it was applied.
        """
        of, number, wanted, tried = self._of, self._number, tuple(writes), tuple(attempts)
        allowed = tuple(attempts_if_applied)
        return await self._store.write(
            lambda transaction: tree_writes.write_nodes(
                transaction,
                *of,
                wanted,
                attempts=tried,
                attempts_if_applied=allowed,
                tree=number,
            )
        )
