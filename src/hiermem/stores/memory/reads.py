"""The reads of the in-memory store, for its handle and for decisions alike.

A read looks at everything and sorts; being obviously correct comes before speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from hiermem.stores.memory.data import (
    SessionData,
    TenantData,
    TreeData,
    fresh_message,
    fresh_revision,
)
from hiermem.types import Node, Revision, SessionRecord, Status, StoredMessage
from hiermem.types.prices import add_costs
from hiermem.types.transaction import (
    TERMS,
    IndexState,
    Need,
    NeedCovering,
    NeedEchoes,
    NeedEvents,
    NeedFlagged,
    NeedForks,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedProvisional,
    NeedRecords,
    NeedRevisions,
    NeedSession,
    NeedViews,
    NodeTally,
    PlacedBlock,
    Record,
    Segment,
    SessionOrder,
    Spent,
)


def answer(kept: TenantData, session_id: str, need: Need) -> Any:  # noqa: PLR0912 - one for each need
    """Return what a decision asked for, read from the state that its changes will apply to."""
    session = kept.sessions.get(session_id)
    found: Any
    match need:
        case NeedSession():
            found = session.record if session else None
        case NeedForks():
            found = forks(kept, session_id)
        case NeedMessages(start, stop, thread):
            found = messages(session, start, stop, thread)
        case NeedEchoes():
            found = echoing(session)
        case NeedFlagged(flag, limit):
            found = flagged(session, flag, limit)
        case NeedEvents():
            found = list(session.events) if session else []
        case NeedNodes(ids, tree):
            found = nodes(session, ids, tree)
        case NeedLevel(number, start, stop, tree):
            found = level(session, number, start, stop, tree)
        case NeedCovering(thread, index, tree, last):
            found = covering(session, thread, index, tree, last)
        case NeedProvisional(tree):
            found = provisional(session, tree)
        case NeedRevisions(wanted, tree):
            found = revisions(session, wanted, tree)
        case NeedViews(names):
            held = [view for (owner, _), view in kept.views.items() if owner == session_id]
            found = [view for view in held if names is None or view.name in names]
            found.sort(key=lambda view: view.name)
        case NeedRecords(kind, everywhere):
            found = records(kept, kind, scope=None if everywhere else session_id, key=None)
    return found


def sessions(
    kept: TenantData,
    *,
    after: str | None,
    limit: int,
    metadata: Mapping[str, str],
    order_by: SessionOrder,
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
    held = [one for one in records if metadata.items() <= one.metadata.items()]
    return held[: max(limit, 0)]


def count_sessions(kept: TenantData, *, metadata: Mapping[str, str]) -> int:
    """Return the number of sessions that hold all of ``metadata``."""
    wanted = metadata.items()
    return sum(wanted <= session.record.metadata.items() for session in kept.sessions.values())


def forks(kept: TenantData, session_id: str) -> list[SessionRecord]:
    """Return the sessions that were forked from this one, in the order of their creation."""
    return [
        session.record
        for session in kept.sessions.values()
        if session.record.forked_from == session_id
    ]


def messages(
    session: SessionData | None, start: int, stop: int, thread: str | None
) -> list[StoredMessage]:
    """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
    return [
        fresh_message(stored)
        for stored in (session.messages[max(start, 0) : max(stop, 0)] if session else ())
        if thread in (None, stored.thread)
    ]


def flagged(session: SessionData | None, flag: str, limit: int) -> list[StoredMessage]:
    """Return up to ``limit`` messages that have ``flag``, the newest first."""
    held = (one for one in reversed(session.messages if session else ()) if flag in one.flags)
    return [fresh_message(stored) for stored in islice(held, max(limit, 0))]


def echoing(session: SessionData | None) -> list[int]:
    """Return the indices of the messages that have echoes, now or in an earlier version."""
    return [
        stored.index
        for stored in (session.messages if session else ())
        if session and any(one.echoes for one in (stored, *session.versions.get(stored.index, ())))
    ]


def _tree(session: SessionData | None, tree: int | None) -> TreeData:
    return session.tree(tree) if session else TreeData()


def sealed(session: SessionData | None, tree: int | None) -> list[Node]:
    """Return the sealed nodes by level, then ordinal."""
    found = [node for node in _tree(session, tree).nodes.values() if node.sealed]
    return sorted(found, key=lambda node: (node.level, node.ordinal))


def nodes(session: SessionData | None, ids: Sequence[str], tree: int | None) -> list[Node]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    known = _tree(session, tree).nodes
    return [known[id_] for id_ in ids if id_ in known]


def level(
    session: SessionData | None, number: int, start: int, stop: int | None, tree: int | None
) -> list[Node]:
    """Return the sealed nodes of a level with ``start <= ordinal < stop``, by ordinal."""
    return [
        node
        for node in sealed(session, tree)
        if node.level == number and node.ordinal >= start and (stop is None or node.ordinal < stop)
    ]


def covering(
    session: SessionData | None, thread: str, index: int, tree: int | None, last: int | None = None
) -> list[Node]:
    """Return the sealed level-1 nodes of ``thread`` whose span holds the message, by ordinal.

    With ``last``: those whose span holds any of the messages from ``index`` to it.
    """
    last = index if last is None else last
    return [
        node
        for node in sealed(session, tree)
        if node.level == 1 and node.thread == thread
        if node.span.start <= last and index < node.span.stop
    ]


def provisional(session: SessionData | None, tree: int | None) -> list[Node]:
    """Return the nodes that are not sealed, by level, then id."""
    loose = [node for node in _tree(session, tree).nodes.values() if not node.sealed]
    return sorted(loose, key=lambda node: (node.level, node.id))


