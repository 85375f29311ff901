"""Decides an edit: the new message, its new size, and which summaries become outdated.

The decision runs inside the store's transaction and reads what it needs there. Slow work (checking
and counting the new text) is done before the transaction; here its results are only looked up. An
edit never moves a window's bounds. Summaries of the old text are marked as dirty; whether the next
update makes them again is the policy's ``regenerate_on_edit``. The withdrawal of a standing
instruction is decided here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from hiermem.core.context.view import outdated
from hiermem.core.log.propagate import Propagated, changes_of, propagate
from hiermem.core.log.receipts import EditReport
from hiermem.core.log.size_changes import SizeChange, Weigher
from hiermem.core.log.trees import tree_states
from hiermem.core.needs import inside
from hiermem.core.text.instructions import Instruction, drop_flag, of_messages
from hiermem.errors import MessageWithdrawnError, NotFoundError, SessionClosedError
from hiermem.types import SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Asking, Batch, Changes, Deciding, Rewrite, ViewRecord

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
        location = yield from inside(session_id, tree_state.locate(before))
        config = tree_state.config
        points = weigher.points(after, location.slices, unit=config.unit, target=config.target)
        weights = weigher.weigh(before, location.points), weigher.weigh(after, points)
        shift = SizeChange(index, before.thread, *weights)
        tree_state.message_changes.append((location, shift, points))
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
    report = EditReport(session_id, index, 0, tuple(serving.dirty), tuple(serving.split))
    return Batch(report, tuple((session_id, each) for each in changes))


def drop_instruction(
    session_id: str, instruction_id: str, listed: Sequence[Instruction]
) -> Deciding[Instruction]:
    """Withdraw one of the ``listed`` instructions, and all those that say the same.

    The message stays as it is; a flag of it says which of its instructions is withdrawn, and so it
    is part of what a fork copies, and goes with the message when that is erased. Views may show the
    instruction, so all of them go.

    Raises NotFoundError if it is not listed, or its message does not say it any more.
    """
    record = yield from known_session(session_id)
    wanted = next((one for one in listed if one.id == instruction_id), None)
    said: dict[int, str] = {}
    for one in listed:
        if wanted is None or drop_flag(one) != drop_flag(wanted):
            continue
        stored: list[StoredMessage] = yield (
            session_id,
            transaction.NeedMessages(one.index, one.index + 1),
        )
        said |= {each.index: drop_flag(each) for each in of_messages(stored) if each.id == one.id}
    if wanted is None or wanted.index not in said:
        raise NotFoundError(
            f"session {session_id!r} has no instruction {instruction_id!r}; "
            "session.instructions() lists them"
        )
    views: list[ViewRecord] = yield session_id, transaction.NeedViews()
    changes: Changes[None] = Changes(
        None,
        session=replace(record, version=record.version + 1, epoch=record.epoch + 1),
        flags=tuple(said.items()),
        drop_views=tuple(view.name for view in views),
    )
    return Batch(wanted, ((session_id, changes),))


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
