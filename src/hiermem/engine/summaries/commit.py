"""Writes the outcomes of nodes: claims under a lease, commits by compare-and-swap, the journal.

What is paid for is not lost. A commit is retried when the store is busy; it is rebased when only
the parent or the lease of its node changed meanwhile; and it is recognised when it took effect
although the store reported a failure. No commit overwrites what another run made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from hiermem.core.calls.run_report import cut_off
from hiermem.core.summaries import status
from hiermem.engine.calls.budget import JournalBudget
from hiermem.engine.calls.call_journal import ALL_ATTEMPTS
from hiermem.errors import StoreCorruptError, StoreError, StoreNewerError
from hiermem.protocols import TenantStore, TreeStore
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, NodeWrite

OutcomeKind: TypeAlias = Literal[
    "made", "reused", "degraded", "kept", "clean", "failed", "refused", "leased", "moved"
]
#: How often a write is tried while the store fails, and the first pause in seconds, which doubles.
_TRIES: Final = 5
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one node, not committed yet.

    ``node`` is what the change starts from. The kinds:

        made, reused   a good text
        degraded       the stand-in
        kept           the node keeps the stand-in that it had
        clean          the node was dirty, but its text is still right
        failed         nothing new
        refused        a cap was met
        leased         another run holds the node
        moved          the node changed while it was read

    ``changes_parent``: the text differs from the one that the parent was made from.
    """

    kind: OutcomeKind
    node: Node
    after: Node | None = None
    revision: Revision | None = None
    inputs: tuple[tuple[str, int], ...] = ()
    attempts: tuple[Attempt, ...] = ()
    changes_parent: bool = False

    @property
    def clears_parent(self) -> bool:
        """Whether a flag of this node was cleared, so that its parent's flag may be obsolete."""
        after = self.after
        return (
            (self.node.dirty or self.node.stale)
            and not self.changes_parent
            and after is not None
            and after.status == "active"
            and not (after.dirty or after.stale)
        )


