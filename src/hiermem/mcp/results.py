"""The typed results of the tools: what a client gets as structured content, and as text.

Every text in a list is cut to a length, and says so. Where a result is one text, a client that
shows only text gets that text and no JSON around it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from hiermem import Hit, Note, StoredMessage, Summary, TriVector

#: The most characters of one text in a list, the most items of a list, the most of a diff.
SHORT = 4_000
MOST_ITEMS = 500
_MOST_IN_DIFF = 50_000
#: Where a line of a file would look like the one that ends a stretch of it.
_GOES_ON = re.compile(r"^(?=\[goes on at offset)", re.MULTILINE)


def _cut(most: int) -> BeforeValidator:
    """Take the first of a text or of a list alone."""
    return BeforeValidator(lambda value: value[:most])


Short = Annotated[str, _cut(SHORT)]
Few = Annotated[list[str], _cut(MOST_ITEMS)]
Count = Annotated[int, BeforeValidator(len)]


class Result(BaseModel):
    """A result of a tool; the values of hiermem are read by their attributes."""

    model_config = ConfigDict(from_attributes=True)

    def plain(self) -> str:
        """Return the result as the text that a model reads."""
        return self.model_dump_json(exclude_none=True)


class Appended(Result):
    """The indices of the messages, in the order given."""

    session: str
    indices: list[int]


class Plan(Result):
    """The work that an update would do."""

    calls: int
    calls_max: int
    tokens_in: int
    tokens_out: int
    by_level: dict[int, int]
    reused: int
    seconds: float
    cost: float | None


class Made(Result):
    """The work that an update did."""

    run_id: str | None
    made: int
    reused: int
    degraded: int
    failed: int
    by_level: dict[int, int]
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    stopped: str | None
    retry_after: float | None
    swapped: bool


class Updated(Result):
    """A started update: done, or running behind under ``jobId``; or only planned."""

    session: str
    state: Literal["done", "running", "planned"]
    jobId: str | None = None  # noqa: N815 - the published name
    log: str | None = None
    reconfigured: bool = False
    report: Made | None = None
    plan: Plan | None = None
    note: str | None = None


class Job(Result):
    """An update that this server started; ``runs`` are the ids of its journalled runs."""

    id: str
    session: str
    state: Literal["running", "done", "failed", "interrupted"]
    done: int = 0
    total: int = 0
    runs: list[str] = []
    error: str | None = None


class Run(Result):
    """One journalled run."""

    id: str
    kind: str
    subject: str
    outcome: str
    started_at: datetime
    ended_at: datetime | None
    detail: dict[str, Any]


class Item(Result):
    """One summary, chunk or batch of a run."""

    id: str
    state: str
    attempts: int
    reasons: list[Short]  # a reason may be a provider's text
    tokens_in: int
    tokens_out: int
    seconds: float
    model: str
    cost: float | None


class Logs(Result):
    """Runs, newest first; or one job, or one run with its items."""

    runs: list[Run] = []
    job: Job | None = None
    items: list[Item] = []
    items_omitted: int = 0


class Selected(Result):
    """A context: ``text`` is the session within the budget."""

    session: str
    text: str
    total_tokens: int
    max_tokens: int
    messages: int
    coverage: float
    shown_messages: int
    recalled: list[int]
    explanation: str

    def plain(self) -> str:
        """Return the context and, last, what it covers."""
        return f"{self.text}\n\n[{self.explanation}]"


class Found(Result):
    """One message or summary that answers a search."""

    session: str
    id: str
    kind: Literal["message", "summary"]
    level: int
    first: int
    last: int
    role: str | None
    at: datetime
    score: float
    text: str
    truncated: bool

    @classmethod
    def of(cls, hit: Hit) -> Found:
        """Return what a hit says."""
        return cls(
            session=hit.session_id,
            id=hit.id,
            kind=hit.kind,
            level=hit.level,
            first=hit.span.start,
            last=hit.span.stop - 1,
            role=hit.role,
            at=hit.created_at,
            score=hit.score,
            text=hit.text[:SHORT],
            truncated=len(hit.text) > SHORT,
        )


class Hits(Result):
    """What was found, best first."""

    hits: list[Found]


class Source(Result):
    """The place of one passage."""

    session: str
    message: int


class Recalled(Result):
    """Verbatim passages in the order they were said; ``sources`` are their places."""

    text: str
    total_tokens: int
    sources: list[Source]

    def plain(self) -> str:
        """Return the passages."""
        return self.text or "Nothing that was said answers this."


class Part(Result):
    """A summary or a message that a summary was made from."""

    id: str
    level: int
    first: int
    last: int
    role: str | None
    name: str | None
    at: datetime | None
    text: str
    truncated: bool

    @classmethod
    def of(cls, part: Summary | StoredMessage, room: int) -> Part:
        """Return a part with at most ``room`` characters of its text."""
        if isinstance(part, Summary):
            text, span = part.text, part.span
            what: Mapping[str, Any] = {
                "id": part.id, "level": part.level, "first": span.start, "last": span.stop - 1,
                "role": None, "name": None, "at": None,
            }  # fmt: skip
        else:
            text = message_text(part)
            what = {
                "id": f"m{part.index}", "level": 0, "first": part.index, "last": part.index,
                "role": part.role, "name": part.name, "at": part.created_at,
            }  # fmt: skip
        return cls(**what, text=text[:room], truncated=len(text) > room)


class Expanded(Result):
    """The parts of a summary, in order; ``omitted`` more did not fit."""

    session: str
    parts: list[Part]
    omitted: int


class Session(Result):
    """One session of the memory."""

    id: str
    title: str | None
    messages: int
    created_at: datetime
    last_activity: datetime
    closed: bool
    metadata: dict[str, str]


class Sessions(Result):
    """A page of sessions; ``next`` is the ``after`` of the next page, None on the last."""

    sessions: list[Session]
    total: int
    next: str | None


class LiveNote(Result):
    """One note of a space."""

    key: str
    text: str
    timestamp: datetime
    agent: str
    category: str
    tags: list[str]
    state: str
    truncated: bool

    @classmethod
    def of(cls, note: Note) -> LiveNote:
        """Return a note with a short text."""
        found = {name: getattr(note, name) for name in cls.model_fields if name != "truncated"}
        return cls(**{**found, "text": note.text[:SHORT]}, truncated=len(note.text) > SHORT)


class Notes(Result):
    """Notes of a space, oldest first; ``omitted`` more were not listed."""

    space: str
    notes: list[LiveNote]
    omitted: int


class Bank(Result):
    """The spaces; or one space with its files, its synthesis and its rules."""

    spaces: list[str] = []
    space: str | None = None
    files: list[str] = []
    synthesis: str | None = None
    rules: str | None = None
    revision: int | None = None


class BankFile(Result):
    """A stretch of a bank file; ``next_offset`` is None at its end."""

    space: str
    file: str
    text: str
    characters: int
    next_offset: int | None

    def plain(self) -> str:
        """Return the file's text, and how to go on where it does not end there."""
        if self.next_offset is None:
            return _GOES_ON.sub(" ", self.text)
        own = f"[goes on at offset {self.next_offset} of {self.characters}]"
        return f"{_GOES_ON.sub(' ', self.text)}\n\n{own}"


