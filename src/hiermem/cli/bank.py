"""The commands of a space: ``about``, ``forget``, ``join``, and ``bank …`` of its notes and files.

Only the result goes to standard output, so that it can be piped. Text of notes and files is cleaned
and never moves the cursor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Group
from rich.text import Text
from typer import Argument, Option

import hiermem
from hiermem import types
from hiermem.cli.options import ME, Caps, InSpace, Model, Place, Yes, session_of, sessions_of
from hiermem.cli.output import Code, confirm, echo, result, wants_json
from hiermem.cli.screen import clean, named, one_line, plural, say, spelled, table
from hiermem.cli.tables import print_receipt

#: The most characters read from a file or the input, which may never end: more than are allowed.
_MOST_READ: Final = 8 * 1024 * 1024
#: The characters of a note shown in a list.
_WIDTH: Final = 72
#: The characters of a line of what is known.
_KNOWN: Final = 300
#: The lines that a forgetting leaves and names.
_LEFT: Final = 10
#: The notes named in a line.
_SHOWN: Final = 4

Rules = Annotated[
    Path | None,
    Option(
        help="The Markdown file that defines the bank's files; creates the space.",
        exists=True, dir_okay=False, readable=True,
    ),
]  # fmt: skip
StorageOption = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=VALUE",
        help="An option of object storage, such as endpoint or region; may be repeated. Keys are "
        "better given in the environment, as AWS_SECRET_ACCESS_KEY.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class OneSpace(Place):
    """A space of a memory."""

    space: Annotated[str | None, Option(help=f"The space; {ME} or the only one.")] = None

    @contextmanager
    def opened(self) -> Iterator[hiermem.Space]:
        """Open the memory, which must exist, and choose the space."""
        with self.open() as memory:
            yield self.of(memory)

    def of(self, memory: hiermem.Memory, rules: Path | None = None) -> hiermem.Space:
        """Return the named space; if none is named, that of the imports, or the only one."""
        text = None
        if rules is not None:
            try:
                with rules.open(encoding="utf-8-sig") as file:
                    text = file.read(_MOST_READ)
            except UnicodeDecodeError:
                raise hiermem.UsageError(f"{rules} is not UTF-8 text") from None
        if self.space is not None:
            return memory.space(spelled(self.space, memory.spaces()), rules=text)
        names = memory.spaces()
        if len(names) == 1 or ME in names:
            return memory.space(ME if ME in names else names[0], rules=text)
        if not names:
            raise hiermem.NotFoundError(
                "this memory holds no space yet; 'hiermem bank note TEXT --space NAME "
                "--rules FILE' makes one"
            )
        first = ", ".join(map(clean, names[:8])) + (" …" if len(names) > 8 else "")
        raise hiermem.UsageError(
            f"there are {len(names):,} spaces; choose one with --space: {first}"
        )


def about(
    place: InSpace,
    words: Annotated[
        list[str] | None, Argument(metavar="TEXT", help="What it is about; all by default.")
    ] = None,
) -> None:
    """Print what is known: wishes, notes, lines of the bank, and a line for each conversation."""
    with place.open() as memory:
        lines = place.space_of(memory).about(" ".join(words) if words else None)
    result({"known": lines}, _known(lines), whole=True, empty="nothing is known")


def _known(lines: Iterable[types.KnownLine]) -> str:
    return "\n".join(
        f"{line.since:%Y-%m-%d} {line.place}: {one_line(line.text, _KNOWN)}"
        if line.since
        else f"{line.place}: {one_line(line.text, _KNOWN)}"
        for line in lines
    )


def forget(
    place: InSpace,
    words: Annotated[list[str], Argument(metavar="TEXT", help="The words, in any form.")],
    *,
    everyone: Annotated[
        bool, Option("--everyone", help="Forget also what other people and assistants said.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Erase each message, note and line of a space that holds all words; it is shown first."""
    text = " ".join(words)
    authors: Literal["person", "all"] = "all" if everyone else "person"
    with place.open() as memory:
        space = place.space_of(memory)
        report = space.forget(text, authors=authors, dry_run=True)
        if report.gone:
            if not wants_json():
                say(_known(report.gone))
            what = plural(len(report.gone), "line")
            confirm(f"Erase {what} with all that was made from them?", yes=yes)
            report = space.forget(text, authors=authors)
    left = ""
    if count := len(report.unproven):
        left = f"\nleft, {count:,} that may say the same:\n{_known(report.unproven[:_LEFT])}"
    result(report, f"erased: {plural(len(report.gone), 'line')}{left}")


