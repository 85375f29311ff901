"""Reads the standing instructions of a session, and withdraws one."""

from __future__ import annotations

from hiermem.core.log import edit
from hiermem.core.text.instructions import FLAG, MOST_MESSAGES, Instruction, of_messages
from hiermem.engine.handle import Handle
from hiermem.errors import UsageError


async def instructions(handle: Handle, session_id: str) -> tuple[Instruction, ...]:
    """Return the standing instructions of a session, the newest first."""
    await handle.record_or_new(session_id)
    return await known(handle, session_id)


async def known(handle: Handle, session_id: str) -> tuple[Instruction, ...]:
    """Return the same without looking at the session's record."""
    return of_messages(await handle.store.flagged(session_id, FLAG, limit=MOST_MESSAGES))


async def drop(handle: Handle, session_id: str, instruction_id: str) -> Instruction:
    """Withdraw an instruction, and all older ones that say the same; return it.

    Raises NotFoundError.
    """
    if not isinstance(instruction_id, str):
        raise UsageError(
            f"instruction_id is {type(instruction_id).__name__}; it must be text, "
            "as session.instructions() has it"
        )
    await handle.record(session_id)
    found = await known(handle, session_id)
    return await handle.store.transact(
        lambda: edit.drop_instruction(session_id, instruction_id, found)
    )