def _due(node: Node) -> bool:
    return node.sealed and (node.status != "active" or node.degraded or node.dirty)


def unfinished(
    session: SessionData | None, number: int, after: int, limit: int, tree: int | None
) -> list[Node]:
    """Return up to ``limit`` sealed nodes of a level after ``after`` with work left to do."""
    due = [node for node in level(session, number, after + 1, None, tree) if _due(node)]
    return due[: max(limit, 0)]


def outdated(
    session: SessionData | None,
    number: int,
    strategies: Sequence[str],
    *,
    after: int,
    limit: int,
    tree: int | None,
) -> list[Node]:
    """Return up to ``limit`` sealed nodes of a level that were made in none of these ways."""
    made = _tree(session, tree).revisions
    found = [
        node
        for node in level(session, number, after + 1, None, tree)
        if (serving := made.get((node.id, node.revision))) is not None
        and serving.strategy not in strategies
    ]
    return found[: max(limit, 0)]


def backlog(kept: TenantData, after: str | None, limit: int) -> list[str]:
    """Return up to ``limit`` ids of sessions after ``after`` with unfinished nodes."""
    ids = list(kept.sessions)
    if after in kept.sessions:
        ids = ids[ids.index(after) + 1 :]
    waiting = [id_ for id_ in ids if any(map(_due, kept.sessions[id_].tree().nodes.values()))]
    return waiting[: max(limit, 0)]


def tally(session: SessionData | None, tree: int | None) -> list[NodeTally]:
    """Add up the sealed nodes by level, then status."""
    groups: dict[tuple[int, Status], list[Node]] = {}
    for node in sealed(session, tree):
        groups.setdefault((node.level, node.status), []).append(node)
    made = _tree(session, tree).revisions
    return [_added_up(*group, groups[group], made) for group in sorted(groups)]


def _added_up(
    number: int, status: Status, group: list[Node], made: dict[tuple[str, int], Revision]
) -> NodeTally:
    served = [(node, made[at]) for node in group if (at := (node.id, node.revision)) in made]
    waits = [node.since for node in group if node.since is not None]
    measured = [made.fidelity for _, made in served if made.fidelity is not None]
    return NodeTally(
        number,
        status,
        count=len(group),
        made=len(served),
        degraded=sum(node.degraded for node in group),
        dirty=sum(node.dirty for node in group),
        stale=sum(node.stale for node in group),
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


def revisions(
    session: SessionData | None, wanted: Sequence[tuple[str, int]], tree: int | None
) -> list[Revision]:
    """Return the revisions with these (node id, number) that exist, in the order wanted."""
    made = _tree(session, tree).revisions
    return [fresh_revision(made[place]) for place in wanted if place in made]


def spent(kept: TenantData, session_id: str | None) -> Spent:
    """Add up the journalled attempts of one session, or of the tenant."""
    tried = [one for one in kept.attempts.values() if session_id in (None, one.session_id)]
    return Spent(
        calls=len(tried),
        tokens_in=sum(one.tokens_in for one in tried),
        tokens_out=sum(one.tokens_out for one in tried),
        unknown=sum(one.outcome in ("started", "unknown") for one in tried),
        cached_tokens=sum(one.cached_tokens for one in tried),
        reasoning_tokens=sum(one.reasoning_tokens for one in tried),
        cost=add_costs(*(one.cost for one in tried)),
    )


def records(kept: TenantData, kind: str, *, scope: str | None, key: str | None) -> list[Record]:
    """Return the records of ``kind``, filtered if asked, by scope, then key."""
    found = [
        record
        for record in kept.records.values()
        if record.kind == kind and scope in (None, record.scope) and key in (None, record.key)
    ]
    return sorted(found, key=lambda record: (record.scope, record.key))


def index_state(kept: TenantData, pages: Sequence[int], limit: int | None) -> IndexState:
    """Return the segments with these pages, the loose blocks, and the sessions with gaps."""
    segments: list[Segment] = []
    taken: set[int] = set()
    for number, segment in sorted(kept.segments.items()):
        taken |= {id(block) for _, block in segment.members}
        dead = [n for n, member in enumerate(segment.members) if not kept.live(*member)]
        held = {page: segment.pages[page] for page in pages if page in segment.pages}
        segments.append(Segment(number, len(segment.members), tuple(dead), held))
    loose: list[PlacedBlock] = []
    behind: list[tuple[SessionRecord, tuple[tuple[int, int], ...]]] = []
    for session in kept.sessions.values():
        own = sorted(
            (block for block in session.blocks.values() if block.kind == TERMS),
            key=lambda block: block.start,
        )
        loose += [PlacedBlock(session.record, one) for one in own if id(one) not in taken]
        covered = {index for block in own for index in range(block.start, block.stop)}
        without = [n for n in range(session.record.messages) if n not in covered]
        if without:
            starts = [n for n in without if n - 1 not in without]
            stops = [n + 1 for n in without if n + 1 not in without]
            behind.append((session.record, tuple(zip(starts, stops, strict=True))))
    most = None if limit is None else max(limit, 0)
    return IndexState(tuple(segments), tuple(loose[:most]), tuple(behind[:most]))


def segment_blocks(kept: TenantData, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
    """Return the live blocks at these places of segments."""
    found: list[PlacedBlock] = []
    for number, place in places:
        members = kept.segments[number].members if number in kept.segments else ()
        if 0 <= place < len(members) and kept.live(*members[place]):
            owner, block = members[place]
            found.append(PlacedBlock(kept.sessions[owner].record, block, number, place))
    return found
