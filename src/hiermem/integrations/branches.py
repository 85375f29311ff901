"""Where the conversation of a framework goes on once it was rewound or rewritten: in a fork.

Frameworks take messages back and change them; a session is never rewritten. The session that the
application named stays as it was, and its metadata name the fork that holds the conversation from
then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from hiermem import ConflictError, Memory, Message, Session, UsageError

__all__ = [
    "CUT", "FORK", "checked", "current", "fork", "go_on_in", "keep", "lock_of", "outcome_of",
    "session_of",
]  # fmt: skip

_T = TypeVar("_T")

#: In the metadata of a session whose conversation goes on elsewhere: the id of the fork.
FORK = "continues_in"
#: In the metadata of a session whose end was taken back, until it is forked: the place.
CUT = "rewound_to"

#: How much of a conversation's id is in those of its forks, and the digits of their numbers: an id
#: has at most 512 characters.
_MOST = 500
_DIGITS = 10
#: The locks that are held or kept by somebody, by memory and conversation, and one for the table.
_locks: WeakKeyDictionary[Memory, WeakValueDictionary[str, Lock]] = WeakKeyDictionary()
_table = Lock()


def checked(memory: Memory) -> Memory:
    """Return ``memory``. Raises UsageError for anything else than a blocking Memory."""
    if not isinstance(memory, Memory):
        raise UsageError(
            f"memory is {type(memory).__name__}; pass a Memory, for blocking and asynchronous runs"
        )
    return memory


async def outcome_of(work: Callable[..., _T], *arguments: object) -> _T:
    """Return what ``work`` returns in a thread; a cancelled caller waits for its end.

    A thread cannot be stopped. A caller that was told of the cancellation at once would repeat what
    is then stored a moment later.
    """
    # No task: the end of ``asyncio.run`` cancels every task, and with it the waiting.
    copied = copy_context()
    running = asyncio.get_running_loop().run_in_executor(None, lambda: copied.run(work, *arguments))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # which the caller no longer waits for
        raise cancelled
    return running.result()


def lock_of(memory: Memory, session_id: str) -> Lock:
    """Return the lock of a conversation, the same for all who ask for it in this process.

    Applications make a new object of a bridge for each request, and requests of one conversation
    may come at once.
    """
    with _table:
        of_memory = _locks.setdefault(memory, WeakValueDictionary())
        lock = of_memory.get(session_id)
        if lock is None:
            lock = of_memory[session_id] = Lock()
        return lock


def session_of(memory: Memory, session_id: str, space: str | None = None) -> Session:
    """Return a session that takes any text; a new one is a member of ``space``.

    A tool's output with a NUL character would else end a run that has been paid for.
    """
    return memory.session(session_id, space=space, on_bad_text="replace")


def current(memory: Memory, session_id: str, space: str | None = None) -> Session:
    """Return the session in which the conversation ``session_id`` goes on."""
    metadata = session_of(memory, session_id).get_metadata()
    return session_of(memory, metadata.get(FORK, session_id), space)


def fork(memory: Memory, session_id: str, source: Session, at: int) -> Session:
    """Return a new fork of ``source``, a session of the conversation; nothing names it yet."""
    base = session_id[:_MOST]
    last = source.id.removeprefix(f"{base}~")
    number = int(last) + 1 if last.isdecimal() and len(last) < _DIGITS else 1
    while True:
        try:
            made = source.fork(f"{base}~{number}", at=at)
            break
        except ConflictError as error:
            if error.kind != "exists":
                raise
            number += 1
    made.set_metadata(without_notes(made.get_metadata()))
    return session_of(memory, made.id)


def go_on_in(memory: Memory, session_id: str, chosen: Session) -> None:
    """Note in the metadata of ``session_id`` where its conversation goes on."""
    root = session_of(memory, session_id)
    before = root.get_metadata()
    after = without_notes(before) | ({FORK: chosen.id} if chosen.id != session_id else {})
    if after != before:
        root.set_metadata(after)


def keep(
    memory: Memory, session_id: str, history: Sequence[Message], space: str | None = None
) -> Session:
    """Make the conversation equal to a whole ``history``, and return the session that holds it."""
    report = current(memory, session_id, space).sync(history, on_rewrite="fork")
    chosen = session_of(memory, report.session_id)
    if report.ends_at is not None:
        chosen = fork(memory, session_id, chosen, report.ends_at)
    go_on_in(memory, session_id, chosen)
    return chosen


def without_notes(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata without what is noted here."""
    return {name: value for name, value in metadata.items() if name not in (FORK, CUT)}
