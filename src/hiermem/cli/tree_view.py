"""Draws a session as rows: time runs across, messages at the bottom, one row per level above.

A column stands for the same messages in every row, so a summary stands above the messages that it
covers. The module reads and prints nothing; it returns lines of styled text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from hiermem import ContextSelection, Summary
from hiermem.cli.screen import day

GUTTER = 9
#: Plain blue and magenta are hard to read on black, and white cannot be read on white.
_STYLES = {1: "green", 2: "cyan", 3: "bright_blue"}
_VERBATIM = "default"


def level_style(level: int) -> str:
    """Return the colour of a level; 0 is verbatim."""
    return _VERBATIM if level == 0 else _STYLES.get(level, "bright_magenta")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a drawing."""

    heights: str
    made: str
    waiting: str

    @classmethod
    def of(cls, console: Console) -> Glyphs:
        """Return block characters if the console can encode them, otherwise ASCII."""
        try:
            "▁▂▃▄▅▆▇█░".encode(console.encoding or "ascii")
        except (LookupError, UnicodeEncodeError):
            return cls("_.:-=+*#", "#", ".")
        return cls("▁▂▃▄▅▆▇█", "█", "░")


@dataclass(frozen=True, slots=True)
class Bar:
    """A summary in a drawing: what it covers, and whether it has a text."""

    level: int
    start: int
    stop: int
    label: str
    made: bool
    failed: bool = False


def bars_of(summaries: Iterable[Summary]) -> list[Bar]:
    """Return the bars of summaries."""
    return [
        Bar(
            level=summary.level,
            start=summary.span.start,
            stop=summary.span.stop,
            label=summary.id,
            made=summary.made,
            failed=summary.status == "failed",
        )
        for summary in summaries
    ]


@dataclass(frozen=True, slots=True)
class Strip:
    """A strip of ``columns`` columns over ``messages`` messages."""

    messages: int
    columns: int
    glyphs: Glyphs

    def column(self, index: int) -> int:
        """Return the column in which the message at ``index`` begins."""
        return index * self.columns // max(1, self.messages)

    def level(self, level: int, bars: Sequence[Bar]) -> Text:
        """Draw the row of one level."""
        cells = [" "] * self.columns
        styles = [""] * self.columns
        colour = level_style(level)
        for number, bar in enumerate(sorted(bars, key=lambda each: (each.start, each.stop))):
            begin = min(self.column(bar.start), self.columns - 1)
            end = max(begin + 1, min(self.column(bar.stop), self.columns))
            # A bar of several columns leaves its last one blank; narrow bars alternate in shade.
            drawn = end - 1 if end - begin > 1 else end
            fill = self.glyphs.made if bar.made else self.glyphs.waiting
            shade = "red" if bar.failed else colour
            # Labels are never dim: dim blue is as hard to read as plain blue.
            if drawn == end and number % 2 and bar.made:
                shade = f"{shade} dim"
            label = f" {bar.label} " if drawn - begin >= len(bar.label) + 4 else ""
            text = label.center(drawn - begin, fill) if label else fill * (drawn - begin)
            cells[begin:drawn] = text
            styles[begin:drawn] = [shade] * (drawn - begin)
        return _row(f"L{level}", cells, styles)

    def sizes(self, tokens: Sequence[int]) -> Text:
        """Draw the sizes of messages: the higher a column, the more tokens it holds."""
        sums = [0] * self.columns
        for index, count in enumerate(tokens):
            sums[min(self.column(index), self.columns - 1)] += count
        top, last = max(sums, default=0) or 1, len(self.glyphs.heights) - 1
        cells = [
            self.glyphs.heights[min(last, total * (last + 1) // (top + 1))] if total else " "
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
            cells[at] = self.glyphs.made if level == 0 else str(min(level, 9))
            styles[at] = level_style(level)
        return _row("context", cells, styles)

    def found(self, indices: Iterable[int]) -> Text:
        """Mark the columns of these messages."""
        cells = [" "] * self.columns
        for index in indices:
            cells[min(self.column(index), self.columns - 1)] = "^"
        return _row("found", cells, ["bold"] * self.columns)

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
            label = day(when) if when is not None else ""
            if at >= free and at + len(label) <= self.columns:
                cells[at : at + len(label)] = label
                free = at + len(label) + 2
        return _row("", cells, ["bright_black"] * self.columns)

    def tree(self, bars: Sequence[Bar], *, tallest: int = 0) -> list[Text]:
        """Draw the rows of all levels, highest first, and at least ``tallest`` rows."""
        levels: dict[int, list[Bar]] = {}
        for bar in bars:
            levels.setdefault(bar.level, []).append(bar)
        top = max([tallest, *levels])
        return [self.level(level, levels.get(level, [])) for level in range(top, 0, -1)]


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
    shown: Mapping[int, Sequence[object]] = context.summaries
    for level in sorted(shown, reverse=True):
        for summary in context.summaries[level]:
            for index in range(summary.span.start, min(summary.span.stop, context.messages)):
                levels[index] = level
    views = [block for block in context.blocks if block.kind == "view"]
    for block in views:
        # Besides summaries, a view may hold trimmed messages of open windows.
        for index in range(block.span.start, min(block.span.stop, context.messages)):
            levels[index] = 1 if levels[index] is None else levels[index]
    for block in context.blocks:
        if block.kind in ("message", "quote"):
            for index in range(block.span.start, min(block.span.stop, context.messages)):
                levels[index] = 0
    return levels
