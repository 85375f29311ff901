"""The commands ``context`` and ``search``.

Output for a program is exactly what the library returned. Matched words are marked for readers
only: highlighted on a terminal, and between asterisks elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer
from rich.text import Text
from typer import Argument, Option

from hiermem import ContextProfile, ContextSelection, Hit
from hiermem.cli.options import InSpace, OneSession, Session, counted, names_of, session_of
from hiermem.cli.output import (
    clean,
    date_range,
    echo,
    facts,
    hint,
    out,
    print_json,
    shown,
    wants_json,
)
from hiermem.cli.show import level_style
from hiermem.search.query import matched

_MATCH = "bold reverse"
#: The number of characters of a hit that are shown, and how many of them precede the first match.
#: A hit of a score below ``_SURE`` is printed only if no other is found.
_SHOWN, _BEFORE, _SURE = 280, 60, 0.3
_INDENT = 2
#: The profiles that the library ships.
_PROFILES = {
    "code-reviewer": ContextProfile.code_reviewer,
    "documentation": ContextProfile.documentation,
}


class Role(StrEnum):
    """The role of a message; of a ``Literal``, an option takes only one."""

    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"


def context(
    one: OneSession,
    *,
    max_tokens: Annotated[int, counted(1)] = 8_000,
    query: Annotated[str | None, Option("--query", "-q")] = None,
    recall_tokens: Annotated[int | None, counted(0)] = None,
    profile: Literal["code-reviewer", "documentation"] | None = None,
    form: Annotated[Literal["text", "openai", "anthropic"], Option("--format")] = "text",
    strategy: Literal["cut", "layered"] = "cut",
    system: str | None = None,
    allow_omission: bool = False,
    explain: bool = False,
) -> None:
    """Print a context of the whole session that fits a token budget.

    Args:
        max_tokens: The budget: 8000, 8,000 or 8k.
        query: Append what answers this question.
        recall_tokens: For the answer; 0.4 of the budget by default.
        profile: The kind of agent that the context is for.
        form: Plain text, or a provider's JSON.
        strategy: How the context is selected.
        system: A system prompt that precedes the context.
        allow_omission: List what does not fit instead of failing.
        explain: Describe the context instead of printing it.
    """
    with one.opened() as session:
        selection = session.context(
            max_tokens,
            query=query,
            recall_tokens=recall_tokens,
            system=system,
            profile=None if profile is None else _PROFILES[profile](),
            strategy=strategy,
            allow_omission=allow_omission,
        )
    if selection.omitted and not explain:
        hint(f"omitted: messages {shown([each.span for each in selection.omitted])}")
    prompt: Any = selection.to_text()
    if form != "text":
        prompt = selection.to_openai() if form == "openai" else selection.to_anthropic()
    if wants_json():
        figures = "session_id max_tokens total_tokens shared_prefix_tokens messages coverage"
        print_json(
            {
                **facts(selection, figures),
                "shown": shown_data(selection),
                "omitted": [each.span for each in selection.omitted],
                "trimmed": selection.trimmed,
                "blocks": [facts(each, "kind level span tokens") for each in selection.blocks],
                "prompt": prompt,
            }
        )
    elif explain:
        echo(clean(selection.explain()) + "\n")
        for hit in selection.evidence or ():
            print_hit(hit, query or "")
    elif form != "text":
        print_json(prompt)
    else:
        echo(clean(prompt, escaped=False) + "\n")


def shown_data(selection: ContextSelection) -> dict[str, Any]:
    """Return of how many messages a context shows something, beside how many it covers."""
    return {"messages": len(selection.shown.messages), "by_quarter": selection.shown.by_quarter}


def search(
    question: Annotated[list[str], Argument(metavar="QUESTION")],
    place: InSpace,
    *,
    session: Session = None,
    limit: Annotated[int, Option("--limit", "-n", min=1)] = 10,
    level: Annotated[list[int] | None, Option(min=0)] = None,
    role: list[Role] | None = None,
    thread: list[str] | None = None,
    tag: list[str] | None = None,
    entity: list[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    tokens: Annotated[int | None, counted(1)] = None,
) -> None:
    """Find messages of a space's sessions that answer a question; of one session, summaries too.

    Args:
        question: The question, in plain words.
        limit: The number of hits.
        level: Only this level, 0 for messages; may be repeated.
        role: Only messages of this role; may be repeated.
        thread: Only this thread; may be repeated.
        tag: Only what has this tag; may be repeated.
        entity: Only what names this entity; may be repeated.
        since: Only from this day or time, in UTC.
        until: Only before this day or time, in UTC.
        tokens: Print verbatim messages that fit this many tokens instead.
    """
    query = " ".join(question)
    if tokens is not None and level:
        raise typer.BadParameter("--tokens returns messages only; omit --level")
    # An omitted option is an empty list, which as a filter would match nothing.
    filters: dict[str, Any] = {
        "roles": [each.value for each in role or ()],
        "threads": thread,
        "entities": entity,
        "since": since and since.replace(tzinfo=UTC),
        "until": until and until.replace(tzinfo=UTC),
        "tags": tag,
        "levels": level,
    }
    given = {name: value for name, value in filters.items() if value}
    more: dict[str, Any] = {}
    with place.open() as memory:
        alone = not place.is_named and len(memory.sessions(limit=2)) == 1
        one = session_of(memory, session) if session is not None or level or tag or alone else None
        target = one or memory
        if one is None:
            given["space"] = place.chosen(memory)
        if tokens is not None:
            found = target.recall(query, tokens, **given)
            if not wants_json():
                console = out()
                text = _styled(clean(found.text, escaped=False), query)
                console.print(text, soft_wrap=not console.is_terminal)
                return
            more = {"total_tokens": found.total_tokens, "text": found.text}
            hits: Sequence[Hit] = found.hits
        else:
            hits = target.search(query, limit, **given)
        titles = names_of(memory) if one is None and not wants_json() else {}
    if wants_json():
        data = [_as_data(hit, query) for hit in hits]
        print_json({"session_id": one and one.id, "hits": data, **more})
        return
    for hit in [hit for hit in hits if hit.score >= _SURE] or hits:
        print_hit(hit, query, of=titles.get(hit.session_id))
    if not hits:
        hint("Nothing found.")


def print_hit(hit: Hit, query: str, *, of: str | None = None) -> None:
    """Print one hit: its place and speaker, then the text around the first match.

    ``of`` names its session first. The text is wrapped between words and indented, to the width of
    the terminal or of a file.
    """
    head = Text(f"{of} " if of else "", style="bold")
    head.append(f"{hit.id:<6}", style=level_style(hit.level))
    if hit.message is not None:
        place = clean(hit.message.message.name or hit.message.role)
    else:
        place = f"messages {shown(hit.span)}"
    head.append(f" {place}", style="not bold default")
    said = f"  {date_range(*hit.time_range)}  {hit.score:.2f}"
    head.append(said, style="not bold bright_black")
    console = out()
    console.print(head, soft_wrap=True)
    for line in _styled(_snippet(hit.text, query), query).wrap(console, console.width - _INDENT):
        line.rstrip()
        console.print(Text(" " * _INDENT).append(line), soft_wrap=True)


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
    for begin, end in reversed(marks):
        text = f"{text[:begin]}*{text[begin:end]}*{text[end:]}"
    return Text(text)


def _as_data(hit: Hit, query: str) -> dict[str, Any]:
    span = hit.span
    return {
        **facts(hit, "session_id id kind level"),
        "score": round(hit.score, 4),
        "span": [span.start, span.stop, span.start_char, span.stop_char],
        **facts(hit, "thread role"),
        "from": hit.time_range[0],
        "to": hit.time_range[1],
        **facts(hit, "found text"),
        "matched": matched(hit.text, query),
    }
