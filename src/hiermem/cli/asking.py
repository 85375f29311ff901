"""The commands that ask a memory something: ``context`` and ``search``.

The one rule: what is printed for a program is exactly what the library gave; words are marked that
matched only where a reader looks, on a terminal by their look, elsewhere by stars around them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from hiermem import ContextProfile, ContextSelection, Hit, matched
from hiermem.cli.opening import DB, Db, SessionId, Tenant, chosen, existing
from hiermem.cli.picture import level_style
from hiermem.cli.screen import clean, date_range, out, trouble

app = typer.Typer()

_MATCH = "bold reverse"
#: Characters of a hit that are shown, and how many of them stand before the first match.
_SHOWN, _BEFORE = 280, 60


class Format(StrEnum):
    """How a context is written."""

    text = "text"
    openai = "openai"
    anthropic = "anthropic"


class Recipe(StrEnum):
    """How a context is chosen."""

    cut = "cut"
    layered = "layered"


class Mix(StrEnum):
    """Profiles that come with the library."""

    code_reviewer = "code-reviewer"
    documentation = "documentation"


class Role(StrEnum):
    """Who says a message."""

    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"


class Shape(StrEnum):
    """How hits are printed."""

    table = "table"
    json = "json"


@app.command()
def context(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    max_tokens: Annotated[int, typer.Option(min=1, help="The budget.")] = 8_000,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Add, at the end, what answers this.")
    ] = None,
    recall_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens for that; by default 0.4 of the budget.")
    ] = None,
    profile: Annotated[
        Mix | None, typer.Option(help="What kind of agent the context is for.")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Plain text, or a provider's JSON.")
    ] = Format.text,
    strategy: Annotated[Recipe, typer.Option(help="How it is chosen.")] = Recipe.cut,
    system: Annotated[str | None, typer.Option(help="A system prompt to go before it.")] = None,
    allow_omission: Annotated[
        bool, typer.Option("--allow-omission", help="List what does not fit; do not refuse.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what stands where instead of printing it.")
    ] = False,
) -> None:
    """Print the best context that fits a budget."""
    with trouble(), existing(db, tenant) as memory:
        selection = chosen(memory, session).context(
            max_tokens,
            query=query,
            recall_tokens=recall_tokens,
            system=system,
            profile=None if profile is None else _profile(profile),
            strategy=strategy.value,
            allow_omission=allow_omission,
        )
        if explain:
            typer.echo(clean(selection.explain()))
            _print_recalled(selection, query or "")
        elif form is not Format.text:
            data = selection.to_openai() if form is Format.openai else selection.to_anthropic()
            typer.echo(_harmless_json(data))
        elif query is not None and out().is_terminal:
            _print_marked(selection, query)
        else:
            typer.echo(clean(selection.to_text()))


def _profile(mix: Mix) -> ContextProfile:
    if mix is Mix.code_reviewer:
        return ContextProfile.code_reviewer()
    return ContextProfile.documentation()


def _print_recalled(selection: ContextSelection, query: str) -> None:
    """List what was recalled, a line each, with the matched words marked."""
    for hit in selection.evidence or ():
        print_hit(hit, query)


def _print_marked(selection: ContextSelection, query: str) -> None:
    """Print a context as its text, the matched words of what was recalled in another look."""
    text = clean(selection.to_text())
    recalled = selection.blocks[-1] if selection.recall else None
    tail = clean(recalled.text) if recalled else ""
    head = text.removesuffix(tail)
    console = out()
    console.print(Text(head), soft_wrap=True, end="")
    console.print(_styled(tail, query), soft_wrap=True)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many hits.")] = 10,
    level: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only this level, 0 for messages; may be repeated."),
    ] = None,
    role: Annotated[
        list[Role] | None, typer.Option(help="Only messages of this role; may be repeated.")
    ] = None,
    thread: Annotated[
        list[str] | None, typer.Option(help="Only this thread; may be repeated.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only what bears this tag; may be repeated.")
    ] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only what speaks of this; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only from this day or time on, in UTC.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only before this day or time, in UTC.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Print what was said, verbatim, in so many tokens instead."),
    ] = None,
    form: Annotated[Shape, typer.Option("--format", help="For a reader, or as JSON.")] = (
        Shape.table
    ),
) -> None:
    """Find messages and summaries that answer a question, best first."""
    with trouble(), existing(db, tenant) as memory:
        target = chosen(memory, session)
        # An option that is not given is an empty list; that would let nothing pass.
        filters: dict[str, Any] = {
            "roles": [each.value for each in role] if role else None,
            "threads": thread or None,
            "tags": tag or None,
            "entities": entity or None,
            "since": since and since.replace(tzinfo=UTC),
            "until": until and until.replace(tzinfo=UTC),
        }
        if tokens is not None:
            if level:
                raise typer.BadParameter("--tokens gives messages; leave --level out")
            found = target.recall(query, tokens, **filters)
            hits: Iterable[Hit] = found.hits
            if form is Shape.table:
                _print_text(found.text, query)
                return
        else:
            hits = target.search(query, limit, levels=level or None, **filters)
        if form is Shape.json:
            typer.echo(_harmless_json([_as_data(hit, query) for hit in hits]))
            return
        printed = 0
        for hit in hits:
            print_hit(hit, query)
            printed += 1
        if not printed:
            out(error=True).print("Nothing found.")


def _print_text(text: str, query: str) -> None:
    out().print(_styled(clean(text), query), soft_wrap=True)


def print_hit(hit: Hit, query: str) -> None:
    """Print one hit: where it stands and who said it, then the words around the first match."""
    head = Text(f"{hit.id:<6}", style=f"bold {level_style(hit.level)}" if hit.level else "bold")
    if hit.message is not None:
        said = hit.message.message.name or hit.message.role
        head.append(f" {clean(said)}", style="not bold default")
    else:
        last = hit.span.stop - 1
        of = f"messages {hit.span.start}-{last}" if last > hit.span.start else f"message {last}"
        head.append(f" {of}", style="not bold default")
    head.append(f"  {date_range(*hit.time_range)}", style="not bold bright_black")
    head.append(f"  {hit.score:.2f}", style="not bold bright_black")
    console = out()
    console.print(head, soft_wrap=True)
    console.print(Text("  ").append(_styled(_snippet(hit.text, query), query)), soft_wrap=True)


def _snippet(text: str, query: str) -> str:
    """Cut a text to one line around the first match."""
    flat = " ".join(clean(text).split())
    if len(flat) <= _SHOWN:
        return flat
    first = next(iter(matched(flat, query)), (0, 0))[0]
    begin = max(0, min(first - _BEFORE, len(flat) - _SHOWN))
    # A word is not cut in two where there are spaces.
    begin = flat.find(" ", begin, begin + 20) + 1 or begin if begin else 0
    end = begin + _SHOWN
    return ("… " if begin else "") + flat[begin:end] + (" …" if end < len(flat) else "")


def _styled(text: str, query: str) -> Text:
    """Mark the words that matched: by their look on a terminal, by stars elsewhere."""
    marks = matched(text, query)
    if out().is_terminal:
        found = Text(text)
        for begin, end in marks:
            found.stylize(_MATCH, begin, end)
        return found
    pieces: list[str] = []
    at = 0
    for begin, end in marks:
        pieces += [text[at:begin], "*", text[begin:end], "*"]
        at = end
    return Text("".join(pieces) + text[at:])


def _as_data(hit: Hit, query: str) -> dict[str, Any]:
    return {
        "id": hit.id,
        "kind": hit.kind,
        "level": hit.level,
        "score": round(hit.score, 4),
        "span": [hit.span.start, hit.span.stop, hit.span.start_char, hit.span.stop_char],
        "thread": hit.thread,
        "role": hit.role,
        "from": hit.time_range[0].isoformat(),
        "to": hit.time_range[1].isoformat(),
        "found": list(hit.found),
        "text": hit.text,
        "matched": [list(mark) for mark in matched(hit.text, query)],
    }


def _harmless_json(data: object) -> str:
    """Write JSON, loss-free, in which what a terminal would obey stands as an escape."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    found = {char for char in set(text) if clean(char) != char}
    for char in found:
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
