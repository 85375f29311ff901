"""The command line: every command, in the groups and the order of the help.

A command prints its result on standard output and everything else (progress, hints, errors) on
standard error, so that its result can be piped. ``output`` has the exit codes.

The command ``view``: writes a memory, or one session of it, as a page for a browser.

The command ``mcp``: the memory as a server of the Model Context Protocol.

Standard output belongs to the protocol, so nothing is printed there.

The maintenance commands: ``runs``, ``metrics``, ``erase``, ``backup``, ``copy`` and ``check``.

An irreversible action is confirmed first, with a question that names it. Without a terminal to ask
on, it needs ``--yes``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument, Option

import hiermem
from hiermem import AsyncMemory, ConfigError, HierarchyConfig, UpdatePolicy, types
from hiermem.cli import (
    bank,
    demo,
    extract,
    import_cmd,
    options,
    output,
    search_cmd,
    sessions,
    show,
    tables,
    update,
)
from hiermem.cli import screen as names
from hiermem.cli.options import Caps, Model, Place, declared
from hiermem.cli.output import Code, Commands, confirm, hint, progress, result
from hiermem.cli.screen import clean, out, plural, replace_unencodable
from hiermem.cli.sessions import new_file

#: How a page of this command begins, which the next one may replace. A file that quotes a page, or
#: has its mark anywhere else, is somebody's own.
_PAGE = re.compile(
    rb'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    rb"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    rb"script-src 'sha256-[A-Za-z0-9+/=]+'; [^\"<>\n]*\">\n"
    rb'<meta name="viewport" [^<>\n]*>\n<meta name="generator" content="hiermem view">\n'
)


def view(
    one: options.OneSession,
    *,
    target: Annotated[Path, Option("--output", "-o", help="The page.")] = Path("memory.html"),
    query: Annotated[
        str | None, Option("--query", "-q", help="Show the contexts for this question.")
    ] = None,
    text: Annotated[
        bool, Option("--text/--no-text", help="No text: only structure, times and sizes.")
    ] = True,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace a file that is no page of this command.")
    ] = False,
) -> None:
    """Write a page for a browser, of all sessions or one. It needs no server and no network."""
    if target.is_dir():
        raise hiermem.UsageError(f"{target} is a folder; name a file")
    if target.exists() and not overwrite and not _PAGE.match(_beginning(target)):
        raise hiermem.UsageError(
            f"{target} exists and is no page of 'hiermem view'; name a new file, or use --overwrite"
        )
    name = one.chosen()
    with one.open(read_only=True) as memory:
        shown = memory if name is None else options.session_of(memory, name)
        session = None if isinstance(shown, hiermem.Memory) else shown.id
        page = shown.to_html(text=text, query=query)
    with new_file(target, replace=True) as file:
        file.write(page)
    size = target.stat().st_size
    output.result(
        {"session_id": session, "file": str(target), "bytes": size},
        lambda: output.hint(
            f"wrote {clean(str(target))} ({size / 1e6:.1f} MB): open it in a browser"
        ),
    )


def _beginning(target: Path) -> bytes:
    try:
        with target.open("rb") as file:
            return file.read(2_000)
    except OSError:
        return b""


#: The variable with the token that clients must bear over HTTP.
VARIABLE: Final = "HIERMEM_MCP_TOKEN"
#: The package that the extra ``mcp`` brings.
_PACKAGE: Final = "mcp"


def mcp(
    place: Place,
    *,
    http: Annotated[
        bool,
        Option(
            "--http",
            help=f"Serve over HTTP, not standard input and output; {VARIABLE} in the environment "
            "holds the token that clients must bear.",
        ),
    ] = False,
    host: Annotated[str, Option(help="The address to listen on, with --http.")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65_535, help="The port, with --http.")] = 8000,
    allow_host: Annotated[
        list[str] | None, Option(help="A further name that clients reach it by; may be repeated.")
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Offer no tool that changes the memory.")
    ] = False,
    tools: Annotated[
        str, Option(metavar="core|all|NAMES", help="The tools; names are separated by commas.")
    ] = "core",
    space: Annotated[
        str, Option(metavar="NAME", help="The space that is served; its first use makes it.")
    ] = "me",
    config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help='Sizes of new sessions, as JSON with published names: {"windowChars": 6000}.',
        ),
    ] = None,
    model: Model,
    caps: Caps,
) -> None:
    """Serve the memory to an MCP client: tools to remember, search, read and note.

    The server makes the summaries itself; --max-calls and --max-tokens cap what that may take.
    """
    try:
        from hiermem.mcp import Http, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _PACKAGE:
            raise
        raise ConfigError(
            "the MCP server needs 'mcp'; pip install 'hiermem-memory[mcp]', or from a "
            "checkout '.[mcp]'"
        ) from None
    opening = AsyncMemory.open(
        place.db,
        tenant=place.tenant,
        llm=model.connected(),
        read_only=read_only,
        config=None if config is None else _sizes(config),
        update_policy=model.policy(UpdatePolicy),
    )
    settings = {"space": space, "read_only": read_only, "tools": tools, **asdict(caps)}
    if http:
        served = Http(os.environ.get(VARIABLE, ""), host, port, tuple(allow_host or ()))
        hint(f"serving {clean(place.db)} at http://{host}:{port}/mcp")
        work = serve_http(opening, served, **settings)
    else:
        work = serve_stdio(opening, **settings)
    # psycopg does not work in the default loop of Windows.
    loop = asyncio.SelectorEventLoop if sys.platform == "win32" else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


def _sizes(path: Path) -> HierarchyConfig:
    """Read the sizes of sessions from a file. Raises ConfigError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise ConfigError(f"--config {clean(str(path))} cannot be read: {said}") from None
    return HierarchyConfig.from_published(found)