def join(
    place: InSpace,
    names: Annotated[
        list[str] | None, Argument(metavar="SESSION", help="The sessions, by title or id.")
    ] = None,
    *,
    every: Annotated[bool, Option("--all", help="Each session that is in no space.")] = False,
) -> None:
    """Make sessions members of a space, which share what is known."""
    if every == bool(names):
        raise hiermem.UsageError("name the sessions that join, or pass --all")
    with place.open() as memory:
        joining = [session_of(memory, name).id for name in names or ()]
        joining += [record.id for record in sessions_of(memory, space=None) if every]
        if (space := place.made_space(memory)) is None:
            raise hiermem.UsageError("--no-space names no space to join; pass --space")
        memory.join(space, joining)
    result(
        {"space": space, "joined": joining}, f"in {clean(space)}: {plural(len(joining), 'session')}"
    )


def note(
    text: Annotated[str, Argument(help="The text of the note; - reads standard input.")],
    place: OneSpace,
    *,
    rules: Rules = None,
    agent: Annotated[str, Option(help="The author of the note.")] = "",
    category: Annotated[str, Option(help="The kind of note.")] = "",
    tag: Annotated[list[str] | None, Option(help="A tag; may be repeated.")] = None,
) -> None:
    """Write a live note."""
    said = sys.stdin.read(_MOST_READ) if text == "-" else text
    with place.made(create=rules is not None) as memory:
        space = place.of(memory, rules)
        made = space.note(said, agent=agent, category=category, tags=tag or ())
        live = len(space.notes())
        result(
            {"space": space.name, "key": made.key, "live_notes": live},
            f"{clean(space.name)}: noted {made.key}; {plural(live, 'live note')}.",
        )


def consolidate(
    place: OneSpace,
    *,
    rules: Rules = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Ask the model and show the diff, but write nothing.")
    ] = False,
    caps: Caps,
    model: Model,
) -> None:
    """Merge the live notes into the bank's files."""
    policies = {
        "update_policy": model.policy(hiermem.UpdatePolicy),
        "bank_policy": model.policy(hiermem.BankPolicy),
    }
    with place.open(model.llm(), **policies) as memory:
        done = place.of(memory, rules).consolidate(dry_run=dry_run, **vars(caps))
        result({**asdict(done), "diff": done.diff}, lambda: _print_result(done))
        # The notes that are left are taken in by the next consolidation.
        if done.status not in ("ok", "nothing_to_do"):
            raise typer.Exit(Code.INCOMPLETE)


def show(
    place: OneSpace,
    *,
    file: Annotated[str | None, Argument(help="Print this file of the bank.")] = None,
    revision: Annotated[int | None, Option(min=0, help="The file as of this revision.")] = None,
    synthesis: Annotated[bool, Option("--synthesis", help="Print the synthesis.")] = False,
    notes: Annotated[bool, Option("--notes", help="List the live notes.")] = False,
    dropped: Annotated[
        bool, Option("--dropped", help="List the notes that a model dropped, and why.")
    ] = False,
    rules: Annotated[bool, Option("--rules", help="Print the space's rules.")] = False,
    list_all: Annotated[bool, Option("--list", help="List the spaces.")] = False,
) -> None:
    """Show a bank: its files and figures, or one file, the synthesis, the notes, the rules."""
    if list_all:
        with place.open() as memory:
            names = memory.spaces()
        _print_text({"spaces": names}, "".join(f"{name}\n" for name in names))
        return
    with place.opened() as space:
        data: dict[str, Any] = {"space": space.name}
        if file is not None:
            text = space.read(file, revision=revision)
            _print_text({**data, "file": file, "revision": revision, "text": text}, text)
        elif synthesis:
            text = space.synthesis()
            _print_text({**data, "synthesis": text}, f"{text}\n")
        elif rules:
            text = space.rules()
            _print_text({**data, "rules": text}, f"{text}\n")
        elif notes or dropped:
            found = space.notes() if notes else space.notes("consumed")
            if dropped:
                found = [each for each in found if each.dropped_for]
            _print_notes({**data, "notes": found}, found, dropped=not notes)
        else:
            _print_bank(space)


