"""The command line: every command in the groups and the order of the help, and their errors.

A command prints its result on standard output and everything else (progress, hints, errors) on
standard error, so that its result can be piped. An irreversible action is confirmed first, with a
question that names it; without a terminal to ask on, it needs ``--yes``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer
from pydantic import ValidationError
from typer import Option
from typer.core import TyperGroup

import hiermem
from hiermem import AsyncMemory, ConfigError, HierarchyConfig, UpdatePolicy
from hiermem.cli import bank, demo, extract, imports, options, search, sessions, show, store, update
from hiermem.cli.options import Caps, Model, Place, declared
from hiermem.cli.output import (
    Code,
    choose,
    clean,
    echo,
    hint,
    out,
    replace_unencodable,
    result,
    say,
    to_json,
    wants_json,
)
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
    target: Annotated[Path, Option("--output", "-o")] = Path("memory.html"),
    query: Annotated[str | None, Option("--query", "-q")] = None,
    text: Annotated[bool, Option("--text/--no-text")] = True,
    overwrite: bool = False,
) -> None:
    """Write a page for a browser, of all sessions or one. It needs no server and no network.

    Args:
        target: The page.
        query: Show the contexts for this question.
        text: No text: only structure, times and sizes.
        overwrite: Replace a file that is no page of this command.
    """
    if target.is_dir():
        raise hiermem.UsageError(f"{target} is a folder; name a file")
    if target.is_file() and not overwrite and not _PAGE.match(target.read_bytes()):
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
    result({"session_id": session, "file": str(target), "bytes": size})


#: The variable with the token that clients must bear over HTTP.
VARIABLE: Final = "HIERMEM_MCP_TOKEN"
#: The package that the extra ``mcp`` brings.
_PACKAGE: Final = "mcp"


def mcp(
    place: Place,
    *,
    http: bool = False,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65_535)] = 8000,
    allow_host: list[str] | None = None,
    read_only: bool = False,
    tools: Annotated[str, Option(metavar="core|all|NAMES")] = "core",
    space: Annotated[str, Option(metavar="NAME")] = "me",
    person: Annotated[str | None, Option(metavar="NAME")] = None,
    config: Annotated[Path | None, Option(metavar="FILE")] = None,
    model: Model,
    caps: Caps,
) -> None:
    """Serve the memory to an MCP client: tools to remember, search, read and note.

    The server makes the summaries itself; --max-calls and --max-tokens cap what that may take.

    Args:
        http: Serve over HTTP, not standard input and output; HIERMEM_MCP_TOKEN in the environment
            holds the token that clients must bear.
        host: The address to listen on, with --http.
        port: The port, with --http.
        allow_host: A further name that clients reach it by; may be repeated.
        read_only: Offer no tool that changes the memory.
        tools: The tools; names are separated by commas.
        space: The space that is served; its first use makes it.
        person: The name under which the person of a new space speaks.
        config: Sizes of new sessions, as JSON with published names: {"windowChars": 6000}.
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
    serve: Any = serve_stdio
    if http:
        served = Http(os.environ.get(VARIABLE, ""), host, port, tuple(allow_host or ()))
        hint(f"serving {clean(place.db)} at http://{host}:{port}/mcp")
        serve = partial(serve_http, http=served)
    work = serve(
        opening, space=space, person=person, read_only=read_only, tools=tools, limits=caps.limits
    )
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