#: Messages on the command line: 3, or 5-9 with both ends.
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
#: The largest range of messages.
_MOST = 1_000_000
#: A limit that returns all runs.
_ALL = 2**31 - 1


def runs(
    one: options.OneSession,
    *,
    run: Annotated[
        str | None,
        Option(metavar="ID", help="Show this run item by item; the beginning of its id will do."),
    ] = None,
    limit: Annotated[int, Option(min=1, help="The number of runs, newest first.")] = 20,
) -> None:
    """List runs (updates, extractions, erasures), or show one run item by item."""
    name = one.chosen()
    with one.open() as memory:
        if run is not None:
            report = _run_of(memory, run)
            result(report, tables.one_run(report), whole=True)
            return
        found = _runs_of(memory, name, limit)
        shown = tables.all_runs(found) if found else ""
        result({"runs": found}, shown, whole=True, empty="no runs yet")


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
    input_price: Annotated[
        float | None, Option(min=0, help="The summariser's price of a million input tokens.")
    ] = None,
    output_price: Annotated[
        float | None, Option(min=0, help="Its price of a million output tokens.")
    ] = None,
    context_price: Annotated[
        float | None, Option(min=0, help="The price of a million tokens of a context.")
    ] = None,
) -> None:
    """Show a session's metrics: compression, cost, and the facts that were kept."""
    prices = None
    if (input_price, output_price, context_price) != (None, None, None):
        prices = hiermem.Prices(input_price or 0.0, output_price or 0.0, context_price)
    with one.opened() as session:
        found = session.metrics(prices)
        result(tables.metrics_data(found), tables.metrics_table(found))


def erase(
    one: options.OneSession,
    *,
    messages: Annotated[
        list[str] | None, Argument(help="The messages: 3, or 5-9 with both ends.")
    ] = None,
    everything: Annotated[
        bool, Option("--everything", help="Erase everything kept for this tenant.")
    ] = False,
    forks: Annotated[
        options.Forks,
        Option(help="Erase in all sessions that share the messages, or keep them there."),
    ] = "all",
    quarantine: Annotated[
        bool, Option("--quarantine", help="Keep the messages readable, but use them nowhere.")
    ] = False,
    yes: options.Yes = False,
) -> None:
    """Erase messages and everything made from them. This cannot be undone.

    The session comes first: hiermem erase SESSION 3 5-9. 'hiermem delete' erases a whole session.
    """
    one, words = one.parted(messages or ())
    name = one.chosen()
    if everything and (name is not None or quarantine):
        raise hiermem.UsageError("--everything goes with no session, message or --quarantine")
    if not everything and (name is None or not words):
        raise hiermem.UsageError("no messages named; write for example: hiermem erase @last 3 5-9")
    indices = _indices(words)
    with one.open() as memory:
        if everything:
            count = sum(1 for _ in options.sessions_of(memory))
            confirm(
                f"erase all {plural(count, 'session')} of tenant {clean(one.tenant)!r}?", yes=yes
            )
            tables.print_receipt(memory.erase_tenant())
            return
        session = options.session_of(memory, name, whole=yes)
        word = "quarantine" if quarantine else "erase"
        of = names.labelled(session.status())
        confirm(f"{word} {plural(len(indices), 'message')} of session {of}?", yes=yes)
        act = session.quarantine if quarantine else session.erase
        tables.print_receipt(act(indices, forks=forks))


