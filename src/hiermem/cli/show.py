"""The command ``show``: a session's tree as rows, its summaries as an outline, or one in full.

It reads only what it prints: a long session is shown from its top levels down. In the drawing, time
runs across, messages at the bottom, one row per level above. A column stands for the same messages
in every row, so a summary stands above the messages that it covers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any

from rich.console import Console, Group
from rich.text import Text
from typer import Option

from hiermem import ContextSelection, NotFoundError, Session
from hiermem.cli.options import OneSession, labelled, messages_of
from hiermem.cli.output import (
    date_range,
    day,
    facts,
    one_line,
    out,
    plural,
    result,
    say,
    shown,
    wants_json,
)
from hiermem.types import SessionStatus, Span, Summary

#: If an outline would have more lines than this, it stops at a higher level.
_LINES = 60
#: A level with more summaries than this is not drawn, because they could not be distinguished.
_DRAWN = 5_000
#: The row of message sizes needs every message; it is left out above this many.
_SIZED = 20_000
#: The width that an outline needs beside the texts, and the least that these have.
_BESIDE, _BEGINS = 58, 16
#: The date at the beginning of a summary's text; the line shows it already.
_DATED = re.compile(r"\A\s*\[\d{4}-\d\d-\d\d\]\s*")
#: The columns of a row's name.
GUTTER = 9
#: Plain blue and magenta are hard to read on black, and white cannot be read on white.
_STYLES = {1: "green", 2: "cyan", 3: "bright_blue"}
_VERBATIM = "default"
#: What JSON says of a session.
_STATUS = "title participants messages closed nodes queue degraded last_error"


def show(
    one: OneSession,
    *,
    level: Annotated[int | None, Option(min=1)] = None,
    node: Annotated[str | None, Option("--node", "-n")] = None,
) -> None:
    """Show the tree of a session: levels as rows, then the summaries.

    Args:
        level: List the summaries from this level up.
        node: Print one summary, such as L2.3.
    """
    with one.opened() as session:
        if node is not None:
            result(_summary(find(session, node)))
        elif not wants_json():
            tree(session, lowest=level)
        else:
            status = session.status()
            levels = [n for n in sorted(status.nodes, reverse=True) if n >= (level or 1)]
            found = [_summary(each) for n in levels for each in session.summaries(n)]
            result({"session_id": status.id, **facts(status, _STATUS), "summaries": found})


def strip_for(console: Console, messages: int) -> Strip:
    """Return a strip that fills the width of ``console``, in ASCII if it encodes no blocks."""
    columns = max(20, min(console.width - GUTTER - 1, 160))
    try:
        "▁▂▃▄▅▆▇█░".encode(console.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return Strip(messages, columns, heights="_.:-=+*#", waiting=".")
    return Strip(messages, columns)


def tree(session: Session, *, lowest: int | None) -> None:
    """Draw a session and print the outline of its summaries from level ``lowest`` up."""
    console = out()
    status = session.status()
    waiting = sum(window.messages for window in status.open_windows)
    console.print(labelled(status), style="bold")
    state = "closed" if status.closed else f"open: {plural(waiting, 'message')}"
    sealed = shown(status.nodes) or "nothing yet"
    console.print(f"{plural(status.messages, 'message')}, sealed: {sealed}, {state}")
    if not status.messages:
        return
    listed = _listed(status, lowest)
    drawn = {level for level, count in status.nodes.items() if 0 < count <= _DRAWN}
    found = {level: session.summaries(level) for level in sorted(drawn | set(listed))}
    strip = strip_for(console, status.messages)
    rows = strip.tree([each for level in found.values() for each in level])
    if status.messages <= _SIZED:
        sizes = [(each.tokens, each.created_at) for each in messages_of(session)]
        tokens, times = zip(*sizes, strict=True)
        days = date_range(min(times), max(times))
        console.print(f"{plural(sum(tokens), 'token')}, {days}", style="bright_black")
        rows = [strip.days(times), *rows, strip.sizes(tokens)]
    console.print(Group(Text(), *rows, Text()))
    room = max(_BEGINS, console.width - _BESIDE)
    say(_outline([each for level in listed for each in found[level]], room))
    if lowest is None and listed and listed[-1] > 1:
        console.print(f"Levels below L{listed[-1]} are not listed; --level 1 lists all.")
    if left := sum(status.queue.values()):
        console.print(f"{plural(left, 'summary', 'summaries')} to be made: hiermem update")
    if stand_ins := sum(status.degraded.values()):
        console.print(f"{plural(stand_ins, 'summary', 'summaries')} degraded, tried again later")


def find(session: Session, node: str) -> Summary:
    """Return the summary of that id. Raises NotFoundError."""
    level = node.removeprefix("L").partition(".")[0]
    known = session.summaries(int(level)) if level.isdecimal() and int(level) else []
    found = next((each for each in known if each.id == node), None)
    if found is None:
        counts = session.status().nodes
        there = ", ".join(f"L{n}.0 to L{n}.{count - 1}" for n, count in counts.items() if count)
        has = f"it has {there or 'none yet'}; the next is made when its group of messages is full"
        raise NotFoundError(f"session {session.id!r} has no summary {node!r}; {has}")
    return found


def _summary(found: Summary) -> dict[str, Any]:
    """Return what is printed of a summary."""
    made, node = found.revision, found.node
    return {
        **facts(found, "id level span messages"),
        "from": node.first_at,
        "to": node.last_at,
        **facts(found, "parent children status"),
        **facts(node, "degraded dirty"),
        "model": made and made.model,
        "tokens": found.tokens,
        "fidelity": made and made.fidelity,
        "text": found.text,
    }


def _listed(status: SessionStatus, lowest: int | None) -> list[int]:
    """Return the levels to list: those asked for, or as many from the top as fit a page."""
    levels = sorted((level for level, count in status.nodes.items() if count), reverse=True)
    if lowest is not None:
        return [level for level in levels if level >= lowest]
    chosen: list[int] = []
    for level in levels:
        if chosen and sum(status.nodes[each] for each in [*chosen, level]) > _LINES:
            break
        chosen.append(level)
    return chosen


def _outline(summaries: Iterable[Summary], room: int) -> list[dict[str, Any]]:
    """Return a row for each summary, in the order of time, those of a lower level indented.

    A text has at most ``room`` characters.
    """
    ordered = sorted(summaries, key=lambda each: (each.span.start, -each.level))
    top = max((each.level for each in ordered), default=0)
    return [
        {
            "summary": "  " * (top - each.level) + each.id,
            "messages": each.span,
            "when": date_range(each.node.first_at, each.node.last_at, year=False),
            "tokens": each.tokens,
            "state": " ".join(
                ([] if each.status == "active" else [each.status])
                + [flag for flag in ("degraded", "dirty") if getattr(each.node, flag)]
            ),
            "text": one_line(_DATED.sub("", each.text, count=1), room) if each.made else "",
        }
        for each in ordered
    ]


def level_style(level: int) -> str:
    """Return the colour of a level; 0 is verbatim."""
    return _VERBATIM if level == 0 else _STYLES.get(level, "bright_magenta")


@dataclass(frozen=True, slots=True)
class Strip:
    """A strip of ``columns`` columns over ``messages`` messages.

    ``heights`` are the characters for a size, lowest first; the highest also fills what is made,
    and ``waiting`` what is not made yet.
    """

    messages: int
    columns: int
    heights: str = "▁▂▃▄▅▆▇█"
    waiting: str = "░"

    @property
    def made(self) -> str:
        """Return the character that fills what is made."""
        return self.heights[-1]

    def column(self, index: int) -> int:
        """Return the column in which the message at ``index`` begins."""
        return index * self.columns // max(1, self.messages)

    def level(self, level: int, summaries: Iterable[Summary]) -> Text:
        """Draw the row of one level, each summary as a bar."""
        cells = [" "] * self.columns
        styles = [""] * self.columns
        colour = level_style(level)
        ordered = sorted(summaries, key=lambda each: (each.span.start, each.span.stop))
        for number, one in enumerate(ordered):
            begin = min(self.column(one.span.start), self.columns - 1)
            end = max(begin + 1, min(self.column(one.span.stop), self.columns))
            # A bar of several columns leaves its last one blank; narrow bars alternate in shade.
            drawn = end - 1 if end - begin > 1 else end
            fill = self.made if one.made else self.waiting
            shade = "red" if one.status == "failed" else colour
            # Labels are never dim: dim blue is as hard to read as plain blue.
            if drawn == end and number % 2 and one.made:
                shade = f"{shade} dim"
            label = f" {one.id} " if drawn - begin >= len(one.id) + 4 else ""
            text = label.center(drawn - begin, fill) if label else fill * (drawn - begin)
            cells[begin:drawn] = text
            styles[begin:drawn] = [shade] * (drawn - begin)
        return _row(f"L{level}", cells, styles)

    def sizes(self, tokens: Sequence[int]) -> Text:
        """Draw the sizes of messages: the higher a column, the more tokens it holds."""
        sums = [0] * self.columns
        for index, count in enumerate(tokens):
            sums[min(self.column(index), self.columns - 1)] += count
        top, last = max(sums, default=0) or 1, len(self.heights) - 1
        cells = [
            self.heights[min(last, total * (last + 1) // (top + 1))] if total else " "
            for total in sums
        ]
        return _row("messages", cells, ["bright_black"] * self.columns)

    def shown(self, levels: Sequence[int | None]) -> Text:
        """Draw each message's representation: a level's digit, a block for verbatim, or a blank."""
        cells = [" "] * self.columns
        styles = [""] * self.columns
        for index, level in enumerate(levels):
            if level is None:
                continue
            at = min(self.column(index), self.columns - 1)
            cells[at] = self.made if level == 0 else str(min(level, 9))
            styles[at] = level_style(level)
        return _row("context", cells, styles)

    def days(self, times: Sequence[datetime | None]) -> Text:
        """Draw the axis: the days of the messages, as far as there is room."""
        cells = [" "] * self.columns
        free = 0
        marks = [(0, times[0])] if times else []
        marks += [
            (index, now)
            for index, (before, now) in enumerate(pairwise(times), start=1)
            if before is None or now is None or before.date() != now.date()
        ]
        for index, when in marks:
            at = self.column(index)
            label = day(when)
            if at >= free and at + len(label) <= self.columns:
                cells[at : at + len(label)] = label
                free = at + len(label) + 2
        return _row("", cells, ["bright_black"] * self.columns)

    def tree(self, summaries: Iterable[Summary]) -> list[Text]:
        """Draw the rows of all levels, highest first."""
        listed = list(summaries)
        levels = range(max((each.level for each in listed), default=0), 0, -1)
        return [self.level(n, [each for each in listed if each.level == n]) for n in levels]


def _row(name: str, cells: Sequence[str], styles: Sequence[str]) -> Text:
    row = Text(f"{name:>{GUTTER - 1}} ", style="bold", no_wrap=True, overflow="crop")
    begin = 0
    for at in range(1, len(cells) + 1):
        if at == len(cells) or styles[at] != styles[begin]:
            row.append("".join(cells[begin:at]), style=f"not bold {styles[begin]}".rstrip())
            begin = at
    return row


def representation(context: ContextSelection) -> list[int | None]:
    """Return for each message its representation: a level, 0 for verbatim, None for nothing."""
    levels: list[int | None] = [None] * context.messages

    def covered(span: Span) -> range:
        return range(span.start, min(span.stop, context.messages))

    for level in sorted(context.summaries, reverse=True):
        for summary in context.summaries[level]:
            for index in covered(summary.span):
                levels[index] = level
    for block in context.blocks:
        for index in covered(block.span) if block.kind in ("view", "excerpt") else ():
            # Besides summaries, a view may hold trimmed messages of open windows.
            levels[index] = levels[index] or 1
    for block in context.blocks:
        for index in covered(block.span) if block.kind in ("message", "quote") else ():
            levels[index] = 0
    return levels
