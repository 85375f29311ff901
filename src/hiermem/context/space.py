"""Reads what the context of a member shows of its space; ``shared`` decides what that is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hiermem.bank import learn
from hiermem.bank import lines as bank_lines
from hiermem.bank import records as bank_records
from hiermem.context import shared
from hiermem.context.lines import first_line
from hiermem.context.render import Block, Writer, notice_tokens, noticed
from hiermem.context.shared import Origin, SharedLine, SharedState
from hiermem.context.zone import MOST
from hiermem.handle import Handle, session_state
from hiermem.text.measure import body, day
from hiermem.text.slices import excerpt
from hiermem.text.wishes import WISH, WITHDRAWN, wishes_in
from hiermem.types import Node, SessionRecord, Span, StoredMessage
from hiermem.types.transaction import (
    NeedFlagged,
    NeedMessages,
    NeedNodes,
    NeedRecords,
    NeedRevisions,
    Record,
    SessionNeed,
)
from hiermem.types.tree import member_of

#: The conversations that are looked at for their lines, by their last activity.
_CONVERSATIONS: Final = 40
#: The first messages of a conversation, of which one says what it is about.
_FIRST: Final = 4
_EXCERPT: Final = 25


@dataclass(frozen=True, slots=True)
class SpaceRecord:
    """The rendered record of a space, the state that names the origins of its lines.

    ``wish_tokens`` are those of its wishes, which share a limit with the session's own. ``stated``
    are the messages, by session, that it says all of.
    """

    state: SharedState
    block: Block
    wish_tokens: int
    stated: Mapping[str, Sequence[Span]]


async def space_of(
    handle: Handle, record: SessionRecord, before: SharedState | None, room: int
) -> SpaceRecord | None:
    """Return the record that a session's context begins with, as ``before`` if there is one.

    Return None for a session in no space, without room, and if the space has nothing to show.
    """
    if record.space is None or not room:
        return None
    writer = Writer(await handle.key(), handle.counter)
    room -= notice_tokens(handle.counter.count)
    if before is not None and before.space == record.space:
        state, lines = await _lines_again(handle, before)
    else:
        state, lines = await _lines_anew(handle, record, record.space, room)
    block = shared.record(writer, state, lines)
    while block is not None and block.tokens > room:
        lines = lines[:-1]  # the frame takes of the room
        block = shared.record(writer, state, lines)
    if block is None:
        return None
    (block,) = noticed([block], handle.counter.count)
    state = replace(state, origins=tuple(line.origin for line in lines))
    stated: dict[str, list[Span]] = {}
    for line in lines:
        if line.is_whole:
            span = Span(line.origin.index, line.origin.index + 1)
            stated.setdefault(line.origin.name, []).append(span)
    wishes = [line for line in lines if line.origin.place == "wish"]
    return SpaceRecord(state, block, shared.tokens_of(wishes, handle.counter.count), stated)


async def _lines_anew(
    handle: Handle, record: SessionRecord, space: str, room: int
) -> tuple[SharedState, list[SharedLine]]:
    """Return the lines that a session's record begins with if it is planned now."""
    headers, members, (flagged, withdrawn, *bank) = await asyncio.gather(
        handle.store.records(bank_records.SPACE, scope=bank_records.SPACE_SCOPE, key=space),
        handle.store.sessions(
            metadata=member_of(space), order_by="last_activity", limit=_CONVERSATIONS
        ),
        handle.store.read([*flag_needs(space, MOST), *_bank_needs(space)]),
    )
    today = day(handle.clock())
    if not headers:  # the space was erased a moment ago
        return SharedState(space, "", today), []
    rules, _ = bank_records.read_space(headers[0])
    others = [member for member in members if member.id != record.id and member.messages]
    bank_state = bank_records.read_state(space, rules, dict(zip(_KINDS, bank, strict=True)))
    identity = bank_records.identity(headers[0])
    gone = await learn.dead_lines(handle, space, identity, bank_state.origins)
    known = bank_lines.living(bank_state, gone)
    # What stems from this conversation alone is no news to it.
    known = bank_lines.without_own(known, record.id)
    lines = shared.choose(
        shared.wish_lines(flagged, withdrawn, rules.person, own=record.id),
        _file_lines(known),
        shared.file_lines("", known.synthesis, known.meta.revision),
        await conversation_lines(handle, others),
        room=room,
        count=handle.counter.count,
    )
    return SharedState(space, rules.person, today, identity=identity), lines


