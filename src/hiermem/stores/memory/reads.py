"""The data of the in-memory store, and its reads, for its handle and for decisions alike.

A read looks at everything and sorts; being obviously correct comes before speed. Nothing is shared
with a caller: whatever can be changed is copied on its way in and out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypeAlias

from hiermem.calls.claim import is_believed
from hiermem.stores.contract import system_time
from hiermem.types import JsonPart, Message, Node, Revision, SessionRecord, Status, StoredMessage
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


# -- sessions and their logs


def session(kept: TenantData, session_id: str) -> SessionRecord | None:
    """Return the session's record, or None."""
    found = kept.sessions.get(session_id)
    return found.record if found else None


def sessions(
    kept: TenantData,
    *,
    after: str | None = None,
    limit: int = 100,
    metadata: Mapping[str, str] | None = None,
    order_by: tx.SessionOrder = "created",
) -> list[SessionRecord]:
    """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
    records = [session.record for session in kept.sessions.values()]
    if order_by == "last_activity":
        # Of sessions with the same time, the one created last comes first.
        records = sorted(records, key=lambda one: one.last_activity)[::-1]
    for place, record in enumerate(records):
        if record.id == after:
            records = records[place + 1 :]
            break
    wanted = (metadata or {}).items()
    held = [one for one in records if wanted <= one.labels.items()]
    return held[: max(limit, 0)]


def count_sessions(kept: TenantData, *, metadata: Mapping[str, str] | None = None) -> int:
    """Return the number of sessions that hold all of ``metadata``."""
    wanted = (metadata or {}).items()
    return sum(wanted <= session.record.labels.items() for session in kept.sessions.values())


def forks(kept: TenantData, session_id: str) -> list[SessionRecord]:
    """Return the sessions that were forked from this one, in the order of their creation."""
    return [
        session.record
        for session in kept.sessions.values()
        if session.record.forked_from == session_id
    ]


def messages(
    kept: TenantData, session_id: str, start: int, stop: int, *, thread: str | None = None
) -> list[StoredMessage]:
    """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
    found = kept.sessions.get(session_id)
    return [
        fresh_message(stored)
        for stored in (found.messages[max(start, 0) : max(stop, 0)] if found else ())
        if thread in (None, stored.thread)
    ]


def versions(kept: TenantData, session_id: str, index: int) -> list[StoredMessage]:
    """Return what the message was before its edits, oldest first."""
    found = kept.sessions.get(session_id)
    return [fresh_message(old) for old in found.versions.get(index, ())] if found else []


