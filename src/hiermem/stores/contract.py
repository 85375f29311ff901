"""Decides what all stores do alike: run a decision, and refuse changes that contradict themselves.

The checks look at the arguments alone, never at stored values, so that all stores refuse the same
writes for the same reasons and at no cost. Such a write is the caller's fault; refusing it keeps
the fault from damaging the session.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from functools import update_wrapper
from types import CoroutineType, ModuleType
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar, cast

from hiermem.errors import UsageError
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx

#: More records than a session can have.
_ALL: Final = 1 << 62

T = TypeVar("T")
P = ParamSpec("P")


def system_time() -> datetime:
    """Return the present time; a store in the process of its callers has no other clock."""
    return datetime.now(UTC)


def named_after(
    work: Callable[..., Any], method: Callable[P, Coroutine[Any, Any, T]], *, given: int
) -> Callable[P, CoroutineType[Any, Any, T]]:
    """Return ``method`` with the name, docstring and signature of the function that does its work.

    ``given`` is the number of the function's first arguments that the method fills in.
    """
    update_wrapper(method, work)
    signature = inspect.signature(work)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = list(signature.parameters.values())[given:]
    method.__signature__ = signature.replace(parameters=[own, *rest])  # type: ignore[attr-defined]
    # An ``async def`` returns a CoroutineType, but not every type checker says so.
    return cast("Callable[P, CoroutineType[Any, Any, T]]", method)


def refuse(session_id: str, what: str) -> UsageError:
    """Return the error for a write that contradicts stored values; nothing of it is written."""
    return UsageError(f"session {session_id!r}: the write contradicts what is stored: {what}")


def check_changes(
    session_id: str,
    before: SessionRecord | None,
    after: SessionRecord,
    changes: tx.Changes[Any],
    source: SessionRecord | None = None,
) -> None:
    """Check that ``changes`` may write the record ``after`` over ``before``.

    ``source`` is the record of the session that is copied, if there is one. Raises UsageError where
    ``after`` is of another session, its version is not the next one, the appended messages are not
    numbered from the last one on, a flag or rewrite is of a message that does not exist, or a copy
    is impossible.
    """
    if after.id != session_id:
        raise refuse(session_id, f"the record is that of {after.id!r}")
    if before is not None and after.version != before.version + 1:
        raise refuse(session_id, f"version {after.version} does not follow {before.version}")
    if before is None and changes.copy is not None:
        count = changes.copy.stop
    else:
        count = before.messages if before else 0
    for stored in changes.messages:
        if stored.index != count:
            raise refuse(session_id, f"message {stored.index} is not the next, {count}")
        count += 1
    if after.messages != count:
        raise refuse(session_id, f"the record says {after.messages} messages, there are {count}")
    changed = [index for index, _ in changes.flags]
    changed += [rewrite.message.index for rewrite in changes.rewrites]
    if any(not 0 <= index < count for index in changed):
        raise refuse(session_id, "a flag or a rewrite is of a message that does not exist")
    copy = changes.copy
    if copy is not None and before is not None:
        raise refuse(session_id, "a copy is for a session that exists already")
    if copy is not None and (source is None or not 0 <= copy.stop <= source.messages):
        raise refuse(session_id, f"a copy is of what {copy.source!r} does not have")


def successive(rewrites: Sequence[tx.Rewrite]) -> Iterator[Sequence[tx.Rewrite]]:
    """Yield rewrites in order, those of one kind and of successive messages together."""
    start = 0
    for place, rewrite in enumerate(rewrites):
        before = rewrites[place - 1]
        follows = rewrite.message.index == before.message.index + 1
        if place > start and (rewrite.kind != before.kind or not follows):
            yield rewrites[start:place]
            start = place
    if rewrites:
        yield rewrites[start:]


def check_write(write: tx.NodeWrite) -> None:
    """Refuse a NodeWrite that does not agree with itself (version, revision number, node)."""
    node, revision = write.node, write.revision
    if node.version != write.expected + 1:
        raise UsageError(f"node {node.id}: version {node.version} does not follow {write.expected}")
    if revision is not None and (revision.node_id, revision.number) != (node.id, node.revision):
        raise UsageError(
            f"node {node.id}: serves revision {node.revision}, but the write brings revision "
            f"{revision.number} of {revision.node_id}"
        )


def check_record_writes(writes: Sequence[tx.RecordWrite]) -> None:
    """Refuse two writes of one record, and a write that expects a version below 0."""
    if len({(write.kind, write.scope, write.key) for write in writes}) < len(writes):
        raise UsageError("two writes of one call are of the same record; join them")
    for write in writes:
        if write.expected is not None and write.expected < 0:
            raise UsageError(
                f"record {write.key!r} of {write.kind!r}: expected is {write.expected}; give a "
                "version, 0 where there must be none, or None"
            )


def answer_to(
    need: tx.Need,
    reads: ModuleType,
    trees: ModuleType,
    of: tuple[Any, ...],
    of_tree: Callable[[int | None], tuple[Any, ...]],
) -> Any:
    """Return what the store's function for a need returns; each is called as the method is.

    ``reads`` and ``trees`` are the modules of these functions. What they name a session by is
    ``of``, with its id at the end, and a tree by what ``of_tree`` returns for its number.
    """
    found: Any
    match need:
        case tx.NeedSession():
            found = reads.session(*of)
        case tx.NeedForks():
            found = reads.forks(*of)
        case tx.NeedMessages(start, stop, thread):
            found = reads.messages(*of, start, stop, thread=thread)
        case tx.NeedEchoes():
            found = reads.echoing(*of)
        case tx.NeedFlagged(flag, limit):
            found = reads.flagged(*of, flag, limit=limit)
        case tx.NeedEvents():
            found = reads.events(*of)
        case tx.NeedNodes(ids, tree):
            found = trees.nodes(*of_tree(tree), ids)
        case tx.NeedLevel(level, start, stop, tree):
            found = trees.level(*of_tree(tree), level, start, stop)
        case tx.NeedCovering(thread, index, tree, last):
            found = trees.spanning(*of_tree(tree), thread, index, index if last is None else last)
        case tx.NeedRevisions(wanted, tree):
            found = trees.revisions(*of_tree(tree), wanted)
        case tx.NeedViews(names):
            found = reads.views(*of, names=names)
        case tx.NeedRecords(kind, everywhere):
            scope = None if everywhere else of[-1]
            found = reads.records(*of[:-1], kind, scope=scope, limit=_ALL)
    return found


def _is_one(asked: tx.SessionNeed | tuple[tx.SessionNeed, ...]) -> TypeGuard[tx.SessionNeed]:
    """Return whether a decision asked one need, and not a tuple of several."""
    return bool(asked) and isinstance(asked[0], str)


def run_decision(
    decide: Callable[[], tx.Deciding[T]], answer: Callable[[str, tx.Need], Any]
) -> tx.Batch[T]:
    """Run a decision to its end, answer its needs, and return the effects that it decides.

    An exception of ``answer`` ends the decision and is raised here.
    """

    async def answers(needs: Sequence[tx.SessionNeed]) -> list[Any]:
        return [answer(*one) for one in needs]

    running = answer_decision(decide, answers)
    try:
        running.send(None)
    except StopIteration as done:
        batch: tx.Batch[T] = done.value
        return batch
    finally:
        running.close()
    raise AssertionError("nothing here waits")


async def answer_decision(
    decide: Callable[[], tx.Deciding[T]],
    answers: Callable[[Sequence[tx.SessionNeed]], Awaitable[Sequence[Any]]],
) -> tx.Batch[T]:
    """Do the same where answering waits; ``answers`` gets the needs that are yielded together."""
    deciding = decide()
    reply: Any = None
    try:
        while True:
            try:
                asked = deciding.send(reply)
            except StopIteration as done:
                batch: tx.Batch[T] = done.value
                return batch
            if _is_one(asked):
                (reply,) = await answers((asked,))
            else:
                reply = tuple(await answers(cast("tuple[tx.SessionNeed, ...]", asked)))
    finally:
        deciding.close()
