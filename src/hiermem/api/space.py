"""One space, asynchronous: what agents and an application do with its notes and its bank.

A call checks its arguments, hands them to the engine and returns the engine's answer.
``hiermem.api.sync`` derives the blocking ``Space`` from this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Literal

from hiermem import arguments, types
from hiermem.api.resources import Resources
from hiermem.changes.receipts import Receipt
from hiermem.config import Limits
from hiermem.text.policy import MAX_CONTENT, check
from hiermem.types.brief import Brief

if TYPE_CHECKING:
    from hiermem.bank.rules import Rules
    from hiermem.bank.store import SpaceContext


class AsyncSpace(Brief):
    """A place where agents write notes, and a bank of Markdown files that consolidation writes.

    A memory makes spaces; see ``AsyncMemory.space``. Every call but ``runs`` raises NotFoundError
    where the space does not exist and no rules were given, and ConflictError where the space
    has other rules. Every call raises ClosedError once the memory is closed.
    """

    _brief = "name"

    def __init__(self, resources: Resources, name: str, rules: Rules | None) -> None:
        self._resources, self._name, self._given = resources, name, rules
        self._arrivals = asyncio.Lock()

    @property
    def name(self) -> str:
        """The space's name."""
        return self._name

    @property
    def _context(self) -> SpaceContext:
        from hiermem.bank.store import SpaceContext

        resources = self._resources
        return SpaceContext(
            resources.opened(), self._name, self._given, resources.bank_policy, self._arrivals
        )

    async def note(
        self,
        text: str,
        *,
        agent: str = "",
        category: str = "",
        tags: Iterable[str] = (),
        timestamp: datetime | None = None,
        sources: Iterable[tuple[str, int]] = (),
    ) -> types.Note:
        """Write a live note and return it with its key; it is durable when the call returns.

        ``timestamp`` (timezone-aware) is the present time by default. Notes of the same time keep
        the order of their arrival. ``sources`` are the messages that the note came from, as pairs
        (session id, message index); the receipt of a message's erasure names the note and the
        files it went into.

        Raises NotFoundError for a space or a source that does not exist, ConflictError,
        InvalidMessageError and UsageError. Nothing was written then.
        """
        from hiermem.bank import space as space_engine

        return await space_engine.note(
            self._context, text, agent=agent, category=category, tags=tags, timestamp=timestamp,
            sources=sources,
        )  # fmt: skip

    async def consolidate(
        self,
        *,
        dry_run: bool = False,
        limits: Limits | None = None,
    ) -> types.ConsolidationResult:
        """Have the model write the live notes into the bank, oldest first; return what was done.

        One run takes at most ``BankPolicy.max_notes`` notes (500 by default). Each answer of the
        model is one atomic change: its files, its synthesis and the notes it consumed. The result
        lists the changes that were refused, and the notes that the model placed in no file; those
        notes stay live. With ``dry_run`` the model is
        asked, but neither the bank nor the notes change.

        Raises NotFoundError and ConflictError for the space, and what the store raises.
        """
        from hiermem.bank.consolidate import consolidate

        arguments.switch(dry_run, "dry_run")
        limits = arguments.run(limits)
        resources = self._resources
        return await consolidate(
            self._context,
            llm=resources.llm,
            prompts=resources.prompts,
            dry_run=dry_run,
            limits=limits,
        )

    async def rules(self) -> str:
        """Return the rules of the space, as Markdown."""
        return (await self._context.rules()).text

    async def notes(
        self, state: Literal["live", "blocked", "consumed"] = "live"
    ) -> list[types.Note]:
        """Return the live (blocked or not), the blocked or the consumed notes, oldest first."""
        from hiermem.bank import space as space_engine

        return await space_engine.notes(self._context, state)

    async def unblock(self) -> int:
        """Let blocked notes be consolidated again; return their number."""
        from hiermem.bank import space as space_engine

        return await space_engine.unblock(self._context)

    async def files(self) -> list[str]:
        """Return the names of the bank's files."""
        return list((await self._context.state()).texts)

    async def read(self, name: str, *, revision: int | None = None) -> str:
        """Return the text of a file: the present one, or that of a revision.

        Raises NotFoundError where there is no such file or revision.
        """
        from hiermem.bank import space as space_engine

        return await space_engine.read(self._context, name, revision)

    async def synthesis(self) -> str:
        """Return the newest synthesis; "" before the first consolidation."""
        return (await self._context.state()).synthesis

    async def meta(self) -> types.SpaceMeta:
        """Return the space's figures: its revision, and its consolidations and their notes."""
        return (await self._context.state()).meta

    async def history(self, *, limit: int = 100) -> list[types.BankRevision]:
        """Return the revisions of the bank, newest first."""
        from hiermem.bank import space as space_engine

        return await space_engine.history(self._context, limit)

    async def diff(self, since: int | None = None, until: int | None = None) -> str:
        """Return what changed from revision ``since`` to ``until``, as unified diffs.

        ``until`` is the newest revision by default, ``since`` the one before ``until``. Revision 0
        is the empty bank.

        Raises NotFoundError where there is no such revision.
        """
        from hiermem.bank import space as space_engine

        return await space_engine.diff_between(self._context, since, until)

    async def rollback(self, to: int, *, restore_notes: bool = False) -> types.BankRevision:
        """Restore the files of revision ``to`` as a new revision, and return that revision.

        Notes that were consumed since stay consumed. With ``restore_notes`` they are live again,
        and the next consolidation takes them; a note whose retention is over cannot come back.

        Raises NotFoundError where there is no such revision, and BusyError while another run
        writes the bank.
        """
        from hiermem.bank import space as space_engine

        return await space_engine.rollback(self._context, to, restore_notes=restore_notes)

    async def about(self, text: str | None = None) -> list[types.KnownLine]:
        """Return what is known in the space, as lines: wishes, files, notes, conversations.

        Without a ``text`` this is all of it, with a line for each conversation; with one, the lines
        that share a word with it, and the passages of conversations that answer it best.

        Raises NotFoundError and ConflictError for the space.
        """
        from hiermem.changes.forget import about

        text = None if text is None else check(text, what="text", cap=MAX_CONTENT)
        return await about(self._context, text)

    async def forget(
        self,
        text: str,
        *,
        authors: Literal["person", "all"] = "person",
        dry_run: bool = False,
    ) -> types.ForgetReport:
        """Erase every message, note and line of the space that holds all content words of ``text``.

        Every message of the person is looked at, in each conversation of the space, and every form
        of a word counts. A message goes whole, with all that was made from it, in its forks too.
        Messages of others go only with ``authors="all"``. ``dry_run`` writes nothing and shows what
        would go. The report names other wordings that a search finds; they stay.

        Raises UsageError for a text without a content word, NotFoundError and ConflictError
        for the space, and BusyError if others are changing the bank.
        """
        from hiermem.changes.forget import forget

        arguments.one_of(authors, "authors", ("person", "all"))
        arguments.switch(dry_run, "dry_run")
        text = check(text, what="text", cap=MAX_CONTENT)
        return await forget(self._context, text, authors=authors, dry_run=dry_run)

    async def delete(self) -> Receipt:
        """Erase the space with its notes, its bank and its rules; return what was removed.

        Its conversations stay, and are in no space. A consolidation that is under way writes
        nothing more. A space that is opened under the name later is a new space.

        Raises NotFoundError.
        """
        from hiermem.changes import change

        return await change.erase_space(self._resources.opened(), self._name)

    async def export(
        self,
        folder: str | PathLike[str],
        *,
        overwrite: bool = False,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> types.ExportReport:
        """Write the bank's files into a folder or object storage, and return what was written.

        The folder may be under version control: only files of the bank, ``_synthesis.md`` and
        ``_meta.json`` are written, and no link is followed. If a file there is not what the last
        export wrote, nothing is written, unless ``overwrite`` is set.

        ``folder`` may be a URL ``s3://BUCKET/PREFIX``, ``gs://``, ``az://`` or ``memory://``, with
        ``options`` for endpoint, region and credentials. There a revision is switched as a whole.

        A later revision of the space is never replaced: ``superseded_by`` is its number then.

        Raises FileError, and UsageError where the place holds the bank of another space, or a
        file that somebody changed.
        """
        from hiermem.bank import space as space_engine
        from hiermem.remote import object_storage

        return await space_engine.export(
            self._context, folder, overwrite, options, object_storage.open_storage
        )

    async def load(
        self,
        folder: str | PathLike[str],
        *,
        overwrite: bool = False,
        options: Mapping[str, str | int | bool] | None = None,
    ) -> types.LoadReport:
        """Read the changed files of a folder or object storage as a new revision; return them.

        Only files that the rules name or the bank has are read. A file that is missing there stays
        in the bank. To watch a folder, call this again. ``folder`` and ``options`` are those of
        ``export``.

        Raises FileError, BusyError, and UsageError for a file that is not text or too long,
        or that changed both there and in the bank since the export, unless ``overwrite`` is set.
        """
        from hiermem.bank import space as space_engine
        from hiermem.remote import object_storage

        return await space_engine.load(
            self._context, folder, overwrite, options, object_storage.open_storage
        )

    async def runs(self, *, limit: int = 100) -> list[types.RunRecord]:
        """Return the journalled runs of this space, newest first."""
        from hiermem.bank.records import subject_of
        from hiermem.context import read

        return await read.runs(self._resources.opened(), limit, subject=subject_of(self._name))
