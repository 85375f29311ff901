"""Decides when a session has something to make, so that workers need not look at every session.

::

    a change of a session  -> an entry, due at once or later
    a claim of the session -> an update -> nothing left: the entry goes; otherwise its next time

A store writes the entry in the transaction of the change. A session becomes due by:

    a sealed summary without a fit text     at once; after a failure, later each time
    a new configuration, another tree       at once: a worker looks
    an open window with a time limit        when it times out, if nothing is appended by then

A needless entry costs a look, and ``memory.check()`` enters every session.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hiermem.calls.failures import CAPPED, IDLE, TEXT, TROUBLE, back_off
from hiermem.errors import HiermemError
from hiermem.tree.fold import config_from, has_open_window
from hiermem.tree.status import waits
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import Changes, Due

if TYPE_CHECKING:
    from hiermem.summaries.reports import UpdateReport

#: Due now.
AT_ONCE: Final[Due] = timedelta()
#: Caps of a session and of the tenant.
_CAPS: Final = ("session_calls", "session_tokens", "tenant_calls", "tenant_tokens")
_INSTANT: Final = timedelta(microseconds=1)


def due_by_change(
    before: SessionRecord | None, after: SessionRecord, changes: Changes[Any]
) -> Due | None:
    """Return when a session is due after its record became ``after``; None for no change."""
    if before is not None and (before.tree != after.tree or before.config != after.config):
        return AT_ONCE
    if changes.nodes and changes.tree in (None, after.tree):
        due = due_by_nodes(changes.nodes)
        if due is not None:
            return due
    limits = _limits(after.config)
    # While a window is open, the session has an entry already.
    if limits and not (before is not None and has_open_window(before.state)):
        return _by_time(after)
    return None


def due_by_nodes(nodes: Iterable[Node]) -> Due | None:
    """Return when the first of these nodes is due; None if none is."""
    delays = [
        _delay(node)
        for node in nodes
        if node.status in ("pending", "failed")
        or (node.status == "active" and (node.degraded or waits(node)))
    ]
    return timedelta(seconds=min(delays)) if delays else None


def next_due(record: SessionRecord, *, ready: Iterable[Node], now: datetime) -> datetime | None:
    """Return when a session is due next; None if nothing is left to make.

    ``ready`` are the unfinished nodes with all their inputs.
    """
    times = [now + timedelta(seconds=_delay(node)) for node in ready]
    by_time = _by_time(record)
    if by_time is not None and by_time > now:
        times.append(by_time)
    return min(times, default=None)


def pause_after(report: UpdateReport) -> float:
    """Return the seconds to wait after a turn with this result."""
    if report.stopped in _CAPS:
        return CAPPED[1]
    if report.stopped == "model_down":
        return report.retry_after or TROUBLE[0]
    return 0.0 if report.by_level or report.stopped is not None else IDLE[1]


def _delay(node: Node) -> float:
    """Return the seconds until an unfinished node is due."""
    if node.status == "failed" or (node.status == "active" and not waits(node)):
        return back_off(node.attempts, TEXT)
    return 0.0


def _by_time(record: SessionRecord) -> datetime | None:
    """Return when an open window times out; None without a limit or an open window."""
    limits = _limits(record.config)
    if record.closed or not limits or not has_open_window(record.state):
        return None
    try:
        return record.last_activity + min(limits) + _INSTANT
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _limits(config: str) -> tuple[timedelta, ...]:
    """Return the time limits of a stored configuration; () if it cannot be read."""
    try:
        settings = config_from(config)
    except HiermemError:
        return ()
    limits = (settings.max_age, settings.flush_after) if settings.enabled else ()
    return tuple(limit for limit in limits if limit is not None)
