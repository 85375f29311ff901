"""The commands about whole sessions: ``sessions``, ``pin`` and those that change them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer
from typer import Argument, Option

import hiermem
from hiermem import types
from hiermem.cli import options, output
from hiermem.cli.options import Forks, OneSession, Place, Yes, session_of
from hiermem.cli.output import Code, clean, confirm, date_range, facts, hint, out, plural, result
from hiermem.importers import LIKE_OWN

#: What is printed of a session as JSON.
_FIELDS = """id title participants messages created_at last_activity closed forked_from space
    metadata"""
#: Messages on the command line: 3, or 5-9 with both ends.
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
#: The largest range of messages.
_MOST = 1_000_000
#: The characters of an id on a terminal, most of which are made at random.
_SHORT = 8
#: Where a line of a text looks like one of an export. What is printed has no other line ends.
_LIKE_OWN = re.compile(LIKE_OWN, re.MULTILINE)
#: A mark behind a backslash.
_BEHIND = r"\\\g<0>"
#: Names that do not stand alone, since they would be a role.
_ROLE = re.compile(r"(?:User|Assistant|System|Tool)(?: \(|$)")

SessionName = Annotated[str, Argument(metavar="SESSION", help="The session.")]


def sessions(
    text: Annotated[list[str] | None, Argument(metavar="TEXT")] = None,
    *,
    place: options.InSpace,
    metadata: Annotated[list[str] | None, Option(metavar="KEY=VALUE")] = None,
    source: Annotated[str | None, Option(metavar="FORMAT")] = None,
    forks: bool = False,
    limit: Annotated[int | None, Option("--limit", "-n", min=1)] = None,
) -> None:
    """List the sessions, of all spaces if none is named, that with the newest message first.

    Args:
        text: Only those whose title or id holds these words.
        metadata: Only sessions labelled so.
        source: Only imported ones, such as from whatsapp.
        forks: List each fork, not the session alone that it stems from.
        limit: The number of sessions; all by default.
    """
    labels = options.named_values(metadata, "--metadata KEY=VALUE")
    labels |= {"source": source} if source else {}
    with place.open() as memory:
        space = place.chosen(memory) if place.is_named else hiermem.ALL
        listed = memory.families(text or (), metadata=labels, space=space, apart=forks, limit=limit)
        every = memory.count_sessions(metadata=labels, space=space)
    width = _SHORT if out().is_terminal else None
    several = len({each.session.space for each in listed}) > 1
    view = [
        {
            "session": options.title_of(each.session),
            "messages": each.session.messages,
            "when": each.first and each.last and date_range(each.first, each.last),
            "source": each.session.metadata.get("source"),
            "space": several and each.session.space,
            "forks": len(each.forks),
            "id": each.session.id[:width] if each.session.title else "",
        }
        for each in listed
    ]
    data = [
        facts(each.session, _FIELDS)
        | {"forks": len(each.forks), "from": each.first, "to": each.last}
        for each in listed
    ]
    what = "no session fits" if every else "no session is labelled so" if labels else ""
    result({"sessions": data}, view, empty=what or "no sessions yet")


def pin(
    one: OneSession,
    *,
    add: Annotated[int | None, Option(metavar="INDEX")] = None,
    remove: Annotated[int | None, Option(metavar="INDEX")] = None,
) -> None:
    """List the pinned messages and standing wishes of a session; pin one or take its pin off.

    Args:
        add: Pin this message.
        remove: Unpin this message.
    """
    with one.opened() as session:
        if add is not None:
            session.pin(add)
        if remove is not None:
            session.unpin(remove)
        found = session.pins()
    result({"pins": found}, found, empty="no pinned messages")


def rename(name: SessionName, title: str, place: Place) -> None:
    """Give a session another title. Its id stays, because forks, runs and notes refer to it.

    Args:
        title: Its new title; an empty one removes it.
    """
    with place.open() as memory:
        session = session_of(memory, name)
        before = session.status().title
        session.set_title(title or None)
        result({"session_id": session.id, "title": title or None, "before": before})


def export(
    one: OneSession,
    *,
    place: Annotated[str | None, Argument(metavar="FILE")] = None,
    form: Annotated[Literal["jsonl", "markdown"] | None, Option("--format")] = None,
    space: Annotated[str | None, Option(metavar="NAME")] = None,
) -> None:
    """Write all messages of a session, or a space; 'hiermem import' reads JSON lines again.

    Args:
        place: The new file; without it, or as -, it is printed.
        form: JSON lines, or text to be read; by default as FILE ends.
        space: Write this space and its members to a new folder FILE.
    """
    if space is not None:
        _export_space(one, space, [*filter(None, (one.name, place))], form or "jsonl")
        return
    one, places = one.parted([place] if place is not None else [])
    if len(places) > 1:
        raise hiermem.UsageError(f"{len(places)} files are named; name one")
    target = Path(places[0]) if places and places[0] != "-" else None
    if form is None:
        form = "markdown" if target and target.suffix == ".md" else "jsonl"
    if output.wants_json() and target is None:
        raise hiermem.UsageError("--json reports on a written file; name one, or omit --json")
    with one.opened() as session:
        if target is None:
            for text in _exported(session, form):
                output.echo(text)
            return
        count = 0
        with new_file(target) as file, output.progress(session.id, "messages") as show:
            total = session.count()
            for text in _exported(session, form):
                file.write(text)
                count += 1
                show({"messages": (count, total)})
        result({"session_id": session.id, "file": str(target), "messages": count})


def _export_space(place: Place, name: str, words: list[str], form: str) -> None:
    """Write a file for each member of a space, its rules and notes, and its bank."""
    if len(words) != 1:
        raise hiermem.UsageError("--space takes one word, the new folder that it is written to")
    folder, count = Path(words[0]), 0
    with place.open() as memory:
        space = memory.space(options.spelled(name, memory.spaces()))
        rules, notes = space.rules(), space.notes()
        try:
            folder.mkdir()
        except OSError as error:
            raise hiermem.UsageError(f"{folder} cannot be made: {error.strerror}") from None
        # First, as this records the folder: an erasure names it, with all that is written to it.
        space.export(folder)
        for count, record in enumerate(options.sessions_of(memory, space=space.name), 1):
            title = re.sub(r"[^\w.-]+", " ", record.title or record.id)[:60].strip(" .")
            suffix = "md" if form == "markdown" else "jsonl"
            with new_file(folder / f"{count:03} {title}.{suffix}") as file:
                file.writelines(_exported(memory.session(record.id), form))
        with new_file(folder / "_rules.md") as file:
            file.write(rules)
        with new_file(folder / "notes.jsonl") as file:
            file.writelines(f"{output.to_json(note)}\n" for note in notes)
    result({"space": space.name, "folder": str(folder), "sessions": count, "notes": len(notes)})


@contextmanager
def new_file(target: Path, *, replace: bool = False) -> Iterator[TextIO]:
    """Open a file that appears under its name when it is complete.

    Raises UsageError where there is one of that name that it must not replace, or none can be made.
    """
    if target.exists() and not replace:
        raise hiermem.UsageError(f"{target} exists; name a new file")
    try:
        number, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise hiermem.UsageError(f"{target} cannot be written: {error.strerror}") from None
    unfinished = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as file:
            yield file
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _exported(session: hiermem.Session, form: str) -> Iterator[str]:
    """Yield a session's live messages in a format, in order."""
    about, heading = session.status(), ""
    if form == "markdown":
        of = f" (space: {about.space})" if about.space else ""
        heading = f"# {clean(f'{about.title or session.id}{of}', escaped=False)}\n"
    day = ""
    for stored in options.messages_of(session):
        if stored.state != "live":
            continue
        if form == "jsonl":
            yield output.to_json(_line(stored.message, about.space)) + "\n"
            continue
        said = stored.message.created_at
        if said is not None and f"{said:%Y-%m-%d}" != day:
            day = f"{said:%Y-%m-%d}"
            heading += f"\n## {day}\n"
        yield heading + _paragraph(stored.message)
        heading = ""


