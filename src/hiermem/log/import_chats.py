"""Appends imported conversations: one session each, and a fork for each further branch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from hiermem.errors import MessageConflictError, SessionExistsError, UsageError
from hiermem.handle import Handle, every_session
from hiermem.log.append import About, append, fork
from hiermem.log.branches import ImportReport, base_of, place
from hiermem.text.measure import fingerprint
from hiermem.text.policy import MAX_NAME, check, check_name
from hiermem.types import Message
from hiermem.types.message import Conversation

#: Messages of one append, and messages read in one go.
_BATCH = 200
_PAGE = 2048
_END = object()


async def import_chats(
    handle: Handle,
    conversations: Iterable[Conversation],
    *,
    on_progress: Callable[[ImportReport], object] | None = None,
) -> ImportReport:
    """Append conversations, and return what was new; conversations are read one at a time."""
    given = iter(conversations)
    run = _Import(handle, {})
    async for record in every_session(handle.store):
        run.sessions.setdefault(base_of(record.id), []).append(record.id)
    while (conversation := await asyncio.to_thread(_next, given)) is not None:
        await run.add(conversation)
        if on_progress is not None:
            on_progress(run.report)
    return replace(run.report, sessions=tuple(run.appended), continued=tuple(run.continued))


def _next(given: Iterator[Conversation]) -> Conversation | None:
    found: object = next(given, _END)
    if found is _END:
        return None
    if not isinstance(found, Conversation) or not all(
        isinstance(message, Message) for message in found.messages
    ):
        raise UsageError(
            f"conversations holds {type(found).__name__}; it must hold Conversation values with "
            "Message values, such as read_chats yields"
        )
    for name in (found.id, found.parent or found.id):
        check_name(name, what="a conversation's id")
    if found.title is not None:
        check(found.title, what="a conversation's title", cap=MAX_NAME)
    return found


class _Import:
    """An import under way: which sessions there are, and the keys of the present conversation."""

    def __init__(self, handle: Handle, sessions: dict[str, list[str]]) -> None:
        self.report = ImportReport()
        self.sessions = sessions
        self.appended: dict[str, None] = {}
        self.continued: list[str] = []
        self._handle = handle
        self._base: str | None = None
        self._held: dict[str, tuple[str, int]] = {}
        self._last: dict[str, str] = {}

    async def add(self, conversation: Conversation) -> None:
        """Append what is new of a conversation or branch."""
        self._count(conversations=conversation.parent is None)
        messages = conversation.messages
        if not conversation.branching:
            before = await self._messages(conversation.id)
            again = conversation.id in self.appended
            indices = await self._append(conversation.id, conversation.title, messages, before)
            if before and not again and all(n is not None and n >= before for n in indices):
                self.continued.append(conversation.id)
            return
        base = conversation.parent or conversation.id
        if base != self._base:
            await self._read(base)
        keys = [message.key or "" for message in messages]
        found = place(keys, conversation.after, base=base, held=self._held, last=self._last)
        if found is None:
            self._count(held=len(messages))
            return
        session, start, forked = found
        self._count(held=start)
        if forked is not None:
            source, at = forked
            with suppress(SessionExistsError):
                await fork(self._handle, source, session, at=at, title=conversation.title)
                self._count(forks=1)
        before = await self._messages(session)
        indices = await self._append(session, conversation.title, messages[start:], before)
        for key, index in zip(keys[start:], indices, strict=True):
            if index is not None:
                self._held[key] = (session, index)
                self._last[session] = key
        if session not in self.sessions.setdefault(base, []):
            self.sessions[base].append(session)

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
        self, session_id: str, title: str | None, messages: Sequence[Message], before: int
    ) -> list[int | None]:
        """Append messages and count them; return the index of each, None where it was changed.

        ``before`` is the number of messages that the session holds. A session that holds some keeps
        its title, which a person may have given it.
        """
        handle = self._handle
        about = About(id=session_id, title=None if before else title)
        indices: list[int | None] = []
        for start in range(0, len(messages), _BATCH):
            batch = messages[start : start + _BATCH]
            try:
                indices += await append(handle, about, batch)
            except MessageConflictError:
                for message in batch:
                    try:
                        indices += await append(handle, about, [message])
                    except MessageConflictError as error:
                        indices.append(await self._renamed(session_id, message, error.index))
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

    async def _renamed(self, session_id: str, message: Message, index: int) -> int | None:
        """Return the index of a message that is held under another name of its speaker."""
        (stored,) = await self._handle.messages(session_id, index, index + 1)
        held = stored.message
        named = held.name is not None and message.name is not None
        if named and fingerprint(replace(message, name=held.name)) == fingerprint(held):
            return index
        return None
