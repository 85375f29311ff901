"""Appends what is new of a whole history, which its client hands over each time."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, Literal

from hiermem import arguments
from hiermem.calls.token_count import in_thread_if_long
from hiermem.errors import HistoryRewrittenError, SessionChangedError, SessionExistsError
from hiermem.handle import Handle
from hiermem.log.alignment import Said, SyncReport, align, parts_of, said, said_in
from hiermem.log.append import About, Messages, append, flatten
from hiermem.log.branches import rewrite_id
from hiermem.log.events import edits_of
from hiermem.log.fork import fork
from hiermem.text.policy import clean_message

OnRewrite = Literal["report", "fork", "error"]
_ON_REWRITE: Final = ("report", "fork", "error")
#: How often a session is read again that was appended to meanwhile.
_TRIES: Final = 8
_PAGE: Final = 2048
#: Messages that are read in addition to the least number that a history needs.
_MORE: Final = 64


async def sync(
    handle: Handle, about: About, messages: Messages, *, on_rewrite: OnRewrite = "report"
) -> SyncReport:
    """Append what is new of a whole history to the session, or to a fork where it was rewritten.

    If the session is longer than the history, only its beginning and its end are read.

    Raises HistoryRewrittenError, SessionChangedError where the session was appended to all the
    time, and what ``append`` and ``fork`` raise.
    """
    arguments.one_of(on_rewrite, "on_rewrite", _ON_REWRITE)
    given = [clean_message(each, on_bad=about.on_bad_text) for each in flatten([messages])]
    key = await handle.key()
    history = await in_thread_if_long(partial(said, given, key=key), given)
    least = sum(len(parts_of(mark)) for mark in history.values())
    rewritten_at: int | None = None
    tries = 0
    while tries < _TRIES:
        try:
            record = await handle.record_or_new(about.id)
            read = await _read(handle, about.id, record.messages, least)
            new, at, ends_at = align(history, *read)
            if at is None:
                fresh = [given[place] for place in islice(history, new, None)]
                indices = await append(handle, about, fresh, at=record.messages)
                return SyncReport(about.id, tuple(indices), rewritten_at, ends_at)
            if on_rewrite == "report":
                return SyncReport(about.id, rewritten_at=at)
            if on_rewrite == "error":
                raise HistoryRewrittenError(about.id, index=at)
            name = rewrite_id(about.id, at, str(list(history.values())[new]))
            with suppress(SessionExistsError):  # then this rewrite was seen before
                await fork(handle, about.id, name, at=at, title=about.title)
        except SessionChangedError:
            tries += 1
            continue
        # The fork may have been rewritten in its turn. A loop, because a client that rewrites with
        # every turn makes a fork of a fork of a fork.
        about, tries = about.of_fork(name), 0
        rewritten_at = at if rewritten_at is None else rewritten_at
    raise SessionChangedError(about.id)


async def _read(
    handle: Handle, session_id: str, messages: int, history: int
) -> tuple[Said, Said | None]:
    """Return the beginning of a session as it is compared, and its end where that is not all.

    The beginning has at least as many messages as the ``history`` has texts and calls, the end
    about twice as many, so that the history may also lack some of the newest.
    """
    edited = edits_of(await handle.store.events(session_id))
    head: Said = {}
    at = 0
    while at < messages and len(head) < history:
        stop = min(messages, at + history - len(head) + _MORE)
        head |= await _compared(handle, session_id, at, stop, edited)
        at = stop
    if at == messages:
        return head, None
    start = max(0, messages - 2 * history - _MORE)
    return head, await _compared(handle, session_id, start, messages, edited)


async def _compared(
    handle: Handle, session_id: str, start: int, stop: int, edited: Collection[int]
) -> Said:
    """Return the messages of a range as they are compared."""
    found: Said = {}
    for first in range(start, stop, _PAGE):
        page = await handle.messages(session_id, first, min(stop, first + _PAGE))
        found |= await in_thread_if_long(partial(said_in, page, edited=edited), page)
    return found
