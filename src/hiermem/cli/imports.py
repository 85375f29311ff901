"""The command ``import``: conversations out of files.

A file is read twice: first to the end, which says what it holds and refuses what cannot be read,
and then to append it. Until the first reading is done, no memory is opened or made.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from hiermem import Memory, NotFoundError, UsageError
from hiermem.cli.options import LAST, MadeSpace, Place, beside, db_option, named_values, names_of
from hiermem.cli.output import Code, clean, facts, hint, progress, result, say, wants_json
from hiermem.importers import FORMATS, Conversation, Survey, read_chats, survey
from hiermem.types import ImportReport

#: What is said of an import.
_COUNTS = "new held changed late completed forks sessions"
#: How ``--map`` is written.
_MAP = "--map sender=author,text=at"
_FORMATS = ", ".join(each.name for each in FORMATS)


def _there(file: Path) -> Path:
    if not file.exists():
        raise typer.BadParameter(f"there is no {file}{beside(file)}")
    return file


def import_(
    file: Annotated[Path, Argument(metavar="FILE", callback=_there)],
    *,
    form: Annotated[
        str | None,
        Option("--format", help=f"The file's format, recognised by default: {_FORMATS}."),
    ] = None,
    assistant: list[str] | None = None,
    speaker: list[str] | None = None,
    timezone: str | None = None,
    fields: Annotated[str | None, Option("--map", metavar="FIELDS")] = None,
    place: MadeSpace,
    session: Annotated[str | None, Option("--session", "-s")] = None,
    title: str | None = None,
    branches: Literal["forks", "skip"] = "forks",
    dates: Literal["dmy", "mdy", "ymd"] | None = None,
    dry_run: bool = False,
) -> None:
    """Import chats: a session for each conversation. A newer export adds what is new.

    Args:
        file: The file, folder or zip archive.
        assistant: A speaker who is the assistant; may be repeated.
        speaker: A speaker of a plain transcript; name all or none.
        timezone: The zone of times that name none, such as Europe/Berlin; UTC by default.
        fields: Where any other JSON or CSV holds them: sender=author.name,text=content,time=at.
        session: The id of its session; the file holds one conversation.
        title: The title of that session.
        branches: Make forks of branches that are not current, or skip them.
        dates: The order of day and month in a WhatsApp chat; guessed by default.
        dry_run: Say what the file holds; write nothing.
    """
    if title is not None and session is None:
        raise UsageError("--title goes with --session")
    place.check_person()

    def read() -> Iterator[Conversation]:
        chats = read_chats(
            file,
            form,
            branches="skip" if session else branches,
            assistants=assistant or (),
            speakers=speaker or (),
            timezone=timezone,
            dates=dates,
            fields=None if fields is None else named_values(fields.split(","), _MAP),
        )
        for number, each in enumerate(chats):
            if session is None:
                yield each
                continue
            if number:
                raise UsageError(
                    f"{file.name} holds several conversations; without --session, each becomes "
                    "a session of its own"
                )
            yield replace(each, id=session, title=title or each.title, branching=False)

    found = _surveyed(read, file)
    if not wants_json():
        figures = facts(
            found, "formats conversations branches messages speakers since until undated"
        )
        notes = {"notes": _listed(found.notes), "not read": _listed(found.unread)}
        say({"file": file.name, **figures, **notes})
    if dry_run:
        if wants_json():
            result({"found": found, "imported": None})
        _end(found)
    with place.made() as memory:
        ids: list[str] = []
        space = place.made_space(memory)
        report = _imported(memory, _noted(read(), ids), found, file)
        if space is not None:
            _join(memory, space, (*ids, *report.sessions))
        names = names_of(memory)
    named = [names[each] for each in report.sessions if each in names]
    imported = {**facts(report, _COUNTS), "sessions": named}
    result({"found": found, "imported": report}, {"imported": imported})
    for each in report.continued:
        hint(f"the new messages of session {clean(each)!r} follow others, none of them in the file")
    if report.new:
        _suggest(place, named[0] if len(named) == 1 else LAST)
    _end(found)


def _listed(counts: Mapping[str, int]) -> list[dict[str, str | int]]:
    return [{"what": what, "count": count} for what, count in counts.items()]


def _noted(chats: Iterator[Conversation], ids: list[str]) -> Iterator[Conversation]:
    for conversation in chats:
        ids.append(conversation.id)
        yield conversation


def _join(memory: Memory, space: str, ids: Iterable[str]) -> None:
    """Make sessions members: also those that an earlier import left in no space."""
    for session in dict.fromkeys(ids):
        with suppress(NotFoundError):  # a file without its id may go on under another one
            memory.join(space, [session])


def _suggest(place: Place, name: str) -> None:
    """Print the commands that come next."""
    of = db_option(place.db)
    if place.tenant != "default":
        of += f" --tenant {shlex.quote(clean(place.tenant))}"
    hint("Next:")
    for words in ("sessions", "update", f"context {shlex.quote(clean(name))}", "about"):
        hint(f"  hiermem {words}{of}")


def _surveyed(read: Callable[[], Iterator[Conversation]], file: Path) -> Survey:
    with progress(file.name, "messages read") as show:

        def counted() -> Iterator[Conversation]:
            count = 0
            for each in read():
                yield each
                count += len(each.messages)
                show({"reading": (count, None)})

        return survey(counted())


def _imported(
    memory: Memory, chats: Iterator[Conversation], found: Survey, file: Path
) -> ImportReport:
    with progress(file.name, "messages") as show:

        def draw(report: ImportReport) -> None:
            done = report.new + report.held + report.changed
            show({"messages": (done, found.messages)})

        return memory.import_chats(chats, on_progress=draw)


def _end(found: Survey) -> None:
    """End with the exit code that says whether everything could be read."""
    raise typer.Exit(Code.INCOMPLETE if found.unread else Code.DONE)
