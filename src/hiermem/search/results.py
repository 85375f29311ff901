"""Decides what a search takes and returns: filters, hits and evidence; and its reports.

A hit's ``text`` is verbatim, character for character. If the hit is a part of a long message, its
span has the offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict, overload

from hiermem.types import Role, Span, StoredMessage, Summary
from hiermem.types.brief import Brief


@dataclass(frozen=True, slots=True)
class Hit(Brief):
    """A message, a passage of a long message, or a summary that answers a question.

    ``level`` is 0 for a message. ``score`` is from 0 to 1: that of the best message is the share of
    the question that it holds, each word counted by how rare it is, so a low one says that nobody
    spoke of that; with an embedder it is 1. The others are relative to it. ``found`` are the
    messages that the hit rests on, best first: a message itself, or the messages below a summary
    that answer best. ``message`` or ``summary`` is the whole message or summary that was found.
    ``space`` is the session's, in a search over all sessions.
    """

    _brief = "session_id id role score text"

    session_id: str
    kind: Literal["message", "summary"]
    level: int
    span: Span
    score: float
    text: str
    tokens: int
    time_range: tuple[datetime, datetime]
    thread: str | None
    found: tuple[int, ...] = ()
    message: StoredMessage | None = None
    summary: Summary | None = None
    space: str | None = None

    @property
    def id(self) -> str:
        """Return the summary's id, or a message's name, such as ``m12``."""
        return self.summary.id if self.summary else f"m{self.span.start}"

    def _below(self) -> str:
        return self.text

    @property
    def content(self) -> str:
        """Return the text, or the passage of a long message, under the name it has in a message."""
        return self.text

    @property
    def index(self) -> int | None:
        """Return the message's index, None for a summary."""
        return self.message.index if self.message else None

    @property
    def role(self) -> Role | None:
        """Return the message's role, None for a summary."""
        return self.message.role if self.message else None

    @property
    def created_at(self) -> datetime:
        """Return the message's time, or the latest that the summary covers."""
        return self.time_range[1]


@dataclass(frozen=True, slots=True)
class Evidence(Brief, Sequence[Hit]):
    """Verbatim passages in the order they were said: a sequence of message hits.

    ``text`` is their rendering, with the speakers' names and a date where it changes; it costs
    ``total_tokens``, at most ``max_tokens``. ``session_id`` is None where all sessions of a tenant
    were searched; then each hit has its own, and the headers of ``text`` name it.
    """

    _brief = "session_id total_tokens max_tokens hits"

    session_id: str | None
    max_tokens: int
    total_tokens: int
    text: str
    hits: tuple[Hit, ...] = ()

    @property
    def messages(self) -> tuple[Hit, ...]:
        """Return the passages as hits, each with ``index``, ``content`` and ``span``.

        A message of which several parts are included occurs once for each part.
        """
        return self.hits

    @property
    def sources(self) -> tuple[StoredMessage, ...]:
        """Return the messages of the passages, each once and whole."""
        seen = {
            (hit.session_id, hit.message.index): hit.message for hit in self.hits if hit.message
        }
        return tuple(seen.values())

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __str__(self) -> str:
        return self.text

    def _below(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class EmbeddingReport(Brief):
    """What one embedding pass did.

    ``messages`` and ``summaries`` count those that got vectors now, ``texts`` the passages sent in
    ``requests``, and ``tokens`` their size. ``left`` is how many messages have no vectors yet, and
    ``stopped`` why: "busy" if another pass is working on the session, "closing", or None.
    """

    session_id: str
    run_id: str | None = None
    messages: int = 0
    summaries: int = 0
    texts: int = 0
    requests: int = 0
    tokens: int = 0
    left: int = 0
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class IndexReport(Brief):
    """The result of rebuilding the indexes of a tenant."""

    sessions: int
    messages: int
    passages: int


class RecallFilters(TypedDict, total=False):
    """The filters of a search for messages; each may be omitted or None.

    ``span`` is a range of message indices, start and stop; ``since`` and ``until`` are moments, the
    latter not included. ``tags`` and ``entities`` are those of the summary of a message's window.
    ``semantic_dedup`` (True by default) excludes passages that repeat a better one.
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
