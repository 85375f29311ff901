"""Decides how things look in a terminal: what is stripped, how numbers, dates and errors read.

The one rule: everything that came from a user, a model or a file goes through ``clean`` and is
never read as markup, so that no message can move the cursor, recolour the screen or reverse text.
"""

from __future__ import annotations

import io
import sys
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime

import typer
from rich.console import Console

from hiermem import BudgetTooSmallError, HiermemError, UsageError

#: Columns of a line that is never to be wrapped.
_ENDLESS = 10_000
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


class _Unprintable(dict[int, str | None]):
    """A translate table that is filled as characters are met: None drops one, itself keeps it."""

    def __missing__(self, code: int) -> str | None:
        drop = code in _BIDI or unicodedata.category(chr(code)) in ("Cc", "Cs")
        self[code] = None if drop and code not in (0x09, 0x0A) else chr(code)
        return self[code]


_UNPRINTABLE = _Unprintable()


def clean(text: str) -> str:
    r"""Drop control characters (but tab and newline), bidirectional overrides and surrogates.

    >>> clean("red \x1b[31malert\u202e!")
    'red [31malert!'
    """
    return text.translate(_UNPRINTABLE)


def one_line(text: str, width: int) -> str:
    r"""Give the beginning of ``text`` on one line of at most ``width`` characters.

    >>> one_line("first\n\nsecond and more", 14)
    'first second …'
    """
    flat = " ".join(clean(text[: 8 * width + 80]).split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)] + "…"


def day(when: datetime, *, year: bool = False) -> str:
    """Write a day as people do: ``2 Feb`` or ``2 Feb 2026``."""
    return f"{when.day} {when:%b}" + (f" {when.year}" if year else "")


def date_range(first: datetime, last: datetime, *, year: bool = True) -> str:
    """Write the days from ``first`` to ``last``, each year once or (by ``year``) not at all."""
    if first.date() == last.date():
        return day(last, year=year)
    return f"{day(first, year=year and first.year != last.year)} to {day(last, year=year)}"


def plural(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun: ``1 message``, ``1,204 messages``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """Write a part of a whole in percent; never 0 or 100 where that is not the exact truth."""
    if not whole:
        return "0 %"
    percent = round(100 * part / whole)
    if 0 < part < whole:
        percent = min(99, max(1, percent))
    return f"{percent} %"


def out(*, error: bool = False, whole: bool = False) -> Console:
    """Make a console for standard output or error as it is now; 100 columns where it is a file.

    ``whole`` gives a file lines as long as they come, for a program to take apart.
    """
    stream = sys.stderr if error else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _ENDLESS if whole else 100,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def readable() -> None:
    """Let standard output and error write a replacement where they cannot write a character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextmanager
def trouble() -> Generator[None]:
    """Turn a fault that a person can do something about into one line and exit code 1."""
    try:
        yield
    except BrokenPipeError:
        raise typer.Exit(0) from None
    except BudgetTooSmallError as error:
        _say_error(
            f"{error.budget:,} tokens are too few for this session; the least it takes now is "
            f"{error.minimum:,}. --allow-omission lists what does not fit instead."
        )
        raise typer.Exit(1) from None
    except (HiermemError, OSError) as error:
        again = " Trying again may help." if getattr(error, "retryable", False) else ""
        _say_error(f"{error}{again}")
        raise typer.Exit(1) from None


def _say_error(text: str) -> None:
    flat = " ".join(clean(text).split())
    out(error=True).print(f"error: {flat}", style="red", soft_wrap=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for leave; nothing is done without it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Say --yes; there is nobody to ask")
    if not typer.confirm(question, err=True):
        raise UsageError("nothing was done")
