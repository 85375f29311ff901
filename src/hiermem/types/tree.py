"""What a store holds of a session: messages with measures, nodes, revisions, record; findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from hiermem.types.brief import Brief, FrozenDict
from hiermem.types.message import Content, Message, Role, ToolCall

MessageState: TypeAlias = Literal["live", "erased", "quarantined"]
Status: TypeAlias = Literal["pending", "generating", "active", "failed"]
#: The unit of sizes: tokens as rendered, or code points.
SizeUnit: TypeAlias = Literal["tokens", "chars"]
#: How far a text can be trusted; a summary's trust is the lowest of its sources'.
Trust: TypeAlias = Literal["tool", "conversation", "system"]

_NOTHING: Mapping[str, Any] = FrozenDict()


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a thread: before character ``char`` of the message at ``index``."""

    index: int
    char: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of message indices, with character offsets where a message was sliced.

    It starts at character ``start_char`` of message ``start`` and ends before message ``stop`` or,
    if ``stop_char`` is given, before that character of message ``stop - 1``. Characters count in
    ``hiermem.text.measure.body`` of the message, which for plain text is its content.
    """

    start: int
    stop: int
    start_char: int = 0
    stop_char: int | None = None

    @property
    def begin(self) -> Position:
        """Return the first position inside."""
        return Position(self.start, self.start_char)

    @property
    def end(self) -> Position:
        """Return the first position outside."""
        if self.stop_char is None:
            return Position(self.stop)
        return Position(self.stop - 1, self.stop_char)

    @property
    def sliced(self) -> bool:
        """Return whether either end is inside a message."""
        return self.start_char > 0 or self.stop_char is not None

    @classmethod
    def between(cls, begin: Position, end: Position) -> Span:
        """Make the span from ``begin`` up to, and excluding, ``end``."""
        if end.char == 0:
            return cls(begin.index, end.index, begin.char)
        return cls(begin.index, end.index + 1, begin.char, end.char)


@dataclass(frozen=True, slots=True)
class StoredMessage(Brief):
    """A message as the store holds it.

    ``tokens`` is its cost when shown verbatim; ``size`` its weight for sealing, in the session's
    unit; ``hash`` its output hash. ``slices`` are the inner character offsets at which an oversize
    message was cut. ``echoes`` are the character ranges that hiermem itself rendered as memory and
    that came back: covered, never summarised.
    """

    _brief = "index role name state tokens content"

    index: int
    message: Message
    tokens: int
    size: int
    hash: str
    state: MessageState = "live"
    flags: tuple[str, ...] = ()
    slices: tuple[int, ...] = ()
    echoes: tuple[tuple[int, int], ...] = ()

    def _facts(self) -> Iterable[tuple[str, str]]:
        # The class is named, as ``slots`` makes it anew, which ``super()`` alone does not follow.
        facts = super(StoredMessage, self)._facts()
        return (each for each in facts if each != ("state", "'live'"))

    @property
    def role(self) -> Role:
        """Return the message's role."""
        return self.message.role

    @property
    def content(self) -> Content:
        """Return the message's content."""
        return self.message.content

    @property
    def name(self) -> str | None:
        """Return the speaker's name, or None."""
        return self.message.name

    @property
    def thread(self) -> str:
        """Return the message's thread."""
        return self.message.thread

    @property
    def key(self) -> str | None:
        """Return the message's key, or None."""
        return self.message.key

    @property
    def created_at(self) -> datetime:
        """Return the message's time; the append set it if the message had none."""
        assert self.message.created_at is not None
        return self.message.created_at

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls that an assistant made in this message."""
        return self.message.tool_calls

    @property
    def tool_call_id(self) -> str | None:
        """Return the id of the call that a tool's result answers."""
        return self.message.tool_call_id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Return the application's own fields."""
        return self.message.metadata


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence-like piece of a message: what the extractive method selects and keeps.

    ``index`` is its message and ``ordinal`` its place there (None and a running number if it comes
    from a text without a message); ``date`` is the rendered day or "".
    """

    index: int | None
    ordinal: int
    role: Role
    speaker: str
    date: str
    text: str
    code: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """The structure of one summary: what it covers. Written once, when a window or group is sealed.

    ``windows`` is the half-open range of level-1 ordinals below it: every node covers a contiguous
    stretch of them, so an exact cover is a matter of intervals. ``span`` is the hull of what it
    covers; for level 1 the exact stretch of its ``thread``; ``thread`` is None if several threads
    are covered. ``input_size`` and ``allotted`` are in the session's unit and known when the node
    is sealed, before any model is called; ``input_tokens`` and ``allotted_tokens`` are the same in
    tokens. ``linked`` marks a window that shares a message or an exchange group with the window
    before it in its thread. ``version`` changes with every write to the node and is what commits
    compare. ``revision`` is the number of the serving revision, 0 if none is made. ``unit`` is the
    unit of its sizes at sealing. ``forced`` requests a new text although no input changed.
    ``since`` is when a node with a text last came to need another one; None for a node that has
    waited since it was sealed.
    """

    id: str
    level: int
    ordinal: int
    thread: str | None
    span: Span
    windows: tuple[int, int]
    children: tuple[str, ...]
    messages: int
    input_size: int
    allotted: int
    input_tokens: int
    allotted_tokens: int
    verbatim: bool
    first_at: datetime
    last_at: datetime
    linked: bool = False
    parent: str | None = None
    status: Status = "pending"
    revision: int = 0
    version: int = 0
    attempts: int = 0
    error: str | None = None
    degraded: bool = False
    dirty: bool = False
    unit: SizeUnit = "tokens"
    forced: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """The text of a node, with the record of how it was made.

    ``provenance`` is the packed list of kept units (``hiermem.text.units.unpack``), "" if the
    text was not extracted. ``fidelity`` is kept / required anchors, None if none were required.
    """

    node_id: str
    number: int
    text: str
    tokens: int
    input_hash: str
    output_hash: str
    strategy: str
    style: str
    model: str
    created_at: datetime
    provenance: str = ""
    anchors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    fidelity: float | None = None
    unsupported: tuple[str, ...] = ()
    trust: Trust = "conversation"
    degraded: bool = False
    reused: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    duration_ms: int = 0
    extras: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Summary(Brief):
    """A node of the tree with its current text. ``text`` is "" until it is made.

    ``superseded`` is True once its parent has a text that serves; it stays selectable. ``claimed``
    is True if a run held the claim on the session when the summary was read.
    """

    _brief = "id span status text"

    session_id: str
    node: Node
    revision: Revision | None
    archived: bool = False
    superseded: bool = False
    claimed: bool = False

    @property
    def id(self) -> str:
        """Return the node's id, such as ``L2.3``: level 2, the fourth of its level."""
        return self.node.id

    @property
    def level(self) -> int:
        """Return the level: 1 covers messages, k + 1 covers summaries."""
        return self.node.level

    @property
    def span(self) -> Span:
        """Return the hull of the messages covered."""
        return self.node.span

    @property
    def thread(self) -> str | None:
        """Return the one thread covered, or None if there are several."""
        return self.node.thread

    @property
    def children(self) -> tuple[str, ...]:
        """Return the ids of the summaries it covers; () for level 1."""
        return self.node.children

    @property
    def parent(self) -> str | None:
        """Return the id of the summary that covers this one, or None."""
        return self.node.parent

    @property
    def messages(self) -> int:
        """Return the number of messages covered; a slice counts as one."""
        return self.node.messages

    @property
    def status(self) -> Status:
        """Return the status of its generation: "generating" if it is pending under a claim."""
        is_generating = self.claimed and self.node.status == "pending"
        return "generating" if is_generating else self.node.status

    @property
    def text(self) -> str:
        """Return the text, "" until it is made."""
        return self.revision.text if self.revision else ""

    @property
    def tokens(self) -> int:
        """Return the token count of ``text``."""
        return self.revision.tokens if self.revision else 0

    @property
    def made(self) -> bool:
        """Return whether it has a text that serves."""
        return self.revision is not None

    @property
    def degraded(self) -> bool:
        """Return whether the extractive fallback stands in for a model's text."""
        return self.revision.degraded if self.revision else False

    @property
    def time_range(self) -> tuple[datetime, datetime]:
        """Return the earliest and latest time covered."""
        return self.node.first_at, self.node.last_at

    @property
    def created_at(self) -> datetime:
        """Return the latest time covered."""
        return self.node.last_at

    @property
    def input_hash(self) -> str | None:
        """Return the hash of its inputs, or None."""
        return self.revision.input_hash if self.revision else None

    @property
    def output_hash(self) -> str | None:
        """Return the hash of its text, or None."""
        return self.revision.output_hash if self.revision else None

    @property
    def anchors(self) -> tuple[str, ...]:
        """Return the facts in its text that must survive word for word."""
        return self.revision.anchors if self.revision else ()

    @property
    def tags(self) -> tuple[str, ...]:
        """Return its tags: recurring words of its window, and "code" or "tool"."""
        return self.revision.tags if self.revision else ()

    @property
    def entities(self) -> tuple[str, ...]:
        """Return the entities named in what it covers, the most named first."""
        return self.revision.entities if self.revision else ()

    @property
    def fidelity(self) -> float | None:
        """Return kept / required anchors, or None until it is made."""
        return self.revision.fidelity if self.revision else None


