"""Decides what is to be made anew on request, and under which configuration a session goes on.

The one rule: nothing that is sealed changes its bounds here. ``recompress`` asks for texts;
``reconfigure`` is for the windows and groups to come, and what is open is carried over.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from hiermem.core.generation import status
from hiermem.core.tree import fold
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.effects import (
    Batch,
    Changes,
    Deciding,
    LogEvent,
    Need,
    NeedCovering,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedSession,
)
from hiermem.errors import NotFoundError, SessionClosedError
from hiermem.types import Node, SessionRecord, StoredMessage

__all__ = ["recompress", "reconfigure"]

#: Nodes looked at together.
_PAGE: Final = 512


def recompress(
    session_id: str, *, level: int, span: tuple[int, int] | None, now: datetime
) -> Deciding[tuple[str, ...]]:
    """Ask for new texts of the made nodes of ``level`` over the messages of ``span``, or of all.

    Gives their ids. What has no text yet will be made anyway. Raises NotFoundError.
    """
    record: SessionRecord | None = yield session_id, NeedSession()
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    start, stop = span if span is not None else (0, record.messages)
    if start >= stop:
        return Batch(())
    if span is None:
        found = yield from _of_level(session_id, record, level)
    else:
        found = yield from _over(session_id, level, span[0], min(span[1], record.messages))
    marked = [
        replace(status.force(node, now=now), version=node.version + 1)
        for node in found
        if node.revision
    ]
    ids = tuple(node.id for node in marked)
    if not marked:
        return Batch(ids)
    changes: Changes[None] = Changes(
        None, session=replace(record, version=record.version + 1), nodes=tuple(marked)
    )
    return Batch(ids, ((session_id, changes),))


def _of_level(
    session_id: str, record: SessionRecord, level: int
) -> Generator[tuple[str, Need], Any, list[Node]]:
    """Read all sealed nodes of ``level``."""
    count = SessionState.from_json(record.state).next_ordinal(level)
    found: list[Node] = []
    for first in range(0, count, _PAGE):
        found += yield session_id, NeedLevel(level, first, min(count, first + _PAGE))
    return found


def _over(
    session_id: str, level: int, start: int, stop: int
) -> Generator[tuple[str, Need], Any, list[Node]]:
    """Read the nodes of ``level`` over the windows that hold a message of that stretch.

    It costs what the stretch holds, not what the session does: from its messages to their windows,
    and from these up.
    """
    found: dict[str, Node] = {}
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
            found.update((window.id, window) for window in windows)
            reached[stored.thread] = max((window.span.stop for window in windows), default=0)
    above = {node.id: node for node in found.values() if node.level == level}
    below = [node for node in found.values() if node.level < level]
    while below:
        # A lone node may stand in a group more than one level above it.
        wanted = dict.fromkeys(node.parent for node in below if node.parent is not None)
        parents: list[Node] = yield session_id, NeedNodes(tuple(wanted))
        above.update((node.id, node) for node in parents if node.level == level)
        below = [node for node in parents if node.level < level]
    return sorted(above.values(), key=lambda node: node.ordinal)


def reconfigure(session_id: str, *, config: str, now: datetime) -> Deciding[bool]:
    """Let the session go on under ``config``; say whether that is another one than it had.

    What is open is measured on in the new unit. Raises NotFoundError and SessionClosedError.
    """
    record: SessionRecord | None = yield session_id, NeedSession()
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    if record.closed:
        raise SessionClosedError(session_id)
    before, after = config_from(record.config), config_from(config)
    if before == after:
        return Batch(result=False)
    state = SessionState.from_json(record.state)
    detail = json.dumps({"before": record.config, "after": config}, separators=(",", ":"))
    changes: Changes[None] = Changes(
        None,
        session=replace(
            record,
            config=config,
            state=state.in_unit(before.unit, after.unit).to_json(),
            version=record.version + 1,
        ),
        drop=tuple(_provisional(state)),
        events=(LogEvent("reconfigure", record.messages, now, detail),),
    )
    return Batch(result=True, sessions=((session_id, changes),))


def _provisional(state: SessionState) -> Iterator[str]:
    """Name the nodes that may stand for what is open; the next update makes them as they are now.

    A group may have been open at each level that has nodes, and at the one above.
    """
    for thread in state.threads:
        yield fold.provisional_window(thread)
    for level in range(2, len(state.ordinals) + 3):
        yield fold.provisional_group(level)
