"""The tools: what a client may ask of the memory, in words that a model understands.

A tool is a method: its docstring, with the part "Args", is what a model reads before it calls, in
each of its conversations; the types of its parameters and ``BOUNDS`` give the schema. A tool checks
no more than sizes; the memory checks what it is given, and its errors say what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from inspect import Parameter, Signature, getdoc, signature
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin
from unicodedata import normalize

from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from hiermem import (
    AsyncMemory,
    AsyncSession,
    AsyncSpace,
    BudgetTooSmallError,
    ConfigError,
    ExtractionOptions,
    HierarchyConfig,
    Limits,
    Message,
    NotFoundError,
    ToolCall,
    UsageError,
    published,
)
from hiermem.mcp import results
from hiermem.mcp.results import progress_to
from hiermem.types import ConsolidationResult, KnownLine, Note, Receipt

Authors: TypeAlias = Literal["person", "all"]
F = TypeVar("F", bound=Callable[..., Any])
#: The tools that are served unless others are named: what an assistant's user asks for.
CORE: Final = (
    "remember", "append_messages", "select_context", "search_memory", "list_sessions",
    "expand_summary", "live_note", "bank_read", "bank_consolidate",
)  # fmt: skip
#: Names the conversation with the newest message.
LAST: Final = "@last"
#: Who notes what the user asks to remember.
_NOTED_BY: Final = "assistant"
#: The rules of a space that is made by its first note, save the one that is served.
RULES: Final = """# Files
- notes.md: what was noted, by subject
- decisions.md: what was decided, and why
- progress.md: what was done, and what is next"""
#: The most characters of all the texts of one append, and of an expansion.
MOST_IN_APPEND: Final = 3_000_000
_MOST_IN_EXPANSION: Final = 400_000
#: How many notes, forks, or lines of what is to be forgotten are named.
_NAMED: Final = 10
#: The names of what an update tells of its run.
_REPORTED: Final = """run_id made reused degraded failed by_level calls tokens_in tokens_out cost
    stopped retry_after last_error swapped"""
_EXTRACTED: Final = "outcome run_id messages calls tokens_in tokens_out cost stopped"
#: The least and the most of a parameter, by its name, or by its tool's name and its own: of a
#: number, of a text's characters, of a list's items. Others have those of ``_bounded``.
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "session": (1, 512), "id": (1, 512), "text": (1, 100_000), "list_sessions.text": (0, 512),
    "forget": (1, 100_000), "rules": (1, 100_000), "query": (1, 10_000), "after": (1, 600),
    "append_messages.messages": (1, 500), "erase_messages.messages": (1, 10_000),
    "levels": (0, 64), "roles": (0, 4), "tags": (0, 64), "limit": (1, 100),
    "search_memory.limit": (1, 50), "most": (1, 500), "depth": (1, 64), "level": (1, 64),
    "max_chars": (100, _MOST_IN_EXPANSION), "select_context.max_tokens": (100, 200_000),
    "wiggle": (0, 0.99), "overlapChars": (0, 400), "concurrency": (1, 256),
}  # fmt: skip
#: The types of the published sizes, by their units.
_KINDS: Final[Mapping[str, type]] = {"share": float, "flag": bool, "text": str}
#: A parameter in the part "Args" of a docstring.
_ARGUMENT: Final = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def _day_as_time(after: int) -> BeforeValidator:
    """Read a day as its beginning, or that of the day ``after``; a time is left as it is."""

    def read(value: object) -> object:
        if isinstance(value, str) and _DAY.fullmatch(value):
            with suppress(ValueError, OverflowError):
                return datetime.fromisoformat(value).replace(tzinfo=UTC) + timedelta(days=after)
        return value

    return BeforeValidator(read)


Name = Annotated[str, Field(min_length=1, max_length=512)]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Since = Annotated[AwareDatetime | None, _day_as_time(0)]
Until = Annotated[AwareDatetime | None, _day_as_time(1)]


class NewToolCall(BaseModel):
    """An assistant's call of a tool."""

    model_config = ConfigDict(extra="forbid")

    id: Name
    name: Name
    arguments: Annotated[str, Field(max_length=1_000_000, description="JSON text.")] = "{}"


class NewMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Role
    content: Annotated[str, Field(max_length=1_000_000)]
    name: Annotated[Name | None, Field(description="Who speaks.")] = None
    key: Annotated[
        Name | None, Field(description="Your own id of the message; it is never stored twice.")
    ] = None
    created_at: Annotated[
        AwareDatetime | None, Field(description="With a time zone; the present time by default.")
    ] = None
    thread: Name = "main"
    tool_calls: Annotated[list[NewToolCall], Field(max_length=200)] = []
    tool_call_id: Name | None = None

    def message(self) -> Message:
        """Return it as the memory takes it. Raises InvalidMessageError."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        calls = tuple(ToolCall(each.id, each.name, each.arguments) for each in self.tool_calls)
        return Message(**{**fields, "tool_calls": calls})


def _within(messages: list[NewMessage]) -> list[NewMessage]:
    size = sum(
        len(each.content) + sum(len(call.arguments) for call in each.tool_calls)
        for each in messages
    )
    if size > MOST_IN_APPEND:
        raise ValueError(
            f"the messages have {size:,} characters; at most {MOST_IN_APPEND:,} go into one call"
        )
    return messages


def tool(
    title: str, *, reads: bool = False, destroys: bool = False, repeatable: bool | None = None
) -> Callable[[F], F]:
    """Mark a method as a tool, and say whether it only reads, destroys, or may be repeated."""

    def mark(method: F) -> F:
        hints = ToolAnnotations(
            title=title,
            read_only_hint=reads,
            destructive_hint=destroys,
            idempotent_hint=reads if repeatable is None else repeatable,
            open_world_hint=False,
        )
        method.__dict__["hints"] = hints
        return method

    return mark


def described(method: Callable[..., Any]) -> tuple[str, Callable[..., Any]]:
    """Return what a tool does, and its function with words and bounds for each parameter.

    ``sizes`` of a tool stands for the published sizes of a session, which all may be omitted.
    """
    about, _, arguments = (getdoc(method) or "").partition("\n\nArgs:\n")
    words = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(arguments)}
    given = signature(method, eval_str=True).parameters
    kinds = {name: (each.annotation, each.default) for name, each in given.items()}
    if kinds.pop("sizes", None):
        for name, key in published.keys().items():
            if key.plan == "summaries" and key.settings[0].startswith("config."):
                kinds[name] = (_KINDS.get(key.unit, int) | None, None)
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[
                _bounded(kind, BOUNDS.get(f"{method.__name__}.{name}", BOUNDS.get(name))),
                Field(description=words.get(name)),
            ],
        )
        if name != "context"
        else given[name]
        for name, (kind, default) in kinds.items()
    ]

    @wraps(method)
    async def run(**arguments: Any) -> Any:
        return await method(**arguments)

    run.__dict__["__signature__"] = Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return about, run


def _bounded(kind: Any, bounds: tuple[float, float] | None = None) -> Any:
    """Return a type that is bounded everywhere: a text, a list, a number, and those inside."""
    origin, inner = get_origin(kind), get_args(kind)
    least, most = bounds or ((0, 10**12) if kind in (int, float) else (0, 512))
    if origin is Annotated:
        kind = Annotated[(_bounded(inner[0], bounds), *kind.__metadata__)]
    elif origin in (Union, UnionType):
        kind = Union[tuple(_bounded(each, bounds) for each in inner)]  # noqa: UP007 - of a tuple
    elif origin is list:
        sizes = Field(min_length=int(least) or None, max_length=int(most))
        kind = Annotated[list[_bounded(inner[0])], sizes]  # type: ignore[misc]
    elif kind is str:
        kind = Annotated[kind, Field(min_length=int(least) or None, max_length=int(most))]
    elif kind in (int, float):
        kind = Annotated[kind, Field(ge=least, le=most)]
    return kind


class Tools:
    """The tools over the conversations of one space; tenant and store were fixed before."""

    def __init__(self, memory: AsyncMemory, space: AsyncSpace) -> None:
        self._memory, self._space = memory, space

    async def found(self, name: str, *, reads: bool = False) -> AsyncSession:
        """Return the session that a client names; one that it changes, by a whole id or title."""
        return await self._memory.find(name, space=self._space.name, whole=not reads)

    @tool("Remember or forget", destroys=True)
    async def remember(
        self,
        *,
        text: str | None = None,
        forget: str | None = None,
        authors: Authors = "person",
        all_matches: bool = False,
    ) -> results.Remembered:
        """Remember something the user asks you to remember, or forget it.

        With both, what is to be forgotten is looked up before the new text is stored, which is
        stored in any case. Returns what was erased, and what is left of it in other words or by
        others. If several fit, or none, nothing is erased, and they are shown.

        Args:
            text: What to remember, as a sentence.
            forget: What to forget: every note and message of the user, in all conversations, with
                all of these words is erased for good. Inflected forms count; words such as 'the' do
                not.
            authors: With forget: erase what others said of it, too.
            all_matches: Forget each one that fits, if there are several.
        """
        if text is None and forget is None:
            raise UsageError("pass text to remember it, or forget to erase it")
        done = results.Remembered()
        if forget is not None:
            await self._forget(forget, authors, done, several=all_matches)
        if text is not None:
            known = [_plain(note.text) for note in await self._space.notes()]
            if _plain(text) not in known:
                await self._space.note(text, agent=_NOTED_BY)
            done.remembered = text
        return done

    async def _forget(
        self, text: str, authors: Authors, done: results.Remembered, *, several: bool
    ) -> None:
        """Erase what holds all words of a text, if it is one thing or there may be ``several``."""
        report = await self._space.forget(text, authors=authors, dry_run=True)
        # A line of a file was made from notes, and goes with them.
        single = sum(line.place != "file" for line in report.gone) <= 1
        fits = bool(report.gone) and (single or several)
        if fits:
            report = await self._space.forget(text, authors=authors)
        gone, left = ([line.text for line in lines] for lines in (report.gone, report.unproven))
        done.erased, done.fits = (gone, []) if fits else ([], gone)
        done.left = [*left[:_NAMED], *(f"a copy in {each}" for each in report.exports[:_NAMED])]
        more = "several fit: call again with more words, or with all_matches"
        if not fits:
            done.note = f"nothing was erased; {more if gone else 'nothing has all words'}"
        elif len(gone) > results.MOST_ITEMS:
            done.note = f"{len(gone):,} were erased; the first {results.MOST_ITEMS} are shown"

    @tool("Store messages")
    async def append_messages(
        self,
        *,
        session: str,
        messages: Annotated[list[NewMessage], AfterValidator(_within)],
        title: str | None = None,
    ) -> results.Stored:
        """Store messages of a conversation word for word, in the order they were said.

        Either all are stored or none. Keep a tool's call and its result in one call.

        Args:
            session: Id of the conversation; the first call creates it.
            title: Title of a new conversation.
        """
        place = self._memory.session(session, title=title, space=self._space.name)
        with suppress(NotFoundError):  # the first call creates it
            await place.join(self._space.name)
        indices = await place.append(each.message() for each in messages)
        return results.Stored(session=session, first=indices[0], last=indices[-1])

    @tool("List conversations", reads=True)
    async def list_sessions(
        self,
        *,
        text: str | None = None,
        since: Since = None,
        until: Until = None,
        after: str | None = None,
        limit: int = 20,
    ) -> results.Sessions:
        """List the conversations by title and dates of their messages, the newest first.

        With since and until, those with messages in that time. search_memory finds them by content.

        Args:
            text: Words of the title or the id.
            since: At or after this time, or from this day on: 2026-05-01 (UTC).
            until: Before this time, or up to this day, which is included.
            after: `next` of the page before.
        """
        place = None if after is None else _place(after)
        families = await self._memory.families((text or "").split(), space=self._space.name)
        listed = [
            results.Session(
                **results.picked(family.session, "id title messages"),
                first=family.first,
                last=family.last,
                forks=list(family.forks[:_NAMED]),
            )
            for family in families
            if family.first is not None and family.last is not None
            and (since is None or family.last >= since)
            and (until is None or family.first < until)
        ]  # fmt: skip
        listed.sort(key=_stands_at, reverse=True)
        left = [each for each in listed if place is None or _stands_at(each) < place]
        page = left[:limit]
        ends = f"{page[-1].last.isoformat()} {page[-1].id}" if len(left) > limit else None
        return results.Sessions(sessions=page, total=len(listed), next=ends)

    @tool("Read a conversation within a token budget", reads=True)
    async def select_context(
        self,
        *,
        session: str,
        max_tokens: int = 8_000,
        query: str | None = None,
        view: str = "default",
    ) -> results.Selected:
        """Read a whole conversation, however long, within a token budget, to continue it.

        It begins with what the user asked for and said in other conversations.
        The newest messages stand word for word, excerpts and summaries for the older ones. Not
        every message has a line: shown_messages counts those that have. With a query, the messages
        that answer it stand word for word, too.

        Args:
            session: Id, title or beginning of a title; @last is the newest.
            max_tokens: The most tokens of the answer.
            query: What you want to know from it.
            view: Your own name, if several agents read differently.
        """
        place = await self.found(session, reads=True)
        try:
            made = await place.context(max_tokens, query=query, view=view)
        except BudgetTooSmallError as error:
            raise UsageError(
                f"max_tokens is too small for this conversation; the least is {error.minimum:,}"
            ) from None
        return results.Selected(
            **results.picked(made, "total_tokens max_tokens messages coverage"),
            session=place.id,
            text=made.to_text(),
            shown_messages=len(made.shown.messages),
            recalled=[each.index for each in made.recall],
            explanation=made.explain(),
        )

    @tool("Search what was said", reads=True)
    async def search_memory(
        self,
        *,
        query: str | None = None,
        session: str | None = None,
        limit: int = 8,
        levels: list[int] | None = None,
        roles: list[Role] | None = None,
        since: Since = None,
        until: Until = None,
    ) -> results.Passages:
        """Find what was said or remembered about something: messages word for word, best first.

        Each has its conversation, date and speaker; notes come first, the newest before the others.
        With a session, its summaries are found too. Without a query, it says what is known about
        the user: wishes, notes, and a line about each conversation.

        Args:
            query: A question or words; omit it for all that is known.
            session: Id, title or @last; all if omitted.
            levels: With session: 0 is messages, 1 and up are summaries.
            since: At or after this time, or from this day on: 2026-05-01 (UTC).
            until: Before this time, or up to this day, which is included.
        """
        if query is None:
            if session is not None:
                raise UsageError("session requires a query; use select_context to read it whole")
            return results.Passages(known=await self._known(None))
        if levels is not None and session is None:
            raise UsageError("levels requires a session; omit it to search all sessions")
        filters = {"levels": levels, "roles": roles, "since": since, "until": until}
        given: dict[str, Any] = {name: each for name, each in filters.items() if each is not None}
        known: list[KnownLine] = []
        if session is None:
            hits = await self._memory.search(query, limit, space=self._space.name, **given)
            lines = [] if given else await self._known(query)
            known = [line for line in lines if line.place in ("file", "note")]
        else:
            hits = await (await self.found(session, reads=True)).search(query, limit, **given)
        titles: dict[str, str | None] = {}
        for each in {hit.session_id for hit in hits}:
            with suppress(NotFoundError):  # it may have been erased meanwhile
                titles[each] = (await self._memory.session(each).status()).title
        return results.Passages(
            known=known[:limit],
            passages=[results.Passage.of(hit, hit.session_id, titles) for hit in hits],
        )

    async def _known(self, text: str | None) -> list[KnownLine]:
        """Return what the space knows; nothing if it is not made yet and cannot be."""
        with suppress(NotFoundError):
            lines = await self._space.about(text)
            return [replace(line, text=results.short(line.text)) for line in lines]
        return []

    @tool("Open a summary or a message", reads=True)
    async def expand_summary(
        self,
        *,
        session: str,
        id: str,  # noqa: A002 - the name that a hit has
        depth: int = 1,
        max_chars: int = 20_000,
    ) -> results.Passages:
        """Read what a summary was made from, down to the messages; or a message in full.

        Args:
            session: Id, title or beginning of a title; @last is the newest.
            id: Of a summary, such as L2.3, or of a message: m12.
            depth: Levels down; 64 reaches the messages.
            max_chars: To read on beyond it, raise it, or open the parts by their ids: after m12
                comes m13.
        """
        place = await self.found(session, reads=True)
        found = await place.expand(id, depth)
        parts: list[results.Passage] = []
        room = max_chars
        for each in found[: results.MOST_ITEMS]:
            if room <= 0:
                break
            parts.append(results.Passage.of(each, place.id, room=room))
            room -= len(parts[-1].text)
        return results.Passages(passages=parts, omitted=len(found) - len(parts))

    @tool("Make summaries", repeatable=True)
    async def summaries_update(
        self,
        *,
        context: Context[Any, Any],
        session: str,
        strategy: Literal["incremental", "full"] = "incremental",
        level: int | None = None,
        concurrency: int | None = None,
        batchDelayMs: int | None = None,
        dry_run: bool = False,
        wait: bool = False,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        **sizes: Any,
    ) -> dict[str, Any]:
        """Make the summaries of a conversation that are missing or out of date.

        Level 1 is made before this answers; higher levels follow, and run_logs tells of them. The
        sizes need not be given: a conversation keeps its own. Sizes that differ are kept for new
        windows, or with strategy 'full' the whole conversation is summarised again with them.

        Args:
            session: Id or title of the conversation.
            strategy: Make what is missing or outdated; or re-pack all of it.
            level: Only up to this level; all by default.
            concurrency: Calls of the model at once.
            batchDelayMs: Between two batches.
            dry_run: Only return the plan: what would be called, and its cost.
            wait: Wait for all levels, not only level 1.
            max_calls: End before more calls of the model.
            max_tokens: End before more tokens of the model.
            windowChars: Characters of a window.
            minFlushChars: The least that a silence closes.
            overlapChars: Shown of the one before.
            groupChars: Characters of a group.
            wiggle: The share by which both may differ.
            ratioOnly: The prompt states no length.
            sealPolicy: What closes a window: time, chars or hybrid.
            flushAfterMs: The silence that closes a window.
        """
        full = strategy == "full"
        if full and level is not None:
            raise UsageError("strategy 'full' makes all levels; leave level out")
        place = await self.found(session)
        name = place.id
        sizes = {key: value for key, value in sizes.items() if value is not None}
        before = await place.status()
        config = wanted(before.config, sizes, full=full) if sizes else None
        config = None if config == before.config else config
        update = partial(
            place.update,
            strategy=strategy,
            concurrency=concurrency,
            batch_delay=None if batchDelayMs is None else batchDelayMs / 1000,
            config=config if full else None,
        )
        if dry_run:
            plan = await update(level, dry_run=True)
            note = None if full or config is None else "the plan is for the present windows"
            about = {"session": name, "state": "planned", "reconfigured": False}
            return {**about, "plan": results.fields_of(plan), "note": note}
        if config is not None and not full:
            await place.reconfigure(config)
        limits = Limits(calls=max_calls, tokens=max_tokens)
        async with progress_to(context) as report:
            made = await update(level if wait or full else 1, limits=limits, on_progress=report)
        # If level 1 had nothing to make, work follows only if a higher level had some.
        higher = any(
            count and 1 < number <= (level or number)
            for counts in (before.unfinished, before.dirty)
            for number, count in counts.items()
        )
        ended = wait or full or level == 1 or made.stopped is not None
        ended = ended or (made.run_id is None and not higher)
        if not ended:  # both parts together keep the caps
            left = limits.after(calls=made.calls, tokens=made.tokens)
            await update(level, wait=False, limits=left)
        return {
            "session": name,
            "state": "done" if ended else "running",
            "jobId": made.run_id,
            "log": f"logs://{made.run_id}" if made.run_id else None,
            "reconfigured": config is not None,
            "report": results.picked(made, _REPORTED),
        }

    @tool("Read the log of runs", reads=True)
    async def run_logs(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the name that a run has
        session: str | None = None,
        limit: int = 10,
    ) -> dict[str, Any]:
        """Read what a run did, called and cost, and what failed.

        Without an id, list the newest runs: updates, extractions, consolidations, erasures.

        Args:
            id: Of a run, such as a jobId; omit for the newest runs.
            session: Id, title or @last; all if omitted.
        """
        if id is None:
            place = self._memory if session is None else await self.found(session, reads=True)
            return {"runs": await place.runs(limit=limit)}
        report = await self._memory.run(id)
        omitted = max(0, len(report.items) - limit)
        items = report.items[:limit]
        return {"runs": [report.record], "items": items, "items_omitted": omitted}

    @tool("Measure a conversation", reads=True)
    async def memory_metrics(self, *, session: str) -> dict[str, Any]:
        """Measure how far a conversation is compressed, what that cost and how much was kept.

        Args:
            session: Id, title or beginning of a title; @last is the newest.
        """
        found = await (await self.found(session, reads=True)).metrics()
        more = results.picked(found, "nodes queue dirty_share prefix_reuse")
        # The published name is that of the mean of the scores that the application recorded.
        return {**results.fields_of(found), **more, "summaryQualityScore": found.feedback.mean}

    @tool("Write a note")
    async def live_note(
        self,
        *,
        text: str,
        space: str | None = None,
        agent: str = "",
        category: str = "",
        tags: list[str] = [],  # noqa: B006 - never changed
        rules: str | None = None,
    ) -> Note:
        """Note a decision, a fact or a step of your work in a space, which the first note makes.

        Args:
            agent: Who writes.
            category: Kind of note, such as decision, issue or todo: it helps to place the note in
                the files.
            rules: Of a new space: Markdown that names its files, such as progress.md, and says what
                belongs into each.
        """
        place = await self._named(space, rules, RULES)
        return await place.note(text, agent=agent, category=category, tags=tags)

    @tool("Read notes and files", reads=True)
    async def bank_read(
        self,
        *,
        space: str | None = None,
        file: str | None = None,
        offset: int = 0,
        max_chars: int = 20_000,
    ) -> results.Bank:
        """Read what a space knows: its files and the notes that no file has taken in yet.

        Without a space and a file, the names of all spaces come with it.

        Args:
            space: Omit for the user's own.
            file: Such as progress.md; omit for the list of files and the notes.
        """
        place = await self._named(space)
        if file is None:
            notes = await place.notes("live")
            return results.Bank(
                spaces=await self._memory.spaces() if space is None else [],
                space=place.name,
                rules=await place.rules(),
                synthesis=await place.synthesis(),
                files=await place.files(),
                notes=list(map(results.shown_note, notes[-_NAMED:])),
                notes_omitted=max(0, len(notes) - _NAMED),
            )
        text = await place.read(file)
        end = offset + max_chars
        return results.Bank(
            space=place.name,
            file=file,
            text=text[offset:end],
            characters=len(text),
            next_offset=end if end < len(text) else None,
        )

    @tool("Consolidate notes")
    async def bank_consolidate(
        self,
        *,
        space: str | None = None,
        dry_run: bool = False,
        max_calls: int | None = None,
        max_tokens: int | None = None,
    ) -> ConsolidationResult:
        """Have the model write the notes of a space into its files; this may take long.

        Args:
            dry_run: Ask the model, but change nothing.
            max_calls: End before more calls of the model.
            max_tokens: End before more tokens of the model.
        """
        place = await self._named(space)
        limits = Limits(calls=max_calls, tokens=max_tokens)
        return await place.consolidate(dry_run=dry_run, limits=limits)

    async def _named(
        self, name: str | None, rules: str | None = None, new_rules: str | None = None
    ) -> AsyncSpace:
        """Return a space, the served one by default; a new one may be made with ``new_rules``."""
        if name is None and rules is None:
            return self._space
        spaces = await self._memory.spaces()
        name = _spelled(name or self._space.name, spaces)
        if name == self._space.name and rules is None:
            return self._space
        return self._memory.space(name, rules=rules if name in spaces else rules or new_rules)

    @tool("Extract knowledge", repeatable=True)
    async def extract_session(
        self,
        *,
        context: Context[Any, Any],
        session: str,
        most: int = 50,
        on_chunk_failure: Literal["abort", "partial"] = "abort",
        max_calls: int | None = None,
        max_tokens: int | None = None,
    ) -> dict[str, Any]:
        """Extract a graph of people, things and decisions from a conversation; this may take long.

        The result has entities and relations, what is still open, and the direction of the work. It
        is kept, and what was paid for is not asked for again.

        Args:
            session: Id or title of the conversation.
            most: Items of each kind that are returned.
            max_calls: End before more calls of the model.
            max_tokens: End before more tokens of the model.
        """
        place = await self.found(session)
        async with progress_to(context) as report:
            done = await place.extract(
                ExtractionOptions(on_chunk_failure=on_chunk_failure),
                on_progress=report,
                limits=Limits(calls=max_calls, tokens=max_tokens),
            )
        graph, kinds = done.tri_vector, ("entities", "relations", "deltas", "strategy")
        cut = graph and graph.model_copy(update={one: getattr(graph, one)[:most] for one in kinds})
        return {
            "session": place.id,
            "report": results.picked(done, _EXTRACTED),
            "failures": done.failures,
            "entities": len(graph.entities) if graph else 0,
            "relations": len(graph.relations) if graph else 0,
            "tri_vector": cut and cut.model_dump(mode="json", exclude_none=True),
        }

    @tool("Erase messages", destroys=True, repeatable=True)
    async def erase_messages(
        self, *, session: str, messages: list[int], forks: Literal["all", "keep"] = "all"
    ) -> Receipt:
        """Erase messages and everything made from them, for good. This cannot be undone.

        Ask the user first.

        Args:
            session: Id or title of the conversation.
            messages: The indices of the messages.
            forks: Erase them also in conversations that share them, or keep them.
        """
        return await (await self.found(session)).erase(messages, forks=forks)

    @tool("Erase a conversation", destroys=True)
    async def erase_session(
        self, *, session: str, confirm: str, forks: Literal["all", "keep"] = "all"
    ) -> Receipt:
        """Erase a whole conversation and everything made from it. This cannot be undone.

        Ask the user first.

        Args:
            session: Id or title of the conversation.
            confirm: The id of the conversation once more.
            forks: Erase its messages also in conversations that share them.
        """
        if confirm != session:
            raise UsageError("confirm must be the id of the conversation; nothing was erased")
        if (place := await self.found(session)).id != session:
            raise NotFoundError(f"session {session!r} does not exist; its id is {place.id!r}")
        return await place.delete(forks=forks)


def hints_of(method: object) -> ToolAnnotations | None:
    """Return what a method was marked with as a tool; None for any other method."""
    found: ToolAnnotations | None = getattr(method, "hints", None)
    return found


def wanted(config: HierarchyConfig, given: Mapping[str, Any], *, full: bool) -> HierarchyConfig:
    """Return a session's configuration with the parameters of ``summaries_update`` given.

    A session in tokens that is re-packed with sizes in characters gets the characters preset.

    Raises ConfigError for what no configuration may be, such as sizes in characters on a session in
    tokens that is not re-packed.
    """
    sizes = [name for name in given if published.keys()[name].unit == "chars"]
    anew = bool(sizes) and config.unit == "tokens"
    if anew and not full:
        raise ConfigError(
            f"{', '.join(sizes)}: the conversation's sizes are in tokens; strategy 'full' "
            "rebuilds it with these"
        )
    base = None if anew else config
    return HierarchyConfig.from_published(given, base=base)


def _stands_at(session: results.Session) -> tuple[datetime, str]:
    return session.last, session.id


def _place(after: str) -> tuple[datetime, str]:
    """Return the time and the id of the session that ends a page, from the page's ``next``."""
    given, _, session = after.partition(" ")
    with suppress(ValueError):
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is not None and session:
            return moment, session
    raise UsageError("after is invalid; pass the `next` of the page before unchanged")


def _spelled(name: str, known: Iterable[str]) -> str:
    """Return the one of the names that is this name in another normal form, or the name itself."""
    like = [each for each in known if normalize("NFC", each) == normalize("NFC", name)]
    return name if name in like or not like else like[0]


def _plain(text: str) -> str:
    # An accented letter has two spellings, which look the same.
    return normalize("NFKC", normalize("NFKC", " ".join(text.split())).casefold())