class Sessions(Enum):
    """Which sessions of a tenant a call is about, besides those of one space or of none."""

    ALL = "all"
    UNSAID = "unsaid"


#: The name of a space, None for the sessions in no space, ``ALL`` for the sessions of the tenant.
Scope: TypeAlias = str | Sessions | None
#: All sessions of a tenant, whatever space they are in.
ALL: Final = Sessions.ALL
UNSAID: Final = Sessions.UNSAID


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions are meant: those with all ``labels`` and, with ``alone``, in no space."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    alone: bool = False

    def admits(self, record: SessionRecord) -> bool:
        """Return whether the session of a record is meant."""
        if self.alone and record.space is not None:
            return False
        return self.labels.items() <= record.labels.items()

    def __bool__(self) -> bool:
        """Return whether any session is left out."""
        return bool(self.labels) or self.alone


EVERY: Final = SessionFilter()

#: Names of labels that begin so are the library's own; an application's metadata have none.
OWN_LABELS: Final = "hiermem/"
#: The label of every member of any space.
MEMBER: Final = {f"{OWN_LABELS}member": ""}
#: The label whose value is the name of a member's space.
SPACE: Final = f"{OWN_LABELS}space"


def member_of(space: str) -> dict[str, str]:
    """Return the labels of the members of a space, by which a store lists them.

    >>> member_of("ada")
    {'hiermem/member': '', 'hiermem/space': 'ada'}
    """
    return {**MEMBER, SPACE: space}


