"""Decides what is to be made anew on request, and under which configuration a session goes on.

The one rule: nothing that is sealed changes its bounds here. ``recompress`` asks for texts;
``reconfigure`` is for the windows and groups to come, and what is open is carried over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from hiermem.core import fold, status
from hiermem.core.state import SessionState
from hiermem.core.stored import config_from
from hiermem.effects import Batch, Changes, Deciding, LogEvent, NeedLevel, NeedSession
from hiermem.errors import NotFoundError, SessionClosedError
from hiermem.types import Node, SessionRecord

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
    count = SessionState.from_json(record.state).next_ordinal(level)
    marked: list[Node] = []
    for first in range(0, count, _PAGE):
        page: list[Node] = yield session_id, NeedLevel(level, first, min(count, first + _PAGE))
        marked += [
            replace(status.force(node, now=now), version=node.version + 1)
            for node in page
            if node.revision and node.span.start < stop and start < node.span.stop
        ]
    ids = tuple(node.id for node in marked)
    if not marked:
        return Batch(ids)
    changes: Changes[None] = Changes(
        None, session=replace(record, version=record.version + 1), nodes=tuple(marked)
    )
    return Batch(ids, ((session_id, changes),))


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
