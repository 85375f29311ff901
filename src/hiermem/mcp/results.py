"""The typed results of the tools, as structured content and as text, and their progress.

Every text in a list is cut to a length, and says so. A client that shows only text gets lines
without JSON around them, where a result is text or a list of texts.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from mcp.server.mcpserver import Context
from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from hiermem import Hit, escape
from hiermem.types import (
    ExtractionProgress,
    KnownLine,
    Note,
    StoredMessage,
    Summary,
    UpdateProgress,
)

#: Seconds between two notifications of progress.
_PAUSE: Final = 0.25

Report: TypeAlias = Callable[[UpdateProgress | ExtractionProgress], object]


@asynccontextmanager
async def progress_to(context: Context[Any, Any]) -> AsyncIterator[Report]:
    """Yield an ``on_progress`` that tells the client, if it asked; a few times a second."""
    latest: list[tuple[int, int]] = []
    wake = asyncio.Event()

    def report(state: UpdateProgress | ExtractionProgress) -> None:
        latest[:] = [(state.done, state.total)]
        wake.set()

    async def send() -> None:
        while True:
            await wake.wait()
            wake.clear()
            await context.report_progress(*latest[0])
            await asyncio.sleep(_PAUSE)

    sending = asyncio.create_task(send())
    try:
        yield report
        if wake.is_set():
            await context.report_progress(*latest[0])
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await sending


#: The most characters of one text in a list, the most items of a list, the most of a diff.
SHORT: Final = 1_500
MOST_ITEMS: Final = 500
_MOST_IN_DIFF: Final = 10_000
#: Where a line of a file would look like the one that ends a stretch of it.
_GOES_ON = re.compile(r"^(?=\[goes on at offset)", re.MULTILINE)


def _cut(most: int) -> BeforeValidator:
    """Take the first of a text or of a list alone."""
    return BeforeValidator(lambda value: value[:most])


Few = Annotated[list[str], _cut(MOST_ITEMS)]
Count = Annotated[int, BeforeValidator(len)]


def named(title: str | None, session: str) -> str:
    """Return a session's title with its id, or the id alone if it has no title, in one line."""
    return " ".join((f"{title} ({session})" if title else session).split())


def picked(value: object, names: str) -> dict[str, Any]:
    """Return attributes of a value by their names, which stand between spaces."""
    return {name: getattr(value, name) for name in names.split()}


def _shown(value: Any) -> Any:
    """Return a JSON value as a client reads it: texts escaped, floats rounded.

    A float has 3 digits after the point, or 3 digits if below 1. A share below 1 stays below 1: a
    coverage of 1 says that nothing is missing.
    """
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {_shown(name): _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, float):
        if abs(value) >= 1:
            return round(value, 3)
        short = float(f"{value:.3g}")
        return short if abs(short) < 1 else short * 0.999
    return value


