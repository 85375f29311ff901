"""Decides what the events of a session's log say besides their kind, place and time.

An edit, an erasure or a quarantine names its messages as ranges of indices; a reconfiguration and a
full rebuild name configurations. No event holds any text of a message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from hiermem.config import HierarchyConfig
from hiermem.errors import StoreCorruptError
from hiermem.tree import fold
from hiermem.tree.fold import config_from
from hiermem.types.ranges import Ranges, clipped, joined
from hiermem.types.transaction import LogEvent

#: The kinds of events that name messages.
_CHANGES: Final = frozenset({"edit", "erase", "quarantine"})


def naming(runs: Ranges) -> str:
    """Write the detail of an edit, an erasure or a quarantine of the messages in these ranges."""
    return json.dumps(runs, separators=(",", ":"))


def changed(event: LogEvent) -> Ranges:
    """Return the messages that an edit, an erasure or a quarantine names, as ranges of indices.

    Raises StoreCorruptError if the event is not what hiermem wrote.
    """

    def runs(detail: Any) -> Ranges:
        ranges = tuple((int(start), int(stop)) for start, stop in detail)
        if not isinstance(detail, list) or any(not 0 <= a < b for a, b in ranges):
            raise ValueError
        return ranges

    return _read(event, runs)


def taken_back(events: Iterable[LogEvent], *kinds: str) -> Ranges:
    """Return the erased and quarantined messages, or those of one of these ``kinds`` of events.

    A later such event removes all views.
    """
    wanted = kinds or ("erase", "quarantine")
    return joined(run for event in events if event.kind in wanted for run in changed(event))


def edits_of(events: Iterable[LogEvent]) -> Counter[int]:
    """Return how often each message was edited, by index."""
    edits = (changed(event) for event in events if event.kind == "edit")
    return Counter(index for runs in edits for index, _ in runs)


def configs_of(event: LogEvent) -> tuple[HierarchyConfig, ...]:
    """Return the configurations that an event names, the earlier one first.

    Raises StoreCorruptError if the event is not what hiermem wrote.
    """
    if event.kind not in ("reconfigure", "repack"):
        return ()
    names = ("before", "after") if event.kind == "reconfigure" else ("config",)
    return _read(event, lambda detail: tuple(config_from(detail[name]) for name in names))


def before(events: Sequence[LogEvent], stop: int) -> tuple[LogEvent, ...]:
    """Return the log's events as they are for a fork with the messages before ``stop`` alone.

    What sealed anything later, and changes of later messages, did not happen there. Other later
    events count as if they had come at ``stop``.
    """
    kept: list[LogEvent] = []
    for event in events:
        if event.kind in fold.EVENTS and event.at > stop:
            continue
        if event.kind in _CHANGES:
            runs = clipped(changed(event), 0, stop)
            if not runs:
                continue
            event = replace(event, detail=naming(runs))  # noqa: PLW2901
        kept.append(replace(event, at=min(event.at, stop)))
    return tuple(kept)


T = TypeVar("T")


def _read(event: LogEvent, read: Callable[[Any], T]) -> T:
    """Read the JSON of an event's detail. Raises StoreCorruptError if hiermem did not write it."""
    try:
        return read(json.loads(event.detail))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise StoreCorruptError(
            f"a log event of kind {event.kind!r} is unreadable; the store is damaged"
        ) from None
