"""Decides what of a whole history is new to a session, and where the two differ.

Clients without a store of their own hand over all of their history each time: from its beginning,
or only its newest part. Messages are the same if role, content, name and tool calls are, in any
provider's shape. A message of text and calls is the same as its text and its calls in messages of
their own. System messages that lead a history are left out of the comparison, and so is the
memory that hiermem itself rendered. A message that was edited, erased or quarantined in the session
is the same as whatever stands in its place: the client may not know of the change, and what was
erased must not return.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeAlias

from hiermem.convert import request
from hiermem.text import fence, measure
from hiermem.types import (
    FilePart,
    ImagePart,
    Message,
    Part,
    StoredMessage,
    TextPart,
    ToolCall,
)
from hiermem.types.brief import Brief

#: The fewest messages in which a history that begins later than its session agrees with it.
_LEAST: Final = 2
_THREAD: Final = "main"
#: The date that a context puts before a message of the user's, or sends alone.
_SEAM: Final = re.compile(r"\[\d{4}-\d\d-\d\d\](?:\n|\Z)")


@dataclass(frozen=True, slots=True)
class SyncReport(Brief):
    """The result of ``session.sync``.

    ``appended`` are the indices of the messages that were new, in the session ``session_id``: a
    fork where the history was rewritten and ``on_rewrite`` is "fork". ``rewritten_at`` is the index
    of the first message that the session has and the history has not, or None. ``ends_at`` is the
    index in ``session_id`` from which on the history has nothing more, although the session has;
    None where the history goes to the session's end.
    """

    session_id: str
    appended: tuple[int, ...] = ()
    rewritten_at: int | None = None
    ends_at: int | None = None


class _Anything:
    """Stands for a message that was changed in the session: equal to any other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        raise TypeError("what equals everything has no hash")


_ANYTHING: Final = _Anything()


#: Messages as they are compared, by their places in a session or history, in order: a hash each,
#: or a tuple of hashes, of a message's text and of each of its calls, where these are several.
Said: TypeAlias = dict[int, object]


def said(messages: Sequence[Message], *, key: bytes) -> Said:
    """Return the messages of a history that are compared; ``key`` tells what hiermem rendered."""
    found: Said = {}
    for place in range(_after_lead(messages), len(messages)):
        message = messages[place]
        mark = _mark(message, fence.find(measure.body(message), key=key))
        if mark is not None:
            found[place] = mark
    return found


def said_in(session: Sequence[StoredMessage], *, edited: Collection[int]) -> Said:
    """Return the messages of a stretch of a session that are compared.

    ``edited`` are the indices of the messages that were edited.
    """
    begins = bool(session) and session[0].index == 0
    lead = _after_lead([each.message for each in session]) if begins else 0
    found: Said = {}
    for each in session[lead:]:
        if each.state != "live" or each.index in edited:
            found[each.index] = _ANYTHING
        elif (mark := _mark(each.message, each.echoes)) is not None:
            found[each.index] = mark
    return found


