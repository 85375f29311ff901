"""Holds the search indexes of all tenants of one memory in a bounded amount of memory.

It is imported with every memory, so it loads nothing that a search needs.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class IndexCache(Generic[T]):
    """The indexes of sessions by tenant and id, at most ``max_bytes``; the last used ones stay."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: Each index with its size when it was last measured, the last used one at the end.
        self._held: OrderedDict[tuple[str, str], tuple[T, int]] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._held

    def get(self, tenant: str, session_id: str) -> T | None:
        """Return the index of a session, or None."""
        found = self._held.get((tenant, session_id))
        return None if found is None else found[0]

    def put(self, tenant: str, session_id: str, index: T, size: int) -> None:
        """Hold an index as the last used one, with its present size; drop what is too much."""
        key = tenant, session_id
        self._remove(key)
        self._held[key] = index, size
        self._total += size
        while self._total > self._max_bytes and len(self._held) > 1:
            self._remove(next(iter(self._held)))

    def drop(self, tenant: str, session_id: str | None = None) -> None:
        """Drop one session's index, or all of a tenant."""
        if session_id is not None:
            self._remove((tenant, session_id))
            return
        for key in [key for key in self._held if key[0] == tenant]:
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        _, size = self._held.pop(key, (None, 0))
        self._total -= size
