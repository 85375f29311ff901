"""Reads what the conversations of a space say that it did not learn, and what they still say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from hiermem.bank import lines, said
from hiermem.bank.records import kind_of
from hiermem.handle import Handle, every_session
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.bank import Note, Origins, Source
from hiermem.types.transaction import NeedMessages, NeedRecords, SessionNeed
from hiermem.types.tree import SessionFilter, member_of

_PAGE: Final = 256
_ALL: Final = 2**31 - 1


async def unlearnt(
    handle: Handle, space: str, identity: str, person: str
) -> tuple[list[Note], list[SessionRecord]]:
    """Return what the members of a space say that it did not learn, and the sessions read for it.

    The notes come oldest first. Of a session that was learnt before, only the later messages are
    read, unless something was taken back in it since.
    """
    notes: list[Note] = []
    sessions: list[SessionRecord] = []
    is_note = partial(said.note_of, identity, person=person)
    through = await handle.store.records(kind_of(said.THROUGH, space), limit=_ALL)
    reached = {record.scope: record for record in through}
    members = {
        record.id: record
        async for record in every_session(handle.store, SessionFilter(member_of(space)))
    }
    for record in members.values():
        start = said.read_through(reached[record.id], record) if record.id in reached else 0
        if start >= record.messages:
            continue
        sessions.append(record)
        (rows,) = await handle.store.read([(record.id, NeedRecords(kind_of(said.LEARNT, space)))])
        learnt = {said.learnt_note(row).key for row in rows}
        parent = members.get(record.forked_from or "")
        notes += [
            note
            for note in await _notes_of(handle, record, parent, start, is_note)
            if note.key not in learnt
        ]
    return sorted(notes, key=lambda note: note.key), sessions


async def _notes_of(
    handle: Handle,
    record: SessionRecord,
    parent: SessionRecord | None,
    start: int,
    note_of: Callable[[str, StoredMessage, StoredMessage | None], Note | None],
) -> list[Note]:
    """Return the notes that messages of a session are, from ``start`` on."""
    notes: list[Note] = []
    before: StoredMessage | None = None
    for begin in range(max(0, start - 1), record.messages, _PAGE):
        end = min(begin + _PAGE, record.messages)
        # What a parent still says is learnt there.
        inherited = set[tuple[int, str]]()
        if parent is not None and begin < record.forked_at:
            shared = min(end, record.forked_at)
            page = await handle.store.messages(parent.id, begin, shared)
            inherited = {(stored.index, stored.hash) for stored in page if stored.state == "live"}
        for stored in await handle.store.messages(record.id, begin, end):
            if stored.index >= start and (stored.index, stored.hash) not in inherited:
                notes += filter(None, [note_of(record.id, stored, before)])
            before = stored
    return notes


async def dead_sources(
    handle: Handle, space: str, identity: str, sources: Iterable[Source], *, for_good: bool = False
) -> set[Source]:
    """Return the sources of lines that say no more what they said, or left the space.

    With ``for_good``, one that left or is in quarantine is none of them.
    """
    asked = list(dict.fromkeys(sources))
    sessions = list(dict.fromkeys(session_id for session_id, _, _ in asked))
    needs: list[SessionNeed] = [(session_id, "session") for session_id in sessions]
    needs += [(session_id, NeedMessages(index, index + 1)) for session_id, index, _ in asked]
    answers = await handle.store.read(needs) if needs else []
    members = {
        record.id
        for record in answers[: len(sessions)]
        if record and (for_good or record.space == space)
    }
    states = ("live", "quarantined") if for_good else ("live",)
    return {
        source
        for source, page in zip(asked, answers[len(sessions) :], strict=True)
        if source[0] not in members or not _says(identity, source, page, states)
    }


async def dead_lines(handle: Handle, space: str, identity: str, origins: Origins) -> set[str]:
    """Return the ids of the lines of which a source is gone."""
    return lines.dead(
        origins, await dead_sources(handle, space, identity, lines.sources_of(origins))
    )


def _says(
    identity: str, source: Source, page: Collection[StoredMessage], states: Collection[str]
) -> bool:
    """Return whether a message is in one of these states and says what it said when learnt."""
    session_id, _, key = source
    return any(
        stored.state in states and said.key_of(identity, session_id, stored) == key
        for stored in page
    )


async def heirs(
    handle: Handle, space: str, identity: str, dead: Collection[Source]
) -> dict[Source, Source]:
    """Return the messages of forks in the space that still say what dead sources said."""
    heirs_of: dict[Source, Source] = {}
    async for record in every_session(handle.store, SessionFilter(member_of(space))):
        if record.forked_from is None:
            continue
        needs = [(record.id, NeedMessages(index, index + 1)) for _, index, _ in dead]
        for source, page in zip(dead, await handle.store.read(needs), strict=True):
            if source not in heirs_of and _says(identity, source, page, ("live",)):
                own = said.key_of(identity, record.id, page[0])
                heirs_of[source] = (record.id, source[1], own)
    return heirs_of
