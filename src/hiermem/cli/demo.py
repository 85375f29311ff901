"""The command ``demo``: appends a conversation, summarises it, selects a context, and searches.

Every printed figure was measured in the same run. The comparison with other ways of filling a
prompt counts the same messages with the same counter. On a terminal the demo is an animation,
elsewhere plain lines with the same content.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.resources import as_file, files
from typing import Annotated, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.text import Text
from typer import Option

import hiermem
from hiermem.cli import comparison
from hiermem.cli.options import shown
from hiermem.cli.output import result, wants_json
from hiermem.cli.screen import clean, date_range, day, one_line, out, plural
from hiermem.cli.search_cmd import print_hit, shown_data
from hiermem.cli.show import strip_for
from hiermem.cli.tree_view import GUTTER, Bar, Strip, bars_of, representation
from hiermem.importers import read_chats

_SESSION = "demo"
#: The seconds of the animation for all messages and for all summaries.
_MESSAGES, _SUMMARIES = 12.0, 4.0
#: The number of last messages that are appended after the context was selected.
_LATER = 3
#: The number of newest messages shown below the drawing.
_LATEST = 4
#: The question, the number of hits shown, and the token budget for recalling each detail.
_QUESTION = "why SQLite instead of PostgreSQL?"
_HITS, _RECALLED = 3, 500


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
    paced = _animates(console) and not fast
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
        _update(stage, session, paced=paced)
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
    held = comparison.held(stage.script, context, comparison.window_of(stage.tokens, context))
    return {
        "messages": context.messages,
        "tokens": stage.total,
        "summaries": len(stage.bars),
        "context": {
            "max_tokens": context.max_tokens,
            "total_tokens": context.total_tokens,
            "coverage": context.coverage,
            "shown": shown_data(context),
        },
        "details": {
            "asked": len(comparison.DETAILS),
            "context": sum(ours for ours, _ in held),
            "sliding_window": sum(theirs for _, theirs in held),
            "recall": recalled,
        },
    }


def _animates(console: Console) -> bool:
    """Return whether a frame can overwrite the previous one."""
    return console.is_terminal and not (console.is_dumb_terminal or console.quiet)


@dataclass
class _DemoState:
    """The state of the screen: the strip, the bars so far, and the newest messages."""

    console: Console
    strip: Strip
    script: Sequence[hiermem.Message]
    tokens: list[int] = field(default_factory=list[int])
    bars: list[Bar] = field(default_factory=list[Bar])

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
        levels = sorted({bar.level for bar in self.bars})
        said = [f"{sum(bar.level == level for bar in self.bars):,} L{level}" for level in levels]
        return ", ".join(said) or "nothing yet"

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
        rows = self.strip.tree(self.bars, tallest=3)
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
        said = message.content if isinstance(message.content, str) else ""
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
    known: dict[int, int] = {}
    live = Live(console=console, auto_refresh=False, transient=True) if _animates(console) else None
    with live or nullcontext():
        for number, message in enumerate(stage.script[:-_LATER]):
            started = time.perf_counter()
            [index] = session.append(message)
            spent += time.perf_counter() - started
            [stored] = session.messages(index, index + 1)
            stage.tokens.append(stored.tokens)
            nodes = session.status().nodes
            if nodes != known:
                known = dict(nodes)
                stage.bars = bars_of(session.summaries())
            if live is not None:
                live.update(stage.growing(), refresh=True)
                time.sleep(pause)
            elif _ends_a_day(stage.script[:-_LATER], number):
                console.print(
                    f"  {day(stored.created_at):>6}  {number + 1:>4} messages "
                    f"{stage.total:>7,} tokens  sealed: {stage.counts()}",
                )
    if live is None:
        console.print()
    return spent


def _ends_a_day(script: Sequence[hiermem.Message], number: int) -> bool:
    here = script[number].created_at
    after = script[number + 1].created_at if number + 1 < len(script) else None
    return here is None or after is None or here.date() != after.date()


def _update(stage: _DemoState, session: hiermem.Session, *, paced: bool) -> None:
    """Make the summaries; each bar is filled when its text is made."""
    console = stage.console
    plan = session.update(dry_run=True)
    pause = _SUMMARIES / max(1, sum(plan.by_level.values())) if paced else 0.0
    live = Live(console=console, auto_refresh=False, transient=True) if _animates(console) else None
    # A run makes each level in the order of time, so the first bars are made first.
    waiting: dict[int, list[str]] = {}
    for bar in sorted(stage.bars, key=lambda one: one.start):
        if not bar.made:
            waiting.setdefault(bar.level, []).append(bar.label)
    filled: set[str] = set()

    def draw(progress: hiermem.UpdateProgress) -> None:
        # Commits come in groups; the bars are filled one by one for the animation.
        for level, (done, _) in sorted(progress.by_level.items()):
            for label in waiting.get(level, [])[:done]:
                if label not in filled:
                    filled.add(label)
                    _fill(stage, label, live, f"{len(filled)} of {progress.total} summaries")
                    time.sleep(pause)

    started = time.perf_counter()
    with live or nullcontext():
        report = session.update(on_progress=draw)
    seconds = time.perf_counter() - started
    stage.bars = bars_of(session.summaries())
    offline = "offline, by extraction"
    took = "" if paced else f" in {seconds:.1f} s"
    console.print(
        f"2. Made {plural(report.made + report.reused, 'summary', 'summaries')}{took}, {offline}.",
        style="bold",
    )


def _fill(stage: _DemoState, label: str, live: Live | None, said: str) -> None:
    """Draw one more bar as made."""
    stage.bars = [replace(bar, made=bar.made or bar.label == label) for bar in stage.bars]
    if live is not None:
        live.update(Group(stage.picture(), Text(), Text(said, style="bold")), refresh=True)


def _show_context(stage: _DemoState, context: hiermem.ContextSelection) -> None:
    """Show what the context covers, what it saves, and which details it still holds."""
    console, kept = stage.console, representation(context)
    console.print()
    console.print(stage.picture([stage.strip.shown(kept)]))
    key = [f"{level} in an L{level}" for level in sorted({each for each in kept if each})[::-1]]
    key.append(f"{stage.strip.glyphs.made} word for word")
    console.print(Text(" " * GUTTER + "   ".join(key), style="bright_black"))
    console.print()
    console.print(Padding(clean(context.explain()), (0, 0, 1, 2), expand=False))
    console.print(comparison.excerpt(context, width=console.width))
    window = comparison.window_of(stage.tokens, context)
    console.print(comparison.compare(stage.script, stage.tokens, context, window))
    console.print()
    console.print(comparison.savings(stage.script, stage.tokens, context))
    console.print(comparison.details(stage.script, context, window))


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
    wanted = comparison.DETAILS
    found = sum(words in session.recall(what, _RECALLED).text for words, what in wanted)
    console.print(
        f"\nAsked for each detail above by its description alone, recall returns {found} of "
        f"{len(wanted)} word for word, in {_RECALLED} tokens each."
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
