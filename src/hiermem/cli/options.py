"""The options that commands share; opens a memory and chooses a session.

Only commands that create a memory accept a file that does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hiermem import LLM, Memory, NotFoundError, Session, SessionRecord, UsageError
from hiermem.cli.screen import clean, out

Db = Annotated[
    str,
    typer.Option("--db", envvar="HIERMEM_DB", help="The memory's file, or its postgresql:// URL."),
]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant whose memory is opened.")]
SessionId = Annotated[
    str | None,
    typer.Option("--session", "-s", help="The session; optional if there is only one."),
]
#: The default file of the memory.
DB = "hiermem.db"
#: Seconds between two lines of progress.
_QUIET = 10.0
#: The number of sessions that are read at once.
_PAGE = 500
#: The number of names that are suggested for one that does not exist.
_NEAREST = 3


class Shape(StrEnum):
    """The format of a result."""

    table = "table"
    json = "json"


Form = Annotated[Shape, typer.Option("--format", help="A table, or the complete result as JSON.")]


class Forks(StrEnum):
    """What an erasure does in other sessions that share a message."""

    all = "all"
    keep = "keep"


def shown(db: str) -> str:
    """Return how the place of a memory is printed: a URL may hold a password."""
    return "DSN" if "://" in db else db


def open_existing(db: str, tenant: str, llm: LLM | None = None, **policies: Any) -> Memory:
    """Open an existing memory; ``policies`` are further arguments of ``Memory.open``."""
    if "://" not in db and not Path(db).exists():
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
    ids = [record.id for record in sessions_of(memory)]
    if len(ids) == 1:
        return memory.session(ids[0])
    if not ids:
        raise UsageError("this memory holds no session yet; import a conversation first")
    named = ", ".join(clean(each) for each in ids[:8]) + (" …" if len(ids) > 8 else "")
    raise UsageError(f"there are {len(ids):,} sessions; choose one with --session: {named}")


def named_session(memory: Memory, name: str) -> Session:
    """Return the session of that name. Raises NotFoundError, with the names most like it."""
    session = memory.session(name)
    if session.count():
        return session
    ids = [record.id for record in sessions_of(memory)]
    if name in ids:
        return session
    near = ", ".join(clean(each) for each in get_close_matches(name, ids, _NEAREST, 0.5))
    like = f"; there is {near}" if near else ""
    raise NotFoundError(f"there is no session {name!r}{like}")


class ProgressLines:
    """Progress on standard error where that is no terminal: a line now and then, for a log.

    Work that is ``slow`` begins with a line.
    """

    def __init__(self, session: str, *, slow: bool) -> None:
        self._session = session
        self._next = time.monotonic() + (0.0 if slow else _QUIET)

    def draw(self, done: int, total: int) -> None:
        """Print how much is done, unless a line was printed a short time ago."""
        if not total or time.monotonic() < self._next or out(error=True).is_terminal:
            return
        self._next = time.monotonic() + _QUIET
        line = f"{clean(self._session)}: {done:,} of {total:,} summaries"
        out(error=True).print(line, soft_wrap=True)


def progress_bars() -> Progress:
    """Return progress bars on standard error that disappear when they are done."""
    console = out(error=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
