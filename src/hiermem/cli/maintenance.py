"""The maintenance commands: ``runs``, ``metrics``, ``erase``, ``backup``, ``copy`` and ``check``.

An irreversible action is confirmed first, with a question that names it. Without a terminal to ask
on, it needs ``--yes``.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from hiermem import (
    CheckReport,
    CopyReport,
    Memory,
    NotFoundError,
    Prices,
    RunRecord,
    RunReport,
    UsageError,
)
from hiermem.cli.options import (
    DB,
    Db,
    Forks,
    SessionId,
    Tenant,
    Yes,
    named_session,
    open_existing,
    session_of,
    sessions_of,
    shown,
)
from hiermem.cli.output import Code, Json, confirm, hint, print_json, progress
from hiermem.cli.screen import clean, out, plural
from hiermem.cli.tables import (
    all_runs,
    metrics_data,
    metrics_table,
    one_run,
    print_check,
    print_copy,
    print_receipt,
    print_scrubbed,
    short,
)

app = typer.Typer()


#: Messages on the command line: 3, or 5-9 with both ends.
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
#: The largest range of messages.
_MOST = 1_000_000
#: A limit that returns all runs.
_ALL = 2**31 - 1


# ---------------------------------------------------------------------------------------------
# runs


@app.command()
def runs(
    run: Annotated[
        str | None,
        typer.Argument(help="Show this run item by item; the beginning of its id is enough."),
    ] = None,
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only the runs of this session.")
    ] = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, help="The number of runs, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """List runs (updates, extractions, erasures), or show one run item by item."""
    with open_existing(db, tenant) as memory:
        if run is not None:
            report = _run_of(memory, run)
            if as_json:
                print_json(report)
            else:
                out(whole=True).print(one_run(report))
            return
        found = _runs_of(memory, session, limit)
        if as_json:
            print_json({"runs": [asdict(each) for each in found]})
        elif found:
            console = out(whole=True)
            console.print(all_runs(found, ids=short(found) if console.is_terminal else None))
        else:
            hint("no runs yet")


def _runs_of(memory: Memory, session: str | None, limit: int) -> list[RunRecord]:
    """Return runs.

    Raises NotFoundError for a session that has none and does not exist.
    """
    if session is None:
        return memory.runs(limit=limit)
    found = memory.session(session).runs(limit=limit)
    return found or named_session(memory, session).runs(limit=limit)


def _run_of(memory: Memory, name: str) -> RunReport:
    """Return the run with that id, or the only one whose id begins with it."""
    try:
        return memory.run(name)
    except NotFoundError:
        fitting = [each.id for each in memory.runs(limit=_ALL) if each.id.startswith(name)]
        if not fitting:
            raise
    if len(fitting) > 1:
        raise UsageError(f"{len(fitting):,} runs begin with {name!r}; give more of the id")
    return memory.run(fitting[0])


# ---------------------------------------------------------------------------------------------
# metrics


@app.command()
def metrics(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    input_price: Annotated[
        float | None, typer.Option(min=0, help="The summariser's price of a million input tokens.")
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(min=0, help="Its price of a million output tokens.")
    ] = None,
    context_price: Annotated[
        float | None, typer.Option(min=0, help="The price of a million tokens of a context.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a session's metrics: compression, cost, and the facts that were kept."""
    with open_existing(db, tenant) as memory:
        prices = None
        if (input_price, output_price, context_price) != (None, None, None):
            prices = Prices(input_price or 0.0, output_price or 0.0, context_price)
        found = session_of(memory, session).metrics(prices)
        if as_json:
            print_json(metrics_data(found))
        else:
            out().print(metrics_table(found))


# ---------------------------------------------------------------------------------------------
# erase


