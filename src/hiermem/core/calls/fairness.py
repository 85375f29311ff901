"""Decides whose turn it is: lowest level first, then the session served longest ago, then in order.

The one rule: the order within a session never depends on the others. Level 1 goes first because
everything above stands on it; between sessions of one level they take turns, so that a long one
keeps nobody waiting; within one, first in is first out. It starts nothing and reads nothing.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

#: The longest that something which failed again and again is left alone, in seconds.
BACK_OFF: Final = 3600.0
#: Seconds that a session is left alone for which nothing could be done: at first, and at most.
_FIRST: Final = 1.0
LONGEST: Final = 30.0
#: The most where another worker is at it, who may be done with the node at any moment.
LEASED: Final = 4.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody's place in the line: a node of ``level`` of ``session``, at ``ordinal`` in it."""

    session: str
    level: int
    ordinal: int
    number: int


class FairQueue:
    """The line for a free hand, across sessions."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiter] = {}
        self._served: dict[str, int] = {}
        self._joined = 0
        self._served_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, session: str, level: int, ordinal: int) -> Waiter:
        """Get in line."""
        self._joined += 1
        waiter = Waiter(session, level, ordinal, self._joined)
        self._waiting[waiter.number] = waiter
        return waiter

    def next(self) -> Waiter | None:
        """Take out whoever is next; None where nobody waits."""
        if not self._waiting:
            return None
        first = min(self._waiting.values(), key=self._rank)
        del self._waiting[first.number]
        self.serve(first.session)
        return first

    def serve(self, session: str) -> None:
        """Note that ``session`` has had a turn."""
        self._served_count += 1
        self._served[session] = self._served_count

    def leave(self, waiter: Waiter) -> None:
        """Give up a place in the line."""
        self._waiting.pop(waiter.number, None)

    def forget(self, session: str) -> None:
        """Drop what is remembered of a session that has no work any more."""
        if not any(waiter.session == session for waiter in self._waiting.values()):
            self._served.pop(session, None)

    def _rank(self, waiter: Waiter) -> tuple[int, int, int, int]:
        turn = self._served.get(waiter.session, 0)
        return waiter.level, turn, waiter.ordinal, waiter.number


@dataclass(slots=True)
class SessionQueue:
    """The sessions that wait for a place among those being worked on.

    A session stands in it once. ``contested`` ones, whose first nodes another worker holds, come
    after the others of their level: two workers share best where they do not meet. ``worker`` only
    serves to let different workers begin at different sessions.
    """

    worker: str
    _heap: list[tuple[tuple[int, bool, int, int], str]] = field(
        default_factory=list[tuple[tuple[int, bool, int, int], str]]
    )
    _ranks: dict[str, tuple[int, bool, int, int]] = field(
        default_factory=dict[str, tuple[int, bool, int, int]]
    )
    _served: dict[str, int] = field(default_factory=dict[str, int])
    _served_count: int = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, session: str) -> bool:
        return session in self._ranks

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranks)

    @property
    def head(self) -> tuple[int, bool] | None:
        """Give level and contestedness of the first in line, or None where nobody is."""
        self._tidy()
        return self._heap[0][0][:2] if self._heap else None

    def put(self, session: str, level: int, *, contested: bool = False) -> None:
        """Let a session wait, or change what it waits for."""
        served = self._served.get(session, 0)
        rank = (level, contested, served, shard_order(self.worker, session))
        self._ranks[session] = rank
        heapq.heappush(self._heap, (rank, session))

    def take(self) -> str | None:
        """Take the first in line out; None where nobody is."""
        self._tidy()
        if not self._heap:
            return None
        session = heapq.heappop(self._heap)[1]
        del self._ranks[session]
        self._served_count += 1
        self._served[session] = self._served_count
        return session

    def drop(self, session: str) -> None:
        """Take a session out that has nothing to wait for any more, and forget it."""
        self._ranks.pop(session, None)
        self._served.pop(session, None)

    def _tidy(self) -> None:
        """Pass over places that were given up or changed."""
        while self._heap and self._ranks.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)


@dataclass(frozen=True, slots=True)
class BackoffEntry:
    """A session that is left alone ``until`` then, for the ``times``-th time in a row.

    It is looked at before where its record has another ``version``; None where that is no reason.
    ``leased`` ones have nodes in another worker's hands.
    """

    until: float
    times: int
    version: int | None = None
    leased: bool = False


class Backoff:
    """The sessions that have unfinished nodes, and nothing to be done about them for a while."""

    def __init__(self) -> None:
        self._entries: dict[str, BackoffEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session: str) -> bool:
        return session in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    @property
    def leased(self) -> bool:
        """Say whether any of them waits for another worker."""
        return any(entry.leased for entry in self._entries.values())

    def get(self, session: str) -> BackoffEntry | None:
        """Give how a session is parked, or None."""
        return self._entries.get(session)

    def put(
        self,
        session: str,
        now: float,
        *,
        version: int | None = None,
        leased: bool = False,
        first: float = _FIRST,
        most: float = LONGEST,
    ) -> None:
        """Leave a session alone for a while, longer each time; times are in seconds."""
        before = self._entries.get(session)
        times = before.times + 1 if before else 1
        pause = back_off(times, first=first, most=min(most, LEASED) if leased else most)
        self._entries[session] = BackoffEntry(now + pause, times, version, leased)

    def drop(self, session: str) -> None:
        """Let a session go; the next time it is parked counts as the first."""
        self._entries.pop(session, None)


def shard_order(worker: str, session: str) -> int:
    """Give a number that orders sessions differently for each worker, the same in any process."""
    digest = hashlib.blake2b(f"{worker}\0{session}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def back_off(failures: int, *, first: float, most: float = BACK_OFF) -> float:
    """Give how long something that failed ``failures`` times in a row is left alone, in seconds."""
    return min(most, first * 2.0 ** min(max(0, failures - 1), 30))
