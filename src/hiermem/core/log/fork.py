"""Decides a fork: a session that shares another one's first messages, its windows and its texts.

Its log is the other's as far as it concerns those messages, its tree what replaying that log gives.
Texts of nodes that come out equal are taken along, with the mark where they say something old, so
that nothing sealed before the fork is paid for again. The one rule: what was prepared from the log
is compared, inside the transaction, with the log as it is then; where they differ, nothing is
written. The texts change without a trace in the log, whenever an update runs, so which of them
serve is read inside the transaction: taken from two moments, a parent would tell of a child's text
that is not there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from hiermem.core.log.edit import known_session
from hiermem.core.log.replay import Replay, prefix
from hiermem.core.tree.fold import reopen
from hiermem.core.tree.stored import config_from
from hiermem.errors import SessionExistsError
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Batch,
    Changes,
    Copy,
    Deciding,
    LogEvent,
    Need,
    NeedEvents,
    NeedMessages,
    NeedNodes,
    NeedSession,
    Rewrite,
)

#: What a message is flagged with when its calls were given up, by what may come after the fork.
_GIVEN_UP: Final = "missing_result"
#: Nodes read at once.
_PAGE: Final = 2048


@dataclass(frozen=True, slots=True)
class PreparedFork:
    """A fork that was worked out from ``source`` as it was read; ``events`` are its log's.

    ``nodes`` are its tree without texts. ``waiting`` are the messages whose exchange group is still
    open at the fork.
    """

    source: SessionRecord
    record: SessionRecord
    events: tuple[LogEvent, ...]
    nodes: tuple[Node, ...]
    waiting: tuple[int, ...]


def prepare(
    source: SessionRecord,
    new_id: str,
    replay: Replay,
    *,
    events: Sequence[LogEvent],
    title: str | None,
    first_epoch: int,
    now: datetime,
) -> PreparedFork:
    """Work a fork out; ``replay``, of the ``events``, is finished.

    ``first_epoch`` is what its epochs and trees begin at.
    """
    at, state = replay.state.next_index, replay.state
    log = list(events)
    if state.closed:
        state = reopen(state).state
        log.append(LogEvent("reopen", at, now))
    same = config_from(source.config) == replay.config
    record = SessionRecord(
        id=new_id,
        title=source.title if title is None else title,
        participants=source.participants,
        config=source.config if same else replay.config.to_json(),
        counter=source.counter,
        created_at=now,
        messages=at,
        state=state.to_json(),
        version=1,
        epoch=first_epoch,
        tree=first_epoch,
        forked_from=source.id,
        forked_at=at,
    )
    nodes = sorted(replay.nodes.values(), key=lambda node: (node.level, node.ordinal))
    waiting = {index for thread in state.threads for _, index in state.strand(thread).turns.waiting}
    return PreparedFork(source, record, tuple(log), tuple(nodes), tuple(sorted(waiting)))


def _with_texts(
    nodes: Iterable[Node], theirs: Mapping[str, Node]
) -> tuple[tuple[Node, ...], tuple[tuple[str, int], ...]]:
    """Give the nodes, children first, as they are in the fork, and the revisions to take along.

    What waits to be made anew, or only says something old, does so in the fork as well; a text that
    was asked for once more, for its own sake, was not asked for there. A parent says what its
    children's texts said, so it is taken along only where all of those are.
    """
    found: list[Node] = []
    taken: dict[str, int] = {}
    for node in nodes:
        other = theirs.get(node.id)
        if (
            other is None
            or not other.revision
            or not _same_inputs(node, other)
            or not taken.keys() >= set(node.children)
        ):
            found.append(node)
            continue
        taken[node.id] = other.revision
        found.append(
            replace(
                node,
                status="active",
                revision=other.revision,
                attempts=other.attempts,
                error=other.error,
                degraded=other.degraded,
                dirty=other.dirty,
                stale=other.stale,
                since=other.since,
            )
        )
    return tuple(found), tuple(taken.items())


def _same_inputs(node: Node, other: Node) -> bool:
    """Say whether two nodes of one name cover the same at the same length: one text serves both."""
    return all(
        getattr(node, name) == getattr(other, name)
        for name in (
            "span", "thread", "windows", "children", "messages", "verbatim", "allotted_tokens",
        )
    )  # fmt: skip


def fork(prepared: PreparedFork) -> Deciding[bool]:
    """Write a fork; False, with nothing written, where the source has changed since it was read.

    Raises NotFoundError where the source is gone, SessionExistsError where the name is taken.
    """
    source, record = prepared.source, prepared.record
    other: SessionRecord | None = yield record.id, NeedSession()
    if other is not None:
        raise SessionExistsError(record.id)
    now = yield from known_session(source.id)
    if (now.epoch, now.tree, now.config) != (source.epoch, source.tree, source.config):
        return Batch(result=False)
    if now.version != source.version:
        events: Sequence[LogEvent] = yield source.id, NeedEvents()
        log = prefix(events, record.messages)
        if log != prepared.events[: len(log)] or len(prepared.events) - len(log) > 1:
            return Batch(result=False)
    theirs: dict[str, Node] = {}
    for start in range(0, len(prepared.nodes), _PAGE):
        ids = tuple(node.id for node in prepared.nodes[start : start + _PAGE])
        page: Sequence[Node] = yield source.id, NeedNodes(ids)
        theirs.update((node.id, node) for node in page)
    mine, revisions = _with_texts(prepared.nodes, theirs)
    rewrites = yield from _still_waiting(source.id, prepared.waiting)
    changes: Changes[None] = Changes(
        None,
        session=record,
        copy=Copy(source.id, record.messages, revisions),
        rewrites=rewrites,
        nodes=mine,
        events=prepared.events,
    )
    return Batch(result=True, sessions=((record.id, changes),))


def _still_waiting(
    source_id: str, waiting: Iterable[int]
) -> Generator[tuple[str, Need], Any, tuple[Rewrite, ...]]:
    """Take the flag off messages whose results may still come in the fork.

    The source may have given them up since, and an append that does so leaves no event in its log.
    """
    rewrites: list[Rewrite] = []
    for index in waiting:
        found: Sequence[StoredMessage] = yield source_id, NeedMessages(index, index + 1)
        for stored in found:
            flags = tuple(flag for flag in stored.flags if flag != _GIVEN_UP)
            if flags != stored.flags:
                rewrites.append(Rewrite(replace(stored, flags=flags), "mark"))
    return tuple(rewrites)