def _indices(words: list[str]) -> list[int]:
    found: set[int] = set()
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None:
            raise hiermem.UsageError(f"{word!r} is not a message or a range; write 3, or 5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise hiermem.UsageError(f"{word!r} runs backwards; write {last}-{first}")
        if last - first >= _MOST:
            raise hiermem.UsageError(f"{word!r} is not a range of at most {_MOST:,} messages")
        found.update(range(first, last + 1))
    return sorted(found)


def scrub(*, db: options.Db = options.DB) -> None:
    """Clean the store's bytes after earlier erasures.

    In PostgreSQL this needs the rights of the tables' owner; others wait while a table is written.
    """
    with options.open_existing(db) as memory:
        tables.print_scrubbed(memory.scrub())


def migrate(*, db: options.Db = options.DB) -> None:
    """Bring the store to the version of this hiermem; of a database, with its owner's rights."""
    with options.open_existing(db, migrate=True):
        result({"migrated": options.shown(db)}, "the store is of the version of this hiermem")


def backup(
    target: Annotated[str, Argument(metavar="FILE", help="The new file for the copy.")],
    *,
    db: options.Db = options.DB,
) -> None:
    """Copy the whole store to a new file, also while others are using it."""
    with options.open_existing(db) as memory:
        made = memory.backup(target)
        result(made, f"copied to {clean(made.place)}")


def copy(
    source: Annotated[
        str,
        Argument(
            metavar="FROM",
            envvar="HIERMEM_COPY_FROM",
            help="The memory's file, or its postgresql:// URL.",
        ),
    ],
    target: Annotated[
        str,
        Argument(
            metavar="TO",
            envvar="HIERMEM_COPY_TO",
            help="The file or URL to copy to; it may exist.",
        ),
    ],
    *,
    tenant: Annotated[str | None, Option(help="Only this tenant; all by default.")] = None,
    session: options.Session = None,
) -> None:
    """Copy a store, a tenant or a session to another store, and check it there.

    The same command goes on with a copy that was cut off, and brings what has changed since.
    """  # fmt: skip
    everything = tenant is None and session is None
    with (
        options.open_existing(source, tenant=tenant or "default") as memory,
        progress("copy", "messages") as show,
    ):

        def draw(now: types.CopyReport) -> None:
            show({"messages": (now.messages, None)}, f", {plural(now.sessions, 'session')} done")

        only = None if session is None else options.session_of(memory, session).id
        report = memory.copy_to(target, session=only, all_tenants=everything, on_progress=draw)
    result({**asdict(report), "ok": report.ok}, lambda: tables.print_copy(report))
    if report.findings:
        raise typer.Exit(Code.ERROR)
    if report.changing:
        raise typer.Exit(Code.INCOMPLETE)


def check(place: options.Place) -> None:
    """Verify the promises that stored data can show. Reads everything, writes nothing."""
    with place.open() as memory:
        console = out(error=True)
        with console.status("reading") if console.is_terminal else nullcontext():
            report = memory.check()
        result({**asdict(report), "ok": report.ok}, lambda: tables.print_check(report))
        if not report.ok:
            raise typer.Exit(Code.ERROR)


app = typer.Typer(
    name="hiermem",
    cls=Commands,
    help="Unbounded conversation memory: messages, a tree of summaries, contexts that fit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
of_bank = typer.Typer(
    no_args_is_help=True,
    help="Notes, and the bank of files that they are consolidated into.",
    rich_markup_mode=None,
)
#: The commands, in the groups of the help. A command is called as its function is.
_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Start": [demo.demo, import_cmd.import_, update.update, mcp],
    "Read": [
        *(sessions.sessions, search_cmd.search, search_cmd.context, bank.about, show.show, view),
        *(sessions.export, extract.extract),
    ],
    "Change": [sessions.rename, sessions.pin, bank.join, bank.forget, erase, sessions.delete],
    "Operate": [
        *(update.work, runs, metrics, check),
        *(backup, copy, scrub, migrate),
    ],
}
_OF_BANK: list[Callable[..., None]] = [
    *(bank.note, bank.consolidate, bank.show, bank.history, bank.diff, bank.rollback),
    *(bank.export, bank.load, bank.erase),
]
for _group, _commands in _COMMANDS.items():
    for _command in _commands:
        _as_json = _command is not mcp  # whose standard output belongs to the protocol
        app.command(_command.__name__.rstrip("_"), rich_help_panel=_group)(
            declared(_command, as_json=_as_json)
        )
for _command in _OF_BANK:
    of_bank.command(_command.__name__)(declared(_command))
app.add_typer(of_bank, name="bank", rich_help_panel="Change")


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        out().print(f"hiermem {hiermem.__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-v", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Unbounded conversation memory: messages, a tree of summaries, contexts that fit."""
    del version
    replace_unencodable()