class Consolidated(Result):
    """What a consolidation did."""

    space: str
    status: str
    message: str
    notes_processed: int
    notes_remaining: int
    files_created: list[str]
    files_updated: list[str]
    files_unchanged: list[str]
    lines_removed: int
    failed: list[str]
    unplaced: list[str]
    revision: int
    dry_run: bool
    run_id: str
    metrics: dict[str, float]
    diff: Annotated[str, _cut(_MOST_IN_DIFF)]


class Extracted(Result):
    """What an extraction did, and the graph with as many items of each kind as were asked for."""

    session: str
    outcome: str
    run_id: str
    messages: int
    chunks: int
    calls: int
    tokens_in: int
    tokens_out: int
    cost: float | None
    stopped: str | None
    model: str
    failures: list[str]
    entities: int
    relations: int
    tri_vector: TriVector | None


class Level(Result):
    """The summaries of one level."""

    level: int
    nodes: int
    made: int
    degraded: int
    queue: int
    dirty: int
    compression: float | None
    fidelity: float | None
    seconds: float | None


class Measured(Result):
    """How far a session is compressed, what that cost and what was kept."""

    session_id: str
    messages: int
    tokens: int
    cover_tokens: int
    tokens_saved: int
    compression: float | None
    nodes: int
    queue: int
    dirty_share: float
    summary_quality_score: float | None
    information_loss: float | None
    summaryQualityScore: Annotated[  # noqa: N815 - the published name
        float | None,
        Field(
            validation_alias=AliasPath("feedback", "mean"),
            description="The mean of the scores that the application recorded, 0 to 1.",
        ),
    ]
    prefix_reuse: float | None
    cost_spent: float | None
    levels: list[Level]


class Erased(Result):
    """What an erasure removed, what is to be made again, and what it could not reach."""

    kind: str
    session_id: str | None
    indices: Count
    already: Count
    forks_reached: Few
    kept_in: Few
    removed: dict[str, int]
    to_remake: Annotated[int, BeforeValidator(lambda made: sum(map(len, made.values())))]
    unproven: Few
    copies: Annotated[
        list[str], BeforeValidator(lambda made: [each.place for each in made[:MOST_ITEMS]])
    ]
    scrubbed: bool
    scrub_reason: str
    run_id: str


def message_text(message: StoredMessage) -> str:
    """Return what a message says, with its tool calls; parts that are no text as JSON."""
    said = message.message.to_openai(extras=False)
    content = said.get("content") or ""
    if not isinstance(content, str):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "\n".join(
            text if isinstance(text, str) else str(part)
            for text, part in zip(texts, content, strict=True)
        )
    asked = [f"{each.name}({each.arguments})" for each in message.tool_calls]
    return "\n".join(filter(None, [content, *asked]))
