"""The demo's comparison: what a context covers, what it saves, and which details it still holds.

Every way of filling the prompt is measured on the same messages, tokens and words. What hiermem
lost is printed as clearly as what a sliding window lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hiermem import ContextSelection, Message
from hiermem.cli.screen import clean, day, one_line, plural, share
from hiermem.cli.tree_view import representation

#: One detail of each day, as (words that the conversation uses, their description).
DETAILS = (
    ("1.030", "kilograms a litre, by the statutes"),
    ("0.9985", "the factor in the hidden sheet"),
    ("0.5 %", "the limit for tickets against weighbridge"),
    ("46.94", "January's price for farm 08"),
    ("589.20", "almost deducted from farm 22 by mistake"),
    ("104.87", "overpaid to farm 26"),
    ("0.21 s", "to print one statement with Typst"),
    ("consent", "what a statement by e-mail needs"),
    ("35,655", "kilograms booked twice"),
    ("P-117", "the parameter that must stay off"),
    ("1,400 kg", "break-even of the stop price"),
    ("47.0", "the base price after the correction"),
    ("Thursday 14:00", "when the bank must have the file"),
    ("6 minutes 40", "the restore, rehearsed"),
    ("26 March", "the board's next meeting"),
)
#: The number of lines printed of the context's oldest part.
_EXCERPT = 7


def excerpt(context: ContextSelection, *, width: int) -> Group:
    """Show the oldest part of the context as a model reads it."""
    oldest = next((block.text for block in context.blocks if block.text), "")
    lines = clean(oldest).splitlines()
    shown = [Text("The oldest part of it, as a model reads it:", style="bold")]
    shown += [
        Text(f"  {one_line(line, width - 4)}", style="bright_black") for line in lines[:_EXCERPT]
    ]
    if len(lines) > _EXCERPT:
        more = plural(len(lines) - _EXCERPT, "more line")
        shown.append(Text(f"  … {more}", style="bright_black"))
    return Group(*shown, Text()) if lines else Group()


def savings(script: Sequence[Message], tokens: Sequence[int], context: ContextSelection) -> str:
    """Describe what the context saves in this call, and its budget over all replies."""
    total = sum(tokens)
    saved = total - context.total_tokens
    replies = [n for n in range(len(tokens)) if script[n].role == "assistant"]
    prompts = [sum(tokens[:n]) for n in replies]
    capped = sum(min(each, context.max_tokens) for each in prompts)
    return (
        f"Saved against sending everything: {saved:,} of {total:,} tokens in this one call "
        f"({share(saved, total)}).\nOver the {len(replies)} replies of this conversation: "
        f"at most {capped:,} tokens instead of {sum(prompts):,}.\n"
    )


def window_of(tokens: Sequence[int], context: ContextSelection) -> int:
    """Return the index at which a sliding window of the same budget begins."""
    left, begin = context.max_tokens, len(tokens)
    while begin and tokens[begin - 1] <= left:
        begin -= 1
        left -= tokens[begin]
    return begin


def held(
    script: Sequence[Message], context: ContextSelection, window: int
) -> list[tuple[bool, bool]]:
    """Return of each detail whether the context and the window hold it word for word."""
    shown = context.to_text()
    recent = "\n".join(_said(each) for each in script[window : context.messages])
    return [(words in shown, words in recent) for words, _ in DETAILS]


def compare(
    script: Sequence[Message], tokens: Sequence[int], context: ContextSelection, window: int
) -> Table:
    """Compare three ways of filling a prompt; the sliding window begins at ``window``."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bright_black")
    table.add_column("", no_wrap=True)
    for name in ("tokens", "messages represented", "", "a line or more of", "reaching back to"):
        table.add_column(name, justify="right")
    count = len(tokens)
    covered = round(context.coverage * context.messages)
    shown = len(context.shown.messages)
    rows = (
        ("everything", sum(tokens), count, count, 0),
        ("sliding window", sum(tokens[window:]), count - window, count - window, window),
        ("hiermem", context.total_tokens, covered, shown, _earliest(context)),
    )
    for name, cost, messages, with_line, first in rows:
        table.add_row(
            name,
            f"{cost:,}",
            f"{messages:,}",
            share(messages, count),
            f"{with_line:,}",
            _day(script[first].created_at),
            style="bold" if name == "hiermem" else "",
        )
    return table


def _earliest(context: ContextSelection) -> int:
    return next((n for n, level in enumerate(representation(context)) if level is not None), 0)


def details(script: Sequence[Message], context: ContextSelection, window: int) -> Table:
    """Look for one detail of each day, word for word, in the context and in the window."""
    said = [_said(each) for each in script]
    found = held(script, context, window)
    table = Table(
        title="One detail of each day: is it still there?",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
        header_style="bright_black",
    )
    table.add_column("said on", justify="right")
    table.add_column("detail")
    table.add_column("hiermem", justify="center")
    table.add_column("sliding window", justify="center")
    for (words, what), (ours, theirs) in zip(DETAILS, found, strict=True):
        first = next(n for n, text in enumerate(said) if words in text)
        when = _day(script[first].created_at)
        detail = Text.assemble((words, "bold"), f", {what}")
        table.add_row(when, detail, _mark(there=ours), _mark(there=theirs))
    ours, theirs = (sum(each) for each in zip(*found, strict=True))
    table.add_row("", "", f"{ours} of {len(DETAILS)}", f"{theirs} of {len(DETAILS)}", style="bold")
    return table


def _said(message: Message) -> str:
    return message.content if isinstance(message.content, str) else ""


def _mark(*, there: bool) -> Text:
    return Text("yes", style="green") if there else Text("no", style="red")


def _day(when: datetime | None) -> str:
    return day(when) if when is not None else ""
