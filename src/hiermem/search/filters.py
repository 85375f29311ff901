"""Decides which messages and summaries a search may return.

A filter only excludes and never changes a score. Within one filter any of its values is enough;
several filters must all be met. A message has the tags and entities of the summary of its window. A
summary never meets a filter on something that only messages have, such as a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict

from hiermem import arguments
from hiermem.errors import UsageError
from hiermem.text.policy import check
from hiermem.types import ROLES, Node, Revision, Role

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_WORD: Final = 512


@dataclass(frozen=True, slots=True)
class Filters:
    """What may be returned. None allows everything; times are ``since <= at < until``.

    ``dedup``: exclude what repeats something better.
    """

    levels: frozenset[int] | None = None
    span: tuple[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    threads: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    entities: frozenset[str] | None = None
    dedup: bool = True

    @property
    def by_window(self) -> bool:
        """Return whether messages are filtered by the labels of the summary of their window."""
        return self.tags is not None or self.entities is not None

    @property
    def between(self) -> tuple[int | None, int | None]:
        """Return ``since`` and ``until`` in microseconds since 1970."""
        since, until = (
            None if at is None else (at - _EPOCH) // _MICROSECOND for at in (self.since, self.until)
        )
        return since, until

    def level(self, number: int) -> bool:
        """Return whether anything of that level may be returned; 0 is messages."""
        return self.levels is None or number in self.levels

    def summary(self, node: Node, revision: Revision | None) -> bool:
        """Return whether a summary may be returned: it covers something that the filters allow.

        ``revision`` matters only if ``by_window`` is true.
        """
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
        return not self.by_window or (revision is not None and self.bears(revision))

    def bears(self, revision: Revision) -> bool:
        """Return whether a summary's text has the labels that are asked for."""
        return all(
            wanted is None or not wanted.isdisjoint(map(_folded, borne))
            for wanted, borne in ((self.tags, revision.tags), (self.entities, revision.entities))
        )


class RecallFilters(TypedDict, total=False):
    """The filters of a search for messages; each may be left out, or be None.

    ``span`` is a range of message indices, start and stop; ``since`` and ``until`` are moments, the
    latter not included. ``tags`` and ``entities`` are those of the summary of a message's window.
    ``semantic_dedup`` (True by default) excludes what repeats something better.
    """

    span: tuple[int, int] | None
    since: datetime | None
    until: datetime | None
    threads: Iterable[str] | None
    roles: Iterable[Role] | None
    tags: Iterable[str] | None
    entities: Iterable[str] | None
    semantic_dedup: bool


class SearchFilters(RecallFilters, total=False):
    """The filters of a search for messages and summaries.

    They add ``levels``, the numbers of levels (0 for messages), to RecallFilters.
    """

    levels: Iterable[int] | None


class TenantFilters(TypedDict, total=False):
    """The filters of a search over all sessions of a tenant; see RecallFilters.

    ``entities`` selects the messages that name one of them in their text.
    """

    since: datetime | None
    until: datetime | None
    threads: Iterable[str] | None
    roles: Iterable[Role] | None
    entities: Iterable[str] | None
    semantic_dedup: bool


def read_filters(given: Mapping[str, Any], *, known: type = SearchFilters) -> Filters:
    """Check the filters of a call, which are those of the TypedDict ``known``.

    Raises UsageError, naming the argument, also for an unknown one.
    """
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise UsageError(f"there is no filter {name!r}; use {', '.join(sorted(names))}")
    found: dict[str, Any] = {name: given.get(name) for name in names}
    found["dedup"] = arguments.switch(given.get("semantic_dedup", True), "semantic_dedup")
    del found["semantic_dedup"]
    for name, read in _READERS.items():
        if found.get(name) is not None:
            found[name] = read(found[name])
    return Filters(**found)


def _levels(value: Any) -> frozenset[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"levels is {type(value).__name__}; it must be whole numbers, or None")
    return frozenset(arguments.whole(number, "a level in levels") for number in value)


def _roles(value: Any) -> frozenset[str]:
    found = frozenset(_texts(value, "roles"))
    if not found <= frozenset(ROLES):
        raise UsageError(f"roles holds an unknown role; use {', '.join(ROLES)}")
    return found


def _texts(value: Any, what: str) -> tuple[str, ...]:
    """Return the texts of a filter; a single text is a filter with one value."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a sequence of texts")
    return tuple(check(each, what=f"a value in {what}", cap=_MAX_WORD) for each in value)


def _folded(word: str) -> str:
    return word.strip().casefold()


def _labels(what: str) -> Callable[[Any], frozenset[str]]:
    return lambda value: frozenset(map(_folded, _texts(value, what)))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "levels": _levels,
    "span": lambda value: arguments.stretch(value, "span"),
    "since": lambda value: arguments.moment(value, "since"),
    "until": lambda value: arguments.moment(value, "until"),
    "threads": lambda value: frozenset(_texts(value, "threads")),
    "roles": _roles,
    "tags": _labels("tags"),
    "entities": _labels("entities"),
}
