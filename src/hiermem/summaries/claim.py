"""Runs the claim on a session, under which one run alone asks a model for its summaries.

::

    take -> work, renewed meanwhile -> settle: the entry is deleted, or gets its next time

The claim is the session's entry in the due queue. Its generation fences the run: once another run
took the session over, no call is journalled any more, and none is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from hiermem.calls.retry import retry_store, shielded
from hiermem.errors import HiermemError, StoreError
from hiermem.handle import Handle
from hiermem.process import has_ended
from hiermem.protocols import TenantStore, TreeStore
from hiermem.summaries import due
from hiermem.tree.status import is_unfinished
from hiermem.types import Node
from hiermem.types.transaction import DueSession

_log = logging.getLogger("hiermem.update")
#: Nodes read at once.
PAGE: Final = 256
#: Renewals within the lease of one claim, so that three may fail before it ends.
_BEATS: Final = 4

#: How many of the newest runs of a session are searched for the one that holds it.
_NEWEST_RUNS: Final = 20


class SessionClaim:
    """The claim on one session.

    ``held`` is the entry; None while the session is not held, and once another run took it over.
    A task of its own renews it, from ``take`` or ``keep`` to ``settle``.
    """

    def __init__(self, handle: Handle, session_id: str, held: DueSession | None = None) -> None:
        self.session_id, self.held = session_id, held
        self._handle, self._store, self._lease = handle, handle.store, handle.update_policy.lease
        self._renewal: asyncio.Task[None] | None = None

    async def take(self) -> bool:
        """Claim the session; return whether it was free, or held by a process that has ended."""
        await self._handle.compare_clocks(lease=self._lease)
        # Shielded, because a claim must be known to be settled, even after a cancellation.
        return await shielded(self._take())

    def keep(self) -> None:
        """Renew the claim from now on."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())

    async def settle(self, *, pause: float = 0.0, again: bool = False) -> datetime | None:
        """End the claim; return when the session's remaining nodes are due, None for never.

        The entry is due after ``pause`` seconds at the earliest; ``again`` keeps it in any case.
        """
        if self.held is None:
            await self.stop()
            return None
        try:
            due_at = await retry_store(
                lambda: next_due(self._handle, self.session_id), sleep=asyncio.sleep
            )
            earliest = self._handle.store_now() + timedelta(seconds=pause)
            next_at = earliest if again and due_at is None else due_at
            await self.end(next_at and max(next_at, earliest))
        finally:
            await self.stop()
        return due_at

    async def end(self, due_at: datetime | None) -> None:
        """End the claim; the session is due at ``due_at``, None for never."""
        await self.stop()
        claimed, self.held = self.held, None
        if claimed is not None:
            await retry_store(
                lambda: self._store.settle_due(claimed, at=due_at), sleep=asyncio.sleep
            )

    async def _take(self) -> bool:
        self.held = await self._ask()
        if self.held is None and await self._free_from_ended():
            self.held = await self._ask()
        if self.held is None:
            return False
        self.keep()
        return True

    async def _ask(self) -> DueSession | None:
        """Ask for the claim. Raises StoreError if it is unknown whether it is held now."""
        unknown: list[StoreError] = []

        async def once() -> DueSession | None:
            try:
                return await self._store.take_due(self.session_id, lease=self._lease)
            except StoreError as error:
                if error.committed is not None:
                    raise
                # A second try would meet the claim that the first try may have left.
                unknown.append(error)
                return None

        claimed = await retry_store(once, sleep=asyncio.sleep)
        if unknown:
            raise unknown[0]
        return claimed

    async def _free_from_ended(self) -> bool:
        """End the claim of a run whose process is known to have ended; return whether it did."""
        runs = await retry_store(
            lambda: self._store.runs(subject=self.session_id, limit=_NEWEST_RUNS),
            sleep=asyncio.sleep,
        )
        for run in runs:
            generation = run.detail.get("claim")
            if (
                run.outcome == "running"
                and isinstance(generation, int)
                and has_ended(run.detail.get("process"))
            ):
                stale = DueSession(self._store.tenant, self.session_id, generation)
                now = self._handle.store_now()
                if await retry_store(
                    partial(self._store.settle_due, stale, at=now), sleep=asyncio.sleep
                ):
                    return True
        return False

    async def _renew(self) -> None:
        while self.held is not None:
            await asyncio.sleep(self._lease / _BEATS)
            claimed = self.held
            if claimed is None:
                return
            try:
                # Shielded, because an interrupted renewal may have taken effect.
                renewed = await shielded(
                    self._store.take_due(self.session_id, lease=self._lease, held=claimed)
                )
                # The run may have claimed the session anew meanwhile.
                if not renewed and self.held is claimed:
                    self.held = None
            except HiermemError as error:
                # The next renewal, or the run's next write, meets the error again.
                _log.warning("a claim was not renewed: %s", type(error).__name__)

    async def stop(self) -> None:
        """Stop renewing the claim, which then expires."""
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])


async def next_due(handle: Handle, session_id: str) -> datetime | None:
    """Return when a session has something to make, None for never, from the store."""
    store = handle.store
    record = await store.session(session_id)
    if record is None:
        return None
    ready: list[Node] = []
    async for node in _workable(store, session_id):
        ready.append(node)
        if node.status == "pending":
            break  # No node is due earlier.
    return due.next_due(record, ready=ready, now=handle.store_now())


async def _workable(store: TenantStore, session_id: str) -> AsyncIterator[Node]:
    """Yield the unfinished nodes that have their inputs, lowest level first."""
    tree = store.tree(session_id)
    for level in sorted(await tree.levels()):
        after = -1
        while True:
            page = await tree.unfinished(level, after, PAGE)
            for node in page:
                if is_unfinished(node) and await _inputs_ready(tree, node):
                    yield node
            if len(page) < PAGE:
                break
            after = page[-1].ordinal


async def _inputs_ready(tree: TreeStore, node: Node) -> bool:
    """Return whether all inputs of ``node`` have a text."""
    if not node.children:
        return True
    children = await tree.nodes(node.children)
    return len(children) == len(node.children) and all(child.revision for child in children)
