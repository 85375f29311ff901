"""Decides how a session continues under another configuration.

The last instruction holds. Sealed nodes keep their bounds, open windows are carried over, and a
full re-pack under way for another configuration is restarted for this one, because its swap would
otherwise put the older configuration back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from hiermem.core.log import repack
from hiermem.core.log.repack_state import Build
from hiermem.core.tree import fold
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.errors import NotFoundError, SessionClosedError
from hiermem.types import SessionRecord
from hiermem.types.transaction import Batch, Changes, Deciding, LogEvent, NeedSession


def reconfigure(session_id: str, *, config: str, build_id: str, now: datetime) -> Deciding[bool]:
    """Continue the session under ``config``; return whether the configuration changed.

    Open windows are measured in the new unit from here on. ``build_id`` is for a re-pack that
    restarts. Raises NotFoundError and SessionClosedError.
    """
    record: SessionRecord | None = yield session_id, NeedSession()
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    if record.closed:
        raise SessionClosedError(session_id)
    before, after = config_from(record.config), config_from(config)
    build = Build.from_json(record.build)
    overtaken = build if build is not None and config_from(build.config) != after else None
    if before == after and overtaken is None:
        return Batch(result=False)
    session = replace(record, version=record.version + 1)
    if overtaken is not None:
        new_build = repack.new_build(record, overtaken, config=config, build_id=build_id)
        session = replace(session, build=new_build.to_json())
    changes: Changes[None] = Changes(
        None, session=session, drop_tree=overtaken.tree if overtaken else None
    )
    if before != after:
        state = SessionState.from_json(record.state)
        detail = json.dumps({"before": record.config, "after": config}, separators=(",", ":"))
        carried = state.in_unit(before.unit, after.unit).to_json()
        changes = replace(
            changes,
            session=replace(session, config=config, state=carried),
            drop=tuple(_provisional(state)),
            events=(LogEvent("reconfigure", record.messages, now, detail),),
        )
    return Batch(before != after, ((session_id, changes),))


def _provisional(state: SessionState) -> Iterator[str]:
    """Name the nodes that may stand for open windows and groups; the next update makes them again.

    A group may be open at each level that has nodes, and at the level above.
    """
    for thread in state.threads:
        yield fold.provisional_window(thread)
    for level in range(2, len(state.ordinals) + 3):
        yield fold.provisional_group(level)
