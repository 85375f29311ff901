"""Formats output for a terminal: cleaned text, numbers and dates.

Text from a user, a model or a file is printed only through ``clean`` and never as markup, so that
no message can move the cursor, change colours or reverse text.

Which session a name means: its title, its id, or the beginning of one that no other has.

Everything here is decided over records alone; ``options`` reads them.
"""

from __future__ import annotations

import io
import os
import re
import sys
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from typing import IO
from unicodedata import normalize

from rich.console import Console
from rich.table import Table
from rich.text import Text

import hiermem
from hiermem import types

#: The words for the next step of degraded summaries.
RETRIED = "to be asked for again later"
#: The width of output whose lines must not be wrapped.
_ENDLESS = 10_000
#: Control characters but tab and newline, marks that change the direction of text, surrogates.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


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


def named(names: Sequence[str], most: int) -> str:
    """Name the first ``most``, and count the rest: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(clean, names[:most])) + more


def per_level(counts: Mapping[int, int]) -> str:
    """Format numbers of summaries by level: ``12 L1, 3 L2``, or ``nothing yet``."""
    said = (f"{count:,} L{level}" for level, count in counts.items() if count)
    return ", ".join(said) or "nothing yet"


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
        silence(self.file)


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
        width=None if stream.isatty() else _ENDLESS if whole else 100,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def say(text: str | Text, *, error: bool = False, style: str | None = None) -> None:
    """Print a text without breaks of lines, so that it can be copied and parsed."""
    out(error=error).print(text, style=style, soft_wrap=True)


def print_indented(console: Console, text: Text, indent: int) -> None:
    """Print text wrapped between words, each line indented, to the width of the console."""
    for line in text.wrap(console, console.width - indent):
        line.rstrip()
        console.print(Text(" " * indent).append(line), soft_wrap=True)


def table(
    rows: Iterable[Mapping[str, str | int | Text]],
    *,
    left: Container[str] | None = None,
    title: str | None = None,
    boxed: bool = False,
) -> Table:
    """Return a table of rows, each of which has its cells by the names of the columns.

    Texts are cleaned. Columns are justified right that are not in ``left``, by default none. In a
    table without a box, the first column is never wrapped, so that ids can be copied.
    """

    def shown(cell: str | int | Text) -> str | Text:
        if isinstance(cell, Text):
            return cell
        return f"{cell:,}" if isinstance(cell, int) else clean(cell)

    found = [{name: shown(cell) for name, cell in row.items()} for row in rows]
    made = Table(title=title, title_justify="left")
    if not boxed:
        made.box, made.pad_edge, made.header_style = None, False, "bright_black"
    for number, name in enumerate(found[0] if found else ()):
        whole = not boxed and not number
        made.add_column(
            name,
            justify="left" if left is None or name in left else "right",
            overflow="fold",
            no_wrap=whole,
            min_width=max(len(row[name]) for row in found) if whole else None,
        )
    for row in found:
        made.add_row(*row.values())
    return made


def replace_unencodable() -> None:
    """Let standard output and error replace characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


#: The name of the session with the newest message.
LAST = "@last"
#: How many sessions an error names.
NAMED = 3
LISTED = "'hiermem sessions' lists them"
#: The least length of a shortened id, and the most characters that are shown of a title.
_SHORT, _TITLE = 8, 40


def chosen(
    name: str, records: Sequence[types.SessionRecord], *, whole: bool = False
) -> types.SessionRecord:
    """Return the session that a name means: by its id, its title, or the beginning of either.

    The first of these that fits a session decides. Of a session and its forks it means the session.
    Upper and lower case are the same, except in two ids. With ``whole``, no beginning is taken.

    Raises NotFoundError, with the sessions whose title or id is nearest, and UsageError if the name
    means several.
    """
    given = _plain(name)
    begun = "\0" if whole or not given else _plain(name.removesuffix("…"))
    plain = [(each, _plain(each.id), _plain(each.title or each.id)) for each in records]
    found = (
        [each for each in records if each.id == name]
        or [each for each, *texts in plain if given in texts]
        or [each for each, *texts in plain if any(text.startswith(begun) for text in texts)]
    )
    found = [group[0] for group in families(found, records)]
    if len(found) == 1:
        return found[0]
    if found:
        raise hiermem.UsageError(
            f"{len(found):,} sessions begin with {name!r}: {described(found, records)}; write more "
            "of the title or of the id"
        )
    near = _nearest(name, records)
    there = f"there is {described(near, records)}" if near else LISTED
    raise hiermem.NotFoundError(
        f"there is no session {name!r}{' by its whole title or id' if whole else ''}; {there}"
    )