#: What other programs call a command or an option, and what is right here.
_MEANT = {
    "--all": "without --session, all are searched",
    "--order": "the newest come first",
    "--search": "write the words after the command",
    **dict.fromkeys(("add", "ingest", "load"), "import"),
    **dict.fromkeys(("ls", "list"), "sessions"),
    **dict.fromkeys(("ask", "find"), "search"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    "chat": "context",
}
#: The base class of typer's exceptions for a wrong command line; typer exports only subclasses.
_Misuse: Any = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """The commands, with one place for their errors and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look for --json in the whole line, because an error in it is to be JSON already."""
        choose(as_json="--json" in (args[: args.index("--")] if "--" in args else args))
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        with _reported_errors():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; of a word that other programs use, say what it is called here."""
        if args[0] not in self.commands and args[0] in _MEANT:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {_MEANT[args[0]]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands in their groups, each with its first sentence."""
        del ctx
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            about: Any = command  # typer says of a group of commands alone that it has this
            group = getattr(about, "rich_help_panel", None) or "Commands"
            groups.setdefault(group, []).append((name, about.get_short_help_str(limit=200)))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _reported_errors(), _quiet_log():
            return super().invoke(ctx)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise what Ctrl-C raises, with the signal as its argument."""
    raise KeyboardInterrupt(signal.Signals(number))


@contextmanager
def _termination() -> Generator[None]:
    """Let a SIGTERM end the command as Ctrl-C does, so that it cleans up and says so."""
    before = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet_log() -> Generator[None]:
    """With --json, keep the log's warnings from standard error, where each line is JSON."""
    log, handler = logging.getLogger(hiermem.__name__), logging.NullHandler()
    if wants_json():
        log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def _reported_errors() -> Generator[None]:
    """Print an error that the user can act on as one line, and exit with its code."""
    try:
        with _termination():
            yield
    except KeyboardInterrupt as error:
        number: signal.Signals = error.args[0] if error.args else signal.SIGINT
        again = "what was made is kept, and the same command continues"
        _fail(number.name, f"interrupted by {number.name}: {again}", 128 + number)
    except hiermem.BudgetTooSmallError as error:
        text = (
            f"{error.budget:,} tokens are too few for this session; it needs at least "
            f"{error.minimum:,} now"
        )
        if error.omission:
            text += ". With --allow-omission, what does not fit is listed instead"
        _fail(type(error).__name__, text, Code.ERROR)
    except (hiermem.HiermemError, OSError) as error:
        # Subclasses of UsageError are about what a file or a session holds.
        wrong = type(error) in (hiermem.UsageError, hiermem.ConfigError)
        code = Code.USAGE if wrong else Code.ERROR
        retryable = getattr(error, "retryable", False)
        again = " Trying again may help." if retryable else ""
        _fail(type(error).__name__, f"{error}{again}", code, retryable=retryable)
    except _Misuse as error:
        error.message = _misuse(error)
        if not wants_json():
            raise
        _fail("UsageError", error.format_message(), Code.USAGE)


def _misuse(error: Any) -> str:
    """Return what is wrong with a command line, in no words of the libraries that read it."""
    if isinstance(error.__cause__, ValidationError):
        fault = error.__cause__.errors(include_url=False)[0]
        said = str(fault["msg"]).removeprefix("Value error, ")
        if not said.startswith("Input should"):
            return said
        must = said.removeprefix("Input should").partition(",")[0]
        return f"{fault['input']!r}; it must{must}"
    said = str(error.message)
    if said.startswith("Got unexpected extra argument"):
        if error.ctx is not None and error.ctx.info_name == "import":
            return f"{said}; one file or folder is imported at a time"
        return f"{said}; put a name of several words between quotes"
    if (option := getattr(error, "option_name", None)) and error.ctx is not None:
        meant = (
            "write options after the command" if error.ctx.parent is None else _MEANT.get(option)
        )
        error.possibilities = None if meant else error.possibilities
        return f"{said}; {meant}" if meant else said
    return said


def _fail(kind: str, text: str, code: int, *, retryable: bool = False) -> NoReturn:
    flat = " ".join(clean(text).split())
    if wants_json():
        error = {"type": kind, "message": flat, "code": int(code), "retryable": retryable}
        echo(to_json({"error": error}) + "\n", error=True)
    elif code > Code.INCOMPLETE:
        say(flat, error=True, style="yellow")
    else:
        say(f"error: {flat}", error=True, style="red")
    raise typer.Exit(code) from None


app = typer.Typer(
    name="hiermem",
    cls=Commands,
    help="Unbounded conversation memory: messages, a tree of summaries, contexts that fit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: The commands, in the groups of the help. A command is called as its function is.
_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Start": [demo.demo, imports.import_, update.update, mcp],
    "Read": [
        *(sessions.sessions, search.search, search.context, bank.about, show.show, view),
        *(sessions.export, extract.extract),
    ],
    "Change": [
        *(sessions.rename, sessions.pin, bank.join, bank.forget, sessions.erase, sessions.delete)
    ],
    "Operate": [update.work, store.runs, store.metrics],
}
#: The groups of commands: what each is about, where it stands in the help, and its commands.
_GROUPS: dict[str, tuple[str, str, list[Callable[..., None]]]] = {
    "bank": (
        "Notes, and the bank of files that they are consolidated into.",
        "Change",
        [
            *(bank.note, bank.consolidate, bank.show, bank.history, bank.diff, bank.rollback),
            *(bank.export, bank.load, bank.erase),
        ],
    ),
    "store": (
        "Check, back up, copy and clean a whole store.",
        "Operate",
        [store.check, store.backup, store.copy, store.scrub],
    ),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        _as_json = _command is not mcp  # whose standard output belongs to the protocol
        app.command(_command.__name__.rstrip("_"), rich_help_panel=_panel)(
            declared(_command, as_json=_as_json)
        )
for _name, (_help, _panel, _commands) in _GROUPS.items():
    _group = typer.Typer(no_args_is_help=True, help=_help, rich_markup_mode=None)
    for _command in _commands:
        _group.command(_command.__name__)(declared(_command))
    app.add_typer(_group, name=_name, rich_help_panel=_panel)


def _version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        out().print(f"hiermem {hiermem.__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[
        bool, Option("--version", "-v", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Unbounded conversation memory: messages, a tree of summaries, contexts that fit."""
    del version
    replace_unencodable()
