"""The options that commands share, and how they open a memory and choose a session.

The one rule: a command that is not meant to make a memory refuses a file that is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from hiermem import LLM, Memory, NotFoundError, Session, UsageError
from hiermem.cli.screen import clean, out

Db = Annotated[Path, typer.Option("--db", envvar="HIERMEM_DB", help="The memory's file.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose memory in that file.")]
SessionId = Annotated[
    str | None,
    typer.Option("--session", "-s", help="The session; may be left out where there is one only."),
]
#: The memory's file where none is named.
DB = Path("hiermem.db")


def existing(db: Path, tenant: str, llm: LLM | None = None) -> Memory:
    """Open a memory that is there already."""
    if not db.exists():
        raise NotFoundError(
            f"there is no memory at {db}; 'hiermem ingest FILE --db {db}' makes one"
        )
    return Memory.open(db, tenant=tenant, llm=llm, create=False)


def chosen(memory: Memory, session: str | None) -> Session:
    """Give the session that is meant; where none is named, the only one there is."""
    if session is not None:
        return memory.session(session)
    ids = [record.id for record in memory.sessions()]
    if len(ids) == 1:
        return memory.session(ids[0])
    if not ids:
        raise UsageError("this memory holds no session yet; ingest a conversation first")
    named = ", ".join(clean(each) for each in ids[:8]) + (" …" if len(ids) > 8 else "")
    raise UsageError(f"there are {len(ids):,} sessions; choose one with --session: {named}")


def bars() -> Progress:
    """Make progress bars on standard error that vanish when they are done."""
    console = out(error=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
