"""The contracts of adapters: stores, models, token counters and embedders.

An adapter stores, calls, counts or embeds; it makes no decisions. Each method is documented as the
conditions that an implementation must meet. ``hiermem.testing`` checks them.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from typing_extensions import TypeIs, get_protocol_members

from hiermem import types
from hiermem.errors import UsageError
from hiermem.types import Node, Revision, Role, SessionRecord, StoredMessage, Trust, Unit
from hiermem.types.transaction import (
    Attempt,
    Block,
    Changes,
    Deciding,
    DueSession,
    IndexState,
    KeyEntry,
    LogEvent,
    NodeTally,
    NodeWrite,
    PlacedBlock,
    Record,
    RecordWrite,
    RunRecord,
    Scrubbed,
    SessionNeed,
    SessionOrder,
    Snapshot,
    Spent,
    StoredRow,
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
    "TreeStore",
    "Usage",
    "ViewRecord",
]

T = TypeVar("T")


def offers(value: object, protocol: type[T]) -> TypeIs[T]:
    """Return whether an object has all members of a Protocol, as its own or by ``__getattr__``.

    From Python 3.12 on, ``isinstance`` does not see what a wrapper hands through.
    """
    return not _missing(value, protocol)


def _missing(value: object, protocol: type) -> list[str]:
    """Return the members of a Protocol that an object has not, in the Protocol's order."""
    order = {name: at for at, name in enumerate(vars(protocol))}
    missing = [name for name in get_protocol_members(protocol) if not hasattr(value, name)]
    return sorted(missing, key=lambda name: (order.get(name, len(order)), name))


def refused(value: object, protocol: type, what: str, right: str) -> UsageError:
    """Return the error for an object that is not of a Protocol: what it lacks, and what is right.

    An object with none of its members, or a name alone, is not said to lack the others.
    """
    if isinstance(value, type):
        return UsageError(f"{what} is the class {value.__name__}; pass an object of it")
    missing = _missing(value, protocol)
    others = get_protocol_members(protocol) - {"name", *missing}
    lacks = f" and lacks {', '.join(missing)}" if missing and others else ""
    return UsageError(f"{what} is {type(value).__name__}{lacks}; it must {right}")


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens, exactly or too many; the same text always has the same count."""

    @property
    def name(self) -> str:
        """Return the identity that is stored with a session; another name means other counts."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of ``text``, never interpreting a part of it as a special token."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; texts of similar meaning get similar directions.

    The same text and kind always give the same vector. If another model, or another version of it,
    gives other vectors, its ``name`` must differ: vectors of two names are never compared. An
    embedder may have a ``weight``, the weight of its cosines beside the words (1.0 by default), and
    a ``disconnect()``, as an LLM may.
    """

    @property
    def name(self) -> str:
        """Return the identity that is stored with the vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Return the number of components of a vector."""
        ...

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["query", "passage"]
    ) -> Sequence[Sequence[float]]:
        """Return one vector per text, in order: a sequence of sequences, or a 2-d array.

        ``kind`` says whether the texts are queries or searched passages, for models that treat them
        differently. Every number is finite, and no vector is all zeros. Vectors need no unit
        length.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a rendered model request."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SourceText:
    """One input of a request, as data: a message (or slice of one), or a summary below.

    ``index`` is the message's, None for a summary. ``units`` are the selected units if the text is
    an extract, and () if it must be split again. ``date`` is the rendered day or "".
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
    """A request to a model.

    ``messages`` is the rendered prompt. ``inputs`` is the data it was rendered from, for models
    that work on the data itself; with the task ``consolidate`` these are the notes, and ``bank``
    holds them with the rules and the files. ``target_tokens`` is the requested length and
    ``max_tokens`` the hard limit of the answer, both as ``counter`` counts. ``schema`` is a JSON
    schema or None. ``patience`` is how many times longer than usual the call may take: it is above
    1 where the model did not answer in time before.
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
    bank: types.BankText | None = None
    patience: float = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a provider reports; None if it reports none."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


