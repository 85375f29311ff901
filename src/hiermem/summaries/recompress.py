"""Decides which summaries get a new text on request.

Only texts are requested here; nothing sealed changes its bounds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from hiermem.errors import NotFoundError
from hiermem.tree import status
from hiermem.tree.fold import SessionState
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Asking,
    Batch,
    Changes,
    Deciding,
    NeedCovering,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedSession,
)

#: Nodes read together.
_PAGE: Final = 512


def recompress(
    session_id: str, *, level: int, span: tuple[int, int] | None, now: datetime
) -> Deciding[tuple[str, ...]]:
    """Request new texts for the made nodes of ``level`` over the messages of ``span``, or for all.

    Returns their ids. A node without a text will be made anyway. Raises NotFoundError.
    """
    record: SessionRecord | None = yield session_id, NeedSession()
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    start, stop = span if span is not None else (0, record.messages)
    if start >= stop:
        return Batch(())
    if span is None:
        count = SessionState.from_json(record.state).next_ordinal(level)
        nodes: list[Node] = []
        for first in range(0, count, _PAGE):
            nodes += yield session_id, NeedLevel(level, first, min(count, first + _PAGE))
    else:
        nodes = yield from _over(session_id, level, span[0], min(span[1], record.messages))
    marked = [
        replace(status.force(node, now=now), version=node.version + 1)
        for node in nodes
        if node.revision
    ]
    ids = tuple(node.id for node in marked)
    if not marked:
        return Batch(ids)
    changes: Changes[None] = Changes(
        None, session=replace(record, version=record.version + 1), nodes=tuple(marked)
    )
    return Batch(ids, ((session_id, changes),))


def _over(session_id: str, level: int, start: int, stop: int) -> Asking[list[Node]]:
    """Read the nodes of ``level`` over the windows that hold a message of the stretch.

    The cost depends on the stretch, not on the session: reads go from its messages to their
    windows, and from these up.
    """
    reached_nodes: dict[str, Node] = {}
    reached: dict[str, int] = {}
    for first in range(start, stop, _PAGE):
        messages: list[StoredMessage] = yield (
            session_id,
            NeedMessages(first, min(stop, first + _PAGE)),
        )
        for stored in messages:
            if stored.index < reached.get(stored.thread, 0):
                continue
            windows: list[Node] = yield session_id, NeedCovering(stored.thread, stored.index)
            reached_nodes.update((window.id, window) for window in windows)
            reached[stored.thread] = max((window.span.stop for window in windows), default=0)
    above = {node.id: node for node in reached_nodes.values() if node.level == level}
    below = [node for node in reached_nodes.values() if node.level < level]
    while below:
        # A lone node may stand in a group more than one level above it.
        wanted = dict.fromkeys(node.parent for node in below if node.parent is not None)
        parents: list[Node] = yield session_id, NeedNodes(tuple(wanted))
        above.update((node.id, node) for node in parents if node.level == level)
        below = [node for node in parents if node.level < level]
    return sorted(above.values(), key=lambda node: node.ordinal)
