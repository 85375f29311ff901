"""The commands ``import`` and ``ingest``: conversations out of files.

A file is read twice: first to the end, which says what it holds and refuses what cannot be read,
and then to append it. Until the first reading is done, no memory is opened or made.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hiermem import ImportReport, Memory, UsageError
from hiermem.cli.options import DB, Db, Tenant, shown
from hiermem.cli.output import Json, hint, print_json, progress
from hiermem.cli.screen import clean, date_range, out, plural
from hiermem.importers import FORMATS, Conversation, Survey, read_chats, survey

app = typer.Typer()
#: The speakers that are named.
_SPEAKERS = 12

_FORMATS = ", ".join(each.name for each in FORMATS)


def _known(name: str | None) -> str | None:
    if name is not None and name not in _FORMATS.split(", "):
        raise typer.BadParameter(f"there is no format {name!r}; use one of {_FORMATS}")
    return name


class Branches(StrEnum):
    """What becomes of branches that are not current."""

    forks = "forks"
    skip = "skip"


class Dates(StrEnum):
    """The order of day, month and year."""

    dmy = "dmy"
    mdy = "mdy"
    ymd = "ymd"


File = Annotated[Path, typer.Argument(help="The file, folder or zip archive.", exists=True)]
Assistant = Annotated[
    list[str] | None,
    typer.Option("--assistant", help="A speaker who is the assistant; may be repeated."),
]
Speaker = Annotated[
    list[str] | None,
    typer.Option("--speaker", help="A speaker of a plain transcript; name all or none."),
]
NamedFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        callback=_known,
        help=f"The file's format, recognised by default: {_FORMATS}.",
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(help="The zone of times that name none, such as Europe/Berlin; UTC by default."),
]


@app.command(name="import")
def import_command(
    file: File,
    *,
    db: Db = DB,
    tenant: Tenant = "default",
    form: NamedFormat = None,
    branches: Annotated[
        Branches, typer.Option(help="Make forks of branches that are not current, or skip them.")
    ] = Branches.forks,
    assistant: Assistant = None,
    speaker: Speaker = None,
    timezone: Timezone = None,
    dates: Annotated[
        Dates | None,
        typer.Option(help="The order of day and month in a WhatsApp chat; guessed by default."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the file holds; write nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import chats: a session for each conversation. A newer export adds what is new."""

    def read() -> Iterator[Conversation]:
        return read_chats(
            file,
            form,
            branches=branches.value,
            assistants=assistant or (),
            speakers=speaker or (),
            timezone=timezone,
            dates=None if dates is None else dates.value,
        )

    found = _surveyed(read, file)
    if not as_json:
        _print_survey(found)
    if dry_run:
        if as_json:
            print_json({"found": asdict(found), "imported": None})
        return
    with Memory.open(db, tenant=tenant) as memory:
        report = _imported(memory, read(), found, file)
        names = [record.id for record in memory.sessions(limit=2)]
    if as_json:
        print_json({"found": asdict(found), "imported": asdict(report)})
        return
    _print_report(report)
    if report.new:
        _suggest(db, tenant, names)


def _suggest(db: str, tenant: str, sessions: list[str]) -> None:
    """Print the commands that come next; ``sessions`` are the first two of the memory."""
    of = f"--db {shown(db)}" + (
        "" if tenant == "default" else f" --tenant {shlex.quote(clean(tenant))}"
    )
    many = len(sessions) > 1
    chosen = " --session ID" if many else ""
    hint("Next:")
    if many:
        hint(f"  hiermem sessions {of}")
    hint(f"  hiermem update {of}")
    hint(f"  hiermem context {of}{chosen}")


@app.command()
def ingest(
    file: File,
    *,
    db: Db = DB,
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="The session; the file's name by default.")
    ] = None,
    tenant: Tenant = "default",
    title: Annotated[str | None, typer.Option(help="The title of the conversation.")] = None,
    assistant: Assistant = None,
    speaker: Speaker = None,
    form: NamedFormat = None,
    timezone: Timezone = None,
    as_json: Json = False,
) -> None:
    """Append one conversation to a session. A repeated call appends only new messages."""

    def read() -> Iterator[Conversation]:
        found = read_chats(
            file,
            form,
            branches="skip",
            assistants=assistant or (),
            speakers=speaker or (),
            timezone=timezone,
        )
        for number, each in enumerate(found):
            if number:
                raise UsageError(
                    f"{file.name} holds several conversations; 'hiermem import' makes a session of "
                    "each"
                )
            yield replace(each, id=session or file.stem, title=title or each.title, branching=False)

    found = _surveyed(read, file)
    with Memory.open(db, tenant=tenant) as memory:
        report = _imported(memory, read(), found, file)
        status = memory.session(session or file.stem).status()
    if as_json:
        data = {"session_id": status.id, "messages": status.messages, "nodes": status.nodes}
        print_json({**data, "found": asdict(found), "imported": asdict(report)})
        return
    sealed = ", ".join(f"{count:,} L{level}" for level, count in status.nodes.items() if count)
    _line(
        f"{plural(found.messages, 'message')} read, {report.new:,} new; session "
        f"{clean(status.id)!r} holds {status.messages:,}. Sealed: {sealed or 'nothing yet'}."
    )
    _print_notes(found, report)


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


def _print_survey(found: Survey) -> None:
    branches = f" and {plural(found.branches, 'further branch', 'further branches')}" if (
        found.branches
    ) else ""  # fmt: skip
    _line(
        f"{', '.join(found.formats)}: {plural(found.conversations, 'conversation')}{branches}, "
        f"{plural(found.messages, 'message')}, {_span(found.since, found.until)}."
    )
    named = [f"{clean(name)} {count:,}" for name, count in found.speakers.items()]
    more = f" and {len(named) - _SPEAKERS:,} more" if len(named) > _SPEAKERS else ""
    _line(f"Speakers: {', '.join(named[:_SPEAKERS])}{more}.")
    if found.undated:
        what = plural(found.undated, "conversation")
        _line(f"No times in {what}; such messages get the time of their import.")
    for what, count in found.notes.items():
        _line(f"Note: {clean(what)}: {count:,}.")


def _span(since: datetime | None, until: datetime | None) -> str:
    return "without times" if since is None or until is None else date_range(since, until)


def _print_report(report: ImportReport) -> None:
    forks = f", {plural(report.forks, 'new fork')}" if report.forks else ""
    _line(
        f"Imported {plural(report.new, 'new message')} into "
        f"{plural(len(report.sessions), 'session')}{forks}; {report.held:,} were there already."
    )
    for text in _differences(report):
        _line(text)


def _differences(report: ImportReport) -> Iterator[str]:
    if report.changed:
        yield f"Note: messages that have changed since, left as first imported: {report.changed:,}."
    if report.late:
        yield (
            "Note: new messages that the file has before others already there, appended after "
            f"those: {report.late:,}."
        )

    for name in report.continued[:_SPEAKERS]:
        yield (
            f"Note: session {clean(name)!r} held messages before, none of which are in the file; "
            "the new ones follow them."
        )


def _print_notes(found: Survey, report: ImportReport) -> None:
    """Print on standard error what ``ingest`` has to say beside its result."""
    for text in _differences(report):
        hint(text)
    if found.undated:
        hint("Note: no times in the file; its messages get the time of their import.")
    for what, count in found.notes.items():
        hint(f"Note: {clean(what)}: {count:,}.")


def _line(text: str) -> None:
    out().print(text, soft_wrap=True)
