"""The data of the in-memory store, and the copies that keep it apart from its callers.

Nothing here is shared with a caller: whatever can be changed is copied on its way in and out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from hiermem.calls.claim import is_believed
from hiermem.stores.contract import system_time
from hiermem.types import JsonPart, Message, Node, Revision, SessionRecord, StoredMessage
from hiermem.types import transaction as tx


@dataclass
class TreeData:
    """The nodes of one tree and their texts."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    revisions: dict[tuple[str, int], Revision] = field(
        default_factory=dict[tuple[str, int], Revision]
    )

    def copy(self) -> TreeData:
        """Return a tree that can be changed without changing this one."""
        return TreeData(dict(self.nodes), dict(self.revisions))


_GENERATIONS = itertools.count(1)


@dataclass
class DueData:
    """When a session is due, and the claim on it, which ends at that time.

    ``noted``: something became due under the claim.
    """

    at: datetime
    # Never that of an earlier entry, which may have been claimed.
    generation: int = field(default_factory=_GENERATIONS.__next__)
    claimed: bool = False
    noted: bool = False

    def holds(self, now: datetime) -> bool:
        """Return whether a claim holds."""
        return self.claimed and is_believed(self.at, now=now)

    def is_due(self, now: datetime, by: datetime) -> bool:
        """Return whether the session is due ``by`` that time, or has a claim that does not hold."""
        return self.at <= by or (self.claimed and not self.holds(now))

    def take(self, now: datetime, lease: float) -> None:
        """Claim the session."""
        self.at, self.generation = now + timedelta(seconds=lease), next(_GENERATIONS)
        self.claimed, self.noted = True, False


@dataclass
class SessionData:
    """Everything stored of one session, except views, records and its journal."""

    record: SessionRecord
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    versions: dict[int, list[StoredMessage]] = field(default_factory=dict[int, list[StoredMessage]])
    keys: dict[str, tx.KeyEntry] = field(default_factory=dict[str, tx.KeyEntry])
    events: list[tx.LogEvent] = field(default_factory=list[tx.LogEvent])
    trees: dict[int, TreeData] = field(default_factory=dict[int, TreeData])
    blocks: dict[tuple[str, int], tx.Block] = field(default_factory=dict[tuple[str, int], tx.Block])
    due: DueData | None = None

    def tree(self, number: int | None = None) -> TreeData:
        """Return a tree, the serving one if ``number`` is None; an empty one if it is new."""
        return self.trees.setdefault(self.record.tree if number is None else number, TreeData())

    def become_due(self, due: tx.Due | None, now: datetime) -> None:
        """Enter when the session is due, unless it is by then."""
        if due is None:
            return
        at = due.at or now + timedelta(seconds=due.delay)
        if self.due is None:
            self.due = DueData(at)
        elif self.due.claimed:
            self.due.noted = True
        else:
            self.due.at = min(self.due.at, at)

    def is_held(self, claim: tx.DueSession) -> bool:
        """Return whether nobody took the session over since this claim, and it is not settled."""
        due = self.due
        return due is not None and due.claimed and due.generation == claim.generation

    def copy(self) -> SessionData:
        """Return a session that can be changed without changing this one."""
        return SessionData(
            self.record,
            list(self.messages),
            {index: list(earlier) for index, earlier in self.versions.items()},
            dict(self.keys),
            list(self.events),
            {number: tree.copy() for number, tree in self.trees.items()},
            dict(self.blocks),
            replace(self.due) if self.due else None,
        )


#: A segment: the blocks that it was made of, each with its session's id, and its pages.
SegmentData: TypeAlias = tuple[tuple[tuple[str, tx.Block], ...], Mapping[int, bytes]]

_CONTAINERS = ("sessions", "written", "runs", "attempts", "views", "records", "segments")


@dataclass
class TenantData:
    """Everything stored of one tenant; dicts remember the order of first insertion.

    ``written`` are all revisions as (session id, tree, revision), in the order of writing.
    """

    sessions: dict[str, SessionData] = field(default_factory=dict[str, SessionData])
    written: list[tuple[str, int, Revision]] = field(
        default_factory=list[tuple[str, int, Revision]]
    )
    runs: dict[str, tx.RunRecord] = field(default_factory=dict[str, tx.RunRecord])
    attempts: dict[str, tx.Attempt] = field(default_factory=dict[str, tx.Attempt])
    views: dict[tuple[str, str], tx.ViewRecord] = field(
        default_factory=dict[tuple[str, str], tx.ViewRecord]
    )
    records: dict[tuple[str, str, str], tx.Record] = field(
        default_factory=dict[tuple[str, str, str], tx.Record]
    )
    segments: dict[int, SegmentData] = field(default_factory=dict[int, SegmentData])
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)
    #: Returns the store's time.
    clock: Callable[[], datetime] = field(default=system_time, compare=False)

    def draft(self) -> TenantData:
        """Return a tenant whose own containers can be changed; its sessions are still shared."""
        return replace(self, **{name: copy(getattr(self, name)) for name in _CONTAINERS})

    def become(self, other: TenantData) -> None:
        """Take over the content of ``other``."""
        for name in _CONTAINERS:
            setattr(self, name, getattr(other, name))

    def tree(self, session_id: str, number: int | None) -> TreeData:
        """Return a tree of a session, the serving one if ``number`` is None; or an empty one."""
        found = self.sessions.get(session_id)
        return found.tree(number) if found else TreeData()

    def epoch_is(self, session_id: str, epoch: int) -> bool:
        """Return whether the session exists and nothing was taken back since ``epoch``."""
        found = self.sessions.get(session_id)
        return found is not None and found.record.epoch == epoch

    def live(self, session_id: str, block: tx.Block) -> bool:
        """Return whether this very block is stored, and not its replacement."""
        found = self.sessions.get(session_id)
        return found is not None and found.blocks.get((block.kind, block.start)) is block

    def dissolve(self, session_id: str, index: int | None = None) -> None:
        """Dissolve the segments with a block of a session that covers message ``index``, or any."""
        self.segments = {
            number: (members, pages)
            for number, (members, pages) in self.segments.items()
            if not any(
                owner == session_id and (index is None or block.start <= index < block.stop)
                for owner, block in members
            )
        }


def fresh_message(stored: StoredMessage) -> StoredMessage:
    """Copy the mutable parts of a message."""
    message = stored.message
    content = message.content
    if not isinstance(content, str):
        content = tuple(
            JsonPart(_fresh(part.data)) if isinstance(part, JsonPart) else part for part in content
        )
    own: Message = replace(message, content=content, metadata=_fresh(message.metadata))
    return replace(stored, message=own)


def fresh_revision(revision: Revision) -> Revision:
    """Copy the mutable parts of a revision."""
    return replace(revision, extras=_fresh(revision.extras))


def fresh_run(run: tx.RunRecord) -> tx.RunRecord:
    """Copy the mutable parts of a run."""
    return replace(run, detail=_fresh(run.detail))


def _fresh(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _fresh(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_fresh(inner) for inner in value]
    return value
