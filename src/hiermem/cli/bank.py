"""The commands ``bank …``: notes, consolidation, the bank's files, its history, folders.

Only the result goes to standard output, so that it can be piped. Text of notes and files is cleaned
and never moves the cursor.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from hiermem import (
    BankPolicy,
    BankRevision,
    ConsolidationResult,
    FolderError,
    Memory,
    Note,
    NotFoundError,
    Space,
    UpdatePolicy,
    UsageError,
)
from hiermem.cli.models import (
    Concurrency,
    Model,
    ModelUrl,
    ModelWindow,
    Retries,
    Temperature,
    Timeout,
    calls_of,
    model_of,
)
from hiermem.cli.options import DB, Db, Tenant, open_existing
from hiermem.cli.screen import clean, confirm, one_line, out, plural, reported_errors
from hiermem.cli.tables import print_receipt

#: The most characters read from a file or the input, which may never end: more than are allowed.
_MOST_READ: Final = 8 * 1024 * 1024

app = typer.Typer(
    no_args_is_help=True,
    help="Notes, and the bank of files that they are consolidated into.",
    rich_markup_mode=None,
)

SpaceName = Annotated[
    str | None,
    typer.Option("--space", help="The space; optional if there is only one."),
]
Rules = Annotated[
    Path | None,
    typer.Option(
        "--rules", help="The Markdown file that defines the bank's files; creates the space.",
        exists=True, dir_okay=False, readable=True,
    ),
]  # fmt: skip
#: The characters of a note shown in a list.
_WIDTH: Final = 72
#: The notes named in a line.
_SHOWN: Final = 4


@app.command()
def note(
    text: Annotated[str, typer.Argument(help="The text of the note; - reads standard input.")],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    rules: Rules = None,
    agent: Annotated[str, typer.Option(help="The author of the note.")] = "",
    category: Annotated[str, typer.Option(help="The kind of note.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")] = None,
) -> None:
    """Write a live note."""
    said = sys.stdin.read(_MOST_READ) if text == "-" else text
    with reported_errors(), Memory.open(db, tenant=tenant, create=rules is not None) as memory:
        target = _chosen(memory, space, rules)
        made = target.note(said, agent=agent, category=category, tags=tag or ())
        live = len(target.notes())
        out().print(f"{clean(target.name)}: noted {made.key}; {plural(live, 'live note')}.")


@app.command()
def consolidate(
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    rules: Rules = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Ask the model and show the diff, but write nothing."),
    ] = False,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before more calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before more tokens.")] = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
) -> None:
    """Merge the live notes into the bank's files."""
    with reported_errors():
        llm = model_of(
            model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
        )
        policies = {
            "update_policy": UpdatePolicy(
                **calls_of(timeout=timeout, retries=retries, concurrency=concurrency)
            ),
            "bank_policy": BankPolicy(**calls_of(timeout=timeout, retries=retries)),
        }
    with reported_errors(), open_existing(db, tenant, llm, **policies) as memory:
        target = _chosen(memory, space, rules)
        done = target.consolidate(dry_run=dry_run, max_calls=max_calls, max_tokens=max_tokens)
        _print_result(done)
        if done.status not in ("ok", "nothing_to_do"):
            raise typer.Exit(1)


@app.command()
def show(
    file: Annotated[str | None, typer.Argument(help="Print this file of the bank.")] = None,
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    revision: Annotated[
        int | None, typer.Option(min=0, help="The file as of this revision.")
    ] = None,
    synthesis: Annotated[bool, typer.Option("--synthesis", help="Print the synthesis.")] = False,
    notes: Annotated[bool, typer.Option("--notes", help="List the live notes.")] = False,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="List the notes that a model dropped, and why.")
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="Print the space's rules.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the spaces.")] = False,
) -> None:
    """Show a bank: its files and figures, or one file, the synthesis, the notes, the rules."""
    with reported_errors(), open_existing(db, tenant) as memory:
        if list_all:
            for name in memory.spaces():
                typer.echo(clean(name))
            return
        target = _chosen(memory, space)
        if file is not None:
            typer.echo(clean(target.read(file, revision=revision)), nl=False)
        elif synthesis:
            typer.echo(clean(target.synthesis()))
        elif rules:
            typer.echo(clean(target.rules()))
        elif notes:
            _print_notes(target.notes())
        elif dropped:
            _print_dropped(target.notes("consumed"))
        else:
            _print_bank(target)