def families(
    found: Iterable[types.SessionRecord], records: Sequence[types.SessionRecord]
) -> list[list[types.SessionRecord]]:
    """Group sessions with their forks: the one that all others stem from comes first.

    The groups stand in the order of the first of each. ``records`` are all sessions.
    """
    known, members = {each.id: each for each in records}, {each.id: each for each in found}
    groups: dict[str, list[types.SessionRecord]] = {}
    for each in members.values():
        root, above = each, each
        while above.forked_from is not None and above.forked_from in known:
            above = known[above.forked_from]
            root = members.get(above.id, root)
        groups.setdefault(root.id, [root])
        if each is not root:
            groups[root.id].append(each)
    return list(groups.values())


def holds(record: types.SessionRecord, words: Iterable[str]) -> bool:
    """Return whether a session's title holds all of these words, or its id begins with them."""
    title, name = _plain(record.title or record.id), _plain(record.id)
    return all(_plain(word) in title or name.startswith(_plain(word)) for word in words)


def short_ids(records: Iterable[types.SessionRecord]) -> dict[str, str]:
    """Return a beginning of each id that means the session; of a fork, the whole id."""
    ids = sorted(each.id for each in records if each.forked_from is None)
    least = dict.fromkeys(ids, _SHORT)
    for one, two in pairwise(ids):
        apart = (
            next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
            + 1
        )
        least[one], least[two] = max(least[one], apart), max(least[two], apart)
    return {each: each[: least[each]] for each in ids}


def title_of(session: types.SessionRecord | types.SessionStatus) -> str:
    """Return the beginning of a session's title on one line, or its id if it has none."""
    return one_line(session.title, _TITLE) if session.title else clean(session.id)


def labelled(
    session: types.SessionRecord | types.SessionStatus,
    short: Mapping[str, str] | None = None,
) -> str:
    """Return a session's title and its id, or the beginning of that: ``Plans (9a2ef80f)``."""
    name = clean((short or {}).get(session.id, session.id))
    return f"{title_of(session)} ({name})" if session.title else clean(session.id)


def described(found: Sequence[types.SessionRecord], records: Iterable[types.SessionRecord]) -> str:
    """Name the first sessions, and count the rest."""
    short = short_ids(records)
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return ", ".join(labelled(each, short) for each in found[:NAMED]) + more


def _nearest(name: str, records: Sequence[types.SessionRecord]) -> list[types.SessionRecord]:
    """Return the sessions whose title holds the name, or whose title or id is most like it."""
    given = _plain(name)
    roots = [group[0] for group in families(records, records)]
    found = [each for each in roots if given and given in _plain(each.title or each.id)]
    like: dict[str, list[types.SessionRecord]] = {}
    for each in roots:
        for text in {_plain(each.id), _plain(each.title or each.id)}:
            like.setdefault(text, []).append(each)
    for text in get_close_matches(given, like, NAMED, 0.5):
        found += [each for each in like[text] if each not in found]
    return found[:NAMED]


def _plain(text: str) -> str:
    joined = " ".join(clean(text).split())
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", joined).casefold())


def spelled(name: str, known: Sequence[str]) -> str:
    """Return the one of the ``known`` names that is this name in another normal form, or the name.

    A keyboard and a file system write an accented letter differently.
    """
    like = [each for each in known if normalize("NFC", each) == normalize("NFC", name)]
    return name if name in like or not like else like[0]
