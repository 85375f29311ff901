"""The commands ``bank …``: notes, consolidation, the bank's files and history, export and load.

Only the result goes to standard output, so that it can be piped. Text of notes and files is cleaned
and never moves the cursor.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

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
    MaxCalls,
    MaxTokens,
    Model,
    ModelUrl,
    ModelWindow,
    Retries,
    Temperature,
    Timeout,
    calls_of,
    model_of,
)
from hiermem.cli.options import DB, Db, Tenant, Yes, open_existing
from hiermem.cli.output import Code, Json, confirm, echo, hint, print_json
from hiermem.cli.screen import clean, one_line, out, plural
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
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE",
        help="An option of object storage, such as endpoint or region; may be repeated. Keys are "
        "better given in the environment, as AWS_SECRET_ACCESS_KEY.",
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
    as_json: Json = False,
) -> None:
    """Write a live note."""
    said = sys.stdin.read(_MOST_READ) if text == "-" else text
    with Memory.open(db, tenant=tenant, create=rules is not None) as memory:
        target = _chosen(memory, space, rules)
        made = target.note(said, agent=agent, category=category, tags=tag or ())
        live = len(target.notes())
        if as_json:
            print_json({"space": target.name, "key": made.key, "live_notes": live})
        else:
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
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    model: Model = None,
    model_url: ModelUrl = None,
    model_window: ModelWindow = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    temperature: Temperature = None,
    as_json: Json = False,
) -> None:
    """Merge the live notes into the bank's files."""
    llm = model_of(
        model, url=model_url, window=model_window, timeout=timeout, temperature=temperature
    )
    policies = {
        "update_policy": UpdatePolicy(
            **calls_of(timeout=timeout, retries=retries, concurrency=concurrency)
        ),
        "bank_policy": BankPolicy(**calls_of(timeout=timeout, retries=retries)),
    }
    with open_existing(db, tenant, llm, **policies) as memory:
        target = _chosen(memory, space, rules)
        done = target.consolidate(dry_run=dry_run, max_calls=max_calls, max_tokens=max_tokens)
        if as_json:
            print_json({**asdict(done), "diff": done.diff})
        else:
            _print_result(done)
        # The notes that are left are taken in by the next consolidation.
        if done.status not in ("ok", "nothing_to_do"):
            raise typer.Exit(Code.INCOMPLETE)


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
    as_json: Json = False,
) -> None:
    """Show a bank: its files and figures, or one file, the synthesis, the notes, the rules."""
    with open_existing(db, tenant) as memory:
        if list_all:
            names = memory.spaces()
            _print(as_json, {"spaces": names}, "".join(f"{name}\n" for name in names))
            return
        target = _chosen(memory, space)
        data: dict[str, Any] = {"space": target.name}
        if file is not None:
            text = target.read(file, revision=revision)
            _print(as_json, {**data, "file": file, "revision": revision, "text": text}, text)
        elif synthesis:
            text = target.synthesis()
            _print(as_json, {**data, "synthesis": text}, f"{text}\n")
        elif rules:
            text = target.rules()
            _print(as_json, {**data, "rules": text}, f"{text}\n")
        elif notes or dropped:
            found = target.notes() if notes else target.notes("consumed")
            if dropped:
                found = [each for each in found if each.dropped_for]
            if as_json:
                print_json({**data, "notes": [asdict(each) for each in found]})
            elif notes:
                _print_notes(found)
            else:
                _print_dropped(found)
        else:
            _print_bank(target, as_json=as_json)