@app.command()
def history(
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, help="The number of revisions, newest first.")] = 20,
) -> None:
    """List the revisions of a bank."""
    with reported_errors(), open_existing(db, tenant) as memory:
        found = _chosen(memory, space).history(limit=limit)
        if not found:
            out().print("no revision yet")
            return
        table = Table()
        for name in ("revision", "when", "what", "notes", "files"):
            table.add_column(name, overflow="fold")
        for each in found:
            table.add_row(
                str(each.number), f"{each.at:%Y-%m-%d %H:%M}", _what(each), str(len(each.notes)),
                ", ".join(f"{clean(name)} {change}" for name, change in sorted(each.files.items())),
            )  # fmt: skip
        out(whole=True).print(table)


@app.command()
def diff(
    since: Annotated[int | None, typer.Argument(min=0, help="From this revision.")] = None,
    until: Annotated[int | None, typer.Argument(min=0, help="To this revision.")] = None,
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
) -> None:
    """Show the changes of the newest revision, or between two revisions."""
    with reported_errors(), open_existing(db, tenant) as memory:
        typer.echo(clean(_chosen(memory, space).diff(since, until)), nl=False)


@app.command()
def rollback(
    to: Annotated[int, typer.Argument(min=0, help="The revision to restore; 0 is the empty bank.")],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    restore_notes: Annotated[
        bool, typer.Option("--restore-notes", help="Make the notes consumed since live again.")
    ] = False,
) -> None:
    """Restore an earlier revision of a bank, as a new revision."""
    with reported_errors(), open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        now = target.rollback(to, restore_notes=restore_notes)
        live = f"; {plural(len(now.restored), 'note')} live again" if restore_notes else ""
        out().print(f"{clean(target.name)}: revision {now.number} restores revision {to}{live}.")


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The folder; it is created if needed.")],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Overwrite files that were changed there.")
    ] = False,
) -> None:
    """Write the bank into a plain folder."""
    with reported_errors(), open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        done = target.export(folder, overwrite=overwrite)
        out().print(
            f"{clean(target.name)}: {len(done.written)} written, {len(done.unchanged)} unchanged, "
            f"{len(done.removed)} removed in {clean(str(folder))}."
        )
        if done.kept:
            raise FolderError(
                f"changed there since, and left alone: {', '.join(done.kept)}; 'bank load' imports "
                "the changes, --overwrite discards them"
            )


@app.command()
def load(
    folder: Annotated[Path, typer.Argument(help="The folder.", exists=True, file_okay=False)],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    rules: Rules = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="For files changed on both sides, take the folder's version."
        ),
    ] = False,
) -> None:
    """Import a folder's files, or the changed ones, into the bank."""
    with reported_errors(), Memory.open(db, tenant=tenant, create=rules is not None) as memory:
        target = _chosen(memory, space, rules)
        done = target.load(folder, overwrite=overwrite)
        where = f", revision {done.revision}" if done.revision else ""
        out().print(
            f"{clean(target.name)}: {len(done.created)} new, {len(done.updated)} changed, "
            f"{len(done.unchanged)} unchanged{where}."
        )
        if left := (*done.conflicts, *done.skipped):
            raise FolderError(
                f"left alone: {', '.join(left)}; changed on both sides, or not plain files"
            )


