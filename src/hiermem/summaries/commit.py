"""Writes the outcomes of nodes with the journal: by compare-and-swap, under the session's claim.

What is paid for is not lost. A commit is retried when the store is busy; it is rebased when only
the parent of its node changed meanwhile; and it is recognised when it took effect although the
store reported a failure. No commit overwrites what another run made.

The claim of a run on a session: while it holds, no other run asks a model for its summaries.

::

    take -> work, renewed meanwhile -> settle: the entry is deleted, or gets its next time

The claim is the session's entry in the list of what is due. Its generation fences the run: once
another run took the session over, no call is journalled any more, and none is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from hiermem.calls.budget import TRIES, CallJournal, retry_store, shielded
from hiermem.errors import HiermemError, StoreError
from hiermem.handle import Handle
from hiermem.process import has_ended
from hiermem.protocols import TenantStore, TreeStore
from hiermem.summaries import due
from hiermem.summaries.agenda import PAGE
from hiermem.summaries.making import Outcome
from hiermem.tree import levels as status
from hiermem.tree.levels import is_unfinished
from hiermem.types import Node
from hiermem.types.transaction import DueSession, NodeWrite

_log = logging.getLogger("hiermem.update")
#: Renewals within the time of one claim, so that three may fail before it ends.
_BEATS: Final = 4
#: How many of the newest runs of a session are searched for the one that holds it.
_NEWEST_RUNS: Final = 20


class SessionClaim:
    """The claim on one session; ``held`` is the entry while it is held, as far as is known.

    It is renewed by a task of its own, from ``take`` or ``keep`` to ``settle``.
    """

    def __init__(self, handle: Handle, session_id: str, held: DueSession | None = None) -> None:
        self.session_id, self.held = session_id, held
        self._handle, self._lease = handle, handle.update_policy.lease
        self._renewal: asyncio.Task[None] | None = None

    async def take(self) -> bool:
        """Claim the session; return whether it was free, or held by a process that has ended."""
        await self._handle.compare_clocks(lease=self._lease)
        # Shielded: a claim that was cancelled may be held, and has to be known, to be settled.
        return await shielded(self._take())

    def keep(self) -> None:
        """Renew the claim from now on."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())

    def lose(self) -> None:
        """Note that another run took the session over."""
        self.held = None

    async def settle(self, *, pause: float = 0.0, again: bool = False) -> datetime | None:
        """End the claim by what is left to make; return when the session is due, None for never.

        It is due after ``pause`` seconds at the earliest; ``again``: then in any case.
        """
        if self.held is None:
            await self.stop()
            return None
        try:
            found = await retry_store(
                lambda: next_due(self._handle, self.session_id), sleep=asyncio.sleep
            )
            earliest = self._handle.store_now() + timedelta(seconds=pause)
            at = earliest if again and found is None else found
            await self.end(at and max(at, earliest))
        finally:
            await self.stop()
        return found

    async def end(self, at: datetime | None) -> None:
        """End the claim; the session is due ``at`` that time."""
        await self.stop()
        held, self.held = self.held, None
        if held is not None:
            await retry_store(lambda: self._store.settle_due(held, at=at), sleep=asyncio.sleep)

    @property
    def _store(self) -> TenantStore:
        return self._handle.store

    async def _take(self) -> bool:
        self.held = await self._ask()
        if self.held is None and await self._free_from_ended():
            self.held = await self._ask()
        if self.held is None:
            return False
        self.keep()
        return True

    async def _ask(self) -> DueSession | None:
        """Ask for the claim. Raises StoreError where it is unknown whether it is held now."""
        unknown: list[StoreError] = []

        async def once() -> DueSession | None:
            try:
                return await self._store.take_due(self.session_id, lease=self._lease)
            except StoreError as error:
                if error.committed is not None:
                    raise
                # A second try would meet the claim that the first one may have left.
                unknown.append(error)
                return None

        held = await retry_store(once, sleep=asyncio.sleep)
        if unknown:
            raise unknown[0]
        return held

    async def _free_from_ended(self) -> bool:
        """End the claim of a run whose process has ended, where that is known; return whether."""
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
                left = DueSession(self._store.tenant, self.session_id, generation)
                now = self._handle.store_now()
                if await retry_store(
                    partial(self._store.settle_due, left, at=now), sleep=asyncio.sleep
                ):
                    return True
        return False

    async def _renew(self) -> None:
        while self.held is not None:
            await asyncio.sleep(self._lease / _BEATS)
            held = self.held
            if held is None:
                return
            try:
                # Shielded: a renewal that is cut off may have taken effect.
                renewed = await shielded(
                    self._store.take_due(self.session_id, lease=self._lease, held=held)
                )
                # The run may have claimed the session anew meanwhile.
                if not renewed and self.held is held:
                    self.lose()
            except HiermemError as error:
                # The next one, or the next write of the run, meets the error again.
                _log.warning("a claim was not renewed: %s", type(error).__name__)

    async def stop(self) -> None:
        """Renew the claim no more; it ends by itself."""
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()
            await asyncio.wait([self._renewal])


async def next_due(handle: Handle, session_id: str) -> datetime | None:
    """Return when there is something to make in a session, by what is stored; None for never."""
    store = handle.store
    record = await store.session(session_id)
    if record is None:
        return None
    ready: list[Node] = []
    async for node in _workable(store, session_id):
        ready.append(node)
        if node.status == "pending":
            break  # nothing is due before that
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
    """Return whether everything that ``node`` is made from has a text."""
    if not node.children:
        return True
    children = await tree.nodes(node.children)
    return len(children) == len(node.children) and all(child.revision for child in children)


