"""Writes imported conversations: one session each, and a fork for each further branch.

What an earlier file had a part of is completed where it stands. ``log.alignment`` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from hiermem.config import ageless
from hiermem.errors import ConflictError, UsageError
from hiermem.handle import Handle, every_session
from hiermem.log.alignment import ImportReport, alike, base_of, lost_id, place, whole_of
from hiermem.log.append import About, append, fork
from hiermem.text.policy import MAX_NAME, check, check_name
from hiermem.types import Message
from hiermem.types.message import Conversation
from hiermem.types.transaction import Changes, KeyEntry

#: Messages of one append, and messages read in one go.
_BATCH = 200
_PAGE = 2048
_END = object()


async def import_chats(
    handle: Handle,
    conversations: Iterable[Conversation],
    *,
    edit: Callable[[Handle, str, int, str], Awaitable[object]],
    on_progress: Callable[[ImportReport], object] | None = None,
) -> ImportReport:
    """Append conversations, and return what was new; conversations are read one at a time.

    ``edit`` replaces the text of a message of a session.
    """
    iterator = iter(conversations)
    run = _Import(handle, {}, edit)
    async for record in every_session(handle.store):
        run.sessions.setdefault(base_of(record.id), []).append(record.id)
    while (conversation := await asyncio.to_thread(_next, iterator)) is not None:
        await run.add(conversation)
        if on_progress is not None:
            on_progress(run.report)
    return replace(run.report, sessions=tuple(run.appended), continued=tuple(run.continued))


def _next(iterator: Iterator[Conversation]) -> Conversation | None:
    conversation: object = next(iterator, _END)
    if conversation is _END:
        return None
    if not isinstance(conversation, Conversation) or not all(
        isinstance(message, Message) for message in conversation.messages
    ):
        raise UsageError(
            f"conversations holds {type(conversation).__name__}; pass Conversation values, such as "
            "read_chats yields"
        )
    for name in (conversation.id, conversation.parent or conversation.id):
        check_name(name, what="a conversation's id")
    check_name(conversation.format, what="a conversation's format")
    if conversation.title is not None:
        check(conversation.title, what="a conversation's title", cap=MAX_NAME)
    return conversation


class _Import:
    """An import under way: which sessions there are, and the keys of the present conversation."""

    def __init__(
        self,
        handle: Handle,
        sessions: dict[str, list[str]],
        edit: Callable[[Handle, str, int, str], Awaitable[object]],
    ) -> None:
        self.report = ImportReport()
        self.sessions = sessions
        self.appended: dict[str, None] = {}
        self.continued: list[str] = []
        self._handle, self._edit = handle, edit
        #: The ids under which conversations are held, where these are others than their own.
        self._held_as: dict[str, str] = {}
        self._base: str | None = None
        self._held: dict[str, tuple[str, int]] = {}
        self._last: dict[str, str] = {}

    async def add(self, conversation: Conversation) -> None:
        """Append what is new of a conversation or branch."""
        self._count(conversations=conversation.parent is None)
        base = await self._base_of(conversation)
        messages = conversation.messages
        if not conversation.branching:
            before = await self._messages(base)
            again = base in self.appended
            fresh = await self._completed(base, messages, before) if before else messages
            indices = await self._append(base, conversation, fresh, before)
            held = len(messages) > len(fresh) or any(n is None or n < before for n in indices)
            if before and not again and not held:
                self.continued.append(base)
            self.sessions.setdefault(base_of(base), [base])
            return
        if base != self._base:
            await self._read(base)
        keys = [message.key or "" for message in messages]
        target = place(keys, conversation.after, base=base, held=self._held, last=self._last)
        if target is None:
            self._count(held=len(messages))
            return
        session, start, forked = target
        self._count(held=start)
        if forked is not None:
            source, at = forked
            with suppress(ConflictError):
                await fork(self._handle, source, session, at=at, title=conversation.title)
                self._count(forks=1)
        before = await self._messages(session)
        indices = await self._append(session, conversation, messages[start:], before)
        for key, index in zip(keys[start:], indices, strict=True):
            if index is not None:
                self._held[key] = (session, index)
                self._last[session] = key
        if session not in self.sessions.setdefault(base, []):
            self.sessions[base].append(session)

    async def _base_of(self, conversation: Conversation) -> str:
        """Return the id under which a conversation is held; a damaged file may not tell its own."""
        source_id = conversation.parent or conversation.id
        if base_of(source_id) in self.sessions or conversation.parent is not None:
            return self._held_as.get(source_id, source_id)
        messages = conversation.messages
        for lost in (lost_id(conversation.format, message) for message in messages):
            if lost in self.sessions and (
                conversation.branching or await self._is_part(lost, messages)
            ):
                self._held_as[source_id] = lost
                return lost
        if messages and source_id == lost_id(conversation.format, messages[0]):
            for base in self.sessions:
                if await self._holds(base, messages, source_id, conversation.format):
                    self._held_as[source_id] = base
                    return base
        return source_id

    async def _is_part(self, session_id: str, messages: Sequence[Message]) -> bool:
        """Return whether all imported messages of a session are among these."""
        record, keys = await self._handle.record(session_id), {each.key for each in messages}
        held = await self._handle.messages(session_id, 0, record.messages)
        return {stored.message.key for stored in held} - {None} <= keys

    async def _holds(
        self, session_id: str, messages: Sequence[Message], own: str, form: str
    ) -> bool:
        """Return whether a session holds all messages of a conversation that lost its id."""
        entries = await self._entries(session_id, messages)
        if not all(message.key in entries for message in messages):
            return False
        index = entries[messages[0].key or ""].index
        (stored,) = await self._handle.messages(session_id, index, index + 1)
        return lost_id(form, stored.message) == own and alike(stored.message, messages[0])

    async def _entries(
        self, session_id: str, messages: Sequence[Message]
    ) -> Mapping[str, KeyEntry]:
        """Return where a session holds the keys of messages, of those that it holds."""
        entries: dict[str, KeyEntry] = {}
        keys = [message.key for message in messages if message.key is not None]
        for start in range(0, len(keys), _PAGE):
            entries |= await self._handle.store.mutate(
                session_id,
                lambda snapshot: Changes(dict(snapshot.keys)),
                keys=keys[start : start + _PAGE],
            )
        return entries

    async def _completed(
        self, session_id: str, messages: Sequence[Message], before: int
    ) -> list[Message]:
        """Complete what a session holds in part; return the other messages."""
        entries = await self._entries(session_id, messages)
        keys = {message.key for message in messages}
        others: list[Message] = []
        index: int | None = 0
        for number, message in enumerate(messages, start=1):
            entry = entries.get(message.key or "")
            if entry is None and index is not None and index < before:
                page = (session_id, index, min(index + _BATCH, before))
                last = number == len(messages)
                if await self._completes(page, message, keys, last=last):
                    index += 1
                    continue
            index = None if entry is None else entry.index + 1
            others.append(message)
        return others

    async def _completes(
        self, page: tuple[str, int, int], message: Message, keys: set[str | None], *, last: bool
    ) -> bool:
        """Complete the first message of a page, if this is the whole of it or a part of it.

        One that was erased stays so: no text is left to compare, and it is taken for the same.
        """
        stored, *later = await self._handle.messages(*page)
        held = stored.message
        if held.key is None or held.key in keys:
            return False
        erased = stored.state != "live"
        end = all(each.message.key is None for each in later)
        text = whole_of(held, message, held_last=end, given_last=last, erased=erased)
        if text is None:
            return False
        done = not erased and text != held.content
        if done:
            await self._edit(self._handle, *page[:2], text)
        self._count(completed=done, held=not done)
        return True

    async def _read(self, base: str) -> None:
        """Read the keys that the sessions of a conversation hold, each where it was appended."""
        self._base, self._held, self._last = base, {}, {}
        for session_id in self.sessions.get(base, ()):
            record = await self._handle.record(session_id)
            for start in range(record.forked_at or 0, record.messages, _PAGE):
                stop = min(record.messages, start + _PAGE)
                for stored in await self._handle.messages(session_id, start, stop):
                    if (key := stored.message.key) is not None:
                        self._held[key] = (session_id, stored.index)
                        self._last[session_id] = key

    def _count(self, **more: int) -> None:
        """Add to the counts of the report."""
        sums = {name: getattr(self.report, name) + number for name, number in more.items()}
        self.report = replace(self.report, **sums)

    async def _messages(self, session_id: str) -> int:
        """Return how many messages a session holds."""
        record = await self._handle.store.session(session_id)
        return record.messages if record is not None else 0

    async def _append(
        self, session_id: str, source: Conversation, messages: Sequence[Message], before: int
    ) -> list[int | None]:
        """Append messages and count them; return the index of each, None where it was changed.

        ``before`` is the number of messages that the session holds. A session that holds some keeps
        its title, which a person may have given it. The label ``source`` names the format. No time
        limit closes windows: messages hours apart would each make a summary.
        """
        handle = self._handle
        title = None if before else source.title
        labels, config = {"source": source.format}, ageless(handle.config)
        about = About(id=session_id, title=title, metadata=labels, config=config)
        indices: list[int | None] = []
        for start in range(0, len(messages), _BATCH):
            batch = messages[start : start + _BATCH]
            try:
                indices += await append(handle, about, batch)
            except ConflictError:
                for message in batch:
                    try:
                        indices += await append(handle, about, [message])
                    except ConflictError as error:
                        if error.index is None:
                            raise
                        indices.append(await self._alike(session_id, message, error.index))
        new = len({index for index in indices if index is not None and index >= before})
        changed = indices.count(None)
        held = [n for n, index in enumerate(indices) if index is not None and index < before]
        late = sum(
            index is not None and index >= before for index in indices[: max(held, default=0)]
        )
        if new:
            self.appended[session_id] = None
        self._count(new=new, held=len(indices) - new - changed, changed=changed, late=late)
        return indices

    async def _alike(self, session_id: str, message: Message, index: int) -> int | None:
        """Return the index of a message that is held as it was written otherwise, else None."""
        (stored,) = await self._handle.messages(session_id, index, index + 1)
        return index if alike(stored.message, message) else None