def history(
    place: OneSpace,
    *,
    limit: Annotated[int, Option(min=1, help="The number of revisions, newest first.")] = 20,
) -> None:
    """List the revisions of a bank."""
    with place.opened() as space:
        found = space.history(limit=limit)
        rows = (
            {
                "revision": str(each.number),
                "when": f"{each.at:%Y-%m-%d %H:%M}",
                "what": f"rollback to {each.to}" if each.kind == "rollback" else each.kind,
                "notes": str(len(each.notes)),
                "files": ", ".join(f"{name} {how}" for name, how in sorted(each.files.items())),
            }
            for each in found
        )
        shown = table(rows, boxed=True) if found else ""
        data = {"space": space.name, "revisions": found}
        result(data, shown, whole=True, empty="no revision yet")


def diff(
    place: OneSpace,
    *,
    since: Annotated[int | None, Argument(min=0, help="From this revision.")] = None,
    until: Annotated[int | None, Argument(min=0, help="To this revision.")] = None,
) -> None:
    """Show the changes of the newest revision, or between two revisions."""
    with place.opened() as space:
        text = space.diff(since, until)
        _print_text({"space": space.name, "diff": text}, text)


def rollback(
    to: Annotated[int, Argument(min=0, help="The revision to restore; 0 is the empty bank.")],
    place: OneSpace,
    *,
    restore_notes: Annotated[
        bool, Option("--restore-notes", help="Make the notes consumed since live again.")
    ] = False,
) -> None:
    """Restore an earlier revision of a bank, as a new revision."""
    with place.opened() as space:
        now = space.rollback(to, restore_notes=restore_notes)
        live = f"; {plural(len(now.restored), 'note')} live again" if restore_notes else ""
        result(
            {"space": space.name, **asdict(now)},
            f"{clean(space.name)}: revision {now.number} restores revision {to}{live}.",
        )


def export(
    folder: Annotated[
        str,
        Argument(
            help="The folder, created if needed; or object storage: s3://BUCKET/PREFIX, gs://, "
            "az://."
        ),
    ],
    place: OneSpace,
    *,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Overwrite files that were changed there.")
    ] = False,
    option: StorageOption = None,
) -> None:
    """Write the bank into a plain folder, or into object storage."""
    options = _storage_options(option)
    with place.opened() as space:
        done = space.export(folder, overwrite=overwrite, options=options)
        line = (
            f"{clean(space.name)}: {len(done.written)} written, {len(done.unchanged)} unchanged, "
            f"{len(done.removed)} removed in {clean(done.folder)}.\n"
        )
        _print_text({"space": space.name, **asdict(done)}, line)
        if done.superseded_by is not None:
            raise hiermem.FolderError(
                f"{done.folder} has the later revision {done.superseded_by}, not "
                f"{done.revision}; nothing was written"
            )


def load(
    folder: Annotated[
        str, Argument(help="The folder; or object storage: s3://BUCKET/PREFIX, gs://, az://.")
    ],
    place: OneSpace,
    *,
    rules: Rules = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="For files changed on both sides, take the one there.")
    ] = False,
    option: StorageOption = None,
) -> None:
    """Import the files of a folder or object storage, or the changed ones, into the bank."""
    if "://" not in folder and not Path(folder).is_dir():
        raise typer.BadParameter(f"{folder} is no folder", param_hint="folder")
    options = _storage_options(option)
    with place.made(create=rules is not None) as memory:
        space = place.of(memory, rules)
        done = space.load(folder, overwrite=overwrite, options=options)
        where = f", revision {done.revision}" if done.revision else ""
        line = (
            f"{clean(space.name)}: {len(done.created)} new, {len(done.updated)} changed, "
            f"{len(done.unchanged)} unchanged{where}.\n"
        )
        _print_text({"space": space.name, **asdict(done)}, line)


