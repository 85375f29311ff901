"""Decides which messages and summaries a search may give.

The one rule: a filter takes away and never changes a score. Within one filter any of its values
will do; several filters must all be met. A message bears the tags and entities of the summary of
its window; what only messages have (a role) no summary meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from hiermem.core import arguments
from hiermem.core.text.policy import check
from hiermem.errors import UsageError
from hiermem.types import ROLES, Node, Revision, Summary

if TYPE_CHECKING:
    from hiermem.core.search.inverted import Index
    from hiermem.core.search.postings import Array

__all__ = ["Filters", "read_filters"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_WORD: Final = 512
#: Beyond any index that a store can hold.
_END: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Filters:
    """What may be given. None lets everything pass; times are ``since <= at < until``."""

    levels: frozenset[int] | None = None
    span: tuple[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    threads: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    entities: frozenset[str] | None = None

    @property
    def by_window(self) -> bool:
        """Say whether a message is judged by what the summary of its window bears."""
        return self.tags is not None or self.entities is not None

    def level(self, number: int) -> bool:
        """Say whether anything of that level may be given; 0 is messages."""
        return self.levels is None or number in self.levels

    def summary(self, node: Node, revision: Revision) -> bool:
        """Say whether a summary may be given: it covers some of what the filters let pass."""
        if self.roles is not None or not self.level(node.level):
            return False
        if self.span is not None and not (
            node.span.start < self.span[1] and self.span[0] < node.span.stop
        ):
            return False
        if self.since is not None and node.last_at < self.since:
            return False
        if self.until is not None and node.first_at >= self.until:
            return False
        if self.threads is not None and node.thread not in self.threads:
            return False
        return self._bears(revision)

    def _bears(self, revision: Revision) -> bool:
        return all(
            wanted is None or not wanted.isdisjoint(map(_folded, borne))
            for wanted, borne in ((self.tags, revision.tags), (self.entities, revision.entities))
        )

    def units(self, index: Index, windows: Iterable[Summary]) -> Array:
        """Say of each unit of an index whether it may be given.

        ``windows`` are the made summaries of level 1; they are looked at only where ``by_window``.
        """
        import numpy as np

        units = index.units
        found = np.full(len(index), self.level(0))
        if self.span is not None:
            start, stop = (min(place, _END) for place in self.span)
            found &= (units.message >= start) & (units.message < stop)
        if self.since is not None:
            found &= units.at >= (self.since - _EPOCH) // _MICROSECOND
        if self.until is not None:
            found &= units.at < (self.until - _EPOCH) // _MICROSECOND
        if self.threads is not None:
            found &= _among(units.thread, units.threads, self.threads)
        if self.roles is not None:
            found &= _among(units.role, ROLES, self.roles)
        if self.by_window:
            found &= self._in_windows(index, windows)
        return found

    def _in_windows(self, index: Index, windows: Iterable[Summary]) -> Array:
        import numpy as np

        units = index.units
        found = np.zeros(len(index), dtype=bool)
        for window in windows:
            if window.revision is None or window.level != 1 or not self._bears(window.revision):
                continue
            inside = slice(*np.searchsorted(units.message, (window.span.start, window.span.stop)))
            if window.thread in units.threads:
                own = units.thread[inside] == units.threads.index(window.thread)
                found[inside] |= own
        return found


def _among(column: Array, table: Sequence[str], wanted: frozenset[str]) -> Array:
    import numpy as np

    chosen = np.array([name in wanted for name in table], dtype=bool)
    found: Array = chosen[column] if len(column) else np.zeros(0, dtype=bool)
    return found


def read_filters(
    *,
    levels: Any = None,
    span: Any = None,
    since: Any = None,
    until: Any = None,
    threads: Any = None,
    roles: Any = None,
    tags: Any = None,
    entities: Any = None,
) -> Filters:
    """Check what a caller asks for. Raises UsageError, naming the argument."""
    return Filters(
        levels=_levels(levels),
        span=None if span is None else arguments.stretch(span, "span"),
        since=None if since is None else arguments.moment(since, "since"),
        until=None if until is None else arguments.moment(until, "until"),
        threads=None if threads is None else frozenset(_texts(threads, "threads")),
        roles=_roles(roles),
        tags=None if tags is None else frozenset(map(_folded, _texts(tags, "tags"))),
        entities=None
        if entities is None
        else frozenset(map(_folded, _texts(entities, "entities"))),
    )


def _levels(value: Any) -> frozenset[int] | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"levels is {type(value).__name__}; it must be whole numbers, or None")
    return frozenset(arguments.whole(number, "a level in levels") for number in value)


def _roles(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    found = frozenset(_texts(value, "roles"))
    if not found <= frozenset(ROLES):
        raise UsageError(f"roles holds an unknown role; use {', '.join(ROLES)}")
    return found


def _texts(value: Any, what: str) -> tuple[str, ...]:
    """Give the texts of a filter; one text alone is a filter with one value."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a sequence of texts")
    return tuple(check(each, what=f"a value in {what}", cap=_MAX_WORD) for each in value)


def _folded(word: str) -> str:
    return word.strip().casefold()
