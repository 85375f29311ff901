"""Writes the outcomes of nodes: claims under a lease, commits by compare-and-swap, the journal.

What is paid for is not lost. A commit is retried when the store is busy; it is rebased when only
the parent or the lease of its node changed meanwhile; and it is recognised when it took effect
although the store reported a failure. No commit overwrites what another run made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hiermem.core.summaries import status
from hiermem.core.summaries.making import Outcome
from hiermem.engine.calls.call_journal import CallJournal
from hiermem.engine.calls.store_retry import TRIES
from hiermem.protocols import TreeStore
from hiermem.types import Node
from hiermem.types.transaction import Attempt, NodeWrite


class NodeCommits:
    """The claims and commits of one run in one tree of a session."""

    def __init__(
        self,
        tree: TreeStore,
        *,
        run_id: str,
        lease: timedelta,
        now: Callable[[], datetime],
        journal: CallJournal,
    ) -> None:
        self._tree, self._run_id = tree, run_id
        self._lease, self._now, self._journal = lease, now, journal
        self._claims: dict[str, Node] = {}
        self._lock = asyncio.Lock()

    def claimed(self, node_id: str) -> bool:
        """Return whether this run holds the node's lease, as far as it knows."""
        return node_id in self._claims

    async def begin_call(
        self, item: Node, attempt: Attempt, *, ended: list[Attempt]
    ) -> Node | None:
        """Take the node's lease unless it is held, and journal the call, in one commit.

        Where the lease of an interrupted run had expired, its unfinished attempts become
        ``unknown``. Returns the node as claimed; None where another run was faster.
        """
        calls = [*ended, attempt]
        if item.id in self._claims:
            await self._journal.write(calls)
            return item
        async with self._lock:
            now = self._now()
            unknown: list[Attempt] = []
            if item.status == "generating" and item.lease_owner is not None:
                unknown = await self._journal.left_by(item.lease_owner, (item.id,))
            pending = status.reset(item, now=now, owner=self._run_id)
            claimed = status.claim(pending, owner=self._run_id, until=now + self._lease)
            for _ in range(2):
                write = status.write(item, claimed)
                applied = await self._journal.claim(write, [*unknown, *calls])
                if applied:
                    break
                stored = await self._tree.nodes([item.id])
                if stored and status.is_written(stored[0], claimed):
                    write = replace(write, node=stored[0])
                    break
                rebased = status.rebase(item, stored[0], claimed) if stored else None
                if rebased is None:
                    return None
                item, claimed = stored[0], rebased
            else:
                return None
            self._claims[item.id] = write.node
            self._journal.unknown += len(unknown)
            return write.node

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
            for _ in range(TRIES):
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
                applied, doubtful = await self._journal.write(attempts, nodes=[*writes, *parents])
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
        """Release every claim, and journal the calls that have no end yet."""
        async with self._lock:
            writes = [status.write(node, status.expire(node)) for node in self._claims.values()]
            self._claims.clear()
            await self._journal.write(self._journal.unwritten(), nodes=writes)

    async def give_back(self, node_id: str, attempts: Sequence[Attempt]) -> None:
        """Release one claim that led to nothing; it costs the node no attempt."""
        async with self._lock:
            claimed = self._claims.pop(node_id, None)
            writes = [status.write(claimed, status.expire(claimed))] if claimed else []
            await self._journal.write(attempts, nodes=writes)

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
            for write, done in zip(writes, applied, strict=True):
                if done:
                    known[write.node.id] = write.node
