"""One space, blocking: the names and meanings of ``hiermem.api.space``, without ``await``.

The one rule: nothing but the handing over happens here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from os import PathLike

from hiermem.api.loop_thread import Portal
from hiermem.api.space import AsyncSpace
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


class Space:
    """Notes and a bank of Markdown files, blocking. See AsyncSpace for what each call raises."""

    def __init__(self, portal: Portal, space: AsyncSpace) -> None:
        self._portal, self._space = portal, space

    @property
    def name(self) -> str:
        """Give the space's name."""
        return self._space.name

    def note(
        self,
        text: str,
        *,
        agent: str = "",
        category: str = "",
        tags: Iterable[str] = (),
        timestamp: datetime | None = None,
        sources: Iterable[tuple[str, int]] = (),
    ) -> Note:
        """Write a live note; when it returns the note is durable. Give it with its key."""
        work = self._space.note(
            text, agent=agent, category=category, tags=tags, timestamp=timestamp, sources=sources
        )
        return self._portal.call(work)

    def consolidate(
        self,
        *,
        dry_run: bool = False,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ConsolidationResult:
        """Have a model take the live notes into the bank, oldest first, 500 at most."""
        work = self._space.consolidate(
            dry_run=dry_run, max_calls=max_calls, max_tokens=max_tokens, deadline=deadline
        )
        return self._portal.call(work)

    def rules(self) -> str:
        """Give the rules of the space."""
        return self._portal.call(self._space.rules())

    def notes(self, state: NoteState = "live") -> list[Note]:
        """List notes, oldest first: "live", "blocked" ones among them, or "consumed"."""
        return self._portal.call(self._space.notes(state))

    def unblock(self) -> int:
        """Let the notes that were set aside be tried again; say how many there were."""
        return self._portal.call(self._space.unblock())

    def files(self) -> list[str]:
        """List the names of the bank's files."""
        return self._portal.call(self._space.files())

    def read(self, name: str, *, revision: int | None = None) -> str:
        """Give the text of a file, now or as a revision left it. Raises NotFoundError."""
        return self._portal.call(self._space.read(name, revision=revision))

    def synthesis(self) -> str:
        """Give the newest synthesis, "" before the first consolidation."""
        return self._portal.call(self._space.synthesis())

    def meta(self) -> SpaceMeta:
        """Give the figures of the space: the last consolidation, how many, of how many notes."""
        return self._portal.call(self._space.meta())

    def history(self, *, limit: int = 100) -> list[BankRevision]:
        """List the revisions of the bank, newest first."""
        return self._portal.call(self._space.history(limit=limit))

    def diff(self, since: int | None = None, until: int | None = None) -> str:
        """Give what changed from revision ``since`` to ``until``, as unified diffs."""
        return self._portal.call(self._space.diff(since, until))

    def rollback(self, to: int) -> BankRevision:
        """Bring the bank back to what revision ``to`` left, as a new revision; give that one."""
        return self._portal.call(self._space.rollback(to))

    def export(self, folder: str | PathLike[str], *, overwrite: bool = False) -> ExportReport:
        """Bring a plain folder up to the bank; it may be one under version control."""
        return self._portal.call(self._space.export(folder, overwrite=overwrite))

    def load(self, folder: str | PathLike[str], *, overwrite: bool = False) -> LoadReport:
        """Take a folder's files into the bank, or what changed in them since."""
        return self._portal.call(self._space.load(folder, overwrite=overwrite))

    def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this space, newest first."""
        return self._portal.call(self._space.runs(limit=limit))