def _line(message: hiermem.Message, space: str | None) -> dict[str, Any]:
    """Return a message as a line of JSON holds it, with the space of its session."""
    fields: dict[str, Any] = message.to_openai() | ({"space": space} if space else {})
    if message.created_at is not None:
        fields["created_at"] = message.created_at.isoformat()
    if message.key is not None:
        fields["key"] = message.key
    if message.thread != "main":
        fields["thread"] = message.thread
    return fields


def _paragraph(message: hiermem.Message) -> str:
    """Return a message as Markdown: who said it, in bold, then the text.

    ``hiermem.importers.transcript`` reads it back. A line of the text that looks like a speaker, a
    day or a call gets a backslash before it, and so do the marks in names.
    """
    name, speaker = _line_of(message.name or ""), message.role.capitalize()
    if name and (message.role != "user" or _ROLE.match(name)):
        name = f"{speaker} ({name})"
    speaker = re.sub(r"[\\*]", _BEHIND, name or speaker)
    thread = re.sub(r"[\\()]", _BEHIND, _line_of(message.thread))
    thread = "" if message.thread == "main" else f" ({thread})"
    called = "".join(
        f"\n\n`{_line_of(call.name)}({' '.join(arguments.splitlines())})`"
        for call in message.tool_calls
        for arguments in (clean(call.arguments, escaped=False),)
    )
    text = _LIKE_OWN.sub(_BEHIND, clean(_text(message), escaped=False))
    return f"\n**{speaker}**{thread}: {text}{called}\n"


