"""The contracts between the engine and what is plugged into it: stores, models, token counters.

The one rule: an adapter stores, calls or counts; it decides nothing. Each method is documented as
the conditions that an implementer must meet; ``hiermem.testing`` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from hiermem.types import Node, Revision, Role, SessionRecord, StoredMessage, Trust, Unit
from hiermem.types.bank import BankText
from hiermem.types.transaction import (
    Attempt,
    Block,
    Changes,
    Deciding,
    KeyEntry,
    LogEvent,
    NodeTally,
    NodeWrite,
    Record,
    RecordWrite,
    RunRecord,
    Scrubbed,
    Snapshot,
    Spent,
    ViewRecord,
)

__all__ = [
    "LLM",
    "Attempt",
    "Changes",
    "ChatMessage",
    "Embedder",
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
    """Counts tokens, exactly or erring upward; the same text always gives the same count.

    A model may count otherwise. How far is learnt from what it reports, and kept for each model
    object beside the counter, unless that is a ``CalibratedCounter``, which keeps it itself.
    """

    @property
    def name(self) -> str:
        """Give the identity that is stored with a session; another name means other counts."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of ``text``, never reading any of it as a special token."""
        ...


# ---------------------------------------------------------------------------------------------
# Embedders


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; texts of near meaning get near directions.

    The same text and kind always give the same vector. Where another model, or another version of
    it, gives other vectors, the ``name`` must be another too: vectors of two names are never
    compared. An embedder may have a ``weight``: what its cosines count for in ranking beside the
    words, 1.0 where it has none; and a ``disconnect()``, as an LLM may.
    """

    @property
    def name(self) -> str:
        """Give the identity that is stored with the vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Give how many numbers a vector has."""
        ...

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"]
    ) -> Sequence[Sequence[float]]:
        """Give one vector a text, in their order: a sequence of sequences, or a 2-d array.

        ``kind`` says whether the texts are questions or what is searched, for models that tell
        them apart. Every number is finite, and no vector is all zeros. Their length is free.
        """
        ...


# ---------------------------------------------------------------------------------------------
# Models


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a rendered model request."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
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
    work on the data itself; in a ``consolidate`` these are the notes, and ``bank`` holds them with
    the rules and the files. ``target_tokens`` is the length asked for, ``max_tokens`` the hard
    limit of the answer, both as ``counter`` counts. ``schema`` is a JSON schema or None. ``margin``
    is how many of the provider's own tokens one of the counter's may be, as far as is known: what
    the provider is told, or its window compared with, is a count times the margin.
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
    bank: BankText | None = None
    margin: float = 1.0


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
    """A language model, or anything that answers like one.

    A model may have ``prices``, a ``hiermem.Prices`` or None: then each journalled call has a cost.
    It may have ``overhead_tokens``: how many tokens a call may take besides the prompt and the
    answer, such as those of reasoning; they are set aside with every call. It may have an
    asynchronous ``disconnect()``: a memory that is closed calls it, so that the connections of its
    event loop are closed; the model must stay usable, for others may share it.
    """

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


@runtime_checkable
class TenantStore(Protocol):
    """One tenant's part of a store. Nothing here can reach another tenant's rows.

    Every write is one atomic, durable transaction: when the call returns, it survives a crash;
    when it raises, nothing of it is visible (unless the error's ``committed`` is None). Reads see
    all that was committed before they began. Lists come in the order stated. Returned values are
    frozen or fresh: changing them changes nothing stored. Two names are equal only if they are the
    same string, code point by code point.

    A session has one tree of summaries that serves, whose number its record names, and at times
    another that is being built. Methods that take ``tree`` mean the serving one where it is None.

    A session's ``epoch`` is raised by whatever takes content back. A write that was worked out from
    reads of an earlier epoch must not land: those that take ``epoch`` (or ``epochs``, by session
    id) write nothing and give False where it is no longer the session's, or the session is gone.
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

    async def forks(self, session_id: str) -> list[SessionRecord]:
        """Give the sessions that were forked from this one, in the order of their creation.

        It costs what it returns, not what the tenant holds.
        """
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

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that reads as it goes and commit what it decides, atomically.

        ``decide`` is called once, inside the transaction; what the generator yields is answered
        from the state that its changes will be made on, and no other write to this tenant happens
        in between. It neither waits nor does I/O; what it raises is re-raised here and nothing is
        written.
        """
        ...

    async def erase_all(self) -> int:
        """Remove everything that is kept for this tenant; give the number of sessions."""
        ...

    async def scrub(self) -> Scrubbed:
        """Take what was removed out of the store's bytes too, and out of the backups it made.

        What cannot be done now, because somebody else has the store open, is said, not raised.
        """
        ...

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Give the messages with ``start <= index < stop``, of ``thread`` where given, by index."""
        ...

    async def versions(self, session_id: str, index: int) -> list[StoredMessage]:
        """Give what the message was before its edits, oldest first; [] where it was never edited.

        Nothing is left of one that was erased.
        """
        ...

    async def events(self, session_id: str) -> list[LogEvent]:
        """Give the log's events that are not messages, in the order they were written."""
        ...

    # -- nodes and revisions

    async def nodes(
        self, session_id: str, ids: Sequence[str], *, tree: int | None = None
    ) -> list[Node]:
        """Give the nodes with these ids that exist, in the order of ``ids``."""
        ...

    async def level(
        self,
        session_id: str,
        level: int,
        start: int,
        stop: int | None = None,
        *,
        tree: int | None = None,
    ) -> list[Node]:
        """Give the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        ...

    async def levels(self, session_id: str, *, tree: int | None = None) -> dict[int, int]:
        """Give the number of sealed nodes of each level that has any."""
        ...

    async def covering(
        self, session_id: str, thread: str, index: int, *, tree: int | None = None
    ) -> list[Node]:
        """Give the sealed level-1 nodes of ``thread`` whose span holds the message, by ordinal.

        It costs what it returns, not what the session holds. The spans of a thread's windows may be
        relied on to follow one another; none lies within an earlier one.
        """
        ...

    async def provisional(self, session_id: str, *, tree: int | None = None) -> list[Node]:
        """Give the nodes that are not sealed, by level, then id."""
        ...

    async def unfinished(
        self,
        session_id: str,
        level: int,
        after: int,
        limit: int,
        *,
        tree: int | None = None,
    ) -> list[Node]:
        """Give up to ``limit`` nodes of ``level`` that an update may have to make, by ordinal.

        These are the sealed ones with ``ordinal > after`` that are not active, or are degraded or
        dirty. It costs what it returns, not what the session holds.
        """
        ...

    async def outdated(
        self, session_id: str, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Give up to ``limit`` sealed nodes of ``level`` made in none of these ways, by ordinal.

        These are the ones with ``ordinal > after`` whose serving revision's ``strategy`` is not
        among ``strategies``; one that says nothing yet is not outdated. It may cost what the level
        holds.
        """
        ...

    async def backlog(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Give up to ``limit`` ids of sessions with unfinished nodes in the tree that serves.

        They come in the order of the sessions' creation, those after the session ``after`` where it
        is given, from the first again where that one is gone. It costs what it returns, not what
        the tenant holds.
        """
        ...

    async def tally(self, session_id: str, *, tree: int | None = None) -> list[NodeTally]:
        """Add up the sealed nodes by level, then status."""
        ...

    async def revisions(
        self, session_id: str, wanted: Sequence[tuple[str, int]], *, tree: int | None = None
    ) -> list[Revision]:
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
        tree: int | None = None,
    ) -> list[bool]:
        """Apply each write whose expectations hold and tell, in order, which did.

        ``attempts`` are recorded (inserted, or replaced by id) in the same transaction in any case.
        """
        ...

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """Give the run of that id, or None."""
        ...

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give the newest runs first, of one subject where given."""
        ...

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Give the journalled attempts in the order they started, filtered where asked."""
        ...

    async def spent(self, session_id: str | None = None) -> Spent:
        """Add up the journalled attempts of one session, or of the tenant."""
        ...

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Give the stored view, or None."""
        ...

    async def put_view(self, view: ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert the view, or replace the one of the same session and name; say whether."""
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

    async def put_records(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[Record] = (),
    ) -> bool:
        """Apply all of the writes, or none where an expectation fails; say which.

        Every expectation is about what was stored before the call. The records of ``standing``
        must be stored just as they are given, body and version. Raises UsageError, writing
        nothing, where two writes are of one record or an expected version is below 0.
        """
        ...

    # -- blocks

    async def blocks(
        self, session_id: str, kind: str, start: int = 0, stop: int | None = None
    ) -> list[Block]:
        """Give the blocks of ``kind`` whose own ``start`` is in that range, by ``start``."""
        ...

    async def put_blocks(self, session_id: str, blocks: Sequence[Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace those of the same kind and start; say whether.

        Rewriting a message drops, in the same transaction, the blocks that hold its index.
        """
        ...

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of that kind."""
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