@app.command()
def erase(
    messages: Annotated[
        list[str] | None, typer.Argument(help="The messages: 3, or 5-9 with both ends.")
    ] = None,
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    everything: Annotated[
        bool, typer.Option("--everything", help="Erase everything kept for this tenant.")
    ] = False,
    forks: Annotated[
        Forks,
        typer.Option(help="Erase in all sessions that share the messages, or keep them there."),
    ] = Forks.all,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Keep the messages readable, but use them nowhere.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase messages and everything made from them. This cannot be undone.

    A whole session is erased by 'hiermem delete'.
    """
    with open_existing(db, tenant) as memory:
        if bool(messages) == everything:
            raise UsageError("pass messages, or --everything")
        if quarantine and not messages:
            raise UsageError("--quarantine goes with messages")
        if everything:
            if session is not None:
                raise UsageError("--everything concerns no single session; leave --session out")
            count = sum(1 for _ in sessions_of(memory))
            confirm(f"erase all {plural(count, 'session')} of tenant {clean(tenant)!r}?", yes=yes)
            print_receipt(memory.erase_tenant(), as_json=as_json)
            return
        target = session_of(memory, session)
        name = clean(target.id)
        indices = _indices(messages or [])
        word = "quarantine" if quarantine else "erase"
        confirm(f"{word} {plural(len(indices), 'message')} of session {name!r}?", yes=yes)
        act = target.quarantine if quarantine else target.erase
        print_receipt(act(indices, forks=forks.value), as_json=as_json)


def _indices(words: list[str]) -> list[int]:
    found: set[int] = set()
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None:
            raise UsageError(f"{word!r} is not a message or a range; write 3, or 5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise UsageError(f"{word!r} is not a range of at most {_MOST:,} messages")
        found.update(range(first, last + 1))
    return sorted(found)


# ---------------------------------------------------------------------------------------------
# scrub, migrate, backup, copy and check


@app.command()
def scrub(*, db: Db = DB, as_json: Json = False) -> None:
    """Clean the store's bytes after earlier erasures.

    In PostgreSQL this needs the rights of the tables' owner; others wait while a table is written.
    """
    with open_existing(db, "default") as memory:
        print_scrubbed(memory.scrub(), as_json=as_json)


@app.command()
def migrate(*, db: Db = DB, as_json: Json = False) -> None:
    """Bring the store to the version of this hiermem; of a database, with its owner's rights."""
    with open_existing(db, "default", migrate=True):
        if as_json:
            print_json({"migrated": shown(db)})
        else:
            out().print("the store is of the version of this hiermem", soft_wrap=True)


@app.command()
def backup(
    target: Annotated[str, typer.Argument(help="The new file to copy the store to.")],
    *,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Copy the whole store to a new file, also while others are using it."""
    with open_existing(db, "default") as memory:
        copy = memory.backup(target)
        if as_json:
            print_json(copy)
        else:
            out().print(f"copied to {clean(copy.place)}", soft_wrap=True)


@app.command("copy")
def copy_store(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM",
            envvar="HIERMEM_COPY_FROM",
            help="The memory's file, or its postgresql:// URL.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TO",
            envvar="HIERMEM_COPY_TO",
            help="The file or URL to copy to; it may exist.",
        ),
    ],
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only this tenant; all by default.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only this session of the tenant.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a store, a tenant or a session to another store, and check it there.

    The same command goes on with a copy that was cut off, and brings what has changed since.
    """
    with open_existing(source, tenant or "default") as memory:
        everything = tenant is None and session is None
        report = _copied(memory, target, session, all_tenants=everything)
    if as_json:
        print_json({**asdict(report), "ok": report.ok})
    else:
        print_copy(report)
    if report.findings:
        raise typer.Exit(Code.ERROR)
    if report.changing:
        raise typer.Exit(Code.INCOMPLETE)


def _copied(memory: Memory, target: str, session: str | None, *, all_tenants: bool) -> CopyReport:
    with progress("copy", "messages") as show:

        def draw(now: CopyReport) -> None:
            show({"messages": (now.messages, None)}, f", {plural(now.sessions, 'session')} done")

        return memory.copy_to(target, session=session, all_tenants=all_tenants, on_progress=draw)


@app.command()
def check(*, db: Db = DB, tenant: Tenant = "default", as_json: Json = False) -> None:
    """Verify the promises that stored data can show. Reads everything, writes nothing."""
    with open_existing(db, tenant) as memory:
        report = _checked(memory)
        if as_json:
            print_json({**asdict(report), "ok": report.ok})
        else:
            print_check(report)
        if not report.ok:
            raise typer.Exit(Code.ERROR)


def _checked(memory: Memory) -> CheckReport:
    console = out(error=True)
    if not console.is_terminal:
        return memory.check()
    with console.status("reading"):
        return memory.check()
