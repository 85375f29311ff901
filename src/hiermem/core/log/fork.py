"""Decides a fork: a session that shares another one's first messages, windows and summaries.

The fork's log is the source's log as far as it concerns the shared messages, and its tree is what a
replay of that log gives. Summaries of nodes that come out equal are taken along, with their dirty
mark, so that nothing sealed before the fork is paid for again.

The fork is prepared outside the transaction. Inside it, the log that was used is compared with the
log as it is then; if they differ, nothing is written. Updates change summaries without a trace in
the log, so the transaction itself reads which summaries serve: if parent and child were read at two
moments, a parent could describe a text of its child that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from hiermem.core.log.edit import known
from hiermem.core.log.replay import Replay, prefix
from hiermem.core.tree.fold import reopen
from hiermem.core.tree.stored import config_from
from hiermem.errors import SessionExistsError
from hiermem.types import Node, SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Asking, Batch, Changes, Copy, Deciding, LogEvent, Rewrite

#: The flag of a message whose tool calls were given up, perhaps only after the fork.
_GIVEN_UP: Final = "missing_result"
#: The fields of a node that belong to its text.
_OF_TEXT: Final = ("revision", "attempts", "error", "degraded", "dirty", "since")
#: The fields that say what a node covers, and at which length.
_OF_INPUTS: Final = (
    "span", "thread", "windows", "children", "messages", "verbatim", "allotted_tokens",
)  # fmt: skip
#: Nodes read in one go.
_PAGE: Final = 2048


def prepare(
    source: SessionRecord,
    new_id: str,
    replay: Replay,
    *,
    events: Sequence[LogEvent],
    title: str | None,
    first_epoch: int,
    now: datetime,
) -> Callable[[], Deciding[int | None]]:
    """Work out a fork from a finished ``replay`` of ``events``; return the decision that writes it.

    ``first_epoch`` is the first number of the fork's epochs and of its trees.
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
        last_activity=now,
        messages=at,
        state=state.to_json(),
        version=1,
        epoch=first_epoch,
        tree=first_epoch,
        forked_from=source.id,
        forked_at=at,
        metadata=source.metadata,
    )
    nodes = sorted(replay.nodes.values(), key=lambda node: (node.level, node.ordinal))
    waiting = {index for thread in state.threads for _, index in state.strand(thread).turns.waiting}
    return partial(_fork, source, record, tuple(log), nodes=nodes, waiting=sorted(waiting))


def _with_texts(
    nodes: Iterable[Node], theirs: Mapping[str, Node]
) -> tuple[tuple[Node, ...], tuple[tuple[str, int], ...]]:
    """Return the fork's nodes, children first, and the revisions to copy into it.

    Nodes that are dirty in the source are so in the fork as well. A text that was
    requested once more for its own sake is not requested in the fork. A parent describes its
    children's texts, so its text is copied only if all of theirs are.
    """
    found: list[Node] = []
    taken: dict[str, int] = {}
    for node in nodes:
        other = theirs.get(node.id)
        if (
            other is None
            or not other.revision
            # One text serves both where they cover the same at one length.
            or any(getattr(node, name) != getattr(other, name) for name in _OF_INPUTS)
            or not taken.keys() >= set(node.children)
        ):
            found.append(node)
            continue
        taken[node.id] = other.revision
        found.append(
            replace(node, status="active", **{name: getattr(other, name) for name in _OF_TEXT})
        )
    return tuple(found), tuple(taken.items())


def _fork(
    source: SessionRecord,
    record: SessionRecord,
    prepared: tuple[LogEvent, ...],
    *,
    nodes: Sequence[Node],
    waiting: Sequence[int],
) -> Deciding[int | None]:
    """Write a fork that was worked out from ``source`` as it was read; return its messages' number.

    None, with nothing written, if the source has changed since. ``prepared`` are the events of the
    fork's log and ``nodes`` its tree without texts. ``waiting`` are the messages whose exchange
    group is still open at the fork.

    Raises NotFoundError if the source is gone, SessionExistsError if the name is taken.
    """
    other, found = yield (
        (record.id, transaction.NeedSession()),
        (source.id, transaction.NeedSession()),
    )
    if other is not None:
        raise SessionExistsError(record.id)
    now = known(source.id, found)
    if (now.epoch, now.tree, now.config) != (source.epoch, source.tree, source.config):
        return Batch(None)
    if now.version != source.version:
        events: Sequence[LogEvent] = yield source.id, transaction.NeedEvents()
        log = prefix(events, record.messages)
        if log != prepared[: len(log)] or len(prepared) - len(log) > 1:
            return Batch(None)
    theirs: dict[str, Node] = {}
    for start in range(0, len(nodes), _PAGE):
        ids = tuple(node.id for node in nodes[start : start + _PAGE])
        page: Sequence[Node] = yield source.id, transaction.NeedNodes(ids)
        theirs.update((node.id, node) for node in page)
    mine, revisions = _with_texts(nodes, theirs)
    rewrites = yield from _still_waiting(source.id, waiting)
    changes: Changes[None] = Changes(
        None,
        session=record,
        copy=Copy(source.id, record.messages, revisions),
        rewrites=rewrites,
        nodes=mine,
        events=prepared,
    )
    return Batch(record.messages, ((record.id, changes),))


def _still_waiting(source_id: str, waiting: Iterable[int]) -> Asking[tuple[Rewrite, ...]]:
    """Take the "missing result" flag off messages whose results may still arrive in the fork.

    The source may have given up on them since; an append that does so leaves no event in its log.
    """
    rewrites: list[Rewrite] = []
    asked = tuple((source_id, transaction.NeedMessages(index, index + 1)) for index in waiting)
    answers: Sequence[Sequence[StoredMessage]] = yield asked
    for found in answers:
        for stored in found:
            flags = tuple(flag for flag in stored.flags if flag != _GIVEN_UP)
            if flags != stored.flags:
                rewrites.append(Rewrite(replace(stored, flags=flags), "mark"))
    return tuple(rewrites)