def _after_lead(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    roles = (place for place, message in enumerate(messages) if message.role != "system")
    return next(roles, len(messages))


def parts_of(mark: object) -> tuple[object, ...]:
    """Return the hashes of a message as it is compared: of its text, and of each of its calls."""
    return mark if isinstance(mark, tuple) else (mark,)


def _mark(message: Message, echoes: Iterable[tuple[int, int]]) -> str | tuple[str, ...] | None:
    """Return the hashes of what is compared; None where hiermem rendered all of the message.

    Parts are compared as what they are in any provider's shape, thoughts not at all, arguments as
    JSON, names and ids as they are sent, and texts without the date that a context puts before
    them. None also for a message of thoughts alone.
    """
    calls = tuple(map(_call, message.tool_calls))
    content = message.content
    if not isinstance(content, str):
        parts = [part for part in map(request.understood, content) if not request.hidden(part)]
        if content and not parts and not calls:
            return None
        if len(parts) < len(content):
            echoes = ()  # their offsets are those of a text with more parts
        if all(isinstance(part, TextPart) for part in parts):
            content = measure.body(replace(message, content=tuple(parts), tool_calls=()))
        else:
            content = tuple(map(_bare, parts))
    if isinstance(content, str):
        kept: list[str] = []
        begin = 0
        for start, end in sorted(echoes):
            kept.append(content[begin:start])
            begin = end
        said = "".join((*kept, content[begin:])).strip() if begin else content
        if message.role == "user":
            said = _SEAM.sub("", said)
        if content and not said and not calls:
            return None
        content = said
    name = None if message.role == "tool" else request.sent_name(message.name or "") or None
    bare = replace(message, content=content, thread=_THREAD, name=name, tool_calls=())
    marks = [measure.fingerprint(bare)] if content or not calls else []
    alone = (replace(bare, content="", tool_calls=(call,)) for call in calls)
    marks.extend(map(measure.fingerprint, alone))
    return marks[0] if len(marks) == 1 else tuple(marks)


def _call(call: ToolCall) -> ToolCall:
    """Return a call as it is compared: as it is sent, its arguments in canonical form."""
    sent = request.sent_call(call)
    if sent.type == "custom":
        return sent
    return replace(sent, arguments=measure.canonical_json(json.loads(sent.arguments)))


def _bare(part: Part) -> Part:
    """Return a part as it is compared: an image or a file by its reference alone."""
    if isinstance(part, ImagePart):
        return ImagePart(part.reference)
    return FilePart(part.reference) if isinstance(part, FilePart) else part


def align(
    history: Said, head: Said, tail: Said | None = None
) -> tuple[int, int | None, int | None]:
    """Return how a history continues a session.

    The first value is the number of compared messages of the history before the first that the
    session does not have; the second the index of the first message that the session has and the
    history has another one for; the third the index of the first message of the session that
    follows on the whole history. The indices are None where there is no such message.

    ``head`` is the beginning of the session: all of it, or at least as many messages as the history
    has texts and calls. ``tail`` is its end where ``head`` is not all of it. The history begins
    where the session does, or at the later place from which more messages agree, two at least. Of
    places from which as many agree, it begins at one where it meets no other message.
    """
    given = list(history.values())
    begin, held = 0, head
    run, stop = _run(given, list(head.values()))
    later = head if tail is None else tail
    marks = list(later.values())
    for place in range(1 if tail is None else 0, len(marks)):
        if len(marks) - place <= stop - begin:
            break
        longer, end = _run(given, marks, place)
        if end - place > stop - begin and min(longer, end - place) >= _LEAST:
            run, begin, stop, held = longer, place, end, later
    # Of equal runs, the one that ends with the session meets no other message.
    last = len(marks) - (stop - begin)
    if (
        run < len(given)
        and min(run, stop - begin) >= _LEAST
        and last > 0
        and _run(given, marks, last) == (run, len(marks))
    ):
        stop, held = len(marks), later
    following = next(islice(held, stop, None), None)
    if run < len(given):
        return run, following, None
    read = max(head, default=-1) + 1
    if following is None and held is head and tail and max(tail) >= read:
        following = read
    return run, None, following


def _run(given: Sequence[object], held: Sequence[object], start: int = 0) -> tuple[int, int]:
    """Return how many messages of ``given`` agree with ``held[start:stop]``, and ``stop``."""
    run, stop = 0, start
    while True:
        same = _same(given, held, run, stop)
        run, stop = run + same, stop + same
        mine, theirs = _divided(given, held, run, stop)
        if not mine:
            return run, stop
        run, stop = run + mine, stop + theirs


def _same(given: Sequence[object], held: Sequence[object], first: int, start: int) -> int:
    """Return how many messages agree one by one, from ``given[first]`` and ``held[start]`` on.

    Stretches are compared, twice as long each time: a loop would be slow where many agree.
    """
    most = min(len(given) - first, len(held) - start)
    low, step = 0, 1
    while low < most:
        high = min(most, low + step)
        if given[first + low : first + high] == held[start + low : start + high]:
            low, step = high, 2 * step
        elif high == low + 1:
            break
        else:
            step = 1
    return low


def _divided(
    given: Sequence[object], held: Sequence[object], first: int, start: int
) -> tuple[int, int]:
    """Return how many messages of each hold the same texts and calls, divided in another way.

    They are the fewest from ``given[first]`` and ``held[start]`` on; (0, 0) if there are none.
    """
    mine: list[object] = []
    theirs: list[object] = []
    mine_end, theirs_end, compared = first, start, 0
    while not compared or len(mine) != len(theirs):
        behind = len(mine) <= len(theirs)
        if behind and mine_end < len(given):
            mine += parts_of(given[mine_end])
            mine_end += 1
        elif not behind and theirs_end < len(held):
            theirs += parts_of(held[theirs_end])
            theirs_end += 1
        else:
            return 0, 0
        least = min(len(mine), len(theirs))
        if mine[compared:least] != theirs[compared:least]:
            return 0, 0
        compared = least
    return mine_end - first, theirs_end - start
