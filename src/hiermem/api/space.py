"""One space, asynchronous: what agents and an application do with its notes and its bank.

Nothing is decided here. A call checks its arguments, hands them to the engine and returns what the
engine answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from os import PathLike

from hiermem.api.resources import Parts
from hiermem.core import arguments
from hiermem.core.spaces.record import subject_of
from hiermem.core.spaces.rules import Rules
from hiermem.engine.log import runs as journal
from hiermem.engine.spaces import notes as note_engine
from hiermem.engine.spaces import space as space_engine
from hiermem.engine.spaces.space import SpaceContext
from hiermem.types.bank import (
    BankRevision,
    ConsolidationResult,
    ExportReport,
    LoadReport,
    Note,
    NoteState,
    SpaceMeta,
)
from hiermem.types.transaction import RunRecord


class AsyncSpace:
    """A place where agents write notes, and a bank of Markdown files that consolidation writes."""

    def __init__(self, parts: Parts, name: str, rules: Rules | None) -> None:
        self._parts, self._name, self._given = parts, name, rules
        self._arrivals = asyncio.Lock()

    @property
    def name(self) -> str:
        """Give the space's name."""
        return self._name

    @property
    def _context(self) -> SpaceContext:
        parts = self._parts
        return SpaceContext(
            parts.opened(), self._name, self._given, parts.bank_policy, self._arrivals
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
    ) -> Note:
        """Write a live note; when it returns the note is durable. Give it with its key.

        ``timestamp`` (timezone-aware) is now where it is left out; notes of one time keep the order
        in which they arrived. ``sources`` are the messages that it came from, as pairs of a session
        id and an index: an erasure of one of them names the note, and the files it went into.

        Raises NotFoundError for a space or a source that does not exist, RulesConflictError,
        InvalidTextError, UsageError; in each case nothing was written.
        """
        note_input = note_engine.read_note_input(
            text, agent=agent, category=category, tags=tags, timestamp=timestamp, sources=sources
        )
        return await note_engine.note(self._context, note_input)

    async def consolidate(
        self,
        *,
        dry_run: bool = False,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ConsolidationResult:
        """Have a model take the live notes into the bank, oldest first, 500 at most.

        Each answer of the model is one change: its texts, its synthesis and the notes that went in
        take effect together. What a model does wrong is told in the result, and its notes stay
        live. With ``dry_run`` the model is asked, and nothing of the bank or the notes is written.
        The caps (``deadline`` in seconds) end the run before they are passed.

        Raises NotFoundError and RulesConflictError for the space, and what the store raises.
        """
        from hiermem.engine.spaces.consolidate import consolidate

        arguments.switch(dry_run, "dry_run")
        arguments.caps(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline)
        parts = self._parts
        return await consolidate(
            self._context,
            llm=parts.llm,
            prompts=parts.prompts,
            dry_run=dry_run,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            allowances=parts.allowances,
        )

    async def rules(self) -> str:
        """Give the rules of the space."""
        return (await self._context.rules()).text

    async def notes(self, state: NoteState = "live") -> list[Note]:
        """List notes, oldest first: "live", "blocked" ones among them, or "consumed"."""
        return await note_engine.notes(self._context, state)

    async def unblock(self) -> int:
        """Let the notes that were set aside be tried again; say how many there were."""
        return await note_engine.unblock(self._context)

    async def files(self) -> list[str]:
        """List the names of the bank's files."""
        return list((await self._context.state()).texts)

    async def read(self, name: str, *, revision: int | None = None) -> str:
        """Give the text of a file, now or as a revision left it. Raises NotFoundError."""
        return await space_engine.read(self._context, name, revision)

    async def synthesis(self) -> str:
        """Give the newest synthesis, "" before the first consolidation."""
        return (await self._context.state()).synthesis.text

    async def meta(self) -> SpaceMeta:
        """Give the figures of the space: the last consolidation, how many, of how many notes."""
        return await space_engine.meta(self._context)

    async def history(self, *, limit: int = 100) -> list[BankRevision]:
        """List the revisions of the bank, newest first."""
        return await space_engine.history(self._context, limit)

    async def diff(self, since: int | None = None, until: int | None = None) -> str:
        """Give what changed from revision ``since`` to ``until``, as unified diffs.

        Left out, they are the newest revision and the one before it; 0 is the empty bank.

        Raises NotFoundError.
        """
        return await space_engine.diff_between(self._context, since, until)

    async def rollback(self, to: int) -> BankRevision:
        """Bring the bank back to what revision ``to`` left, as a new revision; give that one.

        The notes that went in since stay consumed.

        Raises NotFoundError, and SpaceBusyError while another run writes the bank.
        """
        return await space_engine.rollback(self._context, to)

    async def export(self, folder: str | PathLike[str], *, overwrite: bool = False) -> ExportReport:
        """Bring a plain folder up to the bank; it may be one under version control.

        Only files of the bank and one manifest are touched, and no link is followed. A file that
        somebody changed there since is left alone and named, unless ``overwrite`` is given.

        Raises FolderError, and UsageError where the folder holds the bank of another space.
        """
        return await space_engine.export(self._context, folder, overwrite)

    async def load(self, folder: str | PathLike[str], *, overwrite: bool = False) -> LoadReport:
        """Take a folder's files into the bank, or what changed in them since, as a new revision.

        Files that the rules name, or that the bank has, are looked at, and no others. One that
        changed on both sides is left alone and named, unless ``overwrite`` is given; one that is
        missing in the folder stays in the bank. To watch a folder, call it again.

        Raises FolderError, SpaceBusyError, and UsageError for what is no text or too long.
        """
        return await space_engine.load(self._context, folder, overwrite)

    async def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this space, newest first."""
        return await journal.runs(self._parts.opened(), limit, subject=subject_of(self._name))