async def _lines_again(handle: Handle, state: SharedState) -> tuple[SharedState, list[SharedLine]]:
    """Return the lines of a record that was shown before, as far as their origins still hold."""
    needs: list[SessionNeed] = []
    places: list[int] = []
    for origin in state.origins:
        places.append(len(needs))
        needs += _needs_of(origin)
    bank = _bank_needs(state.space) if any(o.place == "file" for o in state.origins) else []
    *answers, withdrawn = await handle.store.read([*needs, *bank, flag_needs(state.space, MOST)[1]])
    files = await _files_at(handle, state, answers[len(needs) :]) if bank else {}
    flagged: list[tuple[str, StoredMessage]] = []
    others: list[SharedLine | None] = []
    for place, origin in zip(places, state.origins, strict=True):
        if origin.place == "wish":
            record, messages = answers[place : place + 2]
            if record is not None and record.space == state.space:
                flagged += ((origin.name, stored) for stored in messages)
        else:
            others.append(_line_again(state, origin, answers[place:], files, handle))
    wishes = shared.wish_lines(flagged, withdrawn, state.person)
    return state, [*wishes, *filter(None, others)]


async def person_of(handle: Handle, record: SessionRecord) -> str | None:
    """Return the person of a space in whose session others speak too, else None."""
    if record.space is None or not session_state(record).among_people:
        return None
    headers = await handle.store.records(
        bank_records.SPACE, scope=bank_records.SPACE_SCOPE, key=record.space
    )
    return bank_records.read_space(headers[0])[0].person if headers else None


def flag_needs(space: str, limit: int) -> list[SessionNeed]:
    """Return what the wishes of a space are read from: those stated, and those withdrawn."""
    return [("", NeedFlagged(flag, limit, space)) for flag in (WISH, WITHDRAWN)]


_KINDS: Final = (bank_records.BANK, bank_records.SYNTHESIS, bank_records.META, bank_records.LINE)


def _bank_needs(space: str) -> list[SessionNeed]:
    return [
        (bank_records.SPACE_SCOPE, NeedRecords(bank_records.kind_of(kind, space)))
        for kind in _KINDS
    ]


def _file_lines(bank: bank_records.BankState) -> list[SharedLine]:
    """Return the lines of the bank's files, in the order in which the rules name these."""
    named = [name for name in bank.rules.names if name in bank.texts]
    names = [*named, *(name for name in bank.texts if name not in named)]
    revision = bank.meta.revision
    return [line for name in names for line in shared.file_lines(name, bank.texts[name], revision)]


async def conversation_lines(handle: Handle, records: Sequence[SessionRecord]) -> list[SharedLine]:
    """Return a line about each conversation, the one spoken in last first."""
    wanted: list[SessionNeed] = []
    for record in records:
        newest = NeedMessages(record.messages - 1, record.messages)
        roots = session_state(record).roots() if record.title is None else ()
        largest = max(roots, key=lambda root: root.messages, default=None)
        node = NeedNodes((largest.id,) if largest else ())
        first = NeedMessages(0, 0 if record.title else _FIRST)
        wanted += ((record.id, need) for need in (newest, node, first))
    answers = iter(await handle.store.read(wanted))
    origins: list[Origin] = []
    texts: list[str] = []
    needs: list[SessionNeed] = []
    for record in records:
        read = next(answers), next(answers), next(answers)
        origins.append(origin := _origin(record, *read))
        texts.append(record.title or _text_of(read[2], origin, handle))
        needs.append((record.id, NeedRevisions(_revision_of(origin))))
    for place, revisions in enumerate(await handle.store.read(needs) if needs else ()):
        texts[place] = first_line(revisions[0].text) if revisions else texts[place]
    lines = [shared.conversation_line(*pair) for pair in zip(origins, texts, strict=True)]
    return sorted(filter(None, lines), key=lambda line: line.origin.day, reverse=True)


