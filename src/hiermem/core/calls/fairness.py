"""Decides who gets the next slot: lowest level, then the least recently served session, then order.

The order within a session never depends on the others. Level 1 goes first because everything above
is built on it. Between sessions of one level they alternate, so that a long one keeps nobody
waiting. Within a session, first in is first out. This module starts nothing and reads nothing.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: Who waits: a call, or a session by its id, or by its tenant and its id.
K = TypeVar("K", bound=Hashable)


class FairQueue(Generic[K]):
    """The queue for a free slot, across sessions."""

    def __init__(self) -> None:
        #: The session, the level and the ordinal in it of each that waits, in the order of joining.
        self._waiting: dict[K, tuple[Hashable, int, int]] = {}
        self._served: dict[Hashable, int] = {}
        self._served_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiter: K, session: Hashable, level: int, ordinal: int) -> None:
        """Let ``waiter`` get in line, for a node at ``ordinal`` in a ``level`` of ``session``."""
        self._waiting[waiter] = session, level, ordinal

    def next(self) -> K | None:
        """Take out the next in line; None where nobody waits."""
        if not self._waiting:
            return None
        # Of equal ranks the first that joined.
        first = min(self._waiting, key=self._rank)
        self.serve(self._waiting.pop(first)[0])
        return first

    def serve(self, session: Hashable) -> None:
        """Note that ``session`` was served."""
        self._served_count += 1
        self._served[session] = self._served_count

    def leave(self, waiter: K) -> bool:
        """Let ``waiter`` leave the queue; return whether it was still in line."""
        return self._waiting.pop(waiter, None) is not None

    def forget(self, session: Hashable) -> None:
        """Drop what is remembered of a session that has no more work."""
        if not any(waiting == session for waiting, _, _ in self._waiting.values()):
            self._served.pop(session, None)

    def _rank(self, waiter: K) -> tuple[int, int, int]:
        session, level, ordinal = self._waiting[waiter]
        return level, self._served.get(session, 0), ordinal


@dataclass(slots=True)
class SessionQueue(Generic[K]):
    """The sessions that wait to be worked on.

    A session stands in the queue once. ``contested`` sessions, whose first nodes another worker
    holds, come after the others of their level: two workers share best where they do not meet.
    ``worker`` only makes different workers begin at different sessions.
    """

    worker: str
    _heap: list[tuple[tuple[int, bool, int, int], K]] = field(default_factory=list)
    _ranks: dict[K, tuple[int, bool, int, int]] = field(default_factory=dict)
    _served: dict[K, int] = field(default_factory=dict)
    _served_count: int = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, session: K) -> bool:
        return session in self._ranks

    @property
    def head(self) -> tuple[int, bool] | None:
        """The level and contestedness of the first in line, or None."""
        self._tidy()
        return self._heap[0][0][:2] if self._heap else None

    def put(self, session: K, level: int, *, contested: bool = False) -> None:
        """Queue a session, or change what it waits for."""
        served = self._served.get(session, 0)
        rank = (level, contested, served, shard_order(self.worker, session))
        self._ranks[session] = rank
        heapq.heappush(self._heap, (rank, session))

    def take(self) -> K | None:
        """Take out the first in line; None where the queue is empty."""
        self._tidy()
        if not self._heap:
            return None
        session = heapq.heappop(self._heap)[1]
        del self._ranks[session]
        self._served_count += 1
        self._served[session] = self._served_count
        return session

    def drop(self, session: K) -> None:
        """Remove a session that has nothing to wait for any more, and forget it."""
        self._ranks.pop(session, None)
        self._served.pop(session, None)

    def _tidy(self) -> None:
        """Skip heap entries that were dropped or changed."""
        while self._heap and self._ranks.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)


def shard_order(worker: str, session: Hashable) -> int:
    """Return a number that orders sessions differently for each worker, the same in any process."""
    digest = hashlib.blake2b(f"{worker}\0{session}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
