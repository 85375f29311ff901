"""Reads and stores how often the model was asked in vain for a text (``summaries.retries``).

A count is a record of the session, by the input hash. So it goes with the session and its messages,
and every session of the tenant finds it.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import Final

from hiermem.calls.call_journal import ALL_ATTEMPTS
from hiermem.calls.run import CallState
from hiermem.calls.store_retry import retry_store
from hiermem.summaries import plan, retries
from hiermem.summaries.making import prompts_due
from hiermem.summaries.retries import RETRY, AttemptCount
from hiermem.summaries.run import UpdateRun, read_inputs
from hiermem.tree.status import waits
from hiermem.types import Node
from hiermem.types.transaction import RecordWrite

#: More counts than a session has.
_ALL: Final = 1_000_000


async def count_attempts(run: UpdateRun, wanted: str) -> AttemptCount:
    """Return how often the text for ``wanted`` was asked for in vain, by any session."""
    if run.is_deterministic:
        return AttemptCount()
    found = await run.store.records(RETRY, key=wanted)
    return retries.together(retries.from_json(each.body) for each in found)


async def note_failure(
    run: UpdateRun, wanted: str, count: AttemptCount, state: CallState, error: str
) -> AttemptCount:
    """Store what the calls of ``state`` add to ``count``; return the new count."""
    now, before = run.now(), count
    if state.attempts:
        count = count.spend(state.attempts, now=now, error=error)
    if state.unanswered:
        answered = await _has_answered_since(run, count.unanswered)
        count = count.miss(state.unanswered, answered=answered, now=now, error=error)
    if count != before and not run.is_deterministic:
        await _write(run, [(wanted, count, state.node)])
    return count


async def forget_failures(run: UpdateRun, wanted: str, count: AttemptCount) -> AttemptCount:
    """Delete the session's count for a text that is made now; return the new count."""
    if count != AttemptCount():
        await _put(run, [RecordWrite(RETRY, run.session_id, wanted, None)])
    return AttemptCount()


async def is_left_alone(run: UpdateRun, node: Node) -> bool:
    """Return whether the stand-in of ``node`` serves on, because asking again is not due.

    The session's own counts are read once. Only where none of them is about a node are its inputs
    read.
    """
    if run.is_deterministic or node.status != "active" or not node.degraded:
        return False
    if waits(node) or node.forced:
        return False
    wanted = await _present_hash(run, node)
    if wanted is None:
        return False
    count = await count_attempts(run, wanted)
    return not prompts_due(node, count, run) and await run.store.reusable(wanted) is None


async def _present_hash(run: UpdateRun, node: Node) -> str | None:
    """Return the present input hash of a node whose inputs did not change."""
    if run.own_counts is None:
        run.own_counts = {}
        for each in await run.store.records(RETRY, scope=run.session_id, limit=_ALL):
            run.own_counts.setdefault(retries.node_of(each.body), []).append(each)
    strategy = run.plan(node.level).strategy
    for each in run.own_counts.get(node.id, ()):
        if retries.is_about(each.body, node, strategy=strategy):
            return each.key
    inputs = await read_inputs(run, node)
    return None if inputs is None else plan.node_hash(node, inputs, strategy)


async def _has_answered_since(run: UpdateRun, call_id: str) -> bool:
    """Return whether the model answered a call of this session that began after ``call_id``."""
    if not call_id:
        return False
    calls = await run.store.attempts(session_id=run.session_id, limit=ALL_ATTEMPTS)
    after = dropwhile(lambda each: each.id != call_id, calls)
    return any(each.outcome in ("ok", "rejected") and each.model == run.llm.name for each in after)


async def _write(run: UpdateRun, counts: list[tuple[str, AttemptCount, Node]]) -> None:
    await _put(
        run,
        [
            RecordWrite(
                RETRY,
                run.session_id,
                wanted,
                retries.to_json(count, node, strategy=run.plan(node.level).strategy),
            )
            for wanted, count, node in counts
        ],
    )


async def _put(run: UpdateRun, writes: list[RecordWrite]) -> None:
    """Write the records, unless content was removed from the session since the run began."""
    epochs = {run.session_id: run.record.epoch}
    await retry_store(lambda: run.store.put_records(writes, epochs=epochs), sleep=run.sleep)