class Result(BaseModel):
    """A result of a tool; the values of hiermem are read by their attributes.

    Nothing in it reads like a record of the library's own, save in a context, which holds some.
    """

    model_config = ConfigDict(from_attributes=True)

    def structured(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return the result as a JSON object; its texts are escaped and its floats rounded."""
        found: dict[str, Any] = _shown(self.model_dump(mode="json", exclude_none=exclude_none))
        return found

    def as_json(self, *, exclude_none: bool = True) -> str:
        """Return the result as JSON."""
        found = self.structured(exclude_none=exclude_none)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    def plain(self) -> str:
        """Return the result as the text that a model reads."""
        return self.as_json()


class Stored(Result):
    """The indices of the first and of the last message that was given."""

    session: str
    first: int
    last: int


class Remembered(Result):
    """What was remembered or erased; what fits what was to be forgotten; what may say it still."""

    remembered: str | None = None
    erased: Few = []
    fits: Few = []
    left: Few = []
    note: str | None = None


class Updated(Result):
    """An update: done, or with higher levels that follow; or only planned. ``jobId`` is its run."""

    session: str
    state: Literal["done", "running", "planned"]
    jobId: str | None = None  # noqa: N815 - the published name
    log: str | None = None
    reconfigured: bool = False
    report: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    note: str | None = None


class Logs(Result):
    """Runs, newest first; or one run with its items."""

    runs: list[dict[str, Any]]
    items: list[dict[str, Any]] = []
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

    def structured(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """Return the context as a JSON object."""
        return {**super().structured(exclude_none=exclude_none), "text": self.text}

    def plain(self) -> str:
        """Return the context and, last, what it covers."""
        return f"{self.text}\n\n[{self.explanation}]"


class Passage(Result):
    """A message or a summary, or the beginning of one."""

    session: str
    title: str | None = None
    id: str
    level: int
    first: int
    last: int
    role: str | None
    name: str | None
    at: datetime | None
    score: float | None = None
    text: str
    truncated: bool

    @classmethod
    def of(
        cls,
        part: Hit | Summary | StoredMessage,
        session: str,
        titles: Mapping[str, str | None] = {},
        room: int = SHORT,
    ) -> Passage:
        """Return a part with at most ``room`` characters of its text."""
        found: StoredMessage | Summary | None = part.message if isinstance(part, Hit) else part
        message = found if isinstance(found, StoredMessage) else None
        text = part.text if not isinstance(part, StoredMessage) else message_text(part)
        at = part.created_at if isinstance(part, (Hit, StoredMessage)) else part.node.last_at
        if isinstance(part, StoredMessage):
            place = {"id": f"m{part.index}", "level": 0, "first": part.index, "last": part.index}
        else:
            place = picked(part, "id level")
            place |= {"first": part.span.start, "last": part.span.stop - 1}
        return cls(
            **place,
            session=session,
            title=titles.get(session),
            role=message and message.role,
            name=message and message.name,
            at=at,
            score=part.score if isinstance(part, Hit) else None,
            text=text[:room],
            truncated=len(text) > room,
        )


class Known(Result):
    """A line of what is known: a wish, a note, a line of a file, or a conversation."""

    place: str
    text: str
    since: datetime | None
    was: str
    sources: list[str]

    @classmethod
    def of(cls, line: KnownLine) -> Known:
        """Return a line with its beginning."""
        sources = [f"{session} m{index}" for session, index in line.sources[:MOST_ITEMS]]
        return cls(**picked(line, "place since was"), text=line.text[:SHORT], sources=sources)


class Passages(Result):
    """What is known and found, best first, or parts of a summary; ``omitted`` is the rest."""

    known: Annotated[list[Known], _cut(MOST_ITEMS)] = []
    passages: list[Passage] = []
    omitted: int = 0

    def plain(self) -> str:
        """Return a paragraph for each: its place, its time, who spoke, and the text.

        Further lines of a text are indented: none can begin a turn, a frame or a paragraph.
        """
        lines = []
        for line in self.known:
            when = f", {line.since:%Y-%m-%d}" if line.since else ""
            before = f" (was: {line.was})" if line.was else ""
            lines.append(f"[{line.place}{when}] {' '.join(line.text.split())}{before}")
        for each in self.passages:
            where = named(each.title, each.session)
            when = f", {each.at:%Y-%m-%d %H:%M}" if each.at else ""
            who = f"{each.name or each.role}: " if each.role else ""
            ends = f" […, expand_summary {each.id} has all of it]" if each.truncated else ""
            text = each.text
            if each.level and not text:
                text = f"[not summarised yet; expand_summary {each.id} reads on below it]"
            text = "\n  ".join(f"{who}{text}".splitlines())
            lines.append(f"[{where}, {each.id}{when}] {text}{ends}")
        if self.omitted:
            lines.append(f"[{self.omitted} more did not fit]")
        return escape("\n\n".join(lines)) or "Nothing was found."


class Session(Result):
    """One session; ``first`` and ``last`` are the times of its messages."""

    id: str
    title: str | None
    messages: int
    first: datetime
    last: datetime
    forks: list[str]


class Sessions(Result):
    """A page of sessions; ``next`` is the ``after`` of the next page, None on the last."""

    sessions: list[Session]
    total: int
    next: str | None

    def plain(self) -> str:
        """Return a line for each session."""
        lines = [
            f"{named(each.title, each.id)}: {each.messages} messages, "
            + " to ".join(dict.fromkeys(f"{at:%Y-%m-%d}" for at in (each.first, each.last)))
            + (
                f", forks: {', '.join(named(None, fork) for fork in each.forks)}"
                if each.forks
                else ""
            )
            for each in self.sessions
        ]
        more = f"; the next page begins after {self.next}" if self.next else ""
        return escape("\n".join([*lines, f"[{self.total} conversations{more}]"]))


class LiveNote(Result):
    """One note of a space."""

    key: str
    text: str
    timestamp: datetime
    agent: str
    category: str
    tags: list[str]
    truncated: bool

    @classmethod
    def of(cls, note: Note) -> LiveNote:
        """Return a note with a short text."""
        found = picked(note, "key timestamp agent category tags")
        return cls(**found, text=note.text[:SHORT], truncated=len(note.text) > SHORT)


class Bank(Result):
    """The spaces; or one space with its files and notes; or a stretch of one of its files."""

    spaces: list[str] = []
    space: str | None = None
    rules: str | None = None
    synthesis: str | None = None
    files: list[str] = []
    notes: list[LiveNote] = []
    notes_omitted: int = 0
    file: str | None = None
    text: str | None = None
    characters: int | None = None
    next_offset: int | None = None

    def plain(self) -> str:
        """Return the file's text, and how to go on where it does not end there."""
        if self.text is None:
            return super().plain()
        text = escape(_GOES_ON.sub(" ", self.text))
        if self.next_offset is None:
            return text
        return f"{text}\n\n[goes on at offset {self.next_offset} of {self.characters}]"


class Consolidated(Result):
    """What a consolidation did."""

    space: str
    status: str
    message: str
    notes_processed: int
    notes_remaining: int
    files_created: list[str]
    files_updated: list[str]
    unplaced: list[str]
    diff: Annotated[str, _cut(_MOST_IN_DIFF)]


class Extracted(Result):
    """What an extraction did, and the graph with as many items of each kind as were asked for."""

    session: str
    report: dict[str, Any]
    failures: list[str]
    entities: int
    relations: int
    tri_vector: dict[str, Any] | None


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
    levels: Annotated[list[dict[str, Any]], BeforeValidator(lambda each: [*map(_level, each)])]


def _level(level: object) -> dict[str, Any]:
    return picked(level, "level nodes made degraded queue dirty compression fidelity")


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
