"""Decides into which session the messages of a branching conversation go.

A conversation of an export is a tree; a session holds one path of it, and a fork another. Only keys
are compared: a message that some session holds is there, and one that none holds belongs directly
after its predecessor. Where that is the last message of its session, the session goes on; anywhere
else a fork begins. So a newer export adds what is new, wherever it was added, and a path that took
the place of another becomes a fork beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from hiermem.text.policy import MAX_NAME
from hiermem.types.brief import Brief

#: Hexadecimal digits that tell one rewrite of a session from another.
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ImportReport(Brief):
    """The result of an import.

    ``sessions`` are those that messages were appended to. ``new`` messages were appended, ``held``
    ones were there already. ``changed`` have a key that the session holds with other content; they
    were left as they are. ``late`` are new messages that come earlier in the file than messages
    which the session already held; they stand after those. ``continued`` are sessions that held
    messages, none of which is in the file: two files of one name may have met there.
    """

    sessions: tuple[str, ...] = ()
    conversations: int = 0
    forks: int = 0
    new: int = 0
    held: int = 0
    changed: int = 0
    late: int = 0
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