@app.command()
def erase(
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Erase a space: notes, bank, history and rules. This cannot be undone."""
    with reported_errors(), open_existing(db, tenant) as memory:
        name = _chosen(memory, space).name
        confirm(f"erase space {clean(name)!r}?", yes=yes)
        print_receipt(memory.erase_space(name))


# ---------------------------------------------------------------------------------------------


def _chosen(memory: Memory, name: str | None, rules: Path | None = None) -> Space:
    """Return the named space, or the only one if none is named."""
    text = None
    if rules is not None:
        try:
            with rules.open(encoding="utf-8-sig") as file:
                text = file.read(_MOST_READ)
        except UnicodeDecodeError:
            raise UsageError(f"{rules} is not UTF-8 text") from None
    if name is not None:
        return memory.space(name, rules=text)
    names = memory.spaces()
    if len(names) == 1:
        return memory.space(names[0], rules=text)
    if not names:
        raise NotFoundError(
            "this memory holds no space yet; 'hiermem bank note TEXT --space NAME --rules FILE' "
            "makes one"
        )
    named = ", ".join(clean(each) for each in names[:8]) + (" …" if len(names) > 8 else "")
    raise UsageError(f"there are {len(names):,} spaces; choose one with --space: {named}")


def _print_result(done: ConsolidationResult) -> None:
    """Print what a consolidation did, and the diff of a dry run."""
    console = out()
    console.print(f"{clean(done.space)} ({done.status}): {clean(done.message)}.", soft_wrap=True)
    for what, names in (
        ("created", done.files_created),
        ("updated", done.files_updated),
        ("unchanged", done.files_unchanged),
    ):
        if names:
            console.print(f"  {what}: {', '.join(map(clean, names))}", soft_wrap=True)
    if done.lines_removed:
        console.print(f"  {plural(done.lines_removed, 'line')} removed")
    for dropped in done.dropped:
        console.print(
            f"  dropped: note {_by(dropped.note, dropped.agent)}: "
            f"{one_line(dropped.reason, _WIDTH)}",
            soft_wrap=True,
        )
    if done.unplaced:
        more = len(done.unplaced) - _SHOWN
        keys = ", ".join(done.unplaced[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        console.print(f"  left out by the model, still live: {keys}", soft_wrap=True)
    for blocked in done.blocked:
        why = "it fits no request" if blocked.reason == "too_large" else "it failed alone too often"
        console.print(
            f"  set aside: note {_by(blocked.key, blocked.agent)} ({why})", soft_wrap=True
        )
    if done.dry_run and done.diff:
        typer.echo(clean(done.diff), nl=False)


def _by(key: str, agent: str) -> str:
    """Name a note and its author."""
    return f"{key} by {clean(agent)}" if agent else key


def _print_dropped(consumed: list[Note]) -> None:
    dropped = [each for each in consumed if each.dropped_for]
    if not dropped:
        out().print("no note was dropped")
        return
    table = Table()
    for name in ("when", "agent", "note", "revision", "reason"):
        table.add_column(name, overflow="fold")
    for each in dropped:
        table.add_row(
            f"{each.timestamp:%Y-%m-%d %H:%M}", clean(each.agent), one_line(each.text, _WIDTH),
            str(each.consolidation), clean(each.dropped_for),
        )  # fmt: skip
    out(whole=True).print(table)


def _print_notes(notes: list[Note]) -> None:
    if not notes:
        out().print("no live notes")
        return
    table = Table()
    for name in ("when", "agent", "category", "note"):
        table.add_column(name, overflow="fold")
    for each in notes:
        said = one_line(each.text, _WIDTH)
        table.add_row(
            f"{each.timestamp:%Y-%m-%d %H:%M}", clean(each.agent), clean(each.category),
            f"(set aside) {said}" if each.state == "blocked" else said,
        )  # fmt: skip
    out(whole=True).print(table)


def _print_bank(space: Space) -> None:
    """Print the files with their sizes, then the space's figures."""
    console, meta = out(), space.meta()
    files = space.files()
    if files:
        table = Table()
        table.add_column("file", overflow="fold")
        table.add_column("lines", justify="right")
        table.add_column("characters", justify="right")
        for name in files:
            text = space.read(name)
            table.add_row(clean(name), f"{text.count(chr(10)):,}", f"{len(text):,}")
        console.print(table)
    live = space.notes()
    aside = sum(each.state == "blocked" for each in live)
    last = meta.last_consolidation
    lines = [
        f"{clean(space.name)}: revision {meta.revision}, {plural(len(files), 'file')}",
        f"{plural(len(live), 'live note')}" + (f", {aside} of them set aside" if aside else ""),
        f"{plural(meta.notes_processed, 'note')} consolidated in "
        f"{plural(meta.consolidations, 'answer')}"
        + (f", the last on {last:%Y-%m-%d at %H:%M} UTC" if last else ""),
    ]
    console.print(Text("\n".join(lines)))


def _what(revision: BankRevision) -> str:
    """Return the kind of a revision; a rollback names the restored one."""
    if revision.kind == "rollback":
        return f"rollback to {revision.to}"
    return revision.kind
