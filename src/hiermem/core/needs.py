"""What a decision asks to be read: the core yields these, the engine answers them.

The one rule: each need is bounded by what the decision shows, never by what the session holds.
Each is answered by a list in the order that the store's method of the same meaning states.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from hiermem.types import Node, Revision, StoredMessage

__all__ = [
    "Need",
    "NeedLevel",
    "NeedMessages",
    "NeedNodes",
    "NeedRevisions",
    "Reading",
    "level",
    "messages",
    "nodes",
    "revisions",
    "windows",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NeedMessages:
    """The messages with ``start <= index < stop``."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class NeedNodes:
    """The nodes with these ids."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedLevel:
    """The sealed nodes of ``level`` with ``start <= ordinal < stop``."""

    level: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class NeedRevisions:
    """The revisions with these (node id, number)."""

    wanted: tuple[tuple[str, int], ...]


Need: TypeAlias = NeedLevel | NeedMessages | NeedNodes | NeedRevisions
#: A decision that reads as it goes: yields needs, is sent their answers, returns its result.
Reading: TypeAlias = Generator[Need, Any, T]


def messages(start: int, stop: int) -> Reading[list[StoredMessage]]:
    """Read messages by index; nothing is asked for an empty range."""
    if stop <= start:
        return []
    found: list[StoredMessage] = yield NeedMessages(start, stop)
    return found


def nodes(ids: Sequence[str]) -> Reading[list[Node]]:
    """Read nodes by id; nothing is asked for none."""
    if not ids:
        return []
    found: list[Node] = yield NeedNodes(tuple(ids))
    return found


def level(number: int, start: int, stop: int) -> Reading[list[Node]]:
    """Read sealed nodes of a level by ordinal; nothing is asked for an empty range."""
    if stop <= start:
        return []
    found: list[Node] = yield NeedLevel(number, start, stop)
    return found


def windows(start: int, stop: int) -> Reading[list[Node]]:
    """Read level-1 nodes by ordinal."""
    return (yield from level(1, start, stop))


def revisions(wanted: Sequence[tuple[str, int]]) -> Reading[list[Revision]]:
    """Read revisions; nothing is asked for none."""
    if not wanted:
        return []
    found: list[Revision] = yield NeedRevisions(tuple(wanted))
    return found
