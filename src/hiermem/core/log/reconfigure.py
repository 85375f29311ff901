"""Decides how a session continues under another configuration.

The last instruction holds. Sealed nodes keep their bounds. The messages of open windows are folded
again under the new rules, one by one with their own times, so that a backlog (sealing switched on
late, windows made smaller) becomes windows as if each message had arrived now. A full re-pack under
way for another configuration is restarted for this one, because its swap would otherwise put the
older configuration back.

A backlog may be long. It is folded in pages before the transaction (``Backlog``), and the result is
written only if the session is still what was read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from hiermem.config import HierarchyConfig
from hiermem.core.log import repack
from hiermem.core.log.edit import known_session
from hiermem.core.log.size_changes import SizeChange, Weigher
from hiermem.core.log.trees import Build
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.core.tree.turns import Arrival
from hiermem.errors import SessionClosedError
from hiermem.types import SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Batch, Changes, Deciding, LogEvent, Rewrite

#: Messages folded at once.
PAGE: Final = 2048
#: What of a session's record its messages and open windows follow from.
_folded_from: Final = attrgetter("state", "config", "epoch", "tree")


class Backlog(repack.Refold):
    """The messages of a session's open windows, folded again: ``feed`` it those that are ``left``.

    ``source`` is the record that was read, ``cuts`` are the messages that the new rules slice.
    """

    def __init__(self, record: SessionRecord, config: HierarchyConfig, weigher: Weigher) -> None:
        state = SessionState.from_json(record.state)
        state, self.begins = state.rewound(config_from(record.config).unit, config.unit)
        super().__init__(config, state)
        self.source, self.weigher = record, weigher
        self.cuts: list[SizeChange] = []
        self.rewrites: list[Rewrite] = []

    def left(self) -> tuple[int, int] | None:
        """Return the next messages to feed, from and up to; None at the end."""
        start = self.state.next_index
        stop = min(start + PAGE, self.source.messages)
        return (start, stop) if start < stop else None

    def feed(self, messages: Sequence[StoredMessage]) -> None:
        """Fold the next messages of the session."""
        self.fold_again([self._arrival(stored) for stored in messages], self.begins)

    def is_of(self, record: SessionRecord) -> bool:
        """Return whether the session's messages and open windows are those that were folded."""
        return _folded_from(record) == _folded_from(self.source)

    def _arrival(self, stored: StoredMessage) -> Arrival:
        if stored.index < self.begins.get(stored.thread, self.source.messages):
            return Arrival.of(stored)  # it is in a sealed window
        weigher, slices = self.weigher, stored.slices
        if stored.index == self.begins[stored.thread]:
            opening = self.state.strand(stored.thread).window
            if slices or opening.char or opening.linked:
                weight = weigher.weigh(stored, self.config, slices)[-1]
                return replace(
                    Arrival.of(stored), size=weight.size(self.config.unit), tokens=weight.tokens
                )
        arrived, points = repack.arrival(stored, self.config, weigher)
        if points:
            whole = weigher.weigh(stored, self.config)
            parts = weigher.weigh(stored, self.config, points)
            self.cuts.append(SizeChange(stored.index, stored.thread, whole, parts))
            self.rewrites.append(Rewrite(replace(stored, size=arrived.size, slices=points), "mark"))
        return arrived


def reconfigure(
    session_id: str,
    *,
    config: str,
    build_id: str,
    now: datetime,
    weigher: Weigher,
    backlog: Backlog | None = None,
    wait: bool = True,
) -> Deciding[bool | None]:
    """Continue the session under ``config``; return whether the configuration changed.

    ``backlog`` is what was folded before. Where it does not fit the session any more, nothing is
    changed and None returned; without ``wait`` the messages are read and folded here instead.
    ``build_id`` is for a re-pack that restarts. Raises NotFoundError and SessionClosedError.
    """
    record = yield from known_session(session_id)
    if record.closed:
        raise SessionClosedError(session_id)
    before, after = config_from(record.config), config_from(config)
    build = Build.from_json(record.build)
    overtaken = build if build is not None and config_from(build.config) != after else None
    session = replace(record, version=record.version + 1)
    if overtaken is not None:
        new_build = repack.new_build(record, overtaken, config=config, build_id=build_id)
        session = replace(session, build=new_build.to_json())
    detail: dict[str, Any] = {"before": record.config, "after": config}
    changes: Changes[None] = Changes(
        None, session=session, drop_tree=overtaken.tree if overtaken else None
    )
    if before == after:
        # The event says that the session has a configuration of its own.
        events: Sequence[LogEvent] = yield session_id, transaction.NeedEvents()
        chosen = any(event.kind == "reconfigure" for event in events)
        if chosen and overtaken is None:
            return Batch(result=False)
        changes = replace(changes, events=() if chosen else (_event(record, now, detail),))
        return Batch(result=False, sessions=((session_id, changes),))
    if backlog is None or not backlog.is_of(record):
        if wait:
            return Batch(None)
        backlog = Backlog(record, after, weigher)
        while stretch := backlog.left():
            messages: Sequence[StoredMessage] = yield session_id, transaction.NeedMessages(*stretch)
            backlog.feed(messages)
    if backlog.cuts:
        detail["cuts"] = [cut.row() for cut in backlog.cuts]
    changes = replace(
        changes,
        session=replace(session, config=config, state=backlog.state.to_json()),
        nodes=tuple(backlog.nodes.values()),
        parents=tuple(backlog.parents.items()),
        flags=tuple(backlog.flags),
        rewrites=tuple(backlog.rewrites),
        events=(_event(record, now, detail),),
    )
    return Batch(result=True, sessions=((session_id, changes),))


def _event(record: SessionRecord, now: datetime, detail: dict[str, Any]) -> LogEvent:
    text = json.dumps(detail, separators=(",", ":"))
    return LogEvent("reconfigure", record.messages, now, text)
