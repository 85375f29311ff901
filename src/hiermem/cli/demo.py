"""The command ``demo``: appends a conversation, summarises it, selects a context, and searches.

Every printed figure was measured in the same run. The comparison with other ways of filling a
prompt counts the same messages, tokens and words; facts that hiermem lost are printed as clearly as
facts that a sliding window lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.resources import as_file, files
from itertools import accumulate, takewhile
from typing import Annotated, Any, TypeVar

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
from hiermem.cli.show import GUTTER, representation, strip_for
from hiermem.importers import read_chats

T = TypeVar("T")

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

        def step(text: str) -> None:
            console.print(text, style="bold")

        _, seconds = _timed(lambda: session.append(script[:-_LATER]))
        tokens = [each.tokens for each in session.messages()]
        total = sum(tokens)
        step(
            f"1. Appended {plural(len(tokens), 'message')}, {total:,} tokens, in {seconds:.1f} s; "
            f"the last {_LATER} follow in step 5. Sealed: {shown(session.status().nodes)}."
        )
        report, seconds = _timed(session.update)
        made = plural(report.made + report.reused, "summary", "summaries")
        step(f"2. Made {made} in {seconds:.1f} s, offline, by extraction.")
        context, seconds = _timed(lambda: session.context(max_tokens=budget))
        step(f"3. Asked for a context of at most {budget:,} tokens, in {1000 * seconds:.0f} ms:\n")
        summaries = session.summaries()
        _draw(console, summaries, context, times[: len(tokens)], tokens)
        step("The oldest part of it, as a model reads it:")
        _print_oldest(console, context)
        window = _window_of(tokens, context)
        cost, covered = sum(tokens[window:]), len(tokens) - window
        saved = total - context.total_tokens
        console.print(
            f"Saved against sending everything: {saved:,} of {total:,} tokens in this one call "
            f"({share(saved, total)}).\nA sliding window of {cost:,} tokens has {covered} of the "
            f"{len(tokens)} messages and reaches back to {day(times[window])}; this has a line or "
            f"more of {len(context.shown.messages)}.\n"
        )
        step("One detail of each day: is it still there?")
        held = _held(script, window, context)
        console.print(rows(_details(script, held)))
        recalled = _search(console, session)
        session.append(script[-_LATER:])
        after = session.context(max_tokens=budget)
        step(f"\n5. {plural(_LATER, 'message')} later it is {after.total_tokens:,} tokens.")
        console.print(
            f"The first {after.shared_prefix_tokens:,} of them are unchanged, so a provider's "
            f"prompt cache serves them.\nThe {budget - context.total_tokens:,} free tokens are for "
            "new messages: they are appended until the budget is full."
        )
    _suggest_next_steps(console, db)
    ours, theirs = map(sum, zip(*held, strict=True))
    figures = facts(context, "max_tokens total_tokens coverage")
    details = {"asked": len(DETAILS), "context": ours, "sliding_window": theirs, "recall": recalled}
    if wants_json():
        counts = {"messages": context.messages, "tokens": total, "summaries": len(summaries)}
        shows = {**figures, "shown": shown_data(context)}
        print_json({**counts, "context": shows, "details": details})


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and how many seconds it took."""
    started = time.perf_counter()
    return act(), time.perf_counter() - started


def _draw(
    console: Console,
    summaries: Sequence[types.Summary],
    context: hiermem.ContextSelection,
    times: Sequence[datetime],
    tokens: Sequence[int],
) -> None:
    """Draw the tree over the messages, and what the context shows of each of them."""
    strip, kept = strip_for(console, len(tokens)), representation(context)
    for row in (strip.days(times), *strip.tree(summaries), strip.sizes(tokens), strip.shown(kept)):
        console.print(row)
    key = [f"{level} in an L{level}" for level in sorted({each for each in kept if each})[::-1]]
    key.append(f"{strip.made} word for word")
    console.print(" " * GUTTER + "   ".join(key), style="bright_black")
    console.print(Padding(clean(context.explain()), (1, 0, 1, 2), expand=False))


def _search(console: Console, session: hiermem.Session) -> int:
    """Search for a question; return how many details are recalled by their description."""
    session.search(_QUESTION, _HITS)  # the first search builds the index and is not timed
    hits, seconds = _timed(lambda: session.search(_QUESTION, _HITS))
    described = f"messages and summaries for {_QUESTION!r}, in {1000 * seconds:.0f} ms"
    console.print(f"\n4. Searched {described}:\n", style="bold")
    for hit in () if console.quiet else hits:
        print_hit(hit, _QUESTION)
    recalled = sum(words in session.recall(what, _RECALLED).text for words, what in DETAILS)
    console.print(
        f"\nAsked for each detail above by its description alone, recall returns {recalled} of "
        f"{len(DETAILS)} word for word, in {_RECALLED} tokens each."
    )
    return recalled


def _print_oldest(console: Console, context: hiermem.ContextSelection) -> None:
    record = next(block.text for block in context.blocks if block.text)
    lines = clean(record, escaped=False).splitlines()
    excerpt = [f"  {one_line(line, console.width - 4)}" for line in lines[:_EXCERPT]]
    if len(lines) > _EXCERPT:
        excerpt.append(f"  … {plural(len(lines) - _EXCERPT, 'more line')}")
    console.print("\n".join([*excerpt, ""]), style="bright_black")


def _window_of(tokens: Sequence[int], context: hiermem.ContextSelection) -> int:
    """Return the index at which a sliding window of the same budget begins."""
    sums = accumulate(reversed(tokens))
    return len(tokens) - sum(1 for _ in takewhile(lambda spent: spent <= context.max_tokens, sums))


def _held(
    script: Sequence[hiermem.Message], window: int, context: hiermem.ContextSelection
) -> list[tuple[bool, bool]]:
    """Return of each detail whether the context and the window hold it word for word."""
    recent = "\n".join(map(_said, script[window : context.messages]))
    return [(words in context.to_text(), words in recent) for words, _ in DETAILS]


def _details(
    script: Sequence[hiermem.Message], held: Sequence[tuple[bool, bool]]
) -> list[dict[str, Any]]:
    """Say of each detail when it was said, and whether context and window hold it."""
    said = list(map(_said, script))
    listed = [
        {
            "said on": day(script[at].created_at),
            "detail": f"{words}, {what}",
            "hiermem": _mark(there=ours),
            "sliding window": _mark(there=theirs),
        }
        for (words, what), (ours, theirs) in zip(DETAILS, held, strict=True)
        for at in [next(n for n, text in enumerate(said) if words in text)]
    ]
    ours, theirs = (f"{sum(each)} of {len(DETAILS)}" for each in zip(*held, strict=True))
    return [*listed, {"said on": "", "detail": "", "hiermem": ours, "sliding window": theirs}]


def _mark(*, there: bool) -> Text:
    return Text("yes", style="green") if there else Text("no", style="red")


def _said(message: hiermem.Message) -> str:
    return message.content if isinstance(message.content, str) else ""


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