@app.command()
def history(
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option(min=1, help="The number of revisions, newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """List the revisions of a bank."""
    with open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        found = target.history(limit=limit)
        if as_json:
            revisions = [asdict(each) for each in found]
            print_json({"space": target.name, "revisions": revisions})
            return
        if not found:
            hint("no revision yet")
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
    as_json: Json = False,
) -> None:
    """Show the changes of the newest revision, or between two revisions."""
    with open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        text = target.diff(since, until)
        _print(as_json, {"space": target.name, "diff": text}, text)


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
    as_json: Json = False,
) -> None:
    """Restore an earlier revision of a bank, as a new revision."""
    with open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        now = target.rollback(to, restore_notes=restore_notes)
        if as_json:
            print_json({"space": target.name, **asdict(now)})
            return
        live = f"; {plural(len(now.restored), 'note')} live again" if restore_notes else ""
        out().print(f"{clean(target.name)}: revision {now.number} restores revision {to}{live}.")


@app.command()
def export(
    folder: Annotated[
        str,
        typer.Argument(
            help="The folder, created if needed; or object storage: s3://BUCKET/PREFIX, gs://, "
            "az://."
        ),
    ],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Overwrite files that were changed there.")
    ] = False,
    option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Write the bank into a plain folder, or into object storage."""
    options = _storage_options(option)
    with open_existing(db, tenant) as memory:
        target = _chosen(memory, space)
        done = target.export(folder, overwrite=overwrite, options=options)
        line = (
            f"{clean(target.name)}: {len(done.written)} written, {len(done.unchanged)} unchanged, "
            f"{len(done.removed)} removed in {clean(done.folder)}.\n"
        )
        _print(as_json, {"space": target.name, **asdict(done)}, line)
        if done.superseded_by is not None:
            raise FolderError(
                f"{done.folder} holds revision {done.superseded_by}, which is later than revision "
                f"{done.revision} of this memory; nothing was written"
            )
        if done.kept:
            raise FolderError(
                f"changed there since, and left alone: {', '.join(done.kept)}; 'bank load' imports "
                "the changes, --overwrite discards them"
            )


@app.command()
def load(
    folder: Annotated[
        str, typer.Argument(help="The folder; or object storage: s3://BUCKET/PREFIX, gs://, az://.")
    ],
    *,
    db: Db = DB,
    space: SpaceName = None,
    tenant: Tenant = "default",
    rules: Rules = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="For files changed on both sides, take the one there."),
    ] = False,
    option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Import the files of a folder or object storage, or the changed ones, into the bank."""
    if "://" not in folder and not Path(folder).is_dir():
        raise typer.BadParameter(f"{folder} is no folder", param_hint="folder")
    options = _storage_options(option)
    with Memory.open(db, tenant=tenant, create=rules is not None) as memory:
        target = _chosen(memory, space, rules)
        done = target.load(folder, overwrite=overwrite, options=options)
        where = f", revision {done.revision}" if done.revision else ""
        line = (
            f"{clean(target.name)}: {len(done.created)} new, {len(done.updated)} changed, "
            f"{len(done.unchanged)} unchanged{where}.\n"
        )
        _print(as_json, {"space": target.name, **asdict(done)}, line)
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
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Erase a space: notes, bank, history and rules. This cannot be undone."""
    with open_existing(db, tenant) as memory:
        name = _chosen(memory, space).name
        confirm(f"erase space {clean(name)!r}?", yes=yes)
        print_receipt(memory.erase_space(name), as_json=as_json)


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


def _storage_options(given: list[str] | None) -> dict[str, str] | None:
    """Return the options of an object storage; what is wrong is said without the value."""
    if not given:
        return None
    pairs = [each.partition("=") for each in given]
    if any(not name or not mark for name, mark, _ in pairs):
        raise typer.BadParameter("give it as NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in pairs}


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
        echo(clean(done.diff))


def _by(key: str, agent: str) -> str:
    """Name a note and its author."""
    return f"{key} by {clean(agent)}" if agent else key


def _print_dropped(dropped: list[Note]) -> None:
    if not dropped:
        hint("no note was dropped")
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
        hint("no live notes")
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


def _print(as_json: bool, data: dict[str, Any], text: str) -> None:  # noqa: FBT001
    """Print a result as JSON or as text."""
    if as_json:
        print_json(data)
    else:
        echo(clean(text))


def _print_bank(space: Space, *, as_json: bool) -> None:
    """Print the files with their sizes, then the space's figures."""
    console, meta = out(), space.meta()
    files = space.files()
    live = space.notes()
    aside = sum(each.state == "blocked" for each in live)
    if as_json:
        texts = [(name, space.read(name)) for name in files]
        sizes = [{"name": name, "lines": text.count("\n"), "characters": len(text)}
                 for name, text in texts]  # fmt: skip
        notes = {"live_notes": len(live), "blocked_notes": aside}
        print_json({"space": space.name, "files": sizes, **notes, **asdict(meta)})
        return
    if files:
        table = Table()
        table.add_column("file", overflow="fold")
        table.add_column("lines", justify="right")
        table.add_column("characters", justify="right")
        for name in files:
            text = space.read(name)
            table.add_row(clean(name), f"{text.count(chr(10)):,}", f"{len(text):,}")
        console.print(table)
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
