"""The options that commands share; opens a memory and chooses a session.

Only commands that create a memory accept a file that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hiermem import LLM, Memory, NotFoundError, Session, SessionRecord, UsageError
from hiermem.cli.screen import clean, one_line

Db = Annotated[
    str,
    typer.Option("--db", envvar="HIERMEM_DB", help="The memory's file, or its postgresql:// URL."),
]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant whose memory is opened.")]
SessionId = Annotated[
    str | None,
    typer.Option("--session", "-s", help="The session; optional if there is only one."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
#: The default file of the memory.
DB = "hiermem.db"
#: The number of sessions that are read at once.
_PAGE = 500
#: The number of sessions that are named where one must be chosen, and for one that does not exist.
_NAMED, _NEAREST = 8, 3
#: The characters of a title that are shown beside an id.
_TITLE = 40
_LISTED = "'hiermem sessions' lists them"


class Forks(StrEnum):
    """What an erasure does in other sessions that share a message."""

    all = "all"
    keep = "keep"


def shown(db: str) -> str:
    """Return how the place of a memory is printed: a URL may hold a password."""
    return "DSN" if "://" in db else db


def open_existing(db: str, tenant: str, llm: LLM | None = None, **policies: Any) -> Memory:
    """Open an existing memory; ``policies`` are further arguments of ``Memory.open``."""
    file = Path(db)
    missing = not file.exists() or (file.is_file() and not file.stat().st_size)
    if missing and "://" not in db and "=" not in db:  # which may be a database's, with a password
        raise NotFoundError(
            f"there is no memory at {db}; 'hiermem import FILE --db {db}' makes one"
        )
    return Memory.open(db, tenant=tenant, llm=llm, create=False, **policies)


def sessions_of(memory: Memory) -> Iterator[SessionRecord]:
    """Yield the memory's sessions, oldest first, read page by page."""
    last: str | None = None
    while page := memory.sessions(after=last, limit=_PAGE):
        yield from page
        last = page[-1].id


def session_of(memory: Memory, session: str | None) -> Session:
    """Return the named session, or the only one if none is named.

    Raises NotFoundError for a name that no session has, and UsageError where a name is needed.
    """
    if session is not None:
        return named_session(memory, session)
    found = memory.sessions(limit=_NAMED + 1)
    if len(found) == 1:
        return memory.session(found[0].id)
    if not found:
        raise NotFoundError("this memory holds no session yet; import a conversation first")
    more = f" and more; {_LISTED}" if len(found) > _NAMED else ""
    named = ", ".join(map(_name, found[:_NAMED]))
    raise UsageError(
        f"there are {memory.count_sessions():,} sessions; choose one with --session: {named}{more}"
    )


def named_session(memory: Memory, name: str) -> Session:
    """Return the session of that id. Raises NotFoundError, with the ids and titles most like it."""
    session = memory.session(name)
    if session.count():
        return session
    records = list(sessions_of(memory))
    if any(record.id == name for record in records):
        return session
    like: dict[str, list[str]] = {}
    for record in records:
        for text in (record.id, record.title or record.id):
            like.setdefault(text, []).append(_name(record))
    near = dict.fromkeys(
        named for text in get_close_matches(name, like, _NEAREST, 0.5) for named in like[text]
    )
    there = f"there is {', '.join(list(near)[:_NEAREST])}" if near else _LISTED
    raise NotFoundError(f"there is no session {name!r}; {there}")


def _name(record: SessionRecord) -> str:
    """Return a session's id, with its title where it has one."""
    return clean(record.id) + (f" ({one_line(record.title, _TITLE)})" if record.title else "")