class NodeCommits:
    """The commits of one run in one tree of a session, under its ``claim`` where it has one."""

    def __init__(
        self,
        tree: TreeStore,
        *,
        claim: SessionClaim | None,
        now: Callable[[], datetime],
        journal: CallJournal,
    ) -> None:
        self._tree, self._claim = tree, claim
        self._now, self._journal = now, journal
        self._lock = asyncio.Lock()

    async def commit(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[Node]]:
        """Commit outcomes in one transaction; return which hold, and which parents became dirty.

        Where the session was taken over, a text that is made is stored all the same, if its node
        and its inputs are as they were. The rest is the new holder's to decide.
        """
        claim = self._claim
        async with self._lock:
            bases = [each.node for each in outcomes]
            afters = [each.after for each in outcomes]
            attempts = [attempt for each in outcomes for attempt in each.attempts]
            committed = [each.after is None for each in outcomes]
            pending = [index for index, each in enumerate(outcomes) if each.after is not None]
            dirtied: dict[str, Node] = {}
            for _ in range(TRIES):
                held = claim.held if claim else None
                if claim and held is None:
                    pending = [index for index in pending if outcomes[index].kind == "made"]
                parents = await self._dirty_parents(
                    [bases[index] for index in pending if outcomes[index].changes_parent],
                    [bases[index] for index in pending if outcomes[index].clears_parent],
                    known=dirtied,
                )
                writes = [
                    status.write(
                        bases[index],
                        afters[index] or bases[index],
                        revision=outcomes[index].revision,
                        inputs=outcomes[index].inputs,
                    )
                    for index in pending
                ]
                if not writes and not attempts:
                    break
                applied, doubtful = await self._journal.write(
                    attempts, nodes=[*writes, *parents], claim=held
                )
                if applied is None:
                    assert claim is not None
                    claim.lose()
                    continue
                attempts = []
                for index, done in zip(pending, applied, strict=False):
                    committed[index] = done
                for write, done in zip(parents, applied[len(writes) :], strict=True):
                    if done:
                        dirtied[write.node.id] = write.node
                lost = [index for index in pending if not committed[index]]
                if doubtful:
                    await self._recognise(lost, outcomes, committed)
                    lost = [index for index in lost if not committed[index]]
                pending = await self._carry_over(lost, bases=bases, afters=afters)
                if not pending:
                    break
            await self._dirty_parents_late(outcomes, committed, known=dirtied)
            return committed, list(dirtied.values())

    async def _carry_over(
        self, lost: Sequence[int], *, bases: list[Node], afters: list[Node | None]
    ) -> list[int]:
        """Examine writes that did not hold; return those to retry on the current version."""
        ids = [bases[index].id for index in lost]
        read = await self._tree.nodes(ids) if ids else []
        stored = {node.id: node for node in read}
        retry: list[int] = []
        for index in lost:
            base, after = bases[index], afters[index]
            current = stored.get(base.id)
            if current is None or after is None:
                continue
            if current.version != base.version:
                rebased = status.rebase(base, current, after)
                if rebased is not None:
                    bases[index], afters[index] = current, rebased
                    retry.append(index)
        return retry

    async def _recognise(
        self, lost: Sequence[int], outcomes: Sequence[Outcome], committed: list[bool]
    ) -> None:
        """Find the writes among ``lost`` that took effect although the store reported a failure."""
        ids = [outcomes[index].node.id for index in lost]
        stored = {node.id: node for node in await self._tree.nodes(ids)}
        for index in lost:
            each = outcomes[index]
            current = stored.get(each.node.id)
            if current is None or each.after is None or not status.is_written(current, each.after):
                continue
            wanted = [(current.id, current.revision)] if each.revision else []
            found = await self._tree.revisions(wanted)
            committed[index] = found == ([each.revision] if each.revision else [])

    async def _dirty_parents(
        self, changed: Sequence[Node], cleared: Sequence[Node], *, known: dict[str, Node]
    ) -> list[NodeWrite]:
        """Return the writes that mark the parents of nodes with a new text as dirty.

        An edit flags the whole path above its window. Where a text below turned out to be
        unchanged, the flag above has to be checked. So that parent is marked dirty too, in the same
        transaction, and is found clean without a call. A run that is killed in between leaves this
        to the next one.
        """
        changed_ids = {child.parent for child in changed if child.parent} - known.keys()
        cleared_ids = (
            {child.parent for child in cleared if child.parent} - known.keys() - changed_ids
        )
        if not changed_ids and not cleared_ids:
            return []
        return [
            status.write(parent, status.mark_dirty(parent, now=self._now()))
            for parent in await self._tree.nodes(sorted(changed_ids | cleared_ids))
            if parent.revision
            and (
                status.is_flagged(parent) if parent.id in cleared_ids else not status.waits(parent)
            )
        ]

    async def _dirty_parents_late(
        self, outcomes: Sequence[Outcome], committed: Sequence[bool], *, known: dict[str, Node]
    ) -> None:
        """Mark the parents dirty whose first write did not hold."""
        applied_outcomes = [each for each, done in zip(outcomes, committed, strict=True) if done]
        changed_ids = [each.node.id for each in applied_outcomes if each.changes_parent]
        ids = [*changed_ids, *(each.node.id for each in applied_outcomes if each.clears_parent)]
        for _ in range(TRIES if ids else 0):
            children = await self._tree.nodes(ids)
            writes = await self._dirty_parents(
                [child for child in children if child.id in changed_ids],
                [child for child in children if child.id not in changed_ids],
                known=known,
            )
            if not writes:
                return
            applied, _ = await self._journal.write((), nodes=writes)
            for write, done in zip(writes, applied or (), strict=True):
                if done:
                    known[write.node.id] = write.node