def _origin(
    record: SessionRecord,
    newest: Sequence[StoredMessage],
    nodes: Sequence[Node],
    first: Sequence[StoredMessage],
) -> Origin:
    said = next((stored for stored in first if _speaks(stored)), None)
    date = day(newest[0].created_at) if newest else day(record.last_activity)
    made = [node for node in nodes if node.revision]
    return Origin(
        "conversation",
        record.id,
        index=said.index if said else 0,
        node=made[0].id if made else "",
        revision=made[0].revision if made else 0,
        day=date,
    )


def _speaks(stored: StoredMessage) -> bool:
    """Return whether a message may say what its conversation is about."""
    return stored.role == "user" and stored.state == "live" and bool(_matter(stored))


def _matter(stored: StoredMessage) -> str:
    """Return what a message says beside its wishes, which have lines of their own."""
    text = "" if WITHDRAWN in stored.flags else body(stored.message)
    for wish in wishes_in(stored.message) if WISH in stored.flags else ():
        text = text.replace(wish, " ")
    return text if any(map(str.isalnum, text)) else ""


def _text_of(messages: Sequence[StoredMessage], origin: Origin, handle: Handle) -> str:
    """Return the beginning of the message that stands for a conversation without summaries."""
    said = [stored for stored in messages if stored.index == origin.index and _speaks(stored)]
    if not said:
        return ""
    return " ".join(excerpt(_matter(said[0]), _EXCERPT, handle.counter.count).split())


def _revision_of(origin: Origin) -> tuple[tuple[str, int], ...]:
    return ((origin.node, origin.revision),) if origin.node else ()


def _needs_of(origin: Origin) -> list[SessionNeed]:
    """Return what a line is read from, the session's record first; nothing for one of the bank."""
    if origin.place == "file":
        return []
    text = (
        NeedRevisions(_revision_of(origin))
        if origin.node
        else NeedMessages(origin.index, origin.index + 1)
    )
    return [(origin.name, "session"), (origin.name, text)]


def _line_again(
    state: SharedState,
    origin: Origin,
    answers: Sequence[Any],
    files: dict[Origin, SharedLine],
    handle: Handle,
) -> SharedLine | None:
    """Return a line by what was read for it; None if its origin is gone or left the space."""
    if origin.place == "file":
        return files.get(origin)
    record: SessionRecord | None = answers[0]
    if record is None or record.space != state.space:
        return None
    read = answers[1]
    of_root = "".join(first_line(revision.text) for revision in read if origin.node)
    said = of_root if origin.node else _text_of(read, origin, handle)
    return shared.conversation_line(origin, record.title or said)


async def _files_at(
    handle: Handle, state: SharedState, bank: Sequence[list[Record]]
) -> dict[Origin, SharedLine]:
    """Return the bank's lines at the revision of the shown ones, by their origins."""
    texts = {file.key: file.body for file in bank[0]}
    synthesis = bank[1][0].body if bank[1] else ""
    (revision,) = {origin.revision for origin in state.origins if origin.place == "file"}
    if bank_records.read_meta(bank[2][0] if bank[2] else None).revision != revision:
        kind = bank_records.kind_of(bank_records.REVISION, state.space)
        (revisions,) = await handle.store.read([(bank_records.SPACE_SCOPE, NeedRecords(kind))])
        texts, synthesis = bank_records.texts_at(revisions, revision)
    origins = bank_records.read_origins(bank[3])
    gone = await learn.dead_lines(handle, state.space, state.identity, origins)
    lines = [
        line
        for name, text in {**texts, "": "" if gone else synthesis}.items()
        for line in shared.file_lines(name, bank_lines.without(text, gone), revision)
    ]
    return {line.origin: line for line in lines}