Finish: TypeAlias = Literal["stop", "length", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """A model's answer. ``units`` are the selected units if the text is an extract."""

    text: str
    usage: Usage = Usage()
    finish_reason: Finish = "stop"
    model: str = ""
    units: tuple[Unit, ...] = ()


@runtime_checkable
class LLM(Protocol):
    """A language model, or anything that answers like one.

    A model may have ``prices``, a ``hiermem.Prices`` or None; with prices, each journalled call has
    a cost. It may have ``overhead_tokens``: the tokens that a call may use besides prompt and
    answer, such as reasoning tokens; they are reserved for every call. ``local_server`` may be True
    for a server on this machine: where the policy sets neither, it gets one call at a time, and 600
    seconds for each. It may have an asynchronous ``connect()``: a run calls it before it begins,
    and it raises ConfigError where the model cannot be asked, without a key for example. It may
    have an asynchronous ``disconnect()``: closing a memory calls it to close the connections of its
    event loop. The model must stay usable afterwards, because others may share it.
    """

    @property
    def name(self) -> str:
        """Return the identity of the model; it is part of every summary's strategy hash."""
        ...

    @property
    def context_window(self) -> int | None:
        """Return the model's window in tokens; None if it is unknown or unlimited."""
        ...

    @property
    def remote(self) -> bool:
        """Return whether a call may cost money or time elsewhere.

        Such calls are made under a claim, journalled beforehand and rate-limited.
        """
        ...

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer ``request``.

        Raises ModelError of kind "transient" if the same call may succeed later, and of another
        kind if it will not. Must be safe to cancel and to call concurrently.
        """
        ...


#: A model, its name such as "openai:gpt-5-mini", or a function that answers a request with text.
ModelLike: TypeAlias = (
    LLM | str | Callable[[LLMRequest], str | LLMResponse | Awaitable[str | LLMResponse]]
)


@runtime_checkable
class TreeStore(Protocol):
    """One tree of summaries of one session, as ``TenantStore.tree`` returns it.

    Its methods keep the rules of TenantStore. A tree without nodes, and every tree of a session
    that does not exist, reads as empty.
    """

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the nodes with these ids that exist, in the order of ``ids``."""
        ...

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        ...

    async def levels(self) -> dict[int, int]:
        """Return the number of nodes of each level that has any."""
        ...

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the level-1 nodes of ``thread`` whose span holds the message, by ordinal.

        The cost is proportional to the result, not to the session. The spans of a thread's windows
        follow one another; none lies within an earlier one.
        """
        ...

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` nodes of ``level`` that an update may have to make, by ordinal.

        These are those with ``ordinal > after`` that are not active, or are degraded or
        dirty. The cost is proportional to the result, not to the session.
        """
        ...

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return up to ``limit`` nodes of ``level`` made in none of these ways, by ordinal.

        These are the nodes with ``ordinal > after`` whose serving revision's ``strategy`` is not
        among ``strategies``. A node without a text is not outdated. The cost may be proportional to
        the level.
        """
        ...

    async def tally(self) -> list[NodeTally]:
        """Add up the nodes by level, then status."""
        ...

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the revisions with these (node id, number) that exist, in the order wanted."""
        ...

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        claim: DueSession | None = None,
    ) -> list[bool] | None:
        """Apply each write whose expectations hold; return for each, in order, whether it did.

        ``attempts`` are recorded (inserted, or replaced by id) in the same transaction in any case.
        With ``claim``, all of this is done only while that is the session's claim, whether or not
        its time is over; otherwise nothing is written and None is returned.
        """
        ...


