"""Decides the withdrawal of a standing instruction.

The message stays as it is; a flag of it says which of its instructions is withdrawn, and so it is
part of what a fork copies, and goes with the message when that is erased. Views may show the
instruction, so all of them go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hiermem.core.log.edit import known_session
from hiermem.core.text.instructions import Instruction, drop_flag, of_messages
from hiermem.errors import NotFoundError
from hiermem.types import StoredMessage
from hiermem.types.transaction import Batch, Changes, Deciding, NeedMessages, NeedViews, ViewRecord


def drop_instruction(
    session_id: str, instruction_id: str, listed: Sequence[Instruction]
) -> Deciding[Instruction]:
    """Withdraw one of the ``listed`` instructions, and all those that say the same.

    Raises NotFoundError if it is not listed, or its message does not say it any more.
    """
    record = yield from known_session(session_id)
    wanted = next((one for one in listed if one.id == instruction_id), None)
    said: dict[int, str] = {}
    for one in listed:
        if wanted is None or drop_flag(one) != drop_flag(wanted):
            continue
        stored: list[StoredMessage] = yield session_id, NeedMessages(one.index, one.index + 1)
        said |= {each.index: drop_flag(each) for each in of_messages(stored) if each.id == one.id}
    if wanted is None or wanted.index not in said:
        raise NotFoundError(
            f"session {session_id!r} has no instruction {instruction_id!r}; "
            "session.instructions() lists them"
        )
    views: list[ViewRecord] = yield session_id, NeedViews()
    changes: Changes[None] = Changes(
        None,
        session=replace(record, version=record.version + 1, epoch=record.epoch + 1),
        flags=tuple(said.items()),
        drop_views=tuple(view.name for view in views),
    )
    return Batch(wanted, ((session_id, changes),))
