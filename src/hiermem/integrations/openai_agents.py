"""The OpenAI Agents SDK: a ``Session`` that keeps a whole conversation and gives bounded contexts.

    session = HiermemSession(memory, "ada")
    result = await Runner.run(agent, "Hello", session=session)

Needs the extra ``openai-agents``.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from agents.memory.session_settings import (
    SessionSettings,
    coerce_session_settings,
    resolve_session_limit,
)

from hiermem import Memory, Session
from hiermem.convert import from_responses, to_responses
from hiermem.integrations.branches import (
    CUT,
    FORK,
    checked,
    fork,
    go_on_in,
    lock_of,
    outcome_of,
    session_of,
)

__all__ = ["HiermemSession"]

_PAGE = 64


class HiermemSession:
    """A session of the Agents SDK over the session ``session_id`` of a memory.

    ``get_items`` without a limit gives a context of at most ``max_tokens`` that covers the whole
    conversation; with a limit, its own or that of ``session_settings``, it gives the newest items
    as they were added. The items that a run adds are not counted in it, nor are the agent's
    instructions and tools. A new session is a member of ``space``, which must exist. A call that is
    cancelled ends once its outcome is certain.

    Nothing that was added is lost. ``pop_item`` and ``clear_session`` leave the messages where they
    are, and what is added next goes on in a fork. The metadata of the session ``session_id`` name
    that fork as ``continues_in``; ``current`` returns it.

    Raises UsageError where ``memory`` is not a Memory.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        memory: Memory,
        session_id: str,
        *,
        max_tokens: int = 8_000,
        space: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_of(checked(memory), session_id).id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self.max_tokens = max_tokens
        self._memory, self._space = memory, space
        self._lock = lock_of(memory, self.session_id)

    def current(self) -> Session:
        """Return the session that holds the conversation: the named one, or its newest fork."""
        with self._lock:
            return self._settled()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return a context of the conversation, or its newest ``limit`` items as they were."""
        most = resolve_session_limit(limit, self.session_settings)
        if most is None:
            return await outcome_of(self._context)
        return await outcome_of(self._newest, most)

    async def add_items(self, items: list[Any]) -> None:
        """Append items; they are durable when the call returns."""
        await outcome_of(self._add, items)

    async def pop_item(self) -> Any | None:
        """Take back the newest item and return it; None where there is none."""
        return await outcome_of(self._pop)

    async def clear_session(self) -> None:
        """Take back all items."""
        await outcome_of(self._clear)

    def _context(self) -> list[Any]:
        with self._lock:
            return self._settled().context(self.max_tokens).to_responses()

    def _newest(self, limit: int) -> list[Any]:
        with self._lock:
            session, stop, part = self._place()
            items = _items(session, stop, stop + 1)[:part] if part else []
            while stop and len(items) < limit:
                start = max(0, stop - _PAGE)
                items = [*_items(session, start, stop), *items]
                stop = start
            return items[-limit:] if limit else []

    def _add(self, items: list[Any]) -> None:
        if items:
            with self._lock:
                self._settled().append(from_responses(items))

    def _pop(self) -> Any | None:
        with self._lock:
            session, stop, part = self._place()
            items = _items(session, stop, stop + 1)[:part] if part else []
            while stop and not items:
                stop -= 1
                items = _items(session, stop, stop + 1)
            if not items:
                return None
            self._cut(f"{stop}+{len(items) - 1}")
            return items[-1]

    def _clear(self) -> None:
        with self._lock:
            if self._place()[1:] != (0, 0):
                self._cut("0+0")

    def _place(self) -> tuple[Session, int, int]:
        """Return the session, how many of its messages hold, and how many items of the next.

        One message may be several items: calls that were made at once.
        """
        # One reading: a place is of the session that was noted with it.
        found = session_of(self._memory, self.session_id).get_metadata()
        session = session_of(self._memory, found.get(FORK, self.session_id), self._space)
        count = session.count()
        stop, _, part = found.get(CUT, f"{count}+0").partition("+")
        # Another process may have forked the session since its end was taken back here.
        return (session, count, 0) if int(stop) > count else (session, int(stop), int(part))

    def _cut(self, place: str) -> None:
        """Note where the conversation ends now: a restart must not bring back what was taken."""
        root = session_of(self._memory, self.session_id)
        root.set_metadata({**root.get_metadata(), CUT: place})

    def _settled(self) -> Session:
        """Return the session to go on in, and fork it first where its end was taken back."""
        session, stop, part = self._place()
        if (stop, part) == (session.count(), 0):
            return session
        made = fork(self._memory, self.session_id, session, stop)
        if part:
            made.append(from_responses(_items(session, stop, stop + 1)[:part]))
        go_on_in(self._memory, self.session_id, made)
        return made


def _items(session: Session, start: int, stop: int) -> list[Any]:
    """Return the items of messages as they were added; none of an erased one."""
    return to_responses(
        each.message for each in session.messages(start, stop) if each.state == "live"
    )
