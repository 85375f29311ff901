"""Decides an edit: the new message, its new size, and which summaries become outdated.

The decision runs inside the store's transaction and reads what it needs there. Slow work (checking
and counting the new text) is done before the transaction; here its results are only looked up. An
edit never moves a window's bounds. Summaries of the old text are flagged as stale, queued for
another generation, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeAlias

from hiermem.core.context.view import outdated
from hiermem.core.log.propagate import Propagated, changes_of, propagate
from hiermem.core.log.receipts import EditReport
from hiermem.core.log.size_changes import SizeChange, Weigher
from hiermem.core.log.trees import TreeState, tree_states
from hiermem.core.needs import inside
from hiermem.errors import MessageWithdrawnError, NotFoundError, SessionClosedError
from hiermem.types import SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Asking, Batch, Deciding, Rewrite, ViewRecord

#: What an edit does to the summaries above: "flag" marks them as stale, "rebuild" also as dirty.
OnEdit: TypeAlias = Literal["flag", "rebuild"]
#: Returns the edited message with its tokens, hash and echoes; the slices are set later.
Amend: TypeAlias = Callable[[StoredMessage], StoredMessage]


def edit(
    session_id: str, index: int, amend: Amend, *, on_edit: OnEdit, now: datetime, weigher: Weigher
) -> Deciding[EditReport]:
    """Replace a message's content; an edit that repeats the stored content changes nothing.

    Raises NotFoundError, SessionClosedError and MessageWithdrawnError.
    """
    found: tuple[SessionRecord | None, Sequence[StoredMessage], Sequence[ViewRecord]]
    found = yield (
        (session_id, transaction.NeedSession()),
        (session_id, transaction.NeedMessages(index, index + 1)),
        (session_id, transaction.NeedViews()),
    )
    record, at_index, views = known(session_id, found[0]), found[1], found[2]
    if record.closed:
        raise SessionClosedError(session_id)
    check_index(record, index)
    (before,) = at_index
    if before.state != "live":
        raise MessageWithdrawnError(session_id, index=index, state=before.state)
    after = amend(before)
    if after.message == before.message:
        return Batch(EditReport(session_id, index))
    propagated: list[tuple[TreeState, Propagated]] = []
    for tree_state in tree_states(record):
        if index >= tree_state.stop:
            continue
        location = yield from inside(session_id, tree_state.locate(before))
        config = tree_state.config
        points = weigher.points(after, location.slices, unit=config.unit, target=config.target)
        weights = weigher.weigh(before, location.points), weigher.weigh(after, points)
        tree_state.add(location, SizeChange(index, before.thread, *weights), points)
        if tree_state.build is None:
            after = replace(after, slices=points)
        result = yield from inside(session_id, propagate(tree_state, on_edit, now))
        propagated.append((tree_state, result))
    _, changes = changes_of(
        record,
        propagated,
        "edit",
        now,
        rewrites=(Rewrite(after, "edit"),),
        drop_views=outdated({v.name: v.state for v in views}, index, propagated[0][1].windows),
    )
    serving = propagated[0][1]
    report = EditReport(session_id, index, 0, serving.stale, serving.dirty, serving.split)
    return Batch(report, tuple((session_id, each) for each in changes))


def known_session(session_id: str) -> Asking[SessionRecord]:
    """Read a session's record. Raises NotFoundError if the session does not exist."""
    record: SessionRecord | None = yield session_id, transaction.NeedSession()
    return known(session_id, record)


def known(session_id: str, record: SessionRecord | None) -> SessionRecord:
    """Return the record that was read. Raises NotFoundError if the session does not exist."""
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    return record


def check_index(record: SessionRecord, index: int) -> None:
    """Raise NotFoundError if the session has no message at that index."""
    if not 0 <= index < record.messages:
        raise NotFoundError(
            f"session {record.id!r} has no message {index}; it has {record.messages}"
        )
