"""The commands ``import`` and ``ingest``: conversations out of files.

A file is read twice: first to the end, which says what it holds and refuses what cannot be read,
and then to append it. Until the first reading is done, no memory is opened or made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hiermem import ImportReport, Memory, UsageError
from hiermem.cli.options import DB, Db, Tenant, progress_bars, shown
from hiermem.cli.screen import clean, date_range, out, plural, reported_errors
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

    with reported_errors():
        found = _surveyed(read)
        _print_survey(found)
        if dry_run:
            return
        with Memory.open(db, tenant=tenant) as memory:
            report = _imported(memory, read(), found)
            many = len(memory.sessions()) > 1
        _print_report(report)
        if report.new:
            of = f"--db {shown(db)}"
            listing = f"'hiermem sessions {of}' lists the sessions, and " if many else ""
            _aside(f"{listing}'hiermem update {of}' makes summaries.")


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

    with reported_errors():
        found = _surveyed(read)
        with Memory.open(db, tenant=tenant) as memory:
            report = _imported(memory, read(), found)
            target = memory.session(session or file.stem)
            status = target.status()
            sealed = ", ".join(
                f"{count:,} L{level}" for level, count in status.nodes.items() if count
            )
            out().print(
                f"{plural(found.messages, 'message')} read, {report.new:,} new; session "
                f"{clean(target.id)!r} holds {status.messages:,}. "
                f"Sealed: {sealed or 'nothing yet'}.",
                soft_wrap=True,
            )
        _print_notes(found, report)


def _surveyed(read: Callable[[], Iterator[Conversation]]) -> Survey:
    with progress_bars() as progress:
        task = progress.add_task("reading", total=None)

        def counted() -> Iterator[Conversation]:
            for each in read():
                yield each
                progress.advance(task, len(each.messages))

        return survey(counted())


def _imported(memory: Memory, chats: Iterator[Conversation], found: Survey) -> ImportReport:
    with progress_bars() as progress:
        task = progress.add_task("messages", total=found.messages)

        def draw(report: ImportReport) -> None:
            progress.update(task, completed=report.new + report.held + report.changed)

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
        _aside(text)
    if found.undated:
        _aside("Note: no times in the file; its messages get the time of their import.")
    for what, count in found.notes.items():
        _aside(f"Note: {clean(what)}: {count:,}.")


def _line(text: str) -> None:
    out().print(text, soft_wrap=True)


def _aside(text: str) -> None:
    out(error=True).print(text, soft_wrap=True)