@runtime_checkable
class TenantStore(Protocol):
    """One tenant's part of a store. Nothing here can reach another tenant's rows.

    Every write is one atomic, durable transaction: when the call returns, it survives a crash;
    when it raises, nothing of it is visible (unless the error's ``committed`` is None). Reads see
    all that was committed before they began. Lists come in the order stated. Returned values are
    frozen or fresh: changing them changes nothing stored. Two names are equal only if they are the
    same string, code point by code point.

    A session has one tree of summaries in use, whose number its record names, and sometimes another
    that is being built; ``tree`` returns a handle of one of them.

    Every operation that removes content raises the session's ``epoch``. A write computed from reads
    of an earlier epoch must not take effect: methods that take ``epoch`` (or ``epochs``, by session
    id) write nothing and return False if it is no longer the session's, or the session is gone.
    """

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        ...

    async def secret(self) -> bytes:
        """Return the store's secret: 32 random bytes, made once, the same for every tenant."""
        ...

    async def now(self) -> datetime:
        """Return the time of the store, timezone-aware; claims are made and judged by it.

        It is the same for all who share the store, whatever their own clocks show. A store in the
        process of its callers answers with the clock that it was given.
        """
        ...

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Return the session's record, or None."""
        ...

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        metadata: Mapping[str, str] | None = None,
        order_by: SessionOrder = "created",
    ) -> list[SessionRecord]:
        """Return up to ``limit`` sessions: in the order of their creation, or the latest first.

        With ``metadata``, these are the sessions whose ``labels`` hold all of these pairs. With
        ``order_by="last_activity"`` the latest activity comes first, and of two at the same time
        the session created later. The list begins after the session ``after``, wherever that stands
        now, or with the first session if ``after`` is None or gone. So a session that is created
        meanwhile moves no page in the order of creation. The cost is proportional to the result; a
        list by last activity that is filtered may cost in proportion to the sessions that match.
        """
        ...

    async def count_sessions(self, *, metadata: Mapping[str, str] | None = None) -> int:
        """Return the number of sessions, or of those whose ``labels`` hold all of ``metadata``.

        No record is read for it.
        """
        ...

    async def forks(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions that were forked from this one, in the order of their creation.

        The cost is proportional to the result, not to the tenant's data.
        """
        ...

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` with it and commit its changes, atomically.

        ``decide`` is synchronous and pure. If the snapshot may have changed since it was read, the
        store reads it again and calls ``decide`` again. Only the last call counts: its changes are
        written and its result returned, or its error is raised unchanged and nothing is written. No
        other write to this session happens between its snapshot and the commit, also where the
        session does not exist yet. Several mutations may share one commit if each is atomic by
        itself.
        """
        ...

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that reads as it goes and commit what it decides, atomically.

        The generator yields a (session id, need) and is sent the answer, or a tuple of such pairs
        and is sent the tuple of their answers, in the same order. It is pure, it does not wait, and
        it may be run again, like the decision of ``mutate``; a run that is given up is closed. Only
        the last run counts, and only if every answer that it was given still holds when its changes
        are committed, or when it raises. Sessions that do not exist count as answers too. Other
        writes may be committed meanwhile.
        """
        ...

    async def read(self, needs: Sequence[SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state of the store.

        Each is answered as in a decision of ``transact``; nothing is locked. A store on a server
        answers all of them in one round trip.
        """
        ...

    async def erase_all(self) -> int:
        """Remove everything that is kept for this tenant; return the number of sessions."""
        ...

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page: what deleting it would remove.

        With the id "", which no session has, it is everything that belongs to no session: the
        views, records, runs and attempts of other names. All pages show the state when the first
        one was read, whatever is written meanwhile. The rows are those of
        ``hiermem.records.dump_format``:
        JSON values that any store can restore, with all versions, revisions, trees, numbers and the
        store's secret, and without claims. Raises NotFoundError.
        """
        ...

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned, of this store or another, as it was: all of it or nothing.

        A session of version ``replaces`` is replaced in the same moment. For rows that belong to no
        session, any ``replaces`` but None replaces all such rows, except the records of kind
        "store-copy", which every store has for itself.

        A store that holds nothing yet takes the secret of the rows over; handles that read the
        secret before must not be used further. Raises ConflictError where the session exists
        in another version or the store holds data under another secret, and UsageError where
        the rows are incomplete, of another tenant, or contradict what is stored.
        """
        ...

    async def scrub(self) -> Scrubbed:
        """Remove deleted content from the store's bytes and from the backups that it made.

        If that is impossible now, because another process has the store open, the result says so;
        nothing is raised.
        """
        ...

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
        ...

    async def versions(self, session_id: str, index: int) -> list[StoredMessage]:
        """Return the versions of the message before its edits, oldest first; [] if never edited.

        An erased message has no versions.
        """
        ...

    async def flagged(self, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
        """Return up to ``limit`` messages that have ``flag``, the newest first.

        The cost is proportional to the messages that have any flag, not to the session.
        """
        ...

    async def events(self, session_id: str) -> list[LogEvent]:
        """Return the log's events that are not messages, in the order they were written."""
        ...

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> TreeStore:
        """Return the handle bound to one of the session's trees; does no I/O.

        If ``number`` is None, it is the tree in use, looked up at each call of the handle. Neither
        the session nor the tree has to exist.
        """
        ...

    async def take_due(
        self, session_id: str, *, lease: float, held: DueSession | None = None
    ) -> DueSession | None:
        """Claim the session for ``lease`` seconds, due or not, unless another claim holds.

        Where the session has no entry in the list of what is due, it gets one. With ``held``, that
        claim is renewed for ``lease`` seconds from now, if nobody took the session over. Returns
        None, changing nothing, where another claim holds, and where the session does not exist.
        """
        ...

    async def put_due(self, session_ids: Sequence[str]) -> None:
        """Make those of these sessions due now that have no entry; others stay as they are."""
        ...

    async def settle_due(self, claimed: DueSession, *, at: datetime | None = None) -> bool:
        """End a claim: remove the session's entry, or set its next time; return whether.

        If something became due under the claim, the session is due at once. The entry stays as it
        is, and False is returned, if that is no longer the session's claim.
        """
        ...

    async def reusable(self, input_hash: str) -> Revision | None:
        """Return the tenant's newest revision with that input hash, not degraded, or None."""
        ...

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """Return the run of that id, or None."""
        ...

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Return the newest runs first, of one subject if given."""
        ...

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Return the journalled attempts in the order they started, filtered if requested."""
        ...

    async def spent(self, session_id: str | None = None) -> Spent:
        """Add up the journalled attempts of one session, or of the tenant."""
        ...

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Return the stored view, or None."""
        ...

    async def put_view(self, view: ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert the view, or replace the one of the same session and name; return whether."""
        ...

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Return up to ``limit`` records of ``kind``, of one scope or one key if given.

        They come by scope, then key, each compared code point by code point. The cost of a query
        that names the scope or the key is proportional to the result, not to the tenant's data.
        """
        ...

    async def put_records(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[Record] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Apply all writes, or none if an expectation fails; return whether they were applied.

        Every expectation refers to the state before the call. The records of ``standing`` must be
        stored exactly as given, body and version. ``attempts`` are recorded in the same transaction
        if the writes are applied. Raises UsageError, writing nothing, if two writes
        are of one record or an expected version is below 0.
        """
        ...

    # -- blocks

    async def blocks(
        self, session_id: str, kind: str, start: int = 0, stop: int | None = None
    ) -> list[Block]:
        """Return the blocks of ``kind`` whose own ``start`` is in that range, by ``start``."""
        ...

    async def put_blocks(self, session_id: str, blocks: Sequence[Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace those of the same kind and start; return whether.

        Rewriting a message drops, in the same transaction, the blocks that hold its index.
        """
        ...

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of that kind."""
        ...

    # -- the index over all sessions

    async def index_state(
        self, pages: Sequence[int] = (), *, limit: int | None = 100
    ) -> IndexState:
        """Return the segments with these pages, the loose blocks, and what has no block of terms.

        All of it is of one state of the store. Segments come by number, all of them; loose blocks
        by the creation of their session, then by start, up to ``limit``; unindexed sessions by
        creation, up to ``limit`` too. The cost is proportional to the result, not to the number of
        sessions.
        """
        ...

    async def put_segment(
        self,
        blocks: Sequence[PlacedBlock],
        pages: Mapping[int, bytes],
        *,
        replaces: Sequence[int] = (),
    ) -> bool:
        """Dissolve the segments ``replaces``, and put a segment made of ``blocks``; all or nothing.

        The blocks get the places 0, 1, 2, ... in it. Pages are numbered from 0 to 65,535. Without
        blocks, nothing is put. A segment's number is never used again.

        Returns False, writing nothing, if one of ``replaces`` is gone, or if one of the blocks does
        not stand as given: it has another end or is gone, it is in another segment, or the epoch of
        its session is another.

        A block of terms that is replaced stays in its segment, as a dead one. Rewriting a message,
        or deleting a session, deletes in the same transaction every segment with a block, dead or
        not, that covers it: nothing of what is erased may stay in a page.
        """
        ...

    async def segment_blocks(self, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
        """Return the blocks at these (segment, place) that are not dead, in the order given."""
        ...


@runtime_checkable
class Store(Protocol):
    """A place where tenants' sessions are kept."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities.

        "durable": data survives the process. "shared": several processes may open the store at
        once. "concurrent": while a decision about some sessions runs, writes to other sessions of
        the tenant are committed.
        """
        ...

    def tenant(self, name: str) -> TenantStore:
        """Return the handle bound to tenant ``name``; does no I/O."""
        ...

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, by name.

        Names are compared code point by code point. The list begins after the name ``after``, which
        need not exist. This is for the application that holds the store; nothing that is bound to a
        tenant can reach it.
        """
        ...

    async def claim_due(
        self,
        limit: int,
        *,
        lease: float,
        tenant: str | None = None,
        ahead: float | None = 0.0,
    ) -> list[DueSession]:
        """Claim up to ``limit`` sessions that are due now, the longest due first.

        They are of any tenant, or of ``tenant``. With ``lease`` 0 they are listed and not claimed,
        with those that are due ``ahead`` seconds from now; with those that are due at any time if
        it is None. A session that is claimed is due when its claim ends.

        Every transaction that leaves a session something to make writes its entry, as
        ``hiermem.summaries.due`` decides: by ``due_by_change`` where it changes the record, by
        ``due_by_nodes`` where ``write_nodes`` writes to the tree in use, and at once where the
        session is restored. An entry that is there gets the earlier of both times; a claimed one
        keeps the end of its claim, and ``settle_due`` makes it due. A write under the claim enters
        nothing: its holder settles what is left. An entry goes with its session.

        Every claim gets the next generation; a new entry has one that no earlier entry of the
        session had, also where the session was erased between. No two callers get the same
        session, and none waits for another. The cost is proportional to the result, whatever the
        number of tenants; with ``tenant``, to its entries. Where nothing is due, nothing is
        written. This is for the application that holds the store.
        """
        ...

    async def close(self) -> None:
        """Finish operations in progress and release the resources. May be called twice."""
        ...
