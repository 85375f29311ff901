"""Decides what of a history is new, where it differs, and into which session its messages go.

*A whole history.* Clients without a store of their own hand over all of their history each time:
from its beginning, or only its newest part. Messages are the same if role, content, name and tool
calls are, in any provider's shape. A message of text and calls is the same as its text and its
calls in messages of their own. System messages that lead a history are left out of the comparison,
and so is the memory that hiermem itself rendered. A message that was edited, erased or quarantined
in the session is the same as whatever stands in its place: the client may not know of the change,
and what was erased must not return.

*A branching conversation.* A conversation of an export is a tree; a session holds one path of it,
and a fork another. Only keys are compared: a message that some session holds is there, and one that
none holds belongs directly after its predecessor. If that is the last message of its session, the
session goes on; anywhere else a fork begins. So a newer export adds what is new, wherever it was
added, and a path that took the place of another becomes a fork beside it.

*A file that was cut off.* A conversation whose id stood behind the cut is told by its first
message, and a message without an id of which only a part was there, by its place and that part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Final, TypeAlias
from unicodedata import normalize

from hiermem.convert import request
from hiermem.text import fence, measure
from hiermem.text.policy import MAX_NAME
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
    counts: Said = {}
    for place in range(_after_lead(messages), len(messages)):
        message = messages[place]
        mark = _mark(message, fence.find(measure.body(message), key=key))
        if mark is not None:
            counts[place] = mark
    return counts


def said_in(session: Sequence[StoredMessage], *, edited: Collection[int]) -> Said:
    """Return the messages of a stretch of a session that are compared.

    ``edited`` are the indices of the messages that were edited.
    """
    begins = bool(session) and session[0].index == 0
    lead = _after_lead([stored.message for stored in session]) if begins else 0
    counts: Said = {}
    for stored in session[lead:]:
        if stored.state != "live" or stored.index in edited:
            counts[stored.index] = _ANYTHING
        elif (mark := _mark(stored.message, stored.echoes)) is not None:
            counts[stored.index] = mark
    return counts


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
        pieces: list[str] = []
        begin = 0
        for start, end in sorted(echoes):
            pieces.append(content[begin:start])
            begin = end
        spoken = "".join((*pieces, content[begin:])).strip() if begin else content
        if message.role == "user":
            spoken = _SEAM.sub("", spoken)
        if content and not spoken and not calls:
            return None
        content = spoken
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


#: Hexadecimal digits that tell one rewrite of a session, or one lost id, from another.
_DIGITS: Final = 16
#: Keys that are shorter tell a message of one conversation alone.
_UNIQUE: Final = 16
#: What stands for a file at the beginning of a message; marks that no reader sees.
_FILE = re.compile(r"\A\[[^\[\]\n]*\]")
_UNSEEN = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class ImportReport(Brief):
    """The result of an import.

    ``sessions`` are those that messages were appended to. ``new`` messages were appended, ``held``
    ones were there already. ``changed`` have a key that the session holds with other content; they
    were left as they are. ``late`` are new messages that come earlier in the file than messages
    which the session already held; they stand after those. ``completed`` ones were held in part,
    since an earlier file was cut off. ``continued`` are sessions that held messages, none of which
    is in the file: two files of one name may have met there.
    """

    sessions: tuple[str, ...] = ()
    conversations: int = 0
    forks: int = 0
    new: int = 0
    held: int = 0
    changed: int = 0
    late: int = 0
    completed: int = 0
    continued: tuple[str, ...] = ()


def branch_id(base: str, key: str) -> str:
    """Return the id of the session of a branch that begins with the message of that key."""
    return f"{base}~{key}"


def rewrite_id(session_id: str, index: int, mark: str) -> str:
    """Return the id of the fork of a session whose history was rewritten.

    ``mark`` tells the message that now stands at ``index``. The id is as long for a fork of a fork.
    """
    path = "\n".join((session_id, str(index), mark))
    base = base_of(session_id)[: MAX_NAME - _DIGITS - 1]
    return branch_id(base, sha256(path.encode()).hexdigest()[:_DIGITS])


def base_of(session_id: str) -> str:
    """Return the id of the conversation that a session is a branch of, or its own id."""
    return session_id.partition("~")[0]


def place(
    keys: Sequence[str],
    after: str | None,
    *,
    base: str,
    held: Mapping[str, tuple[str, int]],
    last: Mapping[str, str],
) -> tuple[str, int, tuple[str, int] | None] | None:
    """Return where the messages of a path go; None where all of them are held.

    That is the session, and the place in ``keys`` from which on they go there; where the session is
    a new fork, also the session to fork, and at which index.

    ``after`` is the key of the message before the first. ``held`` gives the session and index of
    each key held, ``last`` the last of them in each session.
    """
    start = next((n for n, key in enumerate(keys) if key not in held), None)
    if start is None:
        return None
    before = keys[start - 1] if start else after
    if before is None or before not in held:
        return base if base not in last else branch_id(base, keys[start]), start, None
    session, index = held[before]
    if last.get(session) == before:
        return session, start, None
    return branch_id(base, keys[start]), start, (session, index + 1)


def lost_id(form: str, message: Message) -> str:
    """Return the id of a conversation of a format that lost its own, by its first message.

    >>> lost_id("chatgpt", Message.user("Hi", key="1"))
    'chatgpt-6b86b273ff34fce1'
    """
    identity = message.key or ""
    if len(identity) < _UNIQUE and message.created_at is not None:
        identity += f" {message.created_at.timestamp()}"
    return f"{form}-{sha256(identity.encode()).hexdigest()[:_DIGITS]}"


def alike(held: Message, given: Message) -> bool:
    """Return whether two messages of one key differ in the way in which they are written alone.

    That is the name of the speaker, another normal form of Unicode, marks that no reader sees, and
    what stands for a file.
    """
    if (held.name is None) != (given.name is None) or held.role != given.role:
        return False
    return _plain(held) == _plain(given) and _rest(held) == _rest(given)


def _plain(message: Message) -> object:
    if not isinstance(message.content, str):
        return message.content
    text = _FILE.sub("[]", _UNSEEN.sub("", message.content))
    return " ".join(normalize("NFC", text).split())


def _rest(message: Message) -> object:
    return message.thread, message.tool_calls, message.tool_call_id


def whole_of(
    held: Message, given: Message, *, held_last: bool, given_last: bool, erased: bool
) -> str | None:
    """Return the whole text of a message of which one file had a part; None for two messages.

    ``held`` and ``given`` follow the same message, in the session and in the file, and are of
    different keys. The last one of a file may be cut off: it ends too early, or goes on with the
    beginning of the line that begins the next message. Of an erased one only role, thread and time
    are left.
    """
    before, after = held.content, given.content
    of_time = given.created_at in (None, held.created_at)
    if erased and (held.role, held.thread) == (given.role, given.thread) and of_time:
        return ""
    if (held.role, held.name, _rest(held)) != (given.role, given.name, _rest(given)):
        return None
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    if _plain(held) == _plain(given) or not of_time:
        return before if _plain(held) == _plain(given) else None
    if held_last and (_begins(before, after) or (not given_last and _overruns(before, after))):
        return after
    ends = given_last and (_begins(after, before) or _overruns(after, before))
    return before if ends else None


def _begins(part: str, whole: str) -> bool:
    """Return whether a text is the beginning of another; its last character may be cut in two."""
    part, whole = normalize("NFC", part.rstrip()), normalize("NFC", whole)
    if whole.startswith(part):
        return True
    cut = part[-1] == "\ufffd" or "\u00c2" <= part[-1] <= "\u00f4"
    return cut and whole.startswith(part[:-1]) and not whole[len(part) - 1 : len(part)].isascii()


def _overruns(long: str, text: str) -> bool:
    """Return whether a text is another one and a line more."""
    text, long = normalize("NFC", text), normalize("NFC", long)
    more = long[len(text) :]
    return long.startswith(text) and more.lstrip(" \t")[:1] == "\n" and "\n" not in more.strip()