def flagged(kept: TenantData, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
    """Return up to ``limit`` messages that have ``flag``, the newest first."""
    found = kept.sessions.get(session_id)
    held = (one for one in reversed(found.messages if found else ()) if flag in one.flags)
    return [fresh_message(stored) for stored in islice(held, max(limit, 0))]


def flagged_in(
    kept: TenantData, space: str, flag: str, *, limit: int
) -> list[tuple[str, StoredMessage]]:
    """Return up to ``limit`` messages of a space's members that have ``flag``, the latest first."""
    flagged_messages = [
        (name, stored)
        for name, session in kept.sessions.items()
        if session.record.space == space
        for stored in session.messages
        if flag in stored.flags
    ]
    flagged_messages.sort(key=lambda pair: pair[1].created_at)
    latest = flagged_messages[::-1][: max(limit, 0)]
    return [(name, fresh_message(stored)) for name, stored in latest]


def echoing(kept: TenantData, session_id: str) -> list[int]:
    """Return the indices of the messages that have echoes, now or in an earlier version."""
    found = kept.sessions.get(session_id)
    return [
        stored.index
        for stored in (found.messages if found else ())
        if found and any(one.echoes for one in (stored, *found.versions.get(stored.index, ())))
    ]


def events(kept: TenantData, session_id: str) -> list[tx.LogEvent]:
    """Return the log's events that are not messages, in the order they were written."""
    found = kept.sessions.get(session_id)
    return list(found.events) if found else []


def blocks(
    kept: TenantData, session_id: str, kind: str, start: int = 0, stop: int | None = None
) -> list[tx.Block]:
    """Return the blocks of ``kind`` whose own ``start`` is in that range, by ``start``."""
    found = kept.sessions.get(session_id)
    mine = [
        block
        for block in (found.blocks.values() if found else ())
        if block.kind == kind and block.start >= start and (stop is None or block.start < stop)
    ]
    return sorted(mine, key=lambda block: block.start)


# -- trees


def in_order(tree: TreeData) -> list[Node]:
    """Return the nodes by level, then ordinal."""
    return sorted(tree.nodes.values(), key=lambda node: (node.level, node.ordinal))


def nodes(tree: TreeData, ids: Sequence[str]) -> list[Node]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    return [tree.nodes[id_] for id_ in ids if id_ in tree.nodes]


def level(tree: TreeData, level: int, start: int, stop: int | None = None) -> list[Node]:
    """Return the nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
    return [
        node
        for node in in_order(tree)
        if node.level == level and node.ordinal >= start and (stop is None or node.ordinal < stop)
    ]


def levels(tree: TreeData) -> dict[int, int]:
    """Return the number of nodes of each level that has any."""
    return dict(Counter(node.level for node in in_order(tree)))


def covering(tree: TreeData, thread: str, index: int) -> list[Node]:
    """Return the level-1 nodes of ``thread`` whose span holds the message, by ordinal."""
    return spanning(tree, thread, index, index)


def spanning(tree: TreeData, thread: str, index: int, last: int) -> list[Node]:
    """Return the level-1 nodes whose span holds any message from ``index`` to ``last``."""
    return [
        node
        for node in in_order(tree)
        if node.level == 1 and node.thread == thread
        if node.span.start <= last and index < node.span.stop
    ]


def _due(node: Node) -> bool:
    return node.status != "active" or node.degraded or node.dirty


def unfinished(tree: TreeData, level: int, after: int, limit: int) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` after ``after`` with work left to do."""
    due = [node for node in in_order(tree) if node.level == level and _due(node)]
    return [node for node in due if node.ordinal > after][: max(limit, 0)]


def outdated(
    tree: TreeData, level: int, strategies: Sequence[str], after: int, limit: int
) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` that were made in none of these ways."""
    found = [
        node
        for node in in_order(tree)
        if node.level == level and node.ordinal > after
        if (serving := tree.revisions.get((node.id, node.revision))) is not None
        and serving.strategy not in strategies
    ]
    return found[: max(limit, 0)]


def tally(tree: TreeData) -> list[tx.NodeTally]:
    """Add up the nodes by level, then status."""
    groups: dict[tuple[int, Status], list[Node]] = {}
    for node in in_order(tree):
        groups.setdefault((node.level, node.status), []).append(node)
    return [_added_up(*group, groups[group], tree.revisions) for group in sorted(groups)]


def _added_up(
    number: int, status: Status, group: list[Node], made: dict[tuple[str, int], Revision]
) -> tx.NodeTally:
    served = [(node, made[at]) for node in group if (at := (node.id, node.revision)) in made]
    waits = [node.since for node in group if node.since is not None]
    measured = [made.fidelity for _, made in served if made.fidelity is not None]
    return tx.NodeTally(
        number,
        status,
        count=len(group),
        made=len(served),
        degraded=sum(node.degraded for node in group),
        dirty=sum(node.dirty for node in group),
        pending=sum(node.dirty and node.since is not None for node in group),
        input_tokens=sum(node.input_tokens for node in group),
        made_input_tokens=sum(node.input_tokens for node, _ in served),
        made_tokens=sum(revision.tokens for _, revision in served),
        tokens_in=sum(revision.tokens_in for _, revision in served),
        tokens_out=sum(revision.tokens_out for _, revision in served),
        calls=sum(revision.calls for _, revision in served),
        reused=sum(revision.reused for _, revision in served),
        duration_ms=sum(revision.duration_ms for _, revision in served),
        fidelity=sum(measured, 0.0),
        measured=len(measured),
        since=min(waits, default=None),
    )


def revisions(tree: TreeData, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
    """Return the revisions with these (node id, number) that exist, in the order wanted."""
    return [fresh_revision(tree.revisions[place]) for place in wanted if place in tree.revisions]


def reusable(kept: TenantData, input_hash: str) -> Revision | None:
    """Return the newest revision of this tenant, not degraded, with that input hash."""
    for _session_id, _tree, revision in reversed(kept.written):
        if revision.input_hash == input_hash and not revision.degraded:
            return fresh_revision(revision)
    return None


# -- journal, views and records


def run(kept: TenantData, run_id: str) -> tx.RunRecord | None:
    """Return the run of that id, or None."""
    found = kept.runs.get(run_id)
    return fresh_run(found) if found else None


def runs(kept: TenantData, *, subject: str | None = None, limit: int = 100) -> list[tx.RunRecord]:
    """Return the newest runs first, of one subject if given."""
    found = [run for run in kept.runs.values() if subject in (None, run.subject)]
    return [fresh_run(run) for run in found[::-1][: max(limit, 0)]]


def attempts(
    kept: TenantData, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
) -> list[tx.Attempt]:
    """Return the journalled attempts in the order they started, filtered if asked."""
    return [
        attempt
        for attempt in kept.attempts.values()
        if run_id in (None, attempt.run_id) and session_id in (None, attempt.session_id)
    ][: max(limit, 0)]


def spent(kept: TenantData, session_id: str | None = None) -> tx.Spent:
    """Add up the journalled attempts of one session, or of the tenant."""
    tried = [one for one in kept.attempts.values() if session_id in (None, one.session_id)]
    total = tx.Spent(
        unknown=sum(one.outcome in ("started", "unknown") for one in tried),
        cached_tokens=sum(one.cached_tokens for one in tried),
        reasoning_tokens=sum(one.reasoning_tokens for one in tried),
    )
    return total + sum((one.spent for one in tried), tx.Cost())


def view(kept: TenantData, session_id: str, name: str) -> tx.ViewRecord | None:
    """Return the stored view, or None."""
    return kept.views.get((session_id, name))


def views(
    kept: TenantData, session_id: str, *, names: Sequence[str] | None = None
) -> list[tx.ViewRecord]:
    """Return the views of the session, or those with these names, by name."""
    held = [view for (owner, _), view in kept.views.items() if owner == session_id]
    wanted = [view for view in held if names is None or view.name in names]
    return sorted(wanted, key=lambda view: view.name)


def records(
    kept: TenantData,
    kind: str,
    *,
    scope: str | None = None,
    key: str | None = None,
    limit: int = 10_000,
) -> list[tx.Record]:
    """Return up to ``limit`` records of ``kind``, filtered if asked, by scope, then key."""
    found = [
        record
        for record in kept.records.values()
        if record.kind == kind and scope in (None, record.scope) and key in (None, record.key)
    ]
    return sorted(found, key=lambda record: (record.scope, record.key))[: max(limit, 0)]


# -- the index over all sessions


def index_state(
    kept: TenantData, pages: Sequence[int] = (), *, limit: int | None = 100
) -> tx.IndexState:
    """Return the segments with these pages, the loose blocks, and what has no block."""
    segments: list[tx.Segment] = []
    taken: set[int] = set()
    for number in sorted(kept.segments):
        members, stored = kept.segments[number]
        taken |= {id(block) for _, block in members}
        dead = [n for n, member in enumerate(members) if not kept.live(*member)]
        held = {page: stored[page] for page in pages if page in stored}
        segments.append(tx.Segment(number, len(members), tuple(dead), held))
    loose: list[tx.PlacedBlock] = []
    behind: list[tuple[SessionRecord, tuple[tuple[int, int], ...]]] = []
    for session in kept.sessions.values():
        own = sorted(
            (block for block in session.blocks.values() if block.kind == tx.TERMS),
            key=lambda block: block.start,
        )
        loose += [tx.PlacedBlock(session.record, one) for one in own if id(one) not in taken]
        covered = {index for block in own for index in range(block.start, block.stop)}
        without = [n for n in range(session.record.messages) if n not in covered]
        if without:
            starts = [n for n in without if n - 1 not in without]
            stops = [n + 1 for n in without if n + 1 not in without]
            behind.append((session.record, tuple(zip(starts, stops, strict=True))))
    most = None if limit is None else max(limit, 0)
    return tx.IndexState(tuple(segments), tuple(loose[:most]), tuple(behind[:most]))


def segment_blocks(kept: TenantData, places: Sequence[tuple[int, int]]) -> list[tx.PlacedBlock]:
    """Return the blocks at these (segment, place) that are not dead."""
    found: list[tx.PlacedBlock] = []
    for number, place in places:
        members, _ = kept.segments.get(number, ((), {}))
        if 0 <= place < len(members) and kept.live(*members[place]):
            owner, block = members[place]
            found.append(tx.PlacedBlock(kept.sessions[owner].record, block, number, place))
    return found
