"""Formats output for a terminal: cleaned text, numbers, dates and errors.

Text from a user, a model or a file is printed only through ``clean`` and never as markup, so that
no message can move the cursor, change colours or reverse text.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from hiermem import BudgetTooSmallError, HiermemError, UsageError

#: What becomes of degraded summaries.
RETRIED = "to be asked for again later"
#: The width of output whose lines must not be wrapped.
_ENDLESS = 10_000
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


class _Unprintable(dict[int, str | None]):
    """A translate table that is filled on demand: None drops a character, itself keeps it."""

    def __missing__(self, code: int) -> str | None:
        drop = code in _BIDI or unicodedata.category(chr(code)) in ("Cc", "Cs")
        self[code] = None if drop and code not in (0x09, 0x0A) else chr(code)
        return self[code]


_UNPRINTABLE = _Unprintable()


def clean(text: str) -> str:
    r"""Drop control characters (except tab and newline), bidirectional overrides and surrogates.

    >>> clean("red \x1b[31malert\u202e!")
    'red [31malert!'
    """
    return text.translate(_UNPRINTABLE)


def one_line(text: str, width: int) -> str:
    r"""Return the beginning of ``text`` on one line of at most ``width`` characters.

    >>> one_line("first\n\nsecond and more", 14)
    'first second …'
    """
    flat = " ".join(clean(text[: 8 * width + 80]).split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def day(when: datetime, *, year: bool = False) -> str:
    """Format a day as ``2 Feb`` or ``2 Feb 2026``."""
    return f"{when.day} {when:%b}" + (f" {when.year}" if year else "")


def date_range(first: datetime, last: datetime, *, year: bool = True) -> str:
    """Format the days from ``first`` to ``last``; without ``year``, no year is written."""
    if first.date() == last.date():
        return day(last, year=year)
    return f"{day(first, year=year and first.year != last.year)} to {day(last, year=year)}"


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: ``1 message``, ``1,204 messages``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Format a time: ``0.3 s``, ``24 s``, ``7 min``, ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def share(part: float, whole: float) -> str:
    """Format a part of a whole in percent; 0 and 100 only if they are exact."""
    if not whole:
        return "0 %"
    percent = round(100 * part / whole)
    if 0 < part < whole:
        percent = min(99, max(1, percent))
    return f"{percent} %"


class _Screen(Console):
    """A console that is silent once nobody reads it: the exit code is that of the work."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


def out(*, error: bool = False, whole: bool = False) -> Console:
    """Return a console for the current standard output or error; 100 columns if it is a file.

    With ``whole``, lines in a file are never wrapped, so that a program can parse them.
    """
    stream = sys.stderr if error else sys.stdout
    return _Screen(
        file=stream,
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


class TerminatedError(KeyboardInterrupt):
    """The process was asked to end; it is handled as Ctrl-C is."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TerminatedError


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
def reported_errors() -> Generator[None]:
    """Print an error that the user can act on as one line, and exit with code 1.

    A command that is interrupted says so and exits with the code of its signal: 130 or 143.
    """
    try:
        with _termination():
            yield
    except KeyboardInterrupt as error:
        again = "what was made is kept, and the same command continues"
        out(error=True).print(f"interrupted: {again}", style="yellow", soft_wrap=True)
        number = signal.SIGTERM if isinstance(error, TerminatedError) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    except BrokenPipeError:
        raise typer.Exit(0) from None
    except BudgetTooSmallError as error:
        _print_error(
            f"{error.budget:,} tokens are too few for this session; it needs at least "
            f"{error.minimum:,} now. With --allow-omission, what does not fit is listed instead."
        )
        raise typer.Exit(1) from None
    except (HiermemError, OSError) as error:
        again = " Trying again may help." if getattr(error, "retryable", False) else ""
        _print_error(f"{error}{again}")
        raise typer.Exit(1) from None


def _print_error(text: str) -> None:
    flat = " ".join(clean(text).split())
    out(error=True).print(f"error: {flat}", style="red", soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation.

    Raises UsageError if it is refused, or if there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Pass --yes to confirm; there is no terminal to ask on")
    if not typer.confirm(question, err=True):
        raise UsageError("nothing was done")
