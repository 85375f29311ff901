"""The commands that look after a memory: ``runs``, ``metrics``, ``erase`` and ``check``.

The one rule: what cannot be taken back is asked for first, in words that say what it is; without a
terminal to ask on, ``--yes`` has to have said so.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from hiermem import (
    CheckReport,
    Memory,
    NotFoundError,
    Prices,
    RunRecord,
    RunReport,
    UsageError,
)
from hiermem.cli.ledgers import (
    all_runs,
    as_json,
    metrics_data,
    metrics_table,
    one_run,
    print_check,
    print_receipt,
    print_scrubbed,
    short,
)
from hiermem.cli.opening import DB, Db, SessionId, Tenant, chosen, existing
from hiermem.cli.screen import clean, confirm, out, plural, trouble

app = typer.Typer()


class Shape(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"


class Forks(StrEnum):
    """What an erasure does in the sessions that share a message."""

    all = "all"
    keep = "keep"


Form = Annotated[Shape, typer.Option("--format", help="For a reader, or all of it as JSON.")]
#: Messages as they are named on the command line: 3, or 5-9 with both ends.
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
#: More messages than this are not named one by one.
_MOST = 1_000_000
#: All the runs there are.
_ALL = 2**31 - 1


# ---------------------------------------------------------------------------------------------
# runs


@app.command()
def runs(
    run: Annotated[
        str | None, typer.Argument(help="Show this run item by item; the start of its id will do.")
    ] = None,
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Only the runs of this session.")
    ] = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    form: Form = Shape.table,
) -> None:
    """List what was done: updates, extractions, erasures; or show one of them item by item."""
    with trouble(), existing(db, tenant) as memory:
        if run is not None:
            report = _run_of(memory, run)
            if form is Shape.json:
                typer.echo(as_json(report))
            else:
                out(whole=True).print(one_run(report))
            return
        found = _runs_of(memory, session, limit)
        if form is Shape.json:
            typer.echo(as_json([asdict(each) for each in found]))
        elif found:
            console = out(whole=True)
            console.print(all_runs(found, ids=short(found) if console.is_terminal else None))
        else:
            out().print("no runs yet")


def _runs_of(memory: Memory, session: str | None, limit: int) -> list[RunRecord]:
    """List runs; where there are none of a session that does not exist, it is a wrong name."""
    if session is None:
        return memory.runs(limit=limit)
    found = memory.session(session).runs(limit=limit)
    if not found and all(record.id != session for record in memory.sessions()):
        raise NotFoundError(f"there is no session {session!r}")
    return found


def _run_of(memory: Memory, name: str) -> RunReport:
    """Give the run of that id, or the only one whose id begins so."""
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
        float | None, typer.Option(min=0, help="What a million tokens in cost the summariser.")
    ] = None,
    output_price: Annotated[
        float | None, typer.Option(min=0, help="What a million tokens out cost it.")
    ] = None,
    context_price: Annotated[
        float | None, typer.Option(min=0, help="What a million tokens of a context cost.")
    ] = None,
    form: Form = Shape.table,
) -> None:
    """Measure a session: how much shorter it is, what that cost, what was kept."""
    with trouble(), existing(db, tenant) as memory:
        prices = None
        if (input_price, output_price, context_price) != (None, None, None):
            prices = Prices(input_price or 0.0, output_price or 0.0, context_price)
        found = chosen(memory, session).metrics(prices)
        if form is Shape.json:
            typer.echo(as_json(metrics_data(found)))
        else:
            out().print(metrics_table(found))


# ---------------------------------------------------------------------------------------------
# erase


@app.command()
def erase(
    messages: Annotated[
        list[str] | None, typer.Argument(help="Which messages: 3, or 5-9 with both ends.")
    ] = None,
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    whole: Annotated[
        bool, typer.Option("--whole", help="The whole session, with its log and summaries.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="All that is kept for this tenant.")
    ] = False,
    forks: Annotated[
        Forks, typer.Option(help="What happens in sessions that share the messages.")
    ] = Forks.all,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Keep the messages, make everything without them.")
    ] = False,
    scrub: Annotated[
        bool,
        typer.Option("--scrub", help="Only clean the file's bytes of what was erased before."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take messages back, out of everything that was made from them. There is no way back."""
    with trouble(), existing(db, tenant) as memory:
        if sum((bool(messages), whole, everything, scrub)) != 1:
            raise UsageError(
                "name the messages, or say --whole, --everything or --scrub; one of them"
            )
        if scrub:
            _scrub(memory, session)
            return
        if quarantine and not messages:
            raise UsageError("--quarantine goes with messages")
        if everything:
            if session is not None:
                raise UsageError("--everything is of no session; leave --session out")
            count = len(memory.sessions())
            confirm(f"erase all {plural(count, 'session')} of tenant {clean(tenant)!r}?", yes=yes)
            print_receipt(memory.erase_tenant())
            return
        target = chosen(memory, session)
        name = clean(target.id)
        if whole:
            confirm(f"erase session {name!r}?", yes=yes)
            print_receipt(memory.erase_session(target.id, forks=forks.value))
            return
        indices = _indices(messages or [])
        word = "quarantine" if quarantine else "erase"
        confirm(f"{word} {plural(len(indices), 'message')} of session {name!r}?", yes=yes)
        act = target.quarantine if quarantine else target.erase
        print_receipt(act(indices, forks=forks.value))


def _scrub(memory: Memory, session: str | None) -> None:
    """Clean the file's bytes; exit code 1 where that could not be done."""
    if session is not None:
        raise UsageError("--scrub is of the whole file; leave --session out")
    found = memory.scrub()
    print_scrubbed(found)
    if not found.done:
        raise typer.Exit(1)


def _indices(words: list[str]) -> list[int]:
    found: set[int] = set()
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None:
            raise UsageError(f"{word!r} names no message; write 3, or 5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise UsageError(f"{word!r} is not a range of at most {_MOST:,} messages")
        found.update(range(first, last + 1))
    return sorted(found)


# ---------------------------------------------------------------------------------------------
# check


@app.command()
def check(*, db: Db = DB, tenant: Tenant = "default", form: Form = Shape.table) -> None:
    """Verify the promises that a store can show: read everything, write nothing."""
    with trouble(), existing(db, tenant) as memory:
        report = _checked(memory)
        if form is Shape.json:
            typer.echo(as_json({**asdict(report), "ok": report.ok}))
        else:
            print_check(report)
        if not report.ok:
            raise typer.Exit(1)


def _checked(memory: Memory) -> CheckReport:
    console = out(error=True)
    if not console.is_terminal:
        return memory.check()
    with console.status("reading"):
        return memory.check()
