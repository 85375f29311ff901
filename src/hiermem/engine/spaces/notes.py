"""Adds notes to a space and lists them.

A note is durable when the call returns, and it comes after every note that was there before, also
where others write at the same time. Nothing here asks a model. ``core.spaces.record`` decides what
a note consists of.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from hiermem.core import arguments
from hiermem.core.spaces import record as bank_record
from hiermem.core.spaces import sources as source_links
from hiermem.core.spaces.sources import SourceLink
from hiermem.core.text.policy import MAX_CONTENT, MAX_NAME, check, check_name
from hiermem.engine.spaces.records import SpaceContext
from hiermem.errors import NotFoundError, StoreBusyError, UsageError
from hiermem.types.bank import Note, NoteState

#: How often adding a note is tried; a try fails where another note arrived first.
_TRIES: Final = 1_000
#: Tries without a pause, and then the seconds between them.
_AT_ONCE: Final = 4
_PAUSE: Final = 0.002
#: The most tags and sources of one note.
_MOST_TAGS: Final = 64
_MOST_SOURCES: Final = 1_024
_MARK_BYTES: Final = 3


def _sources(sources: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Iterable):
        raise UsageError(
            f"sources is {type(sources).__name__}; it must be pairs of a session id and an index"
        )
    found: dict[tuple[str, int], None] = {}
    for each in sources:
        if not isinstance(each, (tuple, list)) or len(each) != 2:
            raise UsageError("each of sources must be a pair of a session id and a message's index")
        session_id = check_name(each[0], what="a session id of sources")
        found[session_id, arguments.whole(each[1], "an index of sources")] = None
        if len(found) > _MOST_SOURCES:
            raise UsageError(f"sources has more than {_MOST_SOURCES:,} messages")
    return tuple(found)


async def note(
    space: SpaceContext,
    text: Any,
    *,
    agent: Any = "",
    category: Any = "",
    tags: Any = (),
    timestamp: Any = None,
    sources: Any = (),
) -> Note:
    """Add a note after all others. When this returns the note is durable.

    Raises UsageError and InvalidTextError for the arguments, NotFoundError for the space and for a
    source that does not exist, RulesConflictError.
    """
    checked = check(text, what="the note", cap=MAX_CONTENT)
    if not checked.strip():
        raise UsageError("the note is empty; it must say something")
    named = arguments.names(tags, "tags")
    if len(named) > _MOST_TAGS:
        raise UsageError(f"tags has {len(named)} names; at most {_MOST_TAGS} are allowed")
    when = None if timestamp is None else arguments.moment(timestamp, "timestamp")
    draft = Note(
        "",
        checked,
        when or space.handle.clock(),
        agent=check(agent, what="agent", cap=MAX_NAME),
        category=check(category, what="category", cap=MAX_NAME),
        tags=tuple(dict.fromkeys(named)),
        sources=_sources(sources),
    )
    await space.rules()
    mark = secrets.token_hex(_MARK_BYTES)
    async with space.note_lock:
        for tried in range(_TRIES):
            if tried:
                # The space may have been erased: then the note is for the space that exists now.
                await space.rules(reread=True)
            epochs = await _epochs(space, draft.sources)
            counter = await space.one(bank_record.SEQUENCE)
            new, writes = bank_record.new_note(space.name, draft, counter=counter, mark=mark)
            writes += tuple(
                source_links.write_of(session_id, SourceLink(index, space.name, new.key))
                for session_id, index in new.sources
            )
            if await space.put(writes, epochs=epochs, witness=_note_exists(space, new)):
                return new
            if tried > _AT_ONCE:
                await asyncio.sleep(_PAUSE * secrets.randbelow(min(tried, 50)))
    raise StoreBusyError(f"space {space.name!r}: other notes arrive all the time; call again")


def _note_exists(space: SpaceContext, new: Note) -> Callable[[], Awaitable[bool]]:
    """Return the check that finds a note of unknown outcome, live or consumed."""

    async def exists() -> bool:
        for kind in (bank_record.NOTE, bank_record.CONSUMED):
            if await space.one(kind, new.key) is not None:
                return True
        return False

    return exists


async def _epochs(space: SpaceContext, sources: Sequence[tuple[str, int]]) -> dict[str, int] | None:
    """Return the epochs in which the sources were read, so that none can be erased unnoticed.

    Raises NotFoundError.
    """
    epochs: dict[str, int] = {}
    for session_id, index in sources:
        found = await space.handle.store.session(session_id)
        if found is None:
            raise NotFoundError(f"session {session_id!r}, a source of the note, does not exist")
        if index >= found.messages:
            raise NotFoundError(
                f"session {session_id!r} has no message {index}, a source of the note; it has "
                f"{found.messages}"
            )
        (message,) = await space.handle.messages(session_id, index, index + 1)
        if message.state == "erased":
            raise NotFoundError(
                f"message {index} of session {session_id!r}, a source of the note, was erased"
            )
        epochs.setdefault(session_id, found.epoch)
    return epochs or None


async def notes(space: SpaceContext, state: NoteState) -> list[Note]:
    """List notes, oldest first; blocked notes are live too."""
    arguments.one_of(state, "state", ("live", "consumed", "blocked"))
    await space.rules()
    if state == "consumed":
        return bank_record.consumed_notes(await space.of_kind(bank_record.CONSUMED))
    found = bank_record.live_notes(
        await space.of_kind(bank_record.NOTE), await space.of_kind(bank_record.BLOCKED)
    )
    return [each for each in found if state == "live" or each.state == "blocked"]


async def unblock(space: SpaceContext) -> int:
    """Make blocked notes eligible again; return how many there were."""
    blocked = await notes(space, "blocked")
    await space.put(
        [bank_record.write_of(bank_record.BLOCKED, space.name, each.key) for each in blocked]
    )
    return len(blocked)
