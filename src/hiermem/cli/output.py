"""The output and exit codes that all commands share: JSON, hints, progress, errors.

Standard output gets the result alone: text, or with ``--json`` one JSON object. Standard error gets
hints, progress and errors; with ``--json`` no hints, and each of the others as one line of JSON.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from enum import IntEnum
from types import FrameType
from typing import Any, NoReturn, TypeAlias

import typer
from pydantic import ValidationError
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from typer.core import TyperGroup

import hiermem
from hiermem import types
from hiermem.cli.screen import clean, out, say, silence

#: How the output is written; each command line sets it.
_written = {"json": False}
#: Shows (done, total) of each part of a work, and a note; the total may be unknown.
ShowProgress: TypeAlias = Callable[..., None]
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
#: Seconds between two lines of progress.
_QUIET = 10.0
#: The base class of typer's exceptions for a wrong command line; typer exports only subclasses.
_Misuse: Any = typer.BadParameter.__mro__[1]


class Code(IntEnum):
    """The exit codes; those of signals are 128 and the signal's number."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    INCOMPLETE = 3


def exit_code(
    report: types.UpdateReport | types.BatchReport | types.WorkerStatus,
) -> Code:
    """Return the exit code of an update: not 0 where it was stopped, failed or made nothing fit.

    Where all that it tried failed, it says what a stop says: try again.
    """
    made = report.made + report.reused
    if report.stopped is not None or (report.failed and not made + report.degraded):
        return Code.INCOMPLETE
    if isinstance(report, types.WorkerStatus):
        broken = report.resting > 0 and report.last_error is not None  # of a session's turn
    else:
        broken = isinstance(report, types.BatchReport) and bool(report.failures)
    failed = broken or report.failed > 0 or (report.degraded > 0 and not made)
    return Code.ERROR if failed else Code.DONE


def choose(*, as_json: bool) -> None:
    """Say whether results, progress and errors are JSON from now on."""
    _written["json"] = as_json


def wants_json() -> bool:
    """Return whether the result is wanted as JSON."""
    return _written["json"]


class Commands(TyperGroup):
    """The commands, with one place for their errors and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look for --json in the whole line, because an error in it is to be JSON already."""
        _written["json"] = "--json" in (args[: args.index("--")] if "--" in args else args)
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


# ---------------------------------------------------------------------------------------------
# Results and hints


def result(
    data: object,
    text: RenderableType | Callable[[], None],
    *,
    whole: bool = False,
    empty: str = "",
) -> None:
    """Print the result of a command: ``data`` as JSON with --json, and ``text`` otherwise.

    ``text`` may be a function that prints; where it is "", ``empty`` is a hint. With ``whole``, no
    line of a table is wrapped in a file.
    """
    if wants_json():
        print_json(data)
    elif empty and text == "":
        hint(empty)
    elif callable(text):
        text()
    else:
        out(whole=whole).print(text, soft_wrap=isinstance(text, str))


def print_json(value: object) -> None:
    """Print a value as JSON on standard output."""
    echo(to_json(value, indent=2) + "\n")


def echo(text: str, *, error: bool = False) -> None:
    """Write text as it is; silently, once nobody reads it: the exit code is that of the work."""
    stream = sys.stderr if error else sys.stdout
    try:
        typer.echo(text, file=stream, nl=False)
    except BrokenPipeError:
        silence(stream)


def to_json(value: object, *, indent: int | None = None) -> str:
    r"""Return JSON, loss-free, with the characters escaped that a terminal would obey.

    Where standard output cannot encode every character, it is ASCII.

    >>> to_json({"red": "\x1b[31m"})
    '{"red": "\\u001b[31m"}'
    """
    plain = not (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    text = json.dumps(value, ensure_ascii=plain, indent=indent, default=_plain)
    for char in {char for char in set(text) if clean(char) != char}:
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else asdict(value)


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return attributes of a value by their names, for JSON."""
    return {name: getattr(value, name) for name in names}


def hint(text: str) -> None:
    """Print a line on standard error that is no part of the result; nothing with --json."""
    if not wants_json():
        say(text, error=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation; end with code 1 where it is refused.

    Raises UsageError if there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise hiermem.UsageError(
            f"{question} Pass --yes to confirm; there is no terminal to ask on"
        )
    if not typer.confirm(question, err=True):
        hint("nothing was done")
        raise typer.Exit(Code.ERROR)


# ---------------------------------------------------------------------------------------------
# Progress


@contextmanager
def progress(subject: str, unit: str, *, slow: bool = False) -> Generator[ShowProgress]:
    """Show progress on standard error: bars on a terminal, elsewhere a line now and then.

    Work that is ``slow`` begins with a line. The bars disappear when it is done.
    """
    console = out(error=True)
    tasks: dict[str, TaskID] = {}
    due = time.monotonic() + (0.0 if slow else _QUIET)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def show(parts: Mapping[str, tuple[int, int | None]], note: str = "") -> None:
        nonlocal due
        for name, (done, total) in parts.items():
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], description=f"{name}{note}", completed=done, total=total)
        totals = [total for _, total in parts.values() if total is not None]
        done = sum(done for done, _ in parts.values())
        if console.is_terminal or time.monotonic() < due or not (sum(totals) or done):
            return
        due = time.monotonic() + _QUIET
        if wants_json():
            state = {"subject": subject, "unit": unit, "done": done, "total": sum(totals) or None}
            echo(to_json({"progress": state}) + "\n", error=True)
        else:
            of = f" of {sum(totals):,}" if totals else ""
            say(f"{clean(subject)}: {done:,}{of} {unit}{note}", error=True)

    with bars:
        yield show


# ---------------------------------------------------------------------------------------------
# Errors and signals


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
            f"{error.minimum:,} now. With --allow-omission, what does not fit is listed instead."
        )
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