def erase(place: OneSpace, *, yes: Yes = False) -> None:
    """Erase a space: notes, bank, history and rules. This cannot be undone."""
    with place.open() as memory:
        name = place.of(memory).name
        confirm(f"erase space {clean(name)!r}?", yes=yes)
        print_receipt(memory.space(name).delete())


def _storage_options(given: list[str] | None) -> dict[str, str] | None:
    """Return the options of an object storage; what is wrong is said without the value."""
    if not given:
        return None
    pairs = [each.partition("=") for each in given]
    if any(not name or not mark for name, mark, _ in pairs):
        raise typer.BadParameter("give it as NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in pairs}


def _print_result(done: types.ConsolidationResult) -> None:
    """Print what a consolidation did, and the diff of a dry run."""
    say(f"{clean(done.space)} ({done.status}): {clean(done.message)}.")
    for what, names in (
        ("created", done.files_created),
        ("updated", done.files_updated),
        ("unchanged", done.files_unchanged),
    ):
        if names:
            say(f"  {what}: {', '.join(map(clean, names))}")
    if done.lines_removed:
        say(f"  {plural(done.lines_removed, 'line')} removed")
    for dropped in done.dropped:
        why = one_line(dropped.reason, _WIDTH)
        say(f"  dropped: note {_by(dropped.note, dropped.agent)}: {why}")
    if done.unplaced:
        say(f"  left out by the model, still live: {named(done.unplaced, _SHOWN)}")
    for blocked in done.blocked:
        why = "it fits no request" if blocked.reason == "too_large" else "it failed alone too often"
        say(f"  set aside: note {_by(blocked.key, blocked.agent)} ({why})")
    if done.dry_run and done.diff:
        echo(clean(done.diff))


def _by(key: str, agent: str) -> str:
    """Name a note and its author."""
    return f"{key} by {clean(agent)}" if agent else key


def _print_notes(data: dict[str, Any], notes: list[types.Note], *, dropped: bool) -> None:
    """Print live notes, or those that a model dropped, with its reasons."""
    rows: list[dict[str, str]] = []
    for each in notes:
        row = {"when": f"{each.timestamp:%Y-%m-%d %H:%M}", "agent": each.agent}
        said = one_line(each.text, _WIDTH)
        if dropped:
            row |= {"note": said, "revision": str(each.consolidation), "reason": each.dropped_for}
        else:
            aside = "(set aside) " if each.state == "blocked" else ""
            row |= {"category": each.category, "note": aside + said}
        rows.append(row)
    empty = "no note was dropped" if dropped else "no live notes"
    result(data, table(rows, boxed=True) if rows else "", whole=True, empty=empty)


def _print_text(data: dict[str, Any], text: str) -> None:
    """Print a result whose text is printed as it is."""
    result(data, lambda: echo(clean(text)))


def _print_bank(space: hiermem.Space) -> None:
    """Print the files with their sizes, then the space's figures."""
    meta, live = space.meta(), space.notes()
    aside = sum(each.state == "blocked" for each in live)
    texts = [(name, space.read(name)) for name in space.files()]
    sizes = [(name, text.count("\n"), len(text)) for name, text in texts]
    last = meta.last_consolidation
    lines = [
        f"{clean(space.name)}: revision {meta.revision}, {plural(len(sizes), 'file')}",
        f"{plural(len(live), 'live note')}" + (f", {aside} of them set aside" if aside else ""),
        f"{plural(meta.notes_processed, 'note')} consolidated in "
        f"{plural(meta.consolidations, 'answer')}"
        + (f", the last on {last:%Y-%m-%d at %H:%M} UTC" if last else ""),
    ]
    figures = Text("\n".join(lines))
    notes = {"live_notes": len(live), "blocked_notes": aside}
    files = [{"name": name, "lines": count, "characters": size} for name, count, size in sizes]
    shown = table(
        ({"file": name, "lines": count, "characters": size} for name, count, size in sizes),
        left=("file",),
        boxed=True,
    )
    result(
        {"space": space.name, "files": files, **notes, **asdict(meta)},
        Group(shown, figures) if sizes else figures,
    )
