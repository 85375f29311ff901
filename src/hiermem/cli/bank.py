"""The commands of a space: ``about``, ``forget``, ``join``, and ``bank …`` of notes and files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer import Argument, Option

import hiermem
from hiermem.cli import options, output
from hiermem.cli.options import ME, Caps, InSpace, MadeSpace, Model, Place, Yes
from hiermem.cli.output import Code, clean, confirm, facts, named, plural, result, say, wants_json
from hiermem.cli.sessions import print_receipt

#: The most characters read from a file or the input, which may never end: more than are allowed.
_MOST_READ: Final = 8 * 1024 * 1024
#: The lines that a forgetting leaves and names.
_LEFT: Final = 10

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
        names = memory.spaces()
        if self.space is not None:
            return memory.space(options.spelled(self.space, names), rules=text)
        if len(names) == 1 or ME in names:
            return memory.space(ME if ME in names else names[0], rules=text)
        if not names:
            raise hiermem.NotFoundError(
                "this memory holds no space yet; 'hiermem bank note TEXT --space NAME "
                "--rules FILE' makes one"
            )
        raise hiermem.UsageError(
            f"there are {len(names):,} spaces; choose one with --space: {named(names)}"
        )


def about(
    place: InSpace, words: Annotated[list[str] | None, Argument(metavar="TEXT")] = None
) -> None:
    """Print what is known: wishes, notes, lines of the bank, and a line for each conversation.

    Args:
        words: What it is about; all by default.
    """
    with place.open() as memory:
        lines = place.space_of(memory).about(" ".join(words) if words else None)
        result({"known": lines}, _known(memory, lines), empty="nothing is known")


def _known(memory: hiermem.Memory, lines: Any) -> list[dict[str, Any]]:
    """Return lines as rows, with the id of a session whose title another one has."""
    names = options.names_of(memory)
    alike = {each for each, name in names.items() if name.endswith(f"({each})")}
    rows = [(line, {name for name, _ in line.sources[:1]} & alike) for line in lines]
    return [facts(line, "since place text was") | {"session": [*of]} for line, of in rows]


def forget(
    place: InSpace,
    words: Annotated[list[str], Argument(metavar="TEXT")],
    *,
    everyone: bool = False,
    dry_run: bool = False,
    yes: Yes = False,
) -> None:
    """Erase each message, note and line of a space that holds all words; it is shown first.

    Args:
        words: The words, in any form.
        everyone: Forget also what other people and assistants said.
        dry_run: Show what would be erased; write nothing.
    """
    text = " ".join(words)
    authors: Literal["person", "all"] = "all" if everyone else "person"
    with place.open() as memory:
        space = place.space_of(memory)
        report = space.forget(text, authors=authors, dry_run=True)
        if report.gone and not wants_json():
            say(_known(memory, report.gone))
        if report.gone and not dry_run:
            what = plural(len(report.gone), "line")
            confirm(f"Erase {what} with everything derived?", yes=yes)
            report = space.forget(text, authors=authors)
        left = {"left, may say the same": _known(memory, report.unproven[:_LEFT])}
    done = "to be erased" if dry_run else "erased"
    result(report, {done: plural(len(report.gone), "line"), "copies": report.exports, **left})
    if report.unproven and not everyone:
        output.hint("--everyone erases what others said, too; whose words are erased without it is")
        output.hint("said when a space is made: hiermem import FILE --space NAME --person NAME")


def join(
    place: MadeSpace,
    names: Annotated[list[str] | None, Argument(metavar="SESSION")] = None,
    *,
    every: Annotated[bool, Option("--all")] = False,
) -> None:
    """Make sessions members of a space, which share what is known.

    Args:
        names: The sessions, by title or id.
        every: Each session that is in no space.
    """
    if every == bool(names):
        raise hiermem.UsageError("name the sessions that join, or pass --all")
    with place.open() as memory:
        joining = [options.session_of(memory, name).id for name in names or ()]
        joining += [record.id for record in options.sessions_of(memory, space=None) if every]
        if (space := place.made_space(memory)) is None:
            raise hiermem.UsageError("--no-space names no space to join; pass --space")
        memory.join(space, joining)
    result({"space": space, "joined": joining})


def note(
    text: str,
    place: OneSpace,
    *,
    rules: Rules = None,
    agent: str = "",
    category: str = "",
    tag: list[str] | None = None,
) -> None:
    """Write a live note.

    Args:
        text: The text of the note; - reads standard input.
        agent: The author of the note.
        category: The kind of note.
        tag: A tag; may be repeated.
    """
    said = sys.stdin.read(_MOST_READ) if text == "-" else text
    with place.made(create=rules is not None) as memory:
        space = place.of(memory, rules)
        made = space.note(said, agent=agent, category=category, tags=tag or ())
        result({"space": space.name, "key": made.key, "live_notes": len(space.notes())})


def consolidate(
    place: OneSpace, *, rules: Rules = None, dry_run: bool = False, caps: Caps, model: Model
) -> None:
    """Merge the live notes into the bank's files.

    Args:
        dry_run: Ask the model and show the diff, but write nothing.
    """
    policies = {
        "update_policy": model.policy(hiermem.UpdatePolicy),
        "bank_policy": model.policy(hiermem.BankPolicy),
    }
    with place.open(model.llm(), **policies) as memory:
        done = place.of(memory, rules).consolidate(dry_run=dry_run, limits=caps.limits)
        view = facts(
            done, "space status message files_created files_updated files_unchanged lines_removed "
            "dropped unplaced blocked failed"
        )  # fmt: skip
        result({**facts(done), "diff": done.diff}, view)
        if dry_run and not wants_json():
            say(clean(done.diff))
        # The notes that are left are taken in by the next consolidation.
        if done.status not in ("ok", "nothing_to_do"):
            raise typer.Exit(Code.INCOMPLETE)


def show(
    place: OneSpace,
    *,
    file: Annotated[str | None, Argument()] = None,
    revision: Annotated[int | None, Option(min=0)] = None,
    synthesis: bool = False,
    notes: bool = False,
    dropped: bool = False,
    rules: bool = False,
    list_all: Annotated[bool, Option("--list")] = False,
) -> None:
    """Show a bank: files and figures, a file, notes, or rules.

    Args:
        file: Print this file of the bank.
        revision: The file as of this revision.
        synthesis: Print the synthesis.
        notes: List the live notes.
        dropped: List the notes that a model dropped, and why.
        rules: Print the space's rules.
        list_all: List the spaces.
    """
    if list_all:
        with place.open() as memory:
            names = memory.spaces()
        result({"spaces": names}, "\n".join(names), empty="no space yet")
        return
    with place.opened() as space:
        data: dict[str, Any] = {"space": space.name}
        if file is not None:
            text = space.read(file, revision=revision)
            result({**data, "file": file, "revision": revision, "text": text}, text)
        elif synthesis:
            text = space.synthesis()
            result({**data, "synthesis": text}, text, empty="no synthesis yet")
        elif rules:
            result({**data, "rules": space.rules()}, space.rules())
        elif notes:
            live = space.notes()
            view = [facts(each, "timestamp agent category state text") for each in live]
            result({**data, "notes": live}, view, empty="no live notes")
        elif dropped:
            gone = [each for each in space.notes("consumed") if each.dropped_for]
            view = [facts(each, "timestamp agent text consolidation dropped_for") for each in gone]
            result({**data, "notes": gone}, view, empty="no note was dropped")
        else:
            live = space.notes()
            texts = [(name, space.read(name)) for name in space.files()]
            files = [
                {"name": name, "lines": text.count("\n"), "characters": len(text)}
                for name, text in texts
            ]
            blocked = sum(each.state == "blocked" for each in live)
            counts = {"live_notes": len(live), "blocked_notes": blocked}
            result({**data, "files": files, **counts, **facts(space.meta())})


def history(place: OneSpace, *, limit: Annotated[int, Option(min=1)] = 20) -> None:
    """List the revisions of a bank.

    Args:
        limit: The number of revisions, newest first.
    """
    with place.opened() as space:
        found = space.history(limit=limit)
        view = [
            {**facts(each, "number at kind to files"), "notes": len(each.notes)} for each in found
        ]
        result({"space": space.name, "revisions": found}, view, empty="no revision yet")


def diff(
    place: OneSpace,
    *,
    since: Annotated[int | None, Argument(min=0)] = None,
    until: Annotated[int | None, Argument(min=0)] = None,
) -> None:
    """Show changes: of the newest revision, or between two.

    Args:
        since: From this revision.
        until: To this revision.
    """
    with place.opened() as space:
        text = space.diff(since, until)
        result({"space": space.name, "diff": text}, text, empty="nothing has changed")


def rollback(
    to: Annotated[int, Argument(min=0)], place: OneSpace, *, restore_notes: bool = False
) -> None:
    """Restore an earlier revision of a bank, as a new revision.

    Args:
        to: The revision to restore; 0 is the empty bank.
        restore_notes: Make the notes consumed since live again.
    """
    with place.opened() as space:
        now = space.rollback(to, restore_notes=restore_notes)
        result({"space": space.name, **facts(now)}, facts(now, "number kind to files restored"))


def export(
    folder: str, place: OneSpace, *, overwrite: bool = False, option: StorageOption = None
) -> None:
    """Write the bank into a plain folder, or into object storage.

    Args:
        folder: The folder, created if needed; or object storage: s3://BUCKET/PREFIX, gs://, az://.
        overwrite: Overwrite files that were changed there.
    """
    given = options.named_values(option, "--option NAME=VALUE") or None
    with place.opened() as space:
        done = space.export(folder, overwrite=overwrite, options=given)
        result({"space": space.name, **facts(done)})
        if done.superseded_by is not None:
            raise hiermem.FileError(
                f"{done.folder} has the later revision {done.superseded_by}, not "
                f"{done.revision}; nothing was written"
            )


def load(
    folder: str,
    place: OneSpace,
    *,
    rules: Rules = None,
    overwrite: bool = False,
    option: StorageOption = None,
) -> None:
    """Import files of a folder or object storage into the bank.

    After an export, the changed ones.

    Args:
        folder: The folder; or object storage: s3://BUCKET/PREFIX, gs://, az://.
        overwrite: For files changed on both sides, take the one there.
    """
    if "://" not in folder and not Path(folder).is_dir():
        raise typer.BadParameter(f"{folder} is no folder", param_hint="folder")
    given = options.named_values(option, "--option NAME=VALUE") or None
    with place.made(create=rules is not None) as memory:
        space = place.of(memory, rules)
        done = space.load(folder, overwrite=overwrite, options=given)
        data = {"space": space.name, **facts(done)}
        result(data, {**data, "diff": ""})


def erase(place: OneSpace, *, yes: Yes = False) -> None:
    """Erase a space: notes, bank, history and rules. This cannot be undone."""
    with place.open() as memory:
        name = place.of(memory).name
        confirm(f"erase space {clean(name)!r}?", yes=yes)
        print_receipt(memory.space(name).delete())
