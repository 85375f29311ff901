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
from collections.abc import Callable, Sequence
from datetime import datetime

from hiermem.calls.budget import TRIES, CallJournal
from hiermem.protocols import TreeStore
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.making import Outcome
from hiermem.tree import levels as status
from hiermem.types import Node
from hiermem.types.transaction import NodeWrite

_log = logging.getLogger("hiermem.update")


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
