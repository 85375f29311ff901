"""Writes the outcomes of nodes with the journal: by compare-and-swap, under the session's claim.

Nothing that was paid for is lost. A commit is retried if the store is busy; it is rebased if only
the parent of its node changed meanwhile; and it is recognised if it took effect although the store
reported a failure. No commit overwrites the text of another run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from hiermem.calls.budget import CallJournal
from hiermem.calls.retry import TRIES
from hiermem.protocols import TreeStore
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.making import Outcome
from hiermem.tree import status
from hiermem.types import Node
from hiermem.types.transaction import NodeWrite

_log = logging.getLogger("hiermem.update")


class NodeCommits:
    """The commits of one run in one tree of a session, under its ``claim`` if it has one."""

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

        If the session was taken over, a new text is stored all the same if its node and its inputs
        are unchanged. The new holder decides the rest.
        """
        claim = self._claim
        async with self._lock:
            bases = [outcome.node for outcome in outcomes]
            afters = [outcome.after for outcome in outcomes]
            attempts = [attempt for outcome in outcomes for attempt in outcome.attempts]
            committed = [after is None for after in afters]
            pending = [index for index, after in enumerate(afters) if after is not None]
            dirtied: dict[str, Node] = {}
            for _ in range(TRIES):
                fence = claim.held if claim else None
                if claim and fence is None:
                    pending = [index for index in pending if outcomes[index].kind == "made"]
                parents = await self._dirty_parents(
                    [bases[index] for index in pending if outcomes[index].changes_parent],
                    [bases[index] for index in pending if outcomes[index].clears_parent],
                    dirtied=dirtied,
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
                    attempts, nodes=[*writes, *parents], claim=fence
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
            await self._dirty_parents_late(outcomes, committed, dirtied=dirtied)
            return committed, list(dirtied.values())

    async def _carry_over(
        self, lost: Sequence[int], *, bases: list[Node], afters: list[Node | None]
    ) -> list[int]:
        """Return the rejected writes to retry on the current version."""
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
        """Mark those of the ``lost`` writes committed that took effect in spite of a failure."""
        ids = [outcomes[index].node.id for index in lost]
        stored = {node.id: node for node in await self._tree.nodes(ids)}
        for index in lost:
            outcome = outcomes[index]
            current = stored.get(outcome.node.id)
            if (
                current is None
                or outcome.after is None
                or not status.is_written(current, outcome.after)
            ):
                continue
            wanted = [(current.id, current.revision)] if outcome.revision else []
            stored_revisions = await self._tree.revisions(wanted)
            committed[index] = stored_revisions == ([outcome.revision] if outcome.revision else [])

    async def _dirty_parents(
        self, changed: Sequence[Node], cleared: Sequence[Node], *, dirtied: dict[str, Node]
    ) -> list[NodeWrite]:
        """Return the writes that mark the parents of nodes with a new text as dirty.

        An edit flags the whole path above its window. If a text below turned out to be unchanged,
        the flag above must be checked. So that parent is marked dirty too, in the same transaction,
        and turns out clean without a call. If a run is killed in between, the next one does this.
        """
        changed_ids = {child.parent for child in changed if child.parent} - dirtied.keys()
        cleared_ids = (
            {child.parent for child in cleared if child.parent} - dirtied.keys() - changed_ids
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
        self, outcomes: Sequence[Outcome], committed: Sequence[bool], *, dirtied: dict[str, Node]
    ) -> None:
        """Mark the parents dirty whose first write was rejected."""
        applied = [outcome for outcome, done in zip(outcomes, committed, strict=True) if done]
        changed_ids = [outcome.node.id for outcome in applied if outcome.changes_parent]
        ids = [*changed_ids, *(outcome.node.id for outcome in applied if outcome.clears_parent)]
        for _ in range(TRIES if ids else 0):
            children = await self._tree.nodes(ids)
            writes = await self._dirty_parents(
                [child for child in children if child.id in changed_ids],
                [child for child in children if child.id not in changed_ids],
                dirtied=dirtied,
            )
            if not writes:
                return
            stored, _ = await self._journal.write((), nodes=writes)
            for write, done in zip(writes, stored or (), strict=True):
                if done:
                    dirtied[write.node.id] = write.node
