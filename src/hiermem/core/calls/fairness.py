"""Decides which session is worked on next: lowest level first, then the least recently served one.

Level 1 goes first because everything above is built on it. Sessions of one level take turns, so
that a long one keeps nobody waiting.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

#: A session, by its id, or by its tenant and its id.
K = TypeVar("K", bound=Hashable)


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
