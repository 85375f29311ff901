"""Decides when a session has something to make, so that workers need not look at every session.

::

    a change of a session  -> an entry, due at once or later
    a claim of the session -> an update -> nothing left: the entry goes; otherwise its next time

A store writes the entry in the transaction of the change. What makes a session due:

    a sealed summary without a fit text     at once; after a failure, later each time
    a new configuration, another tree       at once: a worker looks
    an open window with a limit of time     when the time is over, if nothing is appended by then

An entry too many costs a look, and what is missed is found by a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hiermem.calls.run_report import CAPPED, IDLE, TEXT, TROUBLE, back_off
from hiermem.errors import HiermemError
from hiermem.tree.fold import config_from, has_open_window
from hiermem.tree.levels import waits
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import Changes, Due

if TYPE_CHECKING:
    from hiermem.summaries.plan import UpdateReport

#: What becomes due now.
AT_ONCE: Final = Due()
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
    # While a window is open, the session has an entry: this append changes nothing.
    if limits and not (before is not None and has_open_window(before.state)):
        return _by_time(after)
    return None


def due_by_nodes(nodes: Iterable[Node]) -> Due | None:
    """Return when the first of these nodes is to be made; None where none is."""
    delays = [
        _delay(node)
        for node in nodes
        if node.status in ("pending", "failed")
        or (node.status == "active" and (node.degraded or waits(node)))
    ]
    return Due(delay=min(delays)) if delays else None


def next_due(record: SessionRecord, *, ready: Iterable[Node], now: datetime) -> datetime | None:
    """Return when a session is due next; None where nothing is left to make.

    ``ready`` are the unfinished nodes with all their inputs.
    """
    times = [now + timedelta(seconds=_delay(node)) for node in ready]
    by_time = _by_time(record)
    if by_time is not None and by_time.at is not None and by_time.at > now:
        times.append(by_time.at)
    return min(times, default=None)


def pause_after(report: UpdateReport) -> float:
    """Return the seconds for which what ended a turn with this result keeps the next one away."""
    if report.stopped in _CAPS:
        return CAPPED[1]
    if report.stopped == "model_down":
        return report.retry_after or TROUBLE[0]
    return 0.0 if report.by_level or report.stopped is not None else IDLE[1]


def _delay(node: Node) -> float:
    """Return the seconds after which an unfinished node is to be made."""
    if node.status == "failed" or (node.status == "active" and not waits(node)):
        return back_off(node.attempts, TEXT)
    return 0.0


def _by_time(record: SessionRecord) -> Due | None:
    """Return when the first limit of time of an open window is over."""
    limits = _limits(record.config)
    if record.closed or not limits or not has_open_window(record.state):
        return None
    try:
        return Due(at=record.last_activity + min(limits) + _INSTANT)
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _limits(config: str) -> tuple[timedelta, ...]:
    """Return the limits of time of a stored configuration."""
    try:
        found = config_from(config)
    except HiermemError:
        return ()
    limits = (found.max_age, found.flush_after) if found.enabled else ()
    return tuple(limit for limit in limits if limit is not None)
