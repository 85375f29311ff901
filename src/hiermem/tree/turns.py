"""Decides which messages of a thread belong together, and where a cut may fall.

An exchange group is an assistant's tool calls with all their results. It opens with the message
that calls. It ends when every call has its result, before the thread's next user message or
assistant message without calls, or when it holds GROUP_LIMIT messages. An event that closes its
window from outside (idleness, the session's close) abandons it. Messages that arrive inside belong
to it: system messages, further calls, results of calls that nobody made. A point of the thread is
*whole* where no group is open. A whole point is *safe* where the assistant spoke last or the last
RUN messages were all users' (system messages skipped).

The state of a thread has constant size: a group is represented by its count and its unanswered
calls, never by its messages.

Where the specification leaves a choice:

- Two calls with one id need two results.
- A result that names no call answers the oldest unanswered call of the open group.
- A result of a call that its group gave up (of the last LATE of them) is flagged ``late_result``,
  any other that answers nothing ``orphan_result``; neither opens a group.
- An assistant message whose call was given up is flagged ``missing_result`` once.

This module does not know about sizes, windows or time.

Reads the parts of a fold's stored state, each in the module that packs it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

from hiermem.errors import StoreCorruptError
from hiermem.types import Role, StoredMessage

T = TypeVar("T")

_decode: Final[Callable[[str], Any]] = json.JSONDecoder().decode


def check_types(*values: Any, kind: type) -> None:
    """Raise TypeError where a value is not exactly of this kind."""
    if any(type(value) is not kind for value in values):
        raise TypeError


def read_part(text: str, make: Callable[[Any], T]) -> T:
    """Make a value of ``text``, a part of a fold's state.

    Raises StoreCorruptError where that is not possible; the error holds nothing of the text.
    """
    try:
        return make(_decode(text))
    except (
        ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
    ):  # fmt: skip
        raise StoreCorruptError("a session's state is unreadable; the store is damaged") from None


#: An exchange group of this many messages ends, answered or not.
GROUP_LIMIT = 100
#: This many users' messages in a row make a point safe without an assistant.
RUN = 10
#: The number of given-up calls, the newest, that each thread's state keeps.
LATE = 100

Boundary = Literal["turn", "message"]
#: A message's index with the flag to set on it.
Flag = tuple[int, str]


def mark(kind: Literal["call", "speaker"], name: str) -> str:
    """Return the mark of a tool call's id or a speaker's name: enough to recognise, not to read it.

    The state of a session and the events of its log outlast the messages, so they must not hold a
    word of an erased message.
    """
    return hashlib.sha256(f"{kind}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of an oversize message, from ``begin_char`` to the beginning of the next one."""

    begin_char: int
    size: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """The facts of a message that sealing needs; its text is not among them.

    ``size`` is in the session's unit and ``tokens`` in tokens, both as summarising weighs them.
    ``calls`` are the marks of an assistant's tool calls; ``result_of`` is the mark
    of the call that a tool's result names. ``slices`` is set exactly where ``size`` alone exceeds
    the hard limit. ``speaker`` is the mark of the user who speaks, the same for those without a
    name; "" for other roles, and for a message whose speaker was erased.
    """

    index: int
    thread: str
    role: Role
    size: int
    tokens: int
    at: datetime
    calls: tuple[str, ...] = ()
    result_of: str | None = None
    slices: tuple[Slice, ...] = ()
    speaker: str = ""

    @classmethod
    def of(cls, stored: StoredMessage, slices: Sequence[Slice] = ()) -> Arrival:
        """Make the arrival of a stored message; ``slices`` are its measured slices, if any."""
        message = stored.message
        is_user = stored.role == "user" and stored.state == "live"
        return cls(
            stored.index,
            message.thread,
            message.role,
            stored.size,
            stored.tokens,
            stored.created_at,
            tuple(mark("call", call.id) for call in message.tool_calls or ()),
            None if message.tool_call_id is None else mark("call", message.tool_call_id),
            tuple(slices),
            mark("speaker", stored.name or "") if is_user else "",
        )


