"""The commands ``context`` and ``search``.

Output for a program is exactly what the library returned. Matched words are marked for readers
only: highlighted on a terminal, and between asterisks elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from hiermem import ContextProfile, ContextSelection, Hit, matched
from hiermem.cli.options import DB, Db, SessionId, Tenant, open_existing, session_of
from hiermem.cli.output import Json, echo, hint, print_json
from hiermem.cli.screen import clean, date_range, out, print_indented
from hiermem.cli.tree_view import level_style

app = typer.Typer()

_MATCH = "bold reverse"
#: The number of characters of a hit that are shown, and how many of them precede the first match.
_SHOWN, _BEFORE = 280, 60
_INDENT = 2


class Format(StrEnum):
    """The format of a context."""

    text = "text"
    openai = "openai"
    anthropic = "anthropic"


class Recipe(StrEnum):
    """The strategy that selects a context."""

    cut = "cut"
    layered = "layered"


class Mix(StrEnum):
    """The profiles that the library ships."""

    code_reviewer = "code-reviewer"
    documentation = "documentation"


class Role(StrEnum):
    """The role of a message."""

    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"


@app.command()
def context(
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    max_tokens: Annotated[int, typer.Option(min=1, help="The budget.")] = 8_000,
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Append what answers this question.")
    ] = None,
    recall_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens for the answer; 0.4 of the budget by default.")
    ] = None,
    profile: Annotated[
        Mix | None, typer.Option(help="The kind of agent that the context is for.")
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Plain text, or a provider's JSON.")
    ] = Format.text,
    strategy: Annotated[Recipe, typer.Option(help="How the context is selected.")] = Recipe.cut,
    system: Annotated[
        str | None, typer.Option(help="A system prompt that precedes the context.")
    ] = None,
    allow_omission: Annotated[
        bool, typer.Option("--allow-omission", help="List what does not fit instead of failing.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Describe the context instead of printing it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a context of the whole session that fits a token budget."""
    with open_existing(db, tenant) as memory:
        selection = session_of(memory, session).context(
            max_tokens,
            query=query,
            recall_tokens=recall_tokens,
            system=system,
            profile=None if profile is None else _profile(profile),
            strategy=strategy.value,
            allow_omission=allow_omission,
        )
        if as_json:
            print_json(_context_data(selection, form))
        elif explain:
            echo(clean(selection.explain()) + "\n")
            _print_recalled(selection, query or "")
        elif form is not Format.text:
            print_json(_prompt(selection, form))
        elif query is not None and out().is_terminal:
            _print_marked(selection, query)
        else:
            echo(clean(selection.to_text()) + "\n")


def _prompt(selection: ContextSelection, form: Format) -> object:
    """Return a context in one of the formats."""
    if form is Format.text:
        return selection.to_text()
    return selection.to_openai() if form is Format.openai else selection.to_anthropic()


def _context_data(selection: ContextSelection, form: Format) -> dict[str, Any]:
    """Return what is printed of a context as JSON: its figures and its blocks, and the prompt."""
    return {
        "session_id": selection.session_id,
        "max_tokens": selection.max_tokens,
        "total_tokens": selection.total_tokens,
        "shared_prefix_tokens": selection.shared_prefix_tokens,
        "messages": selection.messages,
        "coverage": selection.coverage,
        "omitted": [[each.span.start, each.span.stop] for each in selection.omitted],
        "trimmed": list(selection.trimmed),
        "blocks": [
            {
                "kind": each.kind,
                "level": each.level,
                "span": [each.span.start, each.span.stop],
                "tokens": each.tokens,
            }
            for each in selection.blocks
        ],
        "prompt": _prompt(selection, form),
    }


def _profile(mix: Mix) -> ContextProfile:
    if mix is Mix.code_reviewer:
        return ContextProfile.code_reviewer()
    return ContextProfile.documentation()


def _print_recalled(selection: ContextSelection, query: str) -> None:
    """List the recalled hits, with the matched words marked."""
    for hit in selection.evidence or ():
        print_hit(hit, query)


def _print_marked(selection: ContextSelection, query: str) -> None:
    """Print a context as text, with the matched words of the recalled part highlighted."""
    text = clean(selection.to_text())
    recalled = selection.blocks[-1] if selection.recall else None
    tail = clean(recalled.text) if recalled else ""
    head = text.removesuffix(tail)
    console = out()
    console.print(Text(head), soft_wrap=True, end="")
    console.print(_styled(tail, query), soft_wrap=True)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="The question, in plain words.")],
    *,
    db: Db = DB,
    session: SessionId = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The number of hits.")] = 10,
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
        list[str] | None, typer.Option(help="Only what has this tag; may be repeated.")
    ] = None,
    entity: Annotated[
        list[str] | None, typer.Option(help="Only what names this entity; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Only from this day or time, in UTC.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only before this day or time, in UTC.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Print verbatim messages that fit this many tokens instead."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find messages and summaries that answer a question, best first."""
    with open_existing(db, tenant) as memory:
        target = session_of(memory, session)
        # An omitted option is an empty list, which as a filter would match nothing.
        filters: dict[str, Any] = {
            "roles": [each.value for each in role] if role else None,
            "threads": thread or None,
            "tags": tag or None,
            "entities": entity or None,
            "since": since and since.replace(tzinfo=UTC),
            "until": until and until.replace(tzinfo=UTC),
        }
        more: dict[str, Any] = {}
        if tokens is not None:
            if level:
                raise typer.BadParameter("--tokens returns messages only; omit --level")
            found = target.recall(query, tokens, **filters)
            if not as_json:
                _print_text(found.text, query)
                return
            more = {"total_tokens": found.total_tokens, "text": found.text}
            hits: Sequence[Hit] = found.hits
        else:
            hits = target.search(query, limit, levels=level or None, **filters)
        if as_json:
            data = [_as_data(hit, query) for hit in hits]
            print_json({"session_id": target.id, "hits": data, **more})
            return
        for hit in hits:
            print_hit(hit, query)
        if not hits:
            hint("Nothing found.")


def _print_text(text: str, query: str) -> None:
    console = out()
    console.print(_styled(clean(text), query), soft_wrap=not console.is_terminal)


def print_hit(hit: Hit, query: str) -> None:
    """Print one hit: its place and speaker, then the text around the first match.

    The text is wrapped between words and indented, to the width of the terminal or of a file.
    """
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
    print_indented(console, _styled(_snippet(hit.text, query), query), _INDENT)


def _snippet(text: str, query: str) -> str:
    """Return the text around the first match, on one line."""
    flat = " ".join(clean(text).split())
    if len(flat) <= _SHOWN:
        return flat
    first = next(iter(matched(flat, query)), (0, 0))[0]
    begin = max(0, min(first - _BEFORE, len(flat) - _SHOWN))
    # Words are kept whole where there are spaces near the cut.
    begin = flat.find(" ", begin, begin + 20) + 1 or begin if begin else 0
    end = begin + _SHOWN
    if end < len(flat) and (space := flat.rfind(" ", end - 20, end + 1)) > 0:
        end = space
    return ("… " if begin else "") + flat[begin:end] + (" …" if end < len(flat) else "")


def _styled(text: str, query: str) -> Text:
    """Mark the matched words: highlighted on a terminal, between asterisks elsewhere."""
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
