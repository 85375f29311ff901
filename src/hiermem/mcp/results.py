"""The results of the tools, as structured content and as text, and their progress.

A tool returns a value of the library, or one of the results here. Texts in a list are cut to a
length, and every list to a number. A client that shows only text gets lines without JSON around
them, where a result is text or a list of texts.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from mcp.server.mcpserver import Context
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from hiermem import Hit, escape
from hiermem.types import (
    ExtractionProgress,
    KnownLine,
    Note,
    Span,
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


#: The most characters of one text in a list, the most items of a list, the most of any other text.
SHORT: Final = 1_500
MOST_ITEMS: Final = 500
_MOST: Final = 10_000
#: Where a line of a file would look like the one that ends a stretch of it.
_GOES_ON = re.compile(r"^(?=\[goes on at offset)", re.MULTILINE)


def short(text: str) -> str:
    """Return a text of a list, with a mark where it was cut."""
    return text if len(text) <= SHORT else f"{text[:SHORT]} […]"


def named(title: str | None, session: str) -> str:
    """Return a session's title with its id, or the id alone if it has no title, in one line."""
    return " ".join((f"{title} ({session})" if title else session).split())


def picked(value: object, names: str) -> dict[str, Any]:
    """Return attributes of a value by their names, which stand between spaces."""
    return {name: getattr(value, name) for name in names.split()}


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a value of the library."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def shown_note(note: Note) -> dict[str, Any]:
    """Return the fields of a note that say something, with the beginning of its text."""
    begun = replace(note, text=short(note.text))
    return {name: field for name, field in fields_of(begun).items() if field}


def structured(value: object) -> dict[str, Any]:
    """Return a result as a JSON object: texts escaped, floats rounded, lists cut.

    Nothing in it reads like a record of the library's own, save in a context, which holds some.
    """
    whole: dict[str, Any] = _shown(to_jsonable_python(value), most=_MOST)
    if isinstance(value, Result):
        whole = _shown(value.model_dump(mode="json"), most=None)
    return {**whole, "text": value.text} if isinstance(value, Selected) else whole


def plain(value: object) -> str:
    """Return a result as the text that a model reads: its own lines, or JSON."""
    if isinstance(value, Result) and (lines := value.plain()) is not None:
        return lines
    found = {name: each for name, each in structured(value).items() if each is not None}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _shown(value: Any, *, most: int | None) -> Any:
    """Return a JSON value as a client reads it.

    A float has 3 digits after the point, or 3 digits if below 1. A share below 1 stays below 1: a
    coverage of 1 says that nothing is missing.
    """
    if isinstance(value, str):
        return escape(value[:most])
    if isinstance(value, dict):
        return {escape(name): _shown(each, most=most) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each, most=most) for each in value[:MOST_ITEMS]]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None  # JSON has no such number
        digits = round(value, 3) if abs(value) >= 1 else float(f"{value:.3g}")
        return digits if abs(value) >= 1 or abs(digits) < 1 else digits * 0.999
    return value


class Result(BaseModel):
    """A result of a tool that is no value of the library."""

    def plain(self) -> str | None:
        """Return the result as the text that a model reads; None for JSON."""
        return None


class Stored(Result):
    """The indices of the first and of the last message that was given."""

    session: str
    first: int
    last: int


class Remembered(Result):
    """What was remembered or erased; what fits what was to be forgotten; what may say it still."""

    remembered: str | None = None
    erased: list[str] = []
    fits: list[str] = []
    left: list[str] = []
    note: str | None = None


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
        message = part.message if isinstance(part, Hit) else part
        said = message if isinstance(message, StoredMessage) else None
        text = message_text(part) if isinstance(part, StoredMessage) else part.text
        span = Span(part.index, part.index + 1) if isinstance(part, StoredMessage) else part.span
        return cls(
            id=f"m{part.index}" if isinstance(part, StoredMessage) else part.id,
            level=0 if isinstance(part, StoredMessage) else part.level,
            first=span.start,
            last=span.stop - 1,
            session=session,
            title=titles.get(session),
            role=said and said.role,
            name=said and said.name,
            at=part.node.last_at if isinstance(part, Summary) else part.created_at,
            score=part.score if isinstance(part, Hit) else None,
            text=text[:room],
            truncated=len(text) > room,
        )


class Passages(Result):
    """What is known and found, best first, or parts of a summary; ``omitted`` is the rest."""

    known: list[KnownLine] = []
    passages: list[Passage] = []
    omitted: int = 0

    def plain(self) -> str:
        """Return a paragraph for each: its place, its time, who spoke, and the text.

        Further lines of a text are indented: none can begin a turn, a frame or a paragraph.
        """
        lines = []
        for line in self.known[:MOST_ITEMS]:
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
            f"{named(each.title, each.id)}: {each.messages} message{'s' * (each.messages != 1)}, "
            + " to ".join(dict.fromkeys(f"{at:%Y-%m-%d}" for at in (each.first, each.last)))
            + "".join(f", fork {named(None, fork)}" for fork in each.forks)
            for each in self.sessions
        ]
        more = f"; the next page begins after {self.next}" if self.next else ""
        total = f"{self.total} conversation{'s' * (self.total != 1)}"
        return escape("\n".join([*lines, f"[{total}{more}]"]))


class Bank(Result):
    """The spaces; or one space with its files and notes; or a stretch of one of its files."""

    spaces: list[str] = []
    space: str | None = None
    rules: str | None = None
    synthesis: str | None = None
    files: list[str] = []
    notes: list[dict[str, Any]] = []
    notes_omitted: int = 0
    file: str | None = None
    text: str | None = None
    characters: int | None = None
    next_offset: int | None = None

    def plain(self) -> str | None:
        """Return the file's text, and how to go on where it does not end there."""
        if self.text is None:
            return None
        text = escape(_GOES_ON.sub(" ", self.text))
        if self.next_offset is None:
            return text
        return f"{text}\n\n[goes on at offset {self.next_offset} of {self.characters}]"


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