class NodeCommits:
    """The claims and commits of one run in one tree of a session."""

    def __init__(
        self,
        store: TenantStore,
        tree: TreeStore,
        *,
        run_id: str,
        lease: timedelta,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        journal_budget: JournalBudget | None = None,
    ) -> None:
        self.unknown = 0
        self._journal_budget = journal_budget
        self._store, self._tree, self._run_id = store, tree, run_id
        self._lease, self._now, self._sleep = lease, now, sleep
        self._claims: dict[str, Node] = {}
        self._begun: dict[str, Attempt] = {}
        self._lock = asyncio.Lock()
        self._failures = 0

    def claimed(self, node_id: str) -> bool:
        """Return whether this run holds the node's lease, as far as it knows."""
        return node_id in self._claims

    async def claim(self, node: Node) -> Node | None:
        """Take the node's lease, durably; None where another run was faster.

        Where the lease of an interrupted run had expired, its unfinished attempts become
        ``unknown``.
        """
        async with self._lock:
            now = self._now()
            unknown = await self._cut_off(node)
            pending = status.reset(node, now=now, owner=self._run_id)
            claimed = status.claim(pending, owner=self._run_id, until=now + self._lease)
            for _ in range(2):
                write = status.write(node, claimed)
                (applied,) = await self._write([write], attempts=unknown)
                if applied:
                    break
                stored = await self._tree.nodes([node.id])
                if stored and status.is_written(stored[0], claimed):
                    write = replace(write, node=stored[0])
                    break
                rebased = status.rebase(node, stored[0], claimed) if stored else None
                if rebased is None:
                    return None
                node, claimed = stored[0], rebased
            else:
                return None
            self._claims[node.id] = write.node
            self.unknown += len(unknown)
            return write.node

    async def begin(self, attempt: Attempt, *, ended: Sequence[Attempt]) -> None:
        """Journal, before the call, that it is made, and how the calls before it ended."""
        self._begun[attempt.id] = attempt
        await self._write([], attempts=[*ended, attempt])

    def end(self, attempt: Attempt) -> None:
        """Note how a journalled call ended; the next write of its node records it."""
        if attempt.id in self._begun:
            self._begun[attempt.id] = attempt
            self.unknown += attempt.outcome == "unknown"

    async def renew(self) -> None:
        """Extend the leases of all claimed nodes; drop those that another run took."""
        async with self._lock:
            claimed_nodes = list(self._claims.values())
            if not claimed_nodes:
                return
            until = self._now() + self._lease
            writes = [
                status.write(node, replace(node, lease_until=until)) for node in claimed_nodes
            ]
            applied = await self._tree.write_nodes(writes)
            for node, write, done in zip(claimed_nodes, writes, applied, strict=True):
                if done:
                    self._claims[node.id] = write.node
                    continue
                stored = await self._tree.nodes([node.id])
                # A node that an edit changed meanwhile is not the one that was claimed: the text in
                # progress must not pass as made from the new content.
                if stored and status.rebase(node, stored[0], node) is not None:
                    self._claims[node.id] = stored[0]
                else:
                    self._claims.pop(node.id, None)

    async def commit(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[Node]]:
        """Commit outcomes in one transaction; return which hold, and which parents became dirty."""
        async with self._lock:
            bases = [self._claims.get(each.node.id, each.node) for each in outcomes]
            afters = [each.after for each in outcomes]
            attempts = [attempt for each in outcomes for attempt in each.attempts]
            committed = [each.after is None for each in outcomes]
            pending = [index for index, each in enumerate(outcomes) if each.after is not None]
            dirtied: dict[str, Node] = {}
            for _ in range(_TRIES):
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
                failures = self._failures
                applied = await self._write([*writes, *parents], attempts=attempts)
                doubtful = self._failures > failures
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
            for each in outcomes:
                self._claims.pop(each.node.id, None)
            return committed, list(dirtied.values())

    async def release(self) -> None:
        """Release every claim and report the calls that were cut off as ``unknown``."""
        async with self._lock:
            unknown = {one.id: one for one in cut_off(self._begun.values(), self._now())}
            ended = [unknown.get(one.id, one) for one in self._begun.values()]
            writes = [status.write(node, status.expire(node)) for node in self._claims.values()]
            self._claims.clear()
            self.unknown += len(unknown)
            if writes or ended:
                await self._write(writes, attempts=ended)

    async def give_back(self, node_id: str, attempts: Sequence[Attempt]) -> None:
        """Release one claim that led to nothing; it costs the node no attempt."""
        async with self._lock:
            claimed = self._claims.pop(node_id, None)
            writes = [status.write(claimed, status.expire(claimed))] if claimed else []
            if writes or attempts:
                await self._write(writes, attempts=attempts)

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
            if parent.revision and not parent.dirty and (parent.id in changed_ids or parent.stale)
        ]

    async def _dirty_parents_late(
        self, outcomes: Sequence[Outcome], committed: Sequence[bool], *, known: dict[str, Node]
    ) -> None:
        """Mark the parents dirty whose first write did not hold."""
        applied_outcomes = [each for each, done in zip(outcomes, committed, strict=True) if done]
        changed_ids = [each.node.id for each in applied_outcomes if each.changes_parent]
        ids = [*changed_ids, *(each.node.id for each in applied_outcomes if each.clears_parent)]
        for _ in range(_TRIES if ids else 0):
            children = await self._tree.nodes(ids)
            writes = await self._dirty_parents(
                [child for child in children if child.id in changed_ids],
                [child for child in children if child.id not in changed_ids],
                known=known,
            )
            if not writes:
                return
            applied = await self._write(writes, attempts=())
            for write, done in zip(writes, applied, strict=True):
                if done:
                    known[write.node.id] = write.node

    async def _cut_off(self, node: Node) -> list[Attempt]:
        """Return the unfinished attempts of the run whose lease on ``node`` has expired."""
        if node.status != "generating" or node.lease_owner in (None, self._run_id):
            return []
        journalled = await self._store.attempts(run_id=node.lease_owner, limit=ALL_ATTEMPTS)
        return cut_off((one for one in journalled if one.node_id == node.id), self._now())

    async def _write(
        self, writes: Sequence[NodeWrite], *, attempts: Sequence[Attempt]
    ) -> list[bool]:
        """Write, with retries while the store fails; the last error is raised."""
        if self._journal_budget is None or not attempts:
            return await self._retry_write(writes, attempts)
        with self._journal_budget.journalling(attempts):
            return await self._retry_write(writes, attempts)

    async def _retry_write(
        self, writes: Sequence[NodeWrite], attempts: Sequence[Attempt]
    ) -> list[bool]:
        tried = 0
        while True:
            tried += 1
            try:
                applied = await self._tree.write_nodes(writes, attempts=attempts)
            except (StoreCorruptError, StoreNewerError):
                raise
            except StoreError:
                self._failures += 1
                if tried == _TRIES:
                    raise
                await self._sleep(_PAUSE * 2 ** (tried - 1))
                continue
            for attempt in attempts:
                if attempt.outcome != "started":
                    self._begun.pop(attempt.id, None)
            return applied
