"""The command ``demo``: appends a conversation, summarises it, selects a context, and searches.

Every printed figure was measured in the same run. The comparison with other ways of filling a
prompt counts the same messages, tokens and words; facts that hiermem lost are printed as clearly as
facts that a sliding window lost. On a terminal the demo is an animation, elsewhere plain lines with
the same content.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources import as_file, files
from typing import Annotated, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import shown
from hiermem.cli.output import picked, result, wants_json
from hiermem.cli.screen import clean, date_range, day, one_line, out, per_level, plural, share
from hiermem.cli.search_cmd import print_hit, shown_data
from hiermem.cli.show import GUTTER, Strip, representation, strip_for
from hiermem.importers import read_chats

_SESSION = "demo"
#: The seconds of the animation.
_MESSAGES = 12.0
#: The number of last messages that are appended after the context was selected.
_LATER = 3
#: The number of newest messages shown below the drawing.
_LATEST = 4
#: The question, the number of hits shown, and the token budget for recalling each detail.
_QUESTION = "why SQLite instead of PostgreSQL?"
_HITS, _RECALLED = 3, 500
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


def bundled() -> list[hiermem.Message]:
    """Return the conversation that ships with the library: five weeks of building one system."""
    with as_file(files("hiermem.data").joinpath("demo.jsonl")) as path:
        (conversation,) = read_chats(path, "messages")
    return list(conversation.messages)


def demo(
    *,
    budget: Annotated[int, Option(min=1_500, help="The token budget of the context.")] = 8_000,
    fast: Annotated[bool, Option("--fast", help="Skip the pauses of the animation.")] = False,
    db: Annotated[
        str | None, Option(help="Keep the memory in this file; without it, nothing is kept.")
    ] = None,
) -> None:
    """Show append, update, context and search on a bundled conversation."""
    console = out()
    console.quiet = wants_json()
    messages = bundled()
    people = list(dict.fromkeys(each.name for each in messages if each.name))
    paced = _live(console) is not None and not fast
    with hiermem.Memory.open(db if db is not None else ":memory:") as memory:
        if memory.session(_SESSION).count():
            name = shown(db or "")
            raise hiermem.UsageError(
                f"{name} holds the demo already; look at it with hiermem show --db {name}, "
                "or choose another file"
            )
        session = memory.session(
            _SESSION,
            title="kanne, a dairy's milk-money system",
            participants=[*people, "assistant"],
        )
        stage = _DemoState(console, strip_for(console, len(messages)), messages)
        stage.introduce(people)
        seconds = _append(stage, session, paced=paced)
        console.print(
            f"1. Appended {plural(len(stage.tokens), 'message')}, {stage.total:,} tokens, in "
            f"{seconds:.1f} s of calls; the last {_LATER} follow in step 5.\n"
            f"Sealed: {stage.counts()}.",
            style="bold",
        )
        _update(stage, session)
        started = time.perf_counter()
        context = session.context(max_tokens=budget)
        seconds = time.perf_counter() - started
        console.print(
            f"3. Asked for a context of at most {budget:,} tokens, in {1000 * seconds:.0f} ms:",
            style="bold",
        )
        _show_context(stage, context)
        recalled = _search(stage, session)
        _move_on(stage, session, context)
    _suggest_next_steps(console, db)
    result(_figures(stage, context, recalled), lambda: None)


def _figures(stage: _DemoState, context: hiermem.ContextSelection, recalled: int) -> dict[str, Any]:
    """Return what is printed as JSON: the context, and how many details it and others hold."""
    found = held(stage, context)
    return {
        "messages": context.messages,
        "tokens": stage.total,
        "summaries": len(stage.summaries),
        "context": {
            **picked(context, "max_tokens", "total_tokens", "coverage"),
            "shown": shown_data(context),
        },
        "details": {
            "asked": len(DETAILS),
            "context": sum(ours for ours, _ in found),
            "sliding_window": sum(theirs for _, theirs in found),
            "recall": recalled,
        },
    }


def _live(console: Console) -> Live | None:
    """Return what is drawn on, where a frame can overwrite the previous one; otherwise None."""
    if not console.is_terminal or console.is_dumb_terminal or console.quiet:
        return None
    return Live(console=console, auto_refresh=False, transient=True)


@dataclass
class _DemoState:
    """The state of the screen: the strip, the messages so far, and their summaries."""

    console: Console
    strip: Strip
    script: Sequence[hiermem.Message]
    tokens: list[int] = field(default_factory=list[int])
    summaries: list[types.Summary] = field(default_factory=list[types.Summary])

    @property
    def total(self) -> int:
        """Return the tokens of all messages so far."""
        return sum(self.tokens)

    @property
    def times(self) -> list[datetime | None]:
        """Return the time of each message so far."""
        return [each.created_at for each in self.script[: len(self.tokens)]]

    def counts(self) -> str:
        """Return the number of summaries of each level."""
        return per_level(Counter(sorted(each.level for each in self.summaries)))

    def introduce(self, people: Sequence[str]) -> None:
        """Introduce the conversation."""
        times = [each.created_at for each in self.script if each.created_at is not None]
        names = f"{', '.join(people[:-1])} and {people[-1]}"
        self.console.print(
            Text.assemble(
                ("hiermem demo", "bold"),
                f"  {names} build a system that pays 34 farms for their milk, with an "
                f"assistant: {plural(len(self.script), 'message')}, "
                f"{date_range(min(times), max(times))}. No network, no key, no model download.\n",
            )
        )

    def picture(self, extra: Sequence[Text] = ()) -> Group:
        """Draw the rows of the tree over the messages."""
        rows = self.strip.tree(self.summaries, tallest=3)
        return Group(self.strip.days(self.times), *rows, self.strip.sizes(self.tokens), *extra)

    def growing(self) -> Group:
        """Draw the rows, with the current state below them."""
        now = len(self.tokens)
        lines: list[RenderableType] = [self.picture(), Text()]
        lines.append(
            Text(
                f"{now:>4} of {plural(len(self.script), 'message')}   {self.total:>6,} tokens   "
                f"sealed: {self.counts()}",
                style="bold",
            )
        )
        lines += [self._line(each) for each in self.script[max(0, now - _LATEST) : now]]
        return Group(*lines)

    def _line(self, message: hiermem.Message) -> Text:
        when = f"{message.created_at:%d %b %H:%M}" if message.created_at else ""
        speaker = message.name or message.role
        said = _said(message)
        if message.tool_calls and not said:
            said = ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        line = Text(f"{when}  ", style="bright_black", no_wrap=True, overflow="ellipsis")
        line.append(f"{clean(speaker):<10} ", style="yellow")
        line.append(one_line(said, max(20, self.console.width - 26)), style="default")
        return line


def _append(stage: _DemoState, session: hiermem.Session, *, paced: bool) -> float:
    """Append message by message and redraw; return the seconds spent in append."""
    console, spent = stage.console, 0.0
    pause = _MESSAGES / len(stage.script) if paced else 0.0
    script = stage.script[:-_LATER]
    ends_of_days = {day(each.created_at): number for number, each in enumerate(script)}.values()
    known: dict[int, int] = {}
    live = _live(console)
    with live or nullcontext():
        for number, message in enumerate(script):
            started = time.perf_counter()
            [index] = session.append(message)
            spent += time.perf_counter() - started
            [stored] = session.messages(index, index + 1)
            stage.tokens.append(stored.tokens)
            nodes = session.status().nodes
            if nodes != known:
                known = dict(nodes)
                stage.summaries = session.summaries()
            if live is not None:
                live.update(stage.growing(), refresh=True)
                time.sleep(pause)
            elif number in ends_of_days:
                console.print(
                    f"  {day(stored.created_at):>6}  {number + 1:>4} messages "
                    f"{stage.total:>7,} tokens  sealed: {stage.counts()}",
                )
    if live is None:
        console.print()
    return spent


def _update(stage: _DemoState, session: hiermem.Session) -> None:
    """Make the summaries."""
    started = time.perf_counter()
    report = session.update()
    seconds = time.perf_counter() - started
    stage.summaries = session.summaries()
    made = plural(report.made + report.reused, "summary", "summaries")
    stage.console.print(f"2. Made {made} in {seconds:.1f} s, offline, by extraction.", style="bold")


def _show_context(stage: _DemoState, context: hiermem.ContextSelection) -> None:
    """Show what the context covers, what it saves, and which details it still holds."""
    console, kept = stage.console, representation(context)
    console.print()
    console.print(stage.picture([stage.strip.shown(kept)]))
    key = [f"{level} in an L{level}" for level in sorted({each for each in kept if each})[::-1]]
    key.append(f"{stage.strip.made} word for word")
    console.print(Text(" " * GUTTER + "   ".join(key), style="bright_black"))
    console.print()
    console.print(Padding(clean(context.explain()), (0, 0, 1, 2), expand=False))
    # The oldest part, as a model reads it.
    record = next(block.text for block in context.blocks if block.text)
    lines = clean(record, escaped=False).splitlines()
    shown = [f"  {one_line(line, console.width - 4)}" for line in lines[:_EXCERPT]]
    if len(lines) > _EXCERPT:
        shown.append(f"  … {plural(len(lines) - _EXCERPT, 'more line')}")
    console.print("The oldest part of it, as a model reads it:", style="bold")
    console.print("\n".join([*shown, ""]), style="bright_black")
    console.print(compare(stage, context))
    console.print()
    console.print(savings(stage, context))
    console.print(details(stage, context))


def savings(stage: _DemoState, context: hiermem.ContextSelection) -> str:
    """Describe what the context saves in this call, and its budget over all replies."""
    total = stage.total
    saved = total - context.total_tokens
    replies = [n for n in range(len(stage.tokens)) if stage.script[n].role == "assistant"]
    prompts = [sum(stage.tokens[:n]) for n in replies]
    capped = sum(min(each, context.max_tokens) for each in prompts)
    return (
        f"Saved against sending everything: {saved:,} of {total:,} tokens in this one call "
        f"({share(saved, total)}).\nOver the {len(replies)} replies of this conversation: "
        f"at most {capped:,} tokens instead of {sum(prompts):,}.\n"
    )


def window_of(stage: _DemoState, context: hiermem.ContextSelection) -> int:
    """Return the index at which a sliding window of the same budget begins."""
    left, begin = context.max_tokens, len(stage.tokens)
    while begin and stage.tokens[begin - 1] <= left:
        begin -= 1
        left -= stage.tokens[begin]
    return begin


def held(stage: _DemoState, context: hiermem.ContextSelection) -> list[tuple[bool, bool]]:
    """Return of each detail whether the context and the window hold it word for word."""
    shown = context.to_text()
    window = stage.script[window_of(stage, context) : context.messages]
    recent = "\n".join(map(_said, window))
    return [(words in shown, words in recent) for words, _ in DETAILS]


def compare(stage: _DemoState, context: hiermem.ContextSelection) -> Table:
    """Compare three ways of filling a prompt."""
    table = _table()
    table.add_column("", no_wrap=True)
    for name in ("tokens", "messages represented", "", "a line or more of", "reaching back to"):
        table.add_column(name, justify="right")
    count, window = len(stage.tokens), window_of(stage, context)
    covered = round(context.coverage * context.messages)
    shown = len(context.shown.messages)
    levels = representation(context)
    earliest = next((n for n, level in enumerate(levels) if level is not None), 0)
    rows = (
        ("everything", stage.total, count, count, 0),
        ("sliding window", sum(stage.tokens[window:]), count - window, count - window, window),
        ("hiermem", context.total_tokens, covered, shown, earliest),
    )
    for name, cost, messages, with_line, first in rows:
        table.add_row(
            name,
            f"{cost:,}",
            f"{messages:,}",
            share(messages, count),
            f"{with_line:,}",
            day(stage.script[first].created_at),
            style="bold" if name == "hiermem" else "",
        )
    return table


def details(stage: _DemoState, context: hiermem.ContextSelection) -> Table:
    """Look for one detail of each day, word for word, in the context and in the window."""
    said = [_said(each) for each in stage.script]
    found = held(stage, context)
    table = _table("One detail of each day: is it still there?")
    table.add_column("said on", justify="right")
    table.add_column("detail")
    table.add_column("hiermem", justify="center")
    table.add_column("sliding window", justify="center")
    for (words, what), (ours, theirs) in zip(DETAILS, found, strict=True):
        first = next(n for n, text in enumerate(said) if words in text)
        when = day(stage.script[first].created_at)
        detail = Text.assemble((words, "bold"), f", {what}")
        table.add_row(when, detail, _mark(there=ours), _mark(there=theirs))
    ours, theirs = (sum(each) for each in zip(*found, strict=True))
    table.add_row("", "", f"{ours} of {len(DETAILS)}", f"{theirs} of {len(DETAILS)}", style="bold")
    return table


def _table(title: str | None = None) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
        padding=(0, 3, 0, 0), header_style="bright_black",
    )  # fmt: skip


def _said(message: hiermem.Message) -> str:
    return message.content if isinstance(message.content, str) else ""


def _mark(*, there: bool) -> Text:
    return Text("yes", style="green") if there else Text("no", style="red")


def _search(stage: _DemoState, session: hiermem.Session) -> int:
    """Search for a question; return how many details are recalled by their description."""
    console = stage.console
    # The first search builds the index and is not timed.
    session.search(_QUESTION, _HITS)
    started = time.perf_counter()
    hits = session.search(_QUESTION, _HITS)
    seconds = time.perf_counter() - started
    console.print(
        f"\n4. Searched messages and summaries for {_QUESTION!r}, in {1000 * seconds:.0f} ms:\n",
        style="bold",
    )
    console.print(stage.picture([stage.strip.found(at for hit in hits for at in hit.found)]))
    console.print()
    for hit in () if console.quiet else hits:
        print_hit(hit, _QUESTION)
    found = sum(words in session.recall(what, _RECALLED).text for words, what in DETAILS)
    console.print(
        f"\nAsked for each detail above by its description alone, recall returns {found} of "
        f"{len(DETAILS)} word for word, in {_RECALLED} tokens each."
    )
    return found


def _move_on(stage: _DemoState, session: hiermem.Session, before: hiermem.ContextSelection) -> None:
    """Append the last messages and select again: the beginning of the context is unchanged."""
    session.append(stage.script[-_LATER:])
    after = session.context(max_tokens=before.max_tokens)
    more, free = after.messages - before.messages, before.max_tokens - before.total_tokens
    stage.console.print(
        f"\n5. {plural(more, 'message')} later it is {after.total_tokens:,} tokens.", style="bold"
    )
    stage.console.print(
        f"The first {after.shared_prefix_tokens:,} of them are unchanged, so a provider's prompt "
        f"cache serves them.\nThe {free:,} free tokens are for new messages: they are appended "
        "until the budget is full."
    )


def _suggest_next_steps(console: Console, db: str | None) -> None:
    """Suggest the next commands."""
    name = clean(shown(db)) if db is not None else "demo.db"
    kept = (
        "Look around:"
        if db is not None
        else f"Nothing was kept. To keep it and look around: hiermem demo --db {name} --fast, then"
    )
    console.print(
        f"\n{kept}\n  hiermem show --db {name}\n"
        f"  hiermem show --db {name} --node L2.0\n"
        f"  hiermem search --db {name} 'when is the restore rehearsed'\n"
        f"  hiermem context --db {name} --max-tokens 4000",
        style="bright_black",
        soft_wrap=True,
    )
