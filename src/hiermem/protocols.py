"""The contracts between the engine and what is plugged into it: stores, models, token counters.

The one rule: an adapter stores, calls or counts; it decides nothing. Each method is documented as
the conditions that an implementer must meet; ``hiermem.testing`` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from hiermem.types import Node, Revision, Role, SessionRecord, StoredMessage, Trust, Unit

__all__ = [
    "LLM",
    "Attempt",
    "Changes",
    "ChatMessage",
    "Finish",
    "KeyEntry",
    "LLMRequest",
    "LLMResponse",
    "LogEvent",
    "NodeWrite",
    "Record",
    "RecordWrite",
    "RunRecord",
    "Snapshot",
    "SourceText",
    "Store",
    "TenantStore",
    "TokenCounter",
    "Usage",
    "ViewRecord",
]

T = TypeVar("T")


# ---------------------------------------------------------------------------------------------
# Token counters


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens, exactly or erring upward; the same text always gives the same count."""

    @property
    def name(self) -> str:
        """Give the identity that is stored with a session; another name means other counts."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of ``text``, never reading any of it as a special token."""
        ...


# ---------------------------------------------------------------------------------------------
# Models


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a rendered model request."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class SourceText:
    """One input of a request, as data: a message (or slice of one), or a summary below.

    ``index`` is the message's, None for a summary. ``units`` are the kept units where the text was
    extracted, () where it must be split afresh. ``date`` is the rendered day or "".
    """

    index: int | None
    role: Role
    speaker: str
    date: str
    text: str
    trust: Trust = "conversation"
    units: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """What a model is asked.

    ``messages`` is the rendered prompt; ``inputs`` is what it was rendered from, for models that
    work on the data itself. ``target_tokens`` is the length asked for, ``max_tokens`` the hard
    limit of the answer, both as ``counter`` counts. ``schema`` is a JSON schema or None.
    """

    task: Literal["summarise", "consolidate", "extract"]
    messages: tuple[ChatMessage, ...]
    inputs: tuple[SourceText, ...]
    target_tokens: int
    max_tokens: int
    counter: TokenCounter
    level: int = 1
    style: str = ""
    temperature: float = 0.3
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a provider reports, None where it reports none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


