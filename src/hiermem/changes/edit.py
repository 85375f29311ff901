"""Decides an edit: the new message, its new size, and which summaries become outdated.

The decision runs inside the store's transaction and reads what it needs there. Slow work (checking
and counting the new text) is done before the transaction; here its results are only looked up. An
edit never moves a window's bounds. Summaries of the old text are marked as dirty; whether the next
update makes them again is the policy's ``regenerate_on_edit``. Pinning a message is decided here
too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from hiermem.changes.propagate import Propagated, changes_of, propagate
from hiermem.changes.receipts import EditReport
from hiermem.context.view import outdated
from hiermem.errors import MessageWithdrawnError, NotFoundError, SessionClosedError
from hiermem.log.known import known
from hiermem.log.trees import MessageChange, tree_states
from hiermem.needs import inside
from hiermem.text.wishes import PIN, WISH, WITHDRAWN, without_flags
from hiermem.tree.weights import Weigher
from hiermem.types import SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Batch, Changes, Deciding, Rewrite, ViewRecord

#: Returns the edited message with its tokens, hash and echoes; the slices are set later.
Amend: TypeAlias = Callable[[StoredMessage], StoredMessage]


def edit(
    session_id: str, index: int, amend: Amend, *, regenerate: bool, now: datetime, weigher: Weigher
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
    propagated: list[Propagated] = []
    for tree_state in tree_states(record):
        if index >= tree_state.stop:
            continue
        (location,) = yield from inside(session_id, tree_state.locate_all([before]))
        config = tree_state.config
        points = weigher.points(after, location.slices, unit=config.unit, target=config.target)
        weights = (
            weigher.weigh(before, config, location.points),
            weigher.weigh(after, config, points),
        )
        tree_state.changes = [MessageChange(index, before.thread, location, *weights, points)]
        if tree_state.build is None:
            after = replace(after, slices=points)
        propagated += [
            (
                yield from inside(
                    session_id, propagate(tree_state, "rebuild" if regenerate else "flag", now)
                )
            )
        ]
    serving = propagated[0]
    _, changes = changes_of(
        record,
        propagated,
        "edit",
        now,
        rewrites=(Rewrite(after, "edit"),),
        drop_views=outdated({v.name: v.state for v in views}, index, serving.windows),
    )
    report = EditReport(session_id, index, 0, tuple(serving.dirty))
    return Batch(report, tuple((session_id, each) for each in changes))


def set_pin(session_id: str, index: int, *, pinned: bool) -> Deciding[None]:
    """Pin a message, or take its pin off; views may show it, so all of them go.

    The pin is a flag of the message: it is copied into forks, and goes when that is erased.

    Raises NotFoundError, and MessageWithdrawnError for an erased or quarantined message.
    """
    found: tuple[SessionRecord | None, Sequence[StoredMessage], Sequence[ViewRecord]]
    found = yield (
        (session_id, transaction.NeedSession()),
        (session_id, transaction.NeedMessages(index, index + 1)),
        (session_id, transaction.NeedViews()),
    )
    record, (stored,) = known(session_id, found[0]), found[1] or (None,)
    check_index(record, index)
    assert stored is not None, "a message of an index that was checked"
    if stored.state != "live":
        raise MessageWithdrawnError(session_id, index=index, state=stored.state)
    if pinned:
        flags = (*without_flags(stored.flags), PIN)
    elif PIN in stored.flags:
        withdrawn = (WITHDRAWN,) if WISH in stored.flags else ()
        flags = (*without_flags(stored.flags), *withdrawn)
    else:
        raise NotFoundError(
            f"message {index} of session {session_id!r} is not pinned; "
            "session.pins() lists those that are"
        )
    if flags == stored.flags:
        return Batch(None)
    changes: Changes[None] = Changes(
        None,
        session=replace(record, version=record.version + 1, epoch=record.epoch + 1),
        rewrites=(Rewrite(replace(stored, flags=flags), "mark"),),
        drop_views=tuple(view.name for view in found[2]),
    )
    return Batch(None, ((session_id, changes),))


def check_index(record: SessionRecord, index: int) -> None:
    """Raise NotFoundError if the session has no message at that index."""
    if not 0 <= index < record.messages:
        raise NotFoundError(
            f"session {record.id!r} has no message {index}; it has {record.messages}"
        )
