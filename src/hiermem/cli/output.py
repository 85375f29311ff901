"""Prints results, hints, progress and questions.

Standard output gets the result alone: text, or with ``--json`` one JSON object. Standard error gets
hints, progress and errors; with ``--json`` no hints, and each of the others as one line of JSON.

One value is a result for both: ``rows`` shows it to people, ``to_json`` writes it for programs.
Text from a user, a model or a file is printed only through ``clean`` and never as markup, so that
no message can move the cursor, change colours or reverse text.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from enum import IntEnum
from itertools import groupby
from typing import IO, Any, Literal, TypeAlias

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

import hiermem
from hiermem import types

#: How the output is written; each command line sets it.
_written = {"json": False}
#: Shows (done, total) of each part of a work, and a note; the total may be unknown.
ShowProgress: TypeAlias = Callable[..., None]
#: Seconds between two lines of progress.
_QUIET = 10.0
#: The width of output whose lines must not be wrapped.
_ENDLESS = 10_000
#: The names of a list and the characters of a text that are shown in a table; JSON has all.
_NAMED, _CELL = 20, 300
#: Control characters but tab and newline, marks that change the direction of text, surrogates.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Code(IntEnum):
    """The exit codes; those of signals are 128 and the signal's number."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    INCOMPLETE = 3


def choose(*, as_json: bool) -> None:
    """Say whether results, progress and errors are JSON from now on."""
    _written["json"] = as_json


def wants_json() -> bool:
    """Return whether the result is wanted as JSON."""
    return _written["json"]


def clean(text: str, *, escaped: bool = True) -> str:
    r"""Drop control characters (except tab and newline), bidirectional overrides and surrogates.

    What reads like a record of the library's own is escaped too, unless ``escaped`` is False: for a
    context, which holds records, and for what is read again.

    >>> clean("red \x1b[31malert\u202e!")
    'red [31malert!'
    """
    text = _UNPRINTABLE.sub("", text)
    return hiermem.escape(text) if escaped else text