Finish: TypeAlias = Literal["stop", "length", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """What a model answered. ``units`` are the kept units where the text was extracted."""

    text: str
    usage: Usage = Usage()
    finish_reason: Finish = "stop"
    model: str = ""
    units: tuple[Unit, ...] = ()


@runtime_checkable
class LLM(Protocol):
    """A language model, or anything that answers like one."""

    @property
    def name(self) -> str:
        """Give the identity of the model; it is part of every summary's strategy hash."""
        ...

    @property
    def context_window(self) -> int | None:
        """Give the model's window in tokens, or None where it is unknown or unlimited."""
        ...

    @property
    def remote(self) -> bool:
        """Say whether a call may cost money or time elsewhere: such calls are leased and paced."""
        ...

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer ``request``.

        Raises TransientModelError where the same call may succeed later and PermanentModelError
        (or a subclass) where it will not. Must be safe to cancel and to call concurrently.
        """
        ...


# ---------------------------------------------------------------------------------------------
# Stores


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """What a store remembers of a message key. ``fingerprint`` is None once it was erased."""

    index: int
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a write decides on: the session's record and the asked-for keys that exist."""

    session: SessionRecord | None
    keys: Mapping[str, KeyEntry]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event of a session's log that is not a message: it took place before message ``at``."""

    kind: Literal["flush", "close", "reopen", "tick", "reconfigure"]
    at: int
    when: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """The effects of one decision, committed together or not at all.

    ``session`` replaces (or creates) the record; its ``version`` must be one above the snapshot's.
    ``messages`` are appended; ``keys`` are the (key, entry) pairs they claim. ``flags`` adds a flag
    to messages by index. ``nodes`` are inserted, or replace the node of the same id. ``parents``
    sets the parent of nodes by id. ``drop`` removes nodes (provisional ones) and their revisions.
    Where ``session`` is None nothing is written at all. A store refuses changes that contradict
    what it holds (an index or version that is not the next, a key that is taken, a flag or parent
    for something missing) with UsageError. Setting a parent raises the node's version.
    """

    result: T
    session: SessionRecord | None = None
    messages: tuple[StoredMessage, ...] = ()
    keys: tuple[tuple[str, KeyEntry], ...] = ()
    flags: tuple[tuple[int, str], ...] = ()
    nodes: tuple[Node, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    events: tuple[LogEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One compare-and-swap on a node: applied only where its stored version is ``expected``.

    ``node`` is written whole, with ``version == expected + 1``; ``revision`` is inserted where
    given (its number is the node's new ``revision``). ``inputs`` are (node id, revision number)
    pairs that must still be what serves, for the write to count.
    """

    node: Node
    expected: int
    revision: Revision | None = None
    inputs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One journalled model call, written before the call and again after it.

    One that was started and never ended was cut off; it is reported as ``unknown``.
    """

    id: str
    run_id: str
    session_id: str
    node_id: str
    number: int
    model: str
    started_at: datetime
    outcome: Literal["started", "ok", "rejected", "error", "unknown"] = "started"
    reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One journalled execution. ``outcome`` is "running" until it ends."""

    id: str
    kind: Literal["update", "consolidation", "extraction", "embedding", "erasure"]
    subject: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Literal["running", "ok", "partial", "error", "interrupted"] = "running"
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """The sticky state of one selection: what it showed, under (session, view name)."""

    session_id: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Record:
    """A small document of a tenant, for what is neither message nor node: extractions, notes.

    It is known by (kind, scope, key); ``scope`` is what it belongs to, such as a session's id.
    ``body`` is a text that the store does not look into. ``version`` is 1 when it is new and one
    more at every write; it begins again at 1 after the record was deleted.
    """

    kind: str
    scope: str
    key: str
    body: str
    version: int


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One write of a record: insert or replace it by ``body``, or delete it where that is None.

    ``expected`` is the version that must be stored for the write to count, 0 for no record; None
    writes whatever is there. Deleting what does not exist changes nothing.
    """

    kind: str
    scope: str
    key: str
    body: str | None
    expected: int | None = None


@runtime_checkable
class TenantStore(Protocol):
    """One tenant's part of a store. Nothing here can reach another tenant's rows.

    Every write is one atomic, durable transaction: when the call returns, it survives a crash;
    when it raises, nothing of it is visible (unless the error's ``committed`` is None). Reads see
    all that was committed before they began. Lists come in the order stated. Returned values are
    frozen or fresh: changing them changes nothing stored. Two names are equal only if they are the
    same string, code point by code point.
    """

    @property
    def tenant(self) -> str:
        """Give the tenant's name."""
        ...

    async def secret(self) -> bytes:
        """Give the store's secret: 32 random bytes, made once, the same for every tenant."""
        ...

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Give the session's record, or None."""
        ...

    async def sessions(self) -> list[SessionRecord]:
        """Give all sessions, in the order of their creation."""
        ...

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` once with it and commit its changes, atomically.

        No other write to this session happens between the read and the commit. ``decide`` is
        synchronous and pure; what it raises is re-raised here and nothing is written. Several
        calls may share one commit, so long as each is atomic by itself.
        """
        ...

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Give the messages with ``start <= index < stop``, of ``thread`` where given, by index."""
        ...

    async def events(self, session_id: str) -> list[LogEvent]:
        """Give the log's events that are not messages, in the order they were written."""
        ...

    # -- nodes and revisions

    async def nodes(self, session_id: str, ids: Sequence[str]) -> list[Node]:
        """Give the nodes with these ids that exist, in the order of ``ids``."""
        ...

    async def level(
        self, session_id: str, level: int, start: int, stop: int | None = None
    ) -> list[Node]:
        """Give the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        ...

    async def levels(self, session_id: str) -> dict[int, int]:
        """Give the number of sealed nodes of each level that has any."""
        ...

    async def provisional(self, session_id: str) -> list[Node]:
        """Give the nodes that are not sealed, by level, then id."""
        ...

    async def unfinished(self, session_id: str, level: int, after: int, limit: int) -> list[Node]:
        """Give up to ``limit`` nodes of ``level`` that an update may have to make, by ordinal.

        These are the sealed ones with ``ordinal > after`` that are not active, or are degraded or
        dirty. It costs what it returns, not what the session holds.
        """
        ...

    async def revisions(self, session_id: str, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Give the revisions with these (node id, number) that exist, in the order wanted."""
        ...

    async def reusable(self, input_hash: str) -> Revision | None:
        """Give the newest revision of this tenant, not degraded, with that input hash, or None."""
        ...

    async def write_nodes(
        self,
        session_id: str,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold and tell, in order, which did.

        ``attempts`` are recorded (inserted, or replaced by id) in the same transaction in any case.
        """
        ...

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        ...

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give the newest runs first, of one subject where given."""
        ...

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Give the journalled attempts in the order they started, filtered where asked."""
        ...

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Give the stored view, or None."""
        ...

    async def put_view(self, view: ViewRecord) -> None:
        """Insert the view, or replace the one of the same session and name."""
        ...

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Give up to ``limit`` records of ``kind``, of one scope or one key where given.

        They come by scope, then key, each compared code point by code point. A query that names the
        scope or the key costs what it returns, not what the tenant holds.
        """
        ...

    async def put_records(self, writes: Sequence[RecordWrite]) -> bool:
        """Apply all of the writes, or none where an expectation fails; say which.

        Every expectation is about what was stored before the call. Raises UsageError, writing
        nothing, where two writes are of one record or an expected version is below 0.
        """
        ...


@runtime_checkable
class Store(Protocol):
    """A place where tenants' sessions are kept."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities.

        "durable": what is written survives the process. "shared": several processes may open it at
        once.
        """
        ...

    def tenant(self, name: str) -> TenantStore:
        """Give the handle bound to tenant ``name``; does no I/O."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the resources. Calling it twice is harmless."""
        ...