def split_labels(labels: Mapping[str, str]) -> tuple[Mapping[str, str], str | None]:
    """Return the metadata and the space that ``SessionRecord.labels`` are made of.

    >>> split_labels({"user": "7", **member_of("ada")})
    ({'user': '7'}, 'ada')
    """
    if SPACE not in labels:
        return labels, None
    own = {name: value for name, value in labels.items() if not name.startswith(OWN_LABELS)}
    return own, labels[SPACE]


@dataclass(frozen=True, slots=True)
class SessionRecord(Brief):
    """The stored data of a session besides its log.

    ``config`` is the canonical JSON of its HierarchyConfig, ``state`` that of the fold
    (``hiermem.tree.fold``), both opaque to the store. ``version`` counts the writes,
    ``epoch`` those that changed or removed content: data read in an earlier epoch must not be
    stored. ``tree`` is the number of the tree that serves. Both begin with the time of creation, in
    microseconds, so a session created again under an erased id repeats neither, and whoever still
    works on the erased one writes nowhere. ``build``, opaque too, is the progress of a re-pack into
    another tree, "" while there is none. A fork names the session it was ``forked_from`` and shares
    its first ``forked_at`` messages. ``last_activity`` is the time of the last append, by the clock
    of the memory that appended; it never goes back. ``metadata`` are the application's own labels,
    by which sessions are listed. ``space`` is the space that the session is a member of.
    """

    _brief = "id title messages created_at last_activity forked_from space metadata"

    id: str
    title: str | None
    participants: tuple[str, ...]
    config: str
    counter: str
    created_at: datetime
    last_activity: datetime
    messages: int = 0
    state: str = ""
    closed: bool = False
    version: int = 0
    epoch: int = 0
    tree: int = 0
    build: str = ""
    forked_from: str | None = None
    forked_at: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    space: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Return all labels by which stores list the session: its metadata and its membership."""
        return {**self.metadata, **({} if self.space is None else member_of(self.space))}

    def __post_init__(self) -> None:
        # Every append makes a record from the one before; its metadata is shared, not copied again.
        if type(self.metadata) is not FrozenDict:
            own = FrozenDict(self.metadata)
            object.__setattr__(self, "metadata", own)


def named_subject(subject: str) -> str:
    """Return what a message calls a session, a space, or "", what belongs to no session.

    >>> named_subject("chat"), named_subject("space:trip"), named_subject("")
    ("session 'chat'", "space 'trip'", 'what belongs to no session')
    """
    if not subject:
        return "what belongs to no session"
    kind, _, name = subject.partition(":")
    return f"space {name!r}" if kind == "space" and name else f"session {subject!r}"


@dataclass(frozen=True, slots=True, order=True)
class Finding(Brief):
    """One promise that is not kept: which, in which session or space, where, and what is wrong.

    ``session_id`` is the subject under which runs are journalled: of a space, ``space:`` and its
    name.
    """

    promise: str
    session_id: str
    where: str
    what: str

    @property
    def subject(self) -> str:
        """Return what a message calls the subject: "session 'chat'", "space 'trip'"."""
        return named_subject(self.session_id)

    def __str__(self) -> str:
        return f"{self.promise}: {self.subject}, {self.where}: {self.what}"