class People(NamedTuple):
    """Who speaks in a session, so far as it is known whether several people do.

    ``mark`` is that of the user who spoke first, in message ``first``; ``second`` is the first
    message of another user, and ``assistant`` that of the assistant. -1 stands for none.
    """

    mark: str = ""
    first: int = -1
    second: int = -1
    assistant: int = -1

    def after(self, arrival: Arrival) -> People:
        """Add a message; one that was added before changes nothing."""
        if arrival.role == "assistant" and self.assistant < 0:
            return self._replace(assistant=arrival.index)
        if arrival.speaker and self.first < 0:
            return self._replace(mark=arrival.speaker, first=arrival.index)
        if arrival.speaker and self.second < 0 and arrival.speaker != self.mark:
            return self._replace(second=arrival.index)
        return self

    def before(self, stop: int) -> People:
        """Return what was known before message ``stop``."""
        if self.first >= stop:
            return People(assistant=self.assistant if self.assistant < stop else -1)
        second, assistant = (at if at < stop else -1 for at in (self.second, self.assistant))
        return self._replace(second=second, assistant=assistant)

    def are_several(self, messages: int) -> bool:
        """Return whether several people speak in a session of so many messages.

        Several users do, or there are RUN messages and more, none of which is an assistant's.
        """
        return self.second >= 0 or (self.assistant < 0 and messages >= RUN)

    @classmethod
    def unpack(cls, row: Sequence[Any]) -> People:
        """Read what its JSON row holds; raises for another row."""
        mark, *places = row
        check_types(mark, kind=str)
        check_types(*places, kind=int)
        return cls(mark, *places)


class Turns(NamedTuple):
    """The state of a thread's end.

    ``run`` counts the users' messages at the end, system messages skipped, up to RUN.
    ``assistant`` is whether the assistant spoke last. ``members`` is the number of messages in
    the open exchange group, 0 where none is open. ``waiting`` holds its unanswered calls as (mark
    of the call, index of the message that calls), ``late`` the marks of the calls given up.
    """

    run: int = 0
    assistant: bool = False
    members: int = 0
    waiting: tuple[tuple[str, int], ...] = ()
    late: tuple[str, ...] = ()

    def safe(self, boundary: Boundary) -> bool:
        """Return whether a whole end is also safe."""
        return self.assistant or self.run >= RUN or boundary == "message"

    def before(self, arrival: Arrival, flags: list[Flag]) -> Turns:
        """End the open group where ``arrival`` does not belong to it."""
        if self.members and (
            arrival.role == "user" or (arrival.role == "assistant" and not arrival.calls)
        ):
            return self.abandon(flags)
        return self

    def abandon(self, flags: list[Flag]) -> Turns:
        """End the open group and flag the messages whose calls are unanswered."""
        if not self.members:
            return self
        flags.extend((index, "missing_result") for index in sorted({i for _, i in self.waiting}))
        late = (*self.late, *(call for call, _ in self.waiting))[-LATE:]
        return Turns(self.run, self.assistant, 0, (), late)

    def after(self, arrival: Arrival, flags: list[Flag]) -> Turns:
        """Add ``arrival`` as the thread's last message, to the open group if there is one."""
        role, members, waiting, late = arrival.role, self.members, self.waiting, self.late
        run = self.run if role == "system" else min(self.run + 1, RUN) if role == "user" else 0
        if role == "tool":
            waiting, late = self._answer(arrival, flags)
        elif arrival.calls:
            waiting = (*waiting, *((call, arrival.index) for call in arrival.calls))
        if members or arrival.calls:
            members = members + 1 if waiting else 0
        turns = Turns(run, role == "assistant", members, waiting, late)
        return turns.abandon(flags) if members >= GROUP_LIMIT else turns

    def _answer(
        self, arrival: Arrival, flags: list[Flag]
    ) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
        """Return the waiting and the late calls after the result ``arrival``."""
        name = arrival.result_of
        for position, (call, _) in enumerate(self.waiting):
            if name is None or call == name:
                return self.waiting[:position] + self.waiting[position + 1 :], self.late
        if name is not None and name in self.late:
            position = self.late.index(name)
            flags.append((arrival.index, "late_result"))
            return self.waiting, self.late[:position] + self.late[position + 1 :]
        flags.append((arrival.index, "orphan_result"))
        return self.waiting, self.late

    @classmethod
    def unpack(cls, row: Sequence[Any]) -> Turns:
        """Read the turns from their JSON row; raises for a row that no turns have."""
        run, assistant, members, waiting, late = row
        calls = tuple((call, index) for call, index in waiting)
        check_types(run, members, *(index for _, index in calls), kind=int)
        check_types(*(call for call, _ in calls), *late, kind=str)
        check_types(assistant, kind=bool)
        return cls(run, assistant, members, calls, tuple(late))
