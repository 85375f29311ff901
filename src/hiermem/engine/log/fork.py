"""Forks a session: reads its log in pages, replays it, and writes the fork in one transaction.

The pages are read outside the transaction, so a long log blocks nobody. The result is written only
if the source is still as it was read. Content that changes without a trace in the log is not read
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from hiermem.config import HierarchyConfig
from hiermem.core import arguments
from hiermem.core.log import fork as forking
from hiermem.core.log.replay import Replay, config_at, prefix
from hiermem.core.log.size_changes import Weigher
from hiermem.core.text.policy import check_name
from hiermem.core.tree.stored import config_from
from hiermem.engine.calls.token_count import LONG
from hiermem.engine.handle import Handle, beginning
from hiermem.errors import NotFoundError, SessionChangedError, SessionExistsError, StoreBusyError
from hiermem.types import Message, StoredMessage
from hiermem.types.transaction import Deciding, LogEvent

T = TypeVar("T")
#: Reads the messages of a range.
ReadPage: TypeAlias = Callable[[int, int], Awaitable[Sequence[StoredMessage]]]

#: Messages read in one go.
_PAGE = 2048
#: So few messages take less time than a thread does.
_SHORT = 64
#: How often a fork is prepared again because its source changed meanwhile.
_TRIES = 8


async def fork(
    handle: Handle, source_id: str, new_id: str, *, at: int | None = None, title: str | None = None
) -> int:
    """Make ``new_id`` a session that shares the first ``at`` messages (all of them, if it is None).

    Returns their number.

    Raises NotFoundError if the source does not have so many, SessionExistsError, and StoreBusyError
    if the source was edited all the time.
    """
    check_name(new_id, what="session id")
    if at is not None:
        arguments.whole(at, "at")
    for _ in range(_TRIES):
        try:
            decide = await _prepare(handle, source_id, new_id, at, title)
        except SessionChangedError:
            continue
        if (messages := await handle.store.transact(decide)) is not None:
            return messages
    raise StoreBusyError(f"session {source_id!r} was changed again and again while it was forked")


async def _prepare(
    handle: Handle, source_id: str, new_id: str, at: int | None, title: str | None
) -> Callable[[], Deciding[int | None]]:
    source = await handle.record(source_id)
    stop = source.messages if at is None else at
    if stop > source.messages:
        raise NotFoundError(
            f"session {source_id!r} cannot be forked at {stop}; it has {source.messages} messages"
        )
    if await handle.store.session(new_id) is not None:
        raise SessionExistsError(new_id)
    log = await handle.store.events(source_id)
    events = prefix(log, stop)
    config = config_at(log, stop, config_from(source.config))
    replay = await replay_of(handle, events, config, stop, partial(handle.messages, source_id))
    return forking.prepare(
        source,
        new_id,
        replay,
        events=events,
        title=title,
        first_epoch=beginning(),
        now=handle.clock(),
    )


async def replay_of(
    handle: Handle,
    events: Sequence[LogEvent],
    config: HierarchyConfig,
    stop: int,
    read: ReadPage,
) -> Replay:
    """Replay ``events`` and the first ``stop`` messages, which ``read`` returns.

    ``config`` is the configuration of the session at the end of the events.
    """
    replay = Replay(events, config, Weigher(handle.counter))
    for start in range(0, stop, _PAGE):
        page = await read(start, min(stop, start + _PAGE))
        await in_thread_if_long(partial(replay.feed, page), page)
    if stop > _SHORT:
        await asyncio.to_thread(replay.finish)
    else:
        replay.finish()
    return replay


async def in_thread_if_long(
    work: Callable[[], T], messages: Sequence[Message | StoredMessage]
) -> T:
    """Do work on messages, in a thread of its own where they are many or long."""
    if len(messages) <= _SHORT and sum(len(each.content) for each in messages) <= LONG:
        return work()
    return await asyncio.to_thread(work)
