"""Decides into which session the messages of an imported conversation go.

A conversation of an export is a tree; a session holds one path of it, and a fork another. Only keys
are compared: a message that some session holds is there, and one that none holds belongs directly
after its predecessor. Where that is the last message of its session, the session goes on; anywhere
else a fork begins. So a newer export adds what is new, wherever it was added, and a path that took
the place of another becomes a fork beside it.

A file may have been cut off. A conversation whose id stood behind the cut is told by its first
message, and a message without an id of which only a part was there, by its place and that part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from unicodedata import normalize

from hiermem.text.policy import MAX_NAME
from hiermem.types import Message
from hiermem.types.brief import Brief

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
    told = message.key or ""
    if len(told) < _UNIQUE and message.created_at is not None:
        told += f" {message.created_at.timestamp()}"
    return f"{form}-{sha256(told.encode()).hexdigest()[:_DIGITS]}"


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
