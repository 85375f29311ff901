"""Reads a session's messages, summaries, pins and runs for a person or an application.

Reading never writes, and walking a tree reads only what is below the start. A run that was cut off
is shown as such; the next run of its subject records it as such.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from hiermem import arguments
from hiermem.calls.report import RunReport, report, with_current_outcome
from hiermem.config import HierarchyConfig
from hiermem.context.zone import MOST, Pin
from hiermem.errors import BusyError, NotFoundError, StoreCorruptError, UsageError
from hiermem.handle import Handle, session_state
from hiermem.process import has_ended
from hiermem.text.policy import check_name
from hiermem.text.wishes import IN_SIGHT
from hiermem.tree.fold import OpenWindow, config_from
from hiermem.types import Node, SessionRecord, StoredMessage, Summary
from hiermem.types.brief import Bar, Brief
from hiermem.types.transaction import LogEvent, RunRecord

#: How many unfinished nodes of a level are counted before the count becomes "at least".
_COUNTED = 10_000
#: The most runs of one read; a store's own numbers have a limit.
_MOST: Final = 2**31 - 1
#: How many of the newest runs of a session are searched for the one that holds it.
_NEWEST_RUNS: Final = 20
#: The name of a message, in the place of a summary's id.
_MESSAGE = re.compile(r"m([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Tree(Brief):
    """A summary with its children, down to the windows."""

    _brief = "summary children"

    summary: Summary
    children: tuple[Tree, ...] = ()

    def _strip(self) -> tuple[int, dict[str, list[Bar]]]:
        rows: dict[str, list[Bar]] = {}
        first, left = self.summary.span.start, [self]
        while left:
            for each in left:
                one, span = each.summary, each.summary.span
                bar = span.start - first, span.stop - first, one.level, one.id
                rows.setdefault(f"L{one.level}", []).append(bar)
            left = [child for each in left for child in each.children]
        return self.summary.span.stop - first, rows


@dataclass(frozen=True, slots=True)
class SessionStatus(Brief):
    """The state of a session; ``space`` is the space that it is a member of, None if of none.

    ``nodes`` is the number of sealed nodes by level. ``queue`` is how many of them are to be made,
    because they have no text that serves or a dirty one, and ``degraded`` how many have the
    extractive stand-in. ``unfinished`` is how many are one or the other, counted up to 10,000 a
    level; ``dirty`` how many have a text that is out of date, to be made again or not
    (``regenerate_on_edit``). ``generating`` is how many are pending under the claim of a run.
    ``open_windows`` is what is not sealed, by thread.
    ``oldest_dirty_age`` is the age of the oldest request for another text of a summary;
    ``last_error`` the last error that still matters. ``repacking``: a full re-pack is under way. A
    fork shares its first ``forked_at`` messages with ``forked_from``. ``config`` is the session's
    own configuration.
    """

    _brief = "id title messages nodes queue degraded last_error"

    id: str
    title: str | None
    space: str | None
    participants: tuple[str, ...]
    messages: int
    closed: bool
    nodes: dict[int, int]
    queue: dict[int, int]
    degraded: dict[int, int]
    unfinished: dict[int, int]
    dirty: dict[int, int]
    generating: dict[int, int]
    open_windows: tuple[OpenWindow, ...]
    events: tuple[LogEvent, ...]
    oldest_dirty_age: timedelta | None
    last_error: str | None
    repacking: bool
    forked_from: str | None
    forked_at: int
    config: HierarchyConfig


async def status(handle: Handle, session_id: str) -> SessionStatus:
    """Return the state of the session."""
    from hiermem.summaries.metrics import level_metrics

    record = await handle.record_or_new(session_id)
    tree = handle.store.tree(session_id)
    tallies = await tree.tally()
    levels = level_metrics(tallies)
    unfinished = {each.level: await tree.unfinished(each.level, -1, _COUNTED) for each in levels}
    claimed = any(unfinished.values()) and await _is_claimed(handle, session_id)
    generating = {
        level: sum(node.status == "pending" for node in found) if claimed else 0
        for level, found in unfinished.items()
    }
    since = min((tally.since for tally in tallies if tally.since is not None), default=None)
    return SessionStatus(
        id=record.id,
        title=record.title,
        space=record.space,
        participants=record.participants,
        messages=record.messages,
        closed=record.closed,
        nodes={each.level: each.nodes for each in levels},
        queue={each.level: each.queue for each in levels},
        degraded={each.level: each.degraded for each in levels},
        unfinished={level: len(found) for level, found in unfinished.items()},
        dirty={each.level: each.dirty for each in levels},
        generating=generating,
        open_windows=tuple(session_state(record).open_windows()),
        events=tuple(await handle.store.events(session_id)),
        # A clock that was set back gives no negative age.
        oldest_dirty_age=(None if since is None else max(timedelta(), handle.clock() - since)),
        last_error=await _last_error(handle, session_id, unfinished),
        repacking=bool(record.build),
        forked_from=record.forked_from,
        forked_at=record.forked_at,
        config=config_from(record.config),
    )


async def _is_claimed(handle: Handle, session_id: str) -> bool:
    """Return whether a run that makes texts of the session is alive and holds the claim on it."""
    newest = await handle.store.runs(subject=session_id, limit=_NEWEST_RUNS)
    holding = [run for run in newest if (run.kind, run.outcome) == ("update", "running")]
    now = await handle.store.now() if holding else None
    return any(
        now and with_current_outcome(run, now).outcome == "running"
        for run in holding
        if not has_ended(run.detail.get("process"))
    )


async def _last_error(
    handle: Handle, session_id: str, unfinished: Mapping[int, Sequence[Node]]
) -> str | None:
    """Return why the newest run ended early; or else the last error of a node still to be made.

    Summaries are made level by level and in order, so the last failed one of the highest level is
    the newest.
    """
    newest = await handle.store.runs(subject=session_id, limit=1)
    reason = newest[0].detail.get("reason") if newest else None
    if isinstance(reason, str):
        return reason
    failed = [node for level in unfinished.values() for node in level if node.error]
    last = max(failed, key=lambda node: (node.level, node.ordinal), default=None)
    return None if last is None else f"{last.id}: {last.error}"


async def messages(
    handle: Handle, session_id: str, start: int, stop: int | None
) -> list[StoredMessage]:
    """Return the messages from ``start`` up to and without ``stop`` (None: the end)."""
    arguments.whole(start, "start")
    if stop is not None:
        arguments.whole(stop, "stop")
    record = await handle.record_or_new(session_id)
    end = record.messages if stop is None else min(stop, record.messages)
    return await handle.messages(session_id, start, end) if start < end else []


async def pins(handle: Handle, session_id: str) -> tuple[Pin, ...]:
    """Return the pins of a session, the newest first."""
    from hiermem.context.select import pins_of

    record = await handle.record_or_new(session_id)
    flagged = [await handle.store.flagged(session_id, flag, limit=MOST) for flag in IN_SIGHT]
    return await pins_of(handle, record, [stored for each in flagged for stored in each])


async def runs(handle: Handle, limit: Any, *, subject: str | None = None) -> list[RunRecord]:
    """List the newest journalled runs first, of one subject if given."""
    most = min(arguments.whole(limit, "limit"), _MOST)
    found = await handle.store.runs(subject=subject, limit=most)
    now = await handle.store.now()
    return [with_current_outcome(run, now) for run in found]


async def run(handle: Handle, run_id: str) -> RunReport:
    """Return a run with the state of each of its items. Raises NotFoundError for an unknown id."""
    found = await handle.store.run(check_name(run_id, what="run id"))
    if found is None:
        raise NotFoundError(f"run {run_id!r} does not exist; the list of runs has those that do")
    attempts = await handle.store.attempts(run_id=run_id, limit=_MOST)
    return report(found, attempts, await handle.store.now())


async def versions(handle: Handle, session_id: str, index: int) -> tuple[StoredMessage, ...]:
    """Return the earlier versions of a message, oldest first.

    Raises NotFoundError if the session has no such message.
    """
    arguments.whole(index, "index")
    record = await handle.record(session_id)
    if index >= record.messages:
        raise NotFoundError(f"session {session_id!r} has no message {index}")
    return tuple(await handle.store.versions(session_id, index))


async def summaries(handle: Handle, session_id: str, level: int | None) -> list[Summary]:
    """Return the sealed summaries of ``level`` (None: of all levels, lowest first), by ordinal."""
    if level is not None:
        arguments.whole(level, "level", least=1)
    record = await handle.record_or_new(session_id)
    tree = handle.store.tree(session_id)
    levels = [known for known in sorted(await tree.levels()) if level is None or known == level]
    found: list[Summary] = []
    for number in levels:
        nodes = await tree.level(number, 0)
        found += await _with_texts(handle, record, nodes)
    return found


async def summary(handle: Handle, session_id: str) -> str:
    """Return the texts of the roots, oldest first, and of what is below a root without a text."""
    record = await handle.record_or_new(session_id)
    known = [root.id for root in session_state(record).roots()]
    made: list[Node] = []
    async with _unchanged(handle, record):
        wanted = await handle.store.tree(session_id).nodes(known)
        while wanted:
            made += [node for node in wanted if node.revision]
            below = [node for node in wanted if not node.revision]
            wanted = await _children(handle, session_id, below)
        made.sort(key=lambda node: node.span.begin)
        return "\n\n".join(each.text for each in await _with_texts(handle, record, made))


async def forest(handle: Handle, session_id: str) -> tuple[Tree, ...]:
    """Return the trees of the session, oldest first."""
    record = await handle.record_or_new(session_id)
    known = [root.id for root in session_state(record).roots()]
    async with _unchanged(handle, record):
        roots = await handle.store.tree(record.id).nodes(known)
        if len(roots) != len(known):
            raise _damaged(record.id, "a root of its tree is missing")
        return await _trees(handle, record, roots)


async def _trees(handle: Handle, record: SessionRecord, nodes: Sequence[Node]) -> tuple[Tree, ...]:
    """Read a whole level at a time, so that the number of reads depends on levels, not on nodes."""
    shown = await _with_texts(handle, record, nodes)
    children = await _children(handle, record.id, nodes)
    below = await _trees(handle, record, children) if children else ()
    by_id = {tree.summary.id: tree for tree in below}
    return tuple(
        Tree(summary, tuple(by_id[child] for child in summary.children if child in by_id))
        for summary in shown
    )


async def expand(
    handle: Handle, session_id: str, node: object, depth: int | None
) -> tuple[Summary | StoredMessage, ...]:
    """Go ``depth`` levels down from ``node`` (a summary, a hit, anything with an id, or the id).

    A hit that is a message, or a message's name, such as ``m12``, returns that message. Below level
    1 are the messages, verbatim; a depth of None goes down to them everywhere. If some branches end
    earlier than others, their messages are among the summaries, in order.

    Raises NotFoundError for an unknown id, UsageError for a depth below 1.
    """
    if depth is not None:
        arguments.whole(depth, "depth", least=1)
    node_id = node if isinstance(node, str) else getattr(node, "id", None)
    if not isinstance(node_id, str):
        raise UsageError(f"expand got {type(node).__name__}; pass a summary, a hit or an id")
    check_name(node_id, what="summary id")
    if getattr(node, "session_id", session_id) != session_id:
        raise UsageError("the summary or hit is of another session; expand it there")
    record = await handle.record(session_id)
    if (named := _MESSAGE.fullmatch(node_id)) is not None:
        index = int(named[1])
        if index >= record.messages:
            raise NotFoundError(f"session {session_id!r} has no message {index}")
        return tuple(await handle.messages(session_id, index, index + 1))
    found = await handle.store.tree(session_id).nodes([node_id])
    if not found:
        raise NotFoundError(f"session {session_id!r} has no summary {node_id!r}")
    layer: list[Node | StoredMessage] = list(found)
    left = depth
    async with _unchanged(handle, record):
        while any(isinstance(item, Node) for item in layer) and (left is None or left > 0):
            layer = await _one_down(handle, session_id, layer)
            left = None if left is None else left - 1
        nodes = [item for item in layer if isinstance(item, Node)]
        texts = {summary.id: summary for summary in await _with_texts(handle, record, nodes)}
        return tuple(texts[item.id] if isinstance(item, Node) else item for item in layer)


async def _one_down(
    handle: Handle, session_id: str, layer: Sequence[Node | StoredMessage]
) -> list[Node | StoredMessage]:
    found: list[Node | StoredMessage] = []
    for item in layer:
        if isinstance(item, StoredMessage):
            found.append(item)
        elif item.children:
            found += await _children(handle, session_id, [item])
        else:
            span = item.span
            inside = await handle.store.messages(
                session_id, span.start, span.stop, thread=item.thread
            )
            if len(inside) != item.messages:
                raise _damaged(session_id, f"messages of {item.id} are missing")
            found += inside
    return found


async def _children(handle: Handle, session_id: str, nodes: Sequence[Node]) -> list[Node]:
    """Read what is below ``nodes``, in their order; a level at a time and always downwards.

    Raises StoreCorruptError if children are missing, are not of a lower level or do not cover their
    node's windows one after the other, so that no walk can run in a circle.
    """
    ids = [child for node in nodes for child in node.children]
    read = await handle.store.tree(session_id).nodes(ids) if ids else []
    by_id = {node.id: node for node in read}
    for node in nodes:
        children = [by_id[child] for child in node.children if child in by_id]
        if any(child.level >= node.level for child in children):
            raise _damaged(session_id, f"{node.id} has a child that is not of a lower level")
        stops = [node.windows[0], *(child.windows[1] for child in children)]
        starts = [*(child.windows[0] for child in children), node.windows[1]]
        is_gap = any(child.windows[1] <= child.windows[0] for child in children)
        if node.children and (starts != stops or is_gap):
            raise _damaged(session_id, f"the children of {node.id} do not cover it")
    return read


@asynccontextmanager
async def _unchanged(handle: Handle, record: SessionRecord) -> AsyncIterator[None]:
    """Go down the tree of ``record`` inside.

    Raises BusyError where the tree looks damaged because it was replaced or erased since
    the record was read.
    """
    try:
        yield
    except StoreCorruptError:
        now = await handle.store.session(record.id)
        if now is None or (now.epoch, now.tree) != (record.epoch, record.tree):
            raise BusyError(session_id=record.id) from None
        raise


def _damaged(session_id: str, what: str) -> StoreCorruptError:
    return StoreCorruptError(f"session {session_id!r}: {what}; the store is damaged")


async def _with_texts(
    handle: Handle, record: SessionRecord, nodes: Sequence[Node]
) -> list[Summary]:
    read = await handle.store.tree(record.id).revisions(
        [(node.id, node.revision) for node in nodes if node.revision]
    )
    texts = {revision.node_id: revision for revision in read}
    known = {node.id: node for node in nodes}
    above = {node.parent for node in nodes if node.parent} - known.keys()
    parents = await handle.store.tree(record.id).nodes(sorted(above)) if above else []
    made = {node.id for node in (*nodes, *parents) if node.revision}
    is_pending = any(node.status == "pending" for node in nodes)
    claimed = is_pending and await _is_claimed(handle, record.id)
    return [
        Summary(record.id, node, texts.get(node.id), record.closed, node.parent in made, claimed)
        for node in nodes
    ]
