"""The command ``demo``: appends a conversation, summarises it, selects a context, and searches.

Every printed figure was measured in the same run. The comparison with other ways of filling a
prompt counts the same messages, tokens and words; facts that hiermem lost are printed as clearly as
facts that a sliding window lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from typing import Annotated, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from typer import Option

import hiermem
from hiermem import types
from hiermem.cli.options import shown_db
from hiermem.cli.output import (
    clean,
    date_range,
    day,
    facts,
    named,
    one_line,
    out,
    plural,
    print_json,
    rows,
    share,
    shown,
    wants_json,
)
from hiermem.cli.search import print_hit, shown_data
from hiermem.cli.show import GUTTER, Strip, representation, strip_for
from hiermem.importers import read_chats

_SESSION = "demo"
#: The number of last messages that are appended after the context was selected.
_LATER = 3
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


def demo(*, budget: Annotated[int, Option(min=1_500)] = 8_000, db: str | None = None) -> None:
    """Show append, update, context and search on a bundled conversation.

    Args:
        budget: The token budget of the context.
        db: Keep the memory in this file; without it, nothing is kept.
    """
    console = out()
    console.quiet = wants_json()
    script = bundled()
    people = list(dict.fromkeys(each.name for each in script if each.name))
    times = [each.created_at for each in script if each.created_at is not None]
    with hiermem.Memory.open(db if db is not None else ":memory:") as memory:
        title = "kanne, a dairy's milk-money system"
        session = memory.session(_SESSION, title=title, participants=[*people, "assistant"])
        if session.count():
            name = shown_db(db or "")
            raise hiermem.UsageError(
                f"{name} holds the demo already; look at it with hiermem show --db {name}, "
                "or choose another file"
            )
        console.print(
            f"[bold]hiermem demo[/]  {named(people)} build a system that pays 34 farms for their "
            f"milk, with an assistant: {plural(len(script), 'message')}, "
            f"{date_range(min(times), max(times))}. No network, no key, no model download.\n",
            markup=True,
        )
        started = time.perf_counter()
        session.append(script[:-_LATER])
        appended = time.perf_counter() - started
        stage = _Stage(console, strip_for(console, len(script)), script)
        stage.tokens = [each.tokens for each in session.messages()]
        stage.title(
            f"1. Appended {plural(len(stage.tokens), 'message')}, {stage.total:,} tokens, in "
            f"{appended:.1f} s; the last {_LATER} follow in step 5. Sealed: "
            f"{shown(session.status().nodes)}."
        )
        started = time.perf_counter()
        report = session.update()
        seconds = time.perf_counter() - started
        stage.summaries = session.summaries()
        made = plural(report.made + report.reused, "summary", "summaries")
        stage.title(f"2. Made {made} in {seconds:.1f} s, offline, by extraction.")
        started = time.perf_counter()
        context = session.context(max_tokens=budget)
        milliseconds = 1000 * (time.perf_counter() - started)
        stage.title(
            f"3. Asked for a context of at most {budget:,} tokens, in {milliseconds:.0f} ms:\n"
        )
        _show_context(stage, context)
        recalled = _search(stage, session)
        _move_on(stage, session, context)
    _suggest_next_steps(console, db)
    if wants_json():
        print_json(_figures(stage, context, recalled))


@dataclass
class _Stage:
    """What is drawn: the strip over the messages, their tokens so far, and their summaries."""

    console: Console
    strip: Strip
    script: Sequence[hiermem.Message]
    tokens: list[int] = field(default_factory=list[int])
    summaries: list[types.Summary] = field(default_factory=list[types.Summary])

    @property
    def total(self) -> int:
        """Return the tokens of all messages so far."""
        return sum(self.tokens)

    def title(self, text: str) -> None:
        """Print the heading of a step."""
        self.console.print(text, style="bold")

    def draw(self, more: Text) -> None:
        """Draw the rows of the tree over the messages, and one more."""
        times = [each.created_at for each in self.script[: len(self.tokens)]]
        tree = self.strip.tree(self.summaries)
        for row in (self.strip.days(times), *tree, self.strip.sizes(self.tokens), more):
            self.console.print(row)


def _figures(stage: _Stage, context: hiermem.ContextSelection, recalled: int) -> dict[str, Any]:
    """Return what is printed as JSON: the context, and how many details it and others hold."""
    ours, theirs = (sum(each) for each in zip(*held(stage, context), strict=True))
    return {
        "messages": context.messages,
        "tokens": stage.total,
        "summaries": len(stage.summaries),
        "context": {
            **facts(context, "max_tokens total_tokens coverage"),
            "shown": shown_data(context),
        },
        "details": {
            "asked": len(DETAILS),
            "context": ours,
            "sliding_window": theirs,
            "recall": recalled,
        },
    }


def _show_context(stage: _Stage, context: hiermem.ContextSelection) -> None:
    """Show what the context covers, what it saves, and which details it still holds."""
    console, kept = stage.console, representation(context)
    stage.draw(stage.strip.shown(kept))
    key = [f"{level} in an L{level}" for level in sorted({each for each in kept if each})[::-1]]
    key.append(f"{stage.strip.made} word for word")
    console.print(" " * GUTTER + "   ".join(key), style="bright_black")
    console.print(Padding(clean(context.explain()), (1, 0, 1, 2), expand=False))
    # The oldest part, as a model reads it.
    record = next(block.text for block in context.blocks if block.text)
    lines = clean(record, escaped=False).splitlines()
    excerpt = [f"  {one_line(line, console.width - 4)}" for line in lines[:_EXCERPT]]
    if len(lines) > _EXCERPT:
        excerpt.append(f"  … {plural(len(lines) - _EXCERPT, 'more line')}")
    stage.title("The oldest part of it, as a model reads it:")
    console.print("\n".join([*excerpt, ""]), style="bright_black")
    console.print(rows(_compared(stage, context)))
    saved = stage.total - context.total_tokens
    replies = [n for n in range(len(stage.tokens)) if stage.script[n].role == "assistant"]
    prompts = [sum(stage.tokens[:n]) for n in replies]
    capped = sum(min(each, context.max_tokens) for each in prompts)
    console.print(
        f"\nSaved against sending everything: {saved:,} of {stage.total:,} tokens in this one call "
        f"({share(saved, stage.total)}).\nOver the {len(replies)} replies of this conversation: "
        f"at most {capped:,} tokens instead of {sum(prompts):,}.\n"
    )
    stage.title("One detail of each day: is it still there?")
    console.print(rows(_details(stage, context)))


def _window_of(stage: _Stage, context: hiermem.ContextSelection) -> int:
    """Return the index at which a sliding window of the same budget begins."""
    left, begin = context.max_tokens, len(stage.tokens)
    while begin and stage.tokens[begin - 1] <= left:
        begin -= 1
        left -= stage.tokens[begin]
    return begin


def held(stage: _Stage, context: hiermem.ContextSelection) -> list[tuple[bool, bool]]:
    """Return of each detail whether the context and the window hold it word for word."""
    text = context.to_text()
    window = stage.script[_window_of(stage, context) : context.messages]
    recent = "\n".join(map(_said, window))
    return [(words in text, words in recent) for words, _ in DETAILS]


def _compared(stage: _Stage, context: hiermem.ContextSelection) -> list[dict[str, Any]]:
    """Compare three ways of filling a prompt."""
    count, window = len(stage.tokens), _window_of(stage, context)
    covered = round(context.coverage * context.messages)
    levels = representation(context)
    earliest = next((n for n, level in enumerate(levels) if level is not None), 0)
    ways = (
        ("everything", stage.total, count, count, 0),
        ("sliding window", sum(stage.tokens[window:]), count - window, count - window, window),
        ("hiermem", context.total_tokens, covered, len(context.shown.messages), earliest),
    )
    return [
        {
            "": name,
            "tokens": cost,
            "messages represented": messages,
            "share": share(messages, count),
            "a line or more of": with_line,
            "reaching back to": day(stage.script[first].created_at),
        }
        for name, cost, messages, with_line, first in ways
    ]


def _details(stage: _Stage, context: hiermem.ContextSelection) -> list[dict[str, Any]]:
    """Look for one detail of each day, word for word, in the context and in the window."""
    said, found = [_said(each) for each in stage.script], held(stage, context)
    listed = [
        {
            "said on": day(stage.script[at].created_at),
            "detail": f"{words}, {what}",
            "hiermem": _mark(there=ours),
            "sliding window": _mark(there=theirs),
        }
        for (words, what), (ours, theirs) in zip(DETAILS, found, strict=True)
        for at in [next(n for n, text in enumerate(said) if words in text)]
    ]
    ours, theirs = (f"{sum(each)} of {len(DETAILS)}" for each in zip(*found, strict=True))
    return [*listed, {"said on": "", "detail": "", "hiermem": ours, "sliding window": theirs}]


def _mark(*, there: bool) -> Text:
    return Text("yes", style="green") if there else Text("no", style="red")


def _said(message: hiermem.Message) -> str:
    return message.content if isinstance(message.content, str) else ""


def _search(stage: _Stage, session: hiermem.Session) -> int:
    """Search for a question; return how many details are recalled by their description."""
    # The first search builds the index and is not timed.
    session.search(_QUESTION, _HITS)
    started = time.perf_counter()
    hits = session.search(_QUESTION, _HITS)
    milliseconds = 1000 * (time.perf_counter() - started)
    stage.title(
        f"\n4. Searched messages and summaries for {_QUESTION!r}, in {milliseconds:.0f} ms:\n"
    )
    stage.draw(stage.strip.found(at for hit in hits for at in hit.found))
    for hit in () if stage.console.quiet else hits:
        print_hit(hit, _QUESTION)
    found = sum(words in session.recall(what, _RECALLED).text for words, what in DETAILS)
    stage.console.print(
        f"\nAsked for each detail above by its description alone, recall returns {found} of "
        f"{len(DETAILS)} word for word, in {_RECALLED} tokens each."
    )
    return found


def _move_on(stage: _Stage, session: hiermem.Session, before: hiermem.ContextSelection) -> None:
    """Append the last messages and select again: the beginning of the context is unchanged."""
    session.append(stage.script[-_LATER:])
    after = session.context(max_tokens=before.max_tokens)
    more, free = after.messages - before.messages, before.max_tokens - before.total_tokens
    stage.title(f"\n5. {plural(more, 'message')} later it is {after.total_tokens:,} tokens.")
    stage.console.print(
        f"The first {after.shared_prefix_tokens:,} of them are unchanged, so a provider's prompt "
        f"cache serves them.\nThe {free:,} free tokens are for new messages: they are appended "
        "until the budget is full."
    )


def _suggest_next_steps(console: Console, db: str | None) -> None:
    """Suggest the next commands."""
    name = clean(shown_db(db)) if db is not None else "demo.db"
    kept = f"Nothing was kept. To keep it and look around: hiermem demo --db {name}, then"
    console.print(
        f"\n{kept if db is None else 'Look around:'}\n  hiermem show --db {name}\n"
        f"  hiermem show --db {name} --node L2.0\n"
        f"  hiermem search --db {name} 'when is the restore rehearsed'\n"
        f"  hiermem context --db {name} --max-tokens 4000",
        style="bright_black",
        soft_wrap=True,
    )
