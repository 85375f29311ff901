"""The values between a decision and a store: what is read, what is written, what is journalled.

All of them are frozen. A value states the result of a write, never how to do it; a store makes it
so, atomically, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeAlias, TypeVar

from hiermem.types import Node, Revision, SessionRecord, Status, StoredMessage
from hiermem.types.brief import Brief

T = TypeVar("T")
#: The order of a list of sessions: as they were created, or the one last appended to first.
SessionOrder: TypeAlias = Literal["created", "last_activity"]
#: The kind of the blocks that hold the terms of messages. No two of one session overlap,
#: and all that they cover exists. A search over all sessions of a tenant reads them, and segments
#: are made of them alone.
TERMS: Final = "terms"
#: The id under which a dump holds what belongs to no session: spaces, and a journal that outlived
#: its session. No session has it.
NO_SESSION: Final = ""
#: One row of a dump: JSON values, which any store can read (``hiermem.records.dump_format``).
StoredRow: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """The stored entry of a message key. ``fingerprint`` is None once the message was erased."""

    index: int
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The basis of a write: the session's record, and those of the requested keys that exist."""

    session: SessionRecord | None
    keys: Mapping[str, KeyEntry]


@dataclass(frozen=True, slots=True)
class LogEvent(Brief):
    """An event of a session's log that is not a message: it took place before message ``at``.

    ``detail`` is the time of a tick, or JSON: the ranges of messages of an edit, an erasure or a
    quarantine, the configurations of a reconfiguration or a re-pack. It never holds text of a
    message.
    """

    kind: Literal[
        "flush", "close", "reopen", "tick", "reconfigure", "edit", "erase", "quarantine", "repack"
    ]
    at: int
    when: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The replacement of a stored message by ``message``, which has the same index.

    With "edit", the message before stays readable as an earlier version. With "erase" it goes, and
    every earlier version with it; the message's key, if it has one, stays reserved without a
    fingerprint. "mark" changes state, flags or measures only and touches no version. In each case
    the blocks over the index are dropped.
    """

    message: StoredMessage
    kind: Literal["edit", "erase", "mark"]


@dataclass(frozen=True, slots=True)
class Copy:
    """What a new session copies from ``source``: its first ``stop`` messages, and texts.

    The messages come with their earlier versions and their keys. ``revisions`` are (node id,
    number) pairs of the source's serving tree; each is copied under the same name.
    """

    source: str
    stop: int
    revisions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Changes(Generic[T]):
    """The effects of one decision on one session, committed together or not at all.

    They are applied in the order of the fields. ``session`` replaces (or creates) the record; its
    ``version`` must be one above the stored one. ``copy`` fills a new session. ``messages`` are
    appended; ``keys`` are the (key, entry) pairs they claim. ``flags`` adds a flag to messages by
    index. ``rewrites`` replace existing messages. ``drop_tree`` removes all nodes and revisions of
    one tree. ``forget`` removes all revisions of nodes,
    which stay. ``nodes`` are inserted, or replace the node of the same id. ``parents`` sets the
    parent of nodes by id and raises their version. ``forget``, ``nodes`` and ``parents``,
    and the texts of ``copy``, belong to the tree numbered ``tree``; None is the one that
    ``session`` names. ``drop_views`` are names of views, ``drop_records`` the (kind, key) of
    records whose scope is the session.

    If ``session`` is None, nothing is written at all. A store refuses changes that contradict its
    content (an index or version that is not the next, a taken key, a flag, rewrite or parent for
    something missing) with UsageError.
    """

    result: T
    session: SessionRecord | None = None
    copy: Copy | None = None
    messages: tuple[StoredMessage, ...] = ()
    keys: tuple[tuple[str, KeyEntry], ...] = ()
    flags: tuple[tuple[int, str], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    drop_tree: int | None = None
    forget: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()
    events: tuple[LogEvent, ...] = ()
    drop_views: tuple[str, ...] = ()
    drop_records: tuple[tuple[str, str], ...] = ()
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """The effects of one decision on several sessions of a tenant, committed together or not.

    ``sessions`` are (session id, changes) pairs, applied in order; one session may occur twice.
    ``delete`` are the ids of sessions that are deleted with everything stored of them: log, keys,
    trees, views, blocks, journal, the runs of that subject and the records of that scope.
    ``drop_records`` are the (kind, scope, key) of records to delete, ``drop_journals`` the names
    whose runs and journalled calls are deleted. ``runs`` are written last.
    """

    result: T
    sessions: tuple[tuple[str, Changes[None]], ...] = ()
    delete: tuple[str, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    drop_records: tuple[tuple[str, str, str], ...] = ()
    drop_journals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """One compare-and-swap on a node: applied only if its stored version is ``expected``.

    ``node`` is written whole, with ``version == expected + 1``; ``revision`` is inserted if given
    (its number is the node's new ``revision``). ``inputs`` are (node id, revision number) pairs
    that must still serve, or the write does not count.
    """

    node: Node
    expected: int
    revision: Revision | None = None
    inputs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Cost(Brief):
    """What calls of a model took: their number, their tokens, and their price.

    ``cost`` is the sum over the calls with a price, None if none has one. ``+`` returns a copy of
    the first operand with the figures of both.
    """

    _added: ClassVar[tuple[str, ...]] = ("calls", "tokens_in", "tokens_out")

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        """Return the tokens in and out together."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Cost) -> Self:
        sums = {name: getattr(self, name) + getattr(other, name, 0) for name in self._added}
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return replace(self, cost=sum(known) if known else None, **sums)


#: The cost of no call.
NO_COST: Final = Cost()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One journalled model call, written before the call and again after it.

    An attempt that started and never ended was cut off; it is reported as ``unknown``.
    ``cached_tokens`` are those of ``tokens_in`` that came from the provider's cache,
    ``reasoning_tokens`` those of ``tokens_out`` that are not part of the answer. ``cost`` is the
    call's cost at the price of that day, None if the model has none; until the call has ended, the
    most that it may cost.
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
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    @property
    def spent(self) -> Cost:
        """Return the call with its tokens and its price."""
        return Cost(1, self.tokens_in, self.tokens_out, self.cost)


@dataclass(frozen=True, slots=True)
class RunRecord(Brief):
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
    """A small document of a tenant, for data that is neither message nor node: extractions, notes.

    Its key is (kind, scope, key); ``scope`` is what it belongs to, such as a session's id. ``body``
    is a text that the store does not interpret. ``version`` is 1 for a new record and rises by one
    at each write; after a deletion it begins at 1 again.
    """

    kind: str
    scope: str
    key: str
    body: str
    version: int


@dataclass(frozen=True, slots=True)
class RecordWrite:
    """One write of a record: insert or replace it by ``body``, or delete it if that is None.

    ``expected`` is the version that must be stored for the write to count, 0 for no record; None
    writes unconditionally. Deleting what does not exist changes nothing.
    """

    kind: str
    scope: str
    key: str
    body: str | None
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of an index over the messages ``start <= index < stop``; ``data`` is opaque.

    Blocks are derived: they may be dropped at any time and made again from the messages. Their key
    is (session, kind, start).
    """

    kind: str
    start: int
    stop: int
    data: bytes


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block of terms with the record of its session, and its place in a segment.

    ``segment`` is 0 for a loose block, which is in no segment.
    """

    session: SessionRecord
    block: Block
    segment: int = 0
    place: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the index over all sessions of a tenant: what some of its blocks hold, by term.

    It was made of ``blocks`` blocks, which have the places 0, 1, 2, ... in it. Those at the places
    ``dead`` were replaced since. ``pages`` are the pages that were asked for and exist; the store
    does not interpret them. Segments are derived: they may be dissolved at any time, which makes
    their blocks loose.
    """

    number: int
    blocks: int
    dead: tuple[int, ...]
    pages: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class IndexState:
    """The index over all sessions of a tenant, in one state of the store.

    Each message of the tenant is in a block of a segment, in a ``loose`` block, or in a gap of an
    ``unindexed`` session: a stretch (start, stop) of messages without a block of terms.
    """

    segments: tuple[Segment, ...]
    loose: tuple[PlacedBlock, ...]
    unindexed: tuple[tuple[SessionRecord, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class NodeTally:
    """The nodes of one level and status, added up.

    ``made`` are those with a serving revision; ``made_input_tokens`` is the size of their inputs,
    and the following fields sum up their serving revisions. ``fidelity`` is the sum over the
    ``measured`` ones, of which facts were required. ``since`` is the earliest.
    """

    level: int
    status: Status
    count: int = 0
    made: int = 0
    degraded: int = 0
    dirty: int = 0
    pending: int = 0
    input_tokens: int = 0
    made_input_tokens: int = 0
    made_tokens: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    reused: int = 0
    duration_ms: int = 0
    fidelity: float = 0.0
    measured: int = 0
    since: datetime | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Spent(Cost):
    """The total cost of journalled attempts, including those with an unknown outcome.

    ``unknown`` counts the latter, and those that have started and not ended.
    """

    unknown: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Scrubbed(Brief):
    """Whether removed content is out of the store's bytes too, and if not, why."""

    done: bool
    reason: str = ""


#: When a session has something to make: at that time, or so long from now.
Due: TypeAlias = datetime | timedelta


@dataclass(frozen=True, slots=True)
class DueSession(Brief):
    """The entry of a session, of any tenant, in the list of what is due; claimed, it is the claim.

    ``generation`` rises with every claim, so that a write under an earlier one is known by it.
    ``claimed``: a claim on the session holds.
    """

    tenant: str
    session_id: str
    generation: int
    claimed: bool = True


# What a decision or ``Tenant.read`` reads. ``tree`` None is the one that the record names.


@dataclass(frozen=True, slots=True)
class NeedMessages:
    """The messages with ``start <= index < stop``, of ``thread`` if given, by index."""

    start: int
    stop: int
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class NeedFlagged:
    """Up to ``limit`` messages that have ``flag``, the newest first.

    With ``space``, of all members of that space, the latest said first, as pairs of a session's id
    and a message; only ``read`` answers that, whatever session is asked about. The cost is
    proportional to the members and their flagged messages.
    """

    flag: str
    limit: int
    space: str | None = None


@dataclass(frozen=True, slots=True)
class NeedNodes:
    """The nodes with these ids that exist, in this order."""

    ids: tuple[str, ...]
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class NeedLevel:
    """The nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""

    level: int
    start: int
    stop: int
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class NeedCovering:
    """The level-1 nodes of ``thread`` whose span holds the message, by ordinal.

    With ``last``: those whose span holds any of the messages from ``index`` to it.
    """

    thread: str
    index: int
    tree: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class NeedRevisions:
    """The revisions with these (node id, number) that exist, in this order."""

    wanted: tuple[tuple[str, int], ...]
    tree: int | None = None


@dataclass(frozen=True, slots=True)
class NeedViews:
    """The stored views of the session, or those with these names, by name."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class NeedRecords:
    """The records of ``kind`` whose scope is the session, by key.

    With ``everywhere`` those of every scope of the tenant, by scope, then key.
    """

    kind: str
    everywhere: bool = False


#: "session" is the session's record, or None; "forks" are the records of the sessions that were
#: forked from it, in the order of their creation; "events" the log's events that are not messages,
#: in the order they were written; "echoes" the indices of the messages that have ``echoes``, now or
#: in an earlier version, in order, at a cost that depends on the result alone.
Need: TypeAlias = (
    Literal["session", "forks", "events", "echoes"]
    | NeedCovering
    | NeedFlagged
    | NeedLevel
    | NeedMessages
    | NeedNodes
    | NeedRecords
    | NeedRevisions
    | NeedViews
)
#: A need, with the id of the session that it is about.
SessionNeed: TypeAlias = tuple[str, Need]
#: A part of a decision. It yields a (session id, need) and is sent the answer, or it yields a tuple
#: of such pairs and is sent the tuple of their answers, in the same order.
Asking: TypeAlias = Generator[SessionNeed | tuple[SessionNeed, ...], Any, T]
#: A decision that reads as it goes, and returns its effects.
Deciding: TypeAlias = Asking[Batch[T]]
