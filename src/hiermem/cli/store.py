"""The commands of a whole store: ``runs``, ``metrics`` and ``store …``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Final

import typer
from typer import Argument, Option

import hiermem
from hiermem import types
from hiermem.cli import options
from hiermem.cli.output import Code, facts, hint, out, plural, progress, result, shown

#: The findings of a check that are listed; JSON has all.
_FINDINGS: Final = 50
#: A limit that returns all runs.
_ALL: Final = 2**31 - 1
#: The characters of a run's id on a terminal.
_SHORT: Final = 12
#: What a list says of a run, and a table of a level's metrics.
_DETAIL: Final = ("kind", "removed", "made", "reused", "degraded", "failed", "unknown", "calls",
                  "tokens_in", "tokens_out", "cost", "stopped", "reason", "swapped")  # fmt: skip
_LEVEL: Final = """level nodes made degraded queue dirty input_tokens output_tokens compression
    fidelity"""


def runs(
    one: options.OneSession,
    *,
    run: Annotated[str | None, Option(metavar="ID")] = None,
    limit: Annotated[int, Option(min=1)] = 20,
) -> None:
    """List runs (updates, extractions, erasures), or show one run item by item.

    Args:
        run: Show this run item by item; the beginning of its id will do.
        limit: The number of runs, newest first.
    """
    name = one.chosen()
    with one.open() as memory:
        if run is not None:
            report = _run_of(memory, run)
            names = "id state calls tokens_in tokens_out cost seconds reasons"
            items = [facts(each, names) for each in report.items]
            view = {**facts(report.record), "seconds": report.seconds, "items": items}
            result(report, view)
            return
        found = _runs_of(memory, name, limit)
        width = _SHORT if out().is_terminal else None
        listed = [
            {
                "run": each.id[:width],
                **facts(each, "kind subject started_at outcome"),
                "result": shown({name: each.detail.get(name) for name in _DETAIL}),
            }
            for each in found
        ]
        result({"runs": found}, listed, empty="no runs yet")


def _runs_of(memory: hiermem.Memory, name: str | None, limit: int) -> list[types.RunRecord]:
    """Return all runs, or those of a session, which may have been erased.

    Raises NotFoundError for a session that does not exist and has none.
    """
    if name is None:
        return memory.runs(limit=limit)
    try:
        session = options.session_of(memory, name)
    except hiermem.NotFoundError:
        session = memory.session(name)
        if not session.runs(limit=1):
            raise
    return session.runs(limit=limit)


def _run_of(memory: hiermem.Memory, name: str) -> types.RunReport:
    """Return the only run whose id begins so."""
    fitting = [each.id for each in memory.runs(limit=_ALL) if each.id.startswith(name)]
    if len(fitting) > 1:
        raise hiermem.UsageError(f"{len(fitting):,} runs begin with {name!r}; give more of the id")
    return memory.run(fitting[0] if fitting else name)


def metrics(
    one: options.OneSession,
    *,
    input_price: Annotated[float | None, Option(min=0)] = None,
    output_price: Annotated[float | None, Option(min=0)] = None,
    context_price: Annotated[float | None, Option(min=0)] = None,
) -> None:
    """Show a session's metrics: compression, cost, and the facts that were kept.

    Args:
        input_price: The summariser's price of a million input tokens.
        output_price: Its price of a million output tokens.
        context_price: The price of a million tokens of a context.
    """
    prices = None
    if (input_price, output_price, context_price) != (None, None, None):
        prices = hiermem.Prices(input_price or 0.0, output_price or 0.0, context_price)
    with one.opened() as session:
        found = session.metrics(prices)
        more = facts(found, "nodes queue dirty_share prefix_reuse")
        data = {**facts(found), **more, "feedback_mean": found.feedback.mean}
        result(data, {**data, "levels": [facts(level, _LEVEL) for level in found.levels]})


def check(place: options.Place) -> None:
    """Verify the promises that stored data can show. Reads everything, writes nothing."""
    with place.open() as memory:
        console = out(error=True)
        with console.status("reading") if console.is_terminal else nullcontext():
            report = memory.check()
    broken = {finding.promise for finding in report.findings}
    states = [
        {"promise": name, "state": "BROKEN" if name in broken else "kept", "examined": what}
        for name, what in report.checked.items()
    ]
    unseen = [{"promise": name, "why": why} for name, why in report.not_shown.items()]
    view = {
        **facts(report, "tenant sessions messages nodes skipped"),
        "checked": states,
        "not visible in stored data; the library's tests prove them": unseen,
        "findings": report.findings[:_FINDINGS],
    }
    result({**facts(report), "ok": report.ok}, view)
    if not report.ok:
        hint(f"{plural(len(report.findings), 'finding')}; --json gives all")
        raise typer.Exit(Code.ERROR)


def scrub(*, db: options.Db = options.DB) -> None:
    """Clean the store's bytes after earlier erasures.

    In PostgreSQL this needs the rights of the tables' owner; others wait while a table is written.
    """
    with options.open_existing(db) as memory:
        found = memory.scrub()
    result(found)
    if not found.done:
        hint("the store may still hold bytes of what was erased")
        raise typer.Exit(Code.INCOMPLETE)


def backup(
    target: Annotated[str, Argument(metavar="FILE")], *, db: options.Db = options.DB
) -> None:
    """Copy the whole store to a new file.

    Others may use the store meanwhile.

    Args:
        target: The new file for the copy.
    """
    with options.open_existing(db) as memory:
        result(memory.backup(target))


def copy(
    source: Annotated[str, Argument(metavar="FROM", envvar="HIERMEM_COPY_FROM")],
    target: Annotated[str, Argument(metavar="TO", envvar="HIERMEM_COPY_TO")],
    *,
    tenant: str | None = None,
    session: options.Session = None,
) -> None:
    """Copy a store, a tenant or a session to another store.

    The copy is checked there. The same command goes on with a copy that was cut off, and brings
    what has changed since.

    Args:
        source: The memory's file, or its postgresql:// URL.
        target: The file or URL to copy to; it may exist.
        tenant: Only this tenant; all by default.
    """
    everything = tenant is None and session is None
    with (
        options.open_existing(source, tenant=tenant or "default") as memory,
        progress("copy", "messages") as show,
    ):

        def draw(now: types.CopyReport) -> None:
            show({"messages": (now.messages, None)}, f", {plural(now.sessions, 'session')} done")

        only = None if session is None else options.session_of(memory, session).id
        report = memory.copy_to(target, session=only, all_tenants=everything, on_progress=draw)
    result({**facts(report), "ok": report.ok})
    if report.findings:
        raise typer.Exit(Code.ERROR)
    if report.changing:
        hint("some sessions were written to all the time; copy again for the rest")
        raise typer.Exit(Code.INCOMPLETE)