def one_line(text: str, width: int) -> str:
    r"""Return the beginning of ``text`` on one line of at most ``width`` characters.

    >>> one_line("first\n\nsecond and more", 14)
    'first second …'
    """
    flat = " ".join(clean(text[: 8 * width + 80]).split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def day(when: datetime | None, *, year: bool = False) -> str:
    """Format a day as ``2 Feb`` or ``2 Feb 2026``; no day as nothing."""
    return "" if when is None else f"{when.day} {when:%b}" + (f" {when.year}" if year else "")


def date_range(first: datetime, last: datetime, *, year: bool = True) -> str:
    """Format the days from ``first`` to ``last``; without ``year``, no year is written."""
    if first.date() == last.date():
        return day(last, year=year)
    return f"{day(first, year=year and first.year != last.year)} to {day(last, year=year)}"


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: ``1 message``, ``1,204 messages``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def named(names: Sequence[str], most: int = _NAMED) -> str:
    """Name the first ``most``, and count the rest: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(clean, names[:most])) + more


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent; 0 and 100 only if they are exact."""
    percent = round(100 * part / whole) if whole else 0
    if 0 < part < whole:
        percent = min(99, max(1, percent))
    return f"{percent} %"


def facts(value: Any, names: str = "") -> dict[str, Any]:
    """Return attributes by their names, which stand between spaces; without names, all fields."""
    if names:
        return {name: getattr(value, name) for name in names.split()}
    if isinstance(value, Mapping):
        return dict(value)
    return {each.name: getattr(value, each.name) for each in fields(value)}


def shown(value: Any) -> str:
    """Return a value on one line as people read it; what is empty or False as nothing.

    >>> shown({"tokens_in": 9, "cost": 0.00512, "ids": (3, 4, 5, 60), "notes": 0, "kept": True})
    'tokens in 9, cost 0.00512, ids 3-5, 60, kept yes'
    >>> shown({1: 12, 2: 3})
    'L1 12, L2 3'
    """
    text = ""
    match value:
        case None | False:
            pass
        case True:
            text = "yes"
        case int():
            text = f"{value:,}"
        case float():
            text = f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
        case datetime():
            text = f"{value:%Y-%m-%d %H:%M}"
        case str():
            text = clean(value)
        case types.Span(start, stop):
            text = _range(start, stop - 1)
        case Mapping():
            text = ", ".join(f"{label(name)} {shown(each)}" for name, each in value.items() if each)
        case Iterable():
            members = list(value)
            whole = bool(members) and all(type(each) is int for each in members)
            text = named(_ranges(members) if whole else [shown(each) for each in members])
        case _:
            text = shown(facts(value))
    return text


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Return numbers as ranges with both ends: ``3-5``, ``60``."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    members = [[number for _, number in run] for _, run in runs]
    return [_range(run[0], run[-1]) for run in members]


def _range(first: int, last: int) -> str:
    return f"{first}-{last}" if first < last else f"{first}"


def label(name: str | int) -> str:
    """Return the name of a field, or of a level, as people read it."""
    return (
        f"L{name}" if isinstance(name, int) else clean(name).replace("_", " ").removesuffix(" id")
    )


def rows(value: Any) -> RenderableType:
    """Show a value to people: a list as a table, anything else as its facts, one a line.

    Among the facts, lists of records follow as tables, and texts of several lines as they are. What
    is empty is left out: a fact, or a column. A table's first column stays and is never wrapped, so
    that ids can be copied.
    """
    if isinstance(value, (list, tuple)):
        return _table([facts(each) for each in value])
    grid, parts = Table.grid(padding=(0, 2)), list[RenderableType]()
    grid.add_column(no_wrap=True, style="bright_black")
    grid.add_column(overflow="fold")
    for name, each in facts(value).items():
        if each and isinstance(each, (list, tuple)) and not isinstance(each[0], (str, int)):
            parts += [Text(f"\n{label(name)}", style="bold"), rows(each)]
        elif isinstance(each, str) and "\n" in each:
            parts.append(Text(f"\n{clean(each)}"))
        elif each and (text := shown(each)):
            grid.add_row(label(name), text)
    return Group(grid, *parts)


def _table(records: Sequence[Mapping[str, Any]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bright_black")
    names = list(records[0]) if records else []
    names = [name for name in names if name == names[0] or any(each[name] for each in records)]
    for name in names:
        count = all(isinstance(each[name], (int, float, type(None))) for each in records)
        justify: Literal["left", "right"] = "right" if count else "left"
        made.add_column(label(name), justify=justify, overflow="fold", no_wrap=name == names[0])
    for each in records:
        made.add_row(*(_cell(each[name]) for name in names))
    return made


def _cell(value: Any) -> str | Text:
    text = value if isinstance(value, Text) else shown(value)
    return one_line(text, _CELL) if isinstance(text, str) and len(text) > _CELL else text


class _Screen(Console):
    """A console that ends no line with blanks, and is silent once nobody reads it."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print without the blanks that fill a table's width."""
        with self.capture() as captured:
            super().print(*objects, **how)
        if not self.quiet:
            echo(re.sub(r"(?m) +$", "", captured.get()), error=self.stderr)


def silence(stream: IO[str]) -> None:
    """Let what is still written to a stream that nobody reads any more go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def out(*, error: bool = False, whole: bool = False) -> Console:
    """Return a console for the current standard output or error; 100 columns if it is a file.

    With ``whole``, lines in a file are never wrapped, so that a program can parse them.
    """
    stream = sys.stderr if error else sys.stdout
    return _Screen(
        file=stream,
        stderr=error,
        width=None if stream.isatty() else _ENDLESS if whole else 100,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def replace_unencodable() -> None:
    """Let standard output and error replace characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(value: Any, *, error: bool = False, style: str | None = None) -> None:
    """Print a text without breaks of lines, so that it can be copied, or any value as ``rows``."""
    if isinstance(value, (str, Text)):
        out(error=error).print(value, style=style, soft_wrap=True)
    else:
        out(error=error, whole=True).print(rows(value))


def result(data: Any, view: Any = None, *, empty: str = "") -> None:
    """Print the result of a command: ``data`` as JSON with --json, and for people otherwise.

    ``view`` is what people see, if that is not all of it: a text, or a value for ``rows``. If it is
    empty, ``empty`` is a hint.
    """
    if wants_json():
        print_json(data)
    elif empty and not view:
        hint(empty)
    elif isinstance(view, str):
        echo(clean(view.removesuffix("\n")) + "\n")
    else:
        say(data if view is None else view)


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
    return [value.start, value.stop] if isinstance(value, types.Span) else facts(value)


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