def _line_of(text: str) -> str:
    return " ".join(clean(text, escaped=False).split())


def _text(message: hiermem.Message) -> str:
    """Return the text of a message; what is no text is named in brackets."""
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for part in message.content:
        match part:
            case hiermem.TextPart(text):
                texts.append(text)
            case hiermem.ImagePart():
                texts.append("[image]")
            case hiermem.FilePart():
                texts.append(f"[file: {part.name or part.reference}]")
            case hiermem.JsonPart():
                texts.append("[data]")
    return "\n".join(texts)


def delete(name: SessionName, place: Place, *, forks: Forks = "all", yes: Yes = False) -> None:
    """Erase a session with everything that is kept of it. This cannot be undone.

    Args:
        forks: Delete in all forks as well, or keep the messages there.
    """
    with place.open() as memory:
        session = session_of(memory, name, whole=yes)
        confirm(f"erase session {options.labelled(session.status())}?", yes=yes)
        print_receipt(session.delete(forks=forks))


def erase(
    one: OneSession,
    *,
    messages: Annotated[list[str] | None, Argument()] = None,
    everything: bool = False,
    forks: Forks = "all",
    quarantine: bool = False,
    yes: Yes = False,
) -> None:
    """Erase messages and everything made from them. This cannot be undone.

    The session comes first: hiermem erase SESSION 3 5-9. 'hiermem delete' erases a whole session.

    Args:
        messages: The messages: 3, or 5-9 with both ends.
        everything: Erase everything kept for this tenant.
        forks: Erase in all sessions that share the messages, or keep them there.
        quarantine: Keep the messages readable, but use them nowhere.
    """
    one, words = one.parted(messages or ())
    name = one.chosen()
    if everything and (name is not None or quarantine):
        raise hiermem.UsageError("--everything goes with no session, message or --quarantine")
    if not everything and (name is None or not words):
        raise hiermem.UsageError("no messages named; write for example: hiermem erase @last 3 5-9")
    indices = _indices(words)
    with one.open() as memory:
        if everything:
            count = sum(1 for _ in options.sessions_of(memory))
            confirm(
                f"erase all {plural(count, 'session')} of tenant {clean(one.tenant)!r}?", yes=yes
            )
            print_receipt(memory.erase_tenant())
            return
        session = session_of(memory, name, whole=yes)
        word = "quarantine" if quarantine else "erase"
        of = options.labelled(session.status())
        confirm(f"{word} {plural(len(indices), 'message')} of session {of}?", yes=yes)
        act = session.quarantine if quarantine else session.erase
        print_receipt(act(indices, forks=forks))


def _indices(words: list[str]) -> list[int]:
    found: set[int] = set()
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None:
            raise hiermem.UsageError(f"{word!r} is not a message or a range; write 3, or 5-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise hiermem.UsageError(f"{word!r} runs backwards; write {last}-{first}")
        if last - first >= _MOST:
            raise hiermem.UsageError(f"{word!r} is not a range of at most {_MOST:,} messages")
        found.update(range(first, last + 1))
    return sorted(found)


def print_receipt(receipt: types.Receipt) -> None:
    """Print what was removed, where it was found, and what is left to do.

    Ends with the code for incomplete work where the store may still hold bytes of it.
    """
    result(receipt)
    if receipt.unproven:
        hint("unproven: these may quote it; please check them")
    if receipt.copies:
        hint("copies may hold it: delete them, or erase there too")
    if receipt.to_remake:
        hint("to remake: hiermem update")
    there = "in messages that repeat it in their own words"
    # A fork outlives its session, with the messages of its own.
    own = receipt.forks_reached if receipt.kind == "erase_session" else ()
    if forks := [*own, *receipt.kept_in]:
        there = f"in forks, which keep messages of theirs ({output.named(forks)}), and {there}"
    if receipt.scrubbed:
        hint(f"no trace is left in the store, save {there}")
    elif receipt.scrub_reason and receipt.kind != "quarantine":
        hint("the store may still hold bytes of it; try again with: hiermem store scrub")
        raise typer.Exit(Code.INCOMPLETE)
