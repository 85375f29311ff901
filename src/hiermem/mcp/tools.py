"""The tools: what a client may ask of the memory, in words that a model understands.

The docstring of a tool and the descriptions of its parameters are what a model reads before it
calls, in each of its conversations: they are short. A tool checks no more than sizes; the memory
checks what it is given, and its errors say what would be right.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar
from unicodedata import normalize

from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

from hiermem import (
    AsyncMemory,
    AsyncSession,
    AsyncSpace,
    BudgetTooSmallError,
    ConfigError,
    ExtractionOptions,
    HierarchyConfig,
    Message,
    NotFoundError,
    ToolCall,
    UsageError,
    published,
)
from hiermem.mcp import results
from hiermem.mcp.results import progress_to
from hiermem.types import SessionRecord

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
#: Records that are read at once, and messages.
_RECORDS, _READS = 500, 32
#: How many notes, forks, or lines of what is to be forgotten are named.
_NAMED: Final = 10
_NEAREST: Final = 3
_REPORTED: Final = """run_id made reused degraded failed by_level calls tokens_in tokens_out cost
    stopped retry_after last_error swapped"""
_EXTRACTED: Final = "outcome run_id messages calls tokens_in tokens_out cost stopped"
_RUN: Final = "id kind subject outcome started_at ended_at detail"
_ITEM: Final = "id state calls reasons tokens_in tokens_out seconds model cost"
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
SessionId = Annotated[
    str, Field(min_length=1, max_length=512, description="Id or title of the conversation.")
]
ReadSession = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        description="Id, title or beginning of a title; @last is the newest.",
    ),
]
AnySession = Annotated[
    str | None,
    Field(min_length=1, max_length=512, description="Id, title or @last; all if omitted."),
]
SpaceName = Annotated[str | None, Field(min_length=1, max_length=512)]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]
Limit = Annotated[int, Field(ge=1, le=100)]
Since = Annotated[
    AwareDatetime | None,
    _day_as_time(0),
    Field(description="At or after this time, or from this day on: 2026-05-01 (UTC)."),
]
Until = Annotated[
    AwareDatetime | None,
    _day_as_time(1),
    Field(description="Before this time, or up to this day, which is included."),
]
MaxCalls = Annotated[
    int | None, Field(ge=0, le=1_000_000, description="End before more calls of the model.")
]
MaxTokens = Annotated[
    int | None, Field(ge=0, le=10**12, description="End before more tokens of the model.")
]
Size = Annotated[int | None, Field(ge=0, le=10_000_000)]
Indices = Annotated[
    list[Annotated[int, Field(ge=0, lt=2**53)]],
    Field(min_length=1, max_length=10_000, description="The indices of the messages."),
]


class NewToolCall(BaseModel):
    """An assistant's call of a tool."""

    model_config = ConfigDict(extra="forbid")

    id: Name
    name: Name
    arguments: Annotated[str, Field(max_length=1_000_000, description="JSON text.")] = "{}"


class NewMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant", "tool"]
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


class Tools:
    """The tools over the conversations of one space; tenant and store were fixed before."""

    def __init__(self, memory: AsyncMemory, space: AsyncSpace) -> None:
        self._memory, self._space = memory, space
        # The times of a session's first and last message, for the version of its record.
        self._times: dict[str, tuple[int, datetime, datetime]] = {}

    async def found(self, name: str, *, whole: bool = False, reads: bool = False) -> AsyncSession:
        """Return the session of that id, or of that title unless ``whole``.

        If the caller only ``reads``, a beginning that one title alone has will do, and ``@last``.

        Raises NotFoundError, with the sessions whose title or id is most like it, and UsageError
        where several have the title.
        """
        session = self._memory.session(name)
        if await session.count():
            return session
        records = await self._records()
        if any(each.id == name for each in records):
            return session
        like: dict[str, list[SessionRecord]] = {}
        for each in records:
            for text in {_plain(each.id), _plain(each.title or each.id)}:
                like.setdefault(text, []).append(each)
        titled = _sources(like.get(_plain(name), ()))
        if reads and name == LAST:
            titled = await self._newest(records)
        elif reads and not titled and _plain(name):
            begun = [each for each in records if _plain(each.title or "").startswith(_plain(name))]
            begun = _sources(begun)
            titled = begun if len(begun) == 1 else []
        if len(titled) == 1 and not whole:
            return self._memory.session(titled[0].id)
        texts = get_close_matches(_plain(name), like, _NEAREST, 0.5)
        near = titled or [each for text in texts for each in like[text]]
        near += [each for text, held in like.items() if _plain(name) in text for each in held]
        named = list(dict.fromkeys(results.named(each.title, each.id) for each in near))
        there = f"there is {', '.join(named[:_NEAREST])}" if named else "list_sessions finds others"
        if len(titled) > 1 and not whole:
            raise UsageError(f"several conversations have the title {name!r}: {there}; use an id")
        raise NotFoundError(f"session {name!r} does not exist; {there}")

    async def _newest(self, records: Iterable[SessionRecord]) -> list[SessionRecord]:
        """Return the conversation with the newest message, if any; a fork only if it went on."""
        said = [each for each in records if each.messages]
        await self._read_times(said)
        said.sort(key=lambda each: (self._times[each.id][2], each.forked_from is None, each.id))
        return said[-1:]

    # -- Remembering

    @tool("Remember or forget", destroys=True)
    async def remember(
        self,
        *,
        text: Annotated[Text | None, Field(description="What to remember, as a sentence.")] = None,
        forget: Annotated[
            Text | None,
            Field(
                description="What to forget: every note and message of the user, in all "
                "conversations, with all of these words is erased for good. Inflected forms count; "
                "words such as 'the' do not."
            ),
        ] = None,
        authors: Annotated[
            Authors,
            Field(description="With forget: erase what others said of it, too."),
        ] = "person",
        all_matches: Annotated[
            bool, Field(description="Forget each one that fits, if there are several.")
        ] = False,
    ) -> results.Remembered:
        """Remember something the user asks you to remember, or forget it.

        With both, what is to be forgotten is looked up before the new text is stored, which is
        stored in any case. Returns what was erased, and what is left of it in other words or by
        others. If several fit, or none, nothing is erased, and they are shown.
        """
        if text is None and forget is None:
            raise UsageError("pass text to remember it, or forget to erase it")
        done = results.Remembered()
        if forget is not None:
            await self._forget(forget, authors, done, several=all_matches)
        if text is not None:
            known = map(_plain, [note.text for note in await self._space.notes()])
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
        done.left = left[:_NAMED]
        more = "several fit: call again with more words, or with all_matches"
        if not fits:
            done.note = f"nothing was erased; {more if gone else 'nothing has all words'}"
        elif len(gone) > results.MOST_ITEMS:
            done.note = f"{len(gone):,} were erased; the first {results.MOST_ITEMS} are shown"

    # -- Conversations

    @tool("Store messages")
    async def append_messages(
        self,
        *,
        session: Annotated[
            Name, Field(description="Id of the conversation; the first call creates it.")
        ],
        messages: Annotated[
            list[NewMessage], Field(min_length=1, max_length=500), AfterValidator(_within)
        ],
        title: Annotated[Name | None, Field(description="Title of a new conversation.")] = None,
    ) -> results.Stored:
        """Store messages of a conversation word for word, in the order they were said.

        Either all are stored or none. Keep a tool's call and its result in one call.
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
        text: Annotated[
            str | None, Field(max_length=512, description="Words of the title or the id.")
        ] = None,
        since: Since = None,
        until: Until = None,
        after: Annotated[
            Annotated[str, Field(min_length=1, max_length=600)] | None,
            Field(description="`next` of the page before."),
        ] = None,
        limit: Limit = 20,
    ) -> results.Sessions:
        """List the conversations by title and dates of their messages, the newest first.

        With since and until, those with messages in that time. search_memory finds them by content.
        """
        place, words = _place(after), _plain(text or "").split()
        families = [
            (root, [root, *forks])
            for root, forks in _families(await self._records())
            if all(word in _plain(f"{root.title or ''} {root.id}") for word in words)
        ]
        await self._read_times([each for _, family in families for each in family])
        listed: list[results.Session] = []
        for root, family in families:
            _, first, last = zip(*(self._times[each.id] for each in family), strict=True)
            if (since and max(last) < since) or (until and min(first) >= until):
                continue
            forks = [each.id for each in family[1 : _NAMED + 1]]
            about = results.picked(root, "id title messages")
            listed.append(results.Session(**about, first=min(first), last=max(last), forks=forks))
        listed.sort(key=lambda each: (each.last, each.id), reverse=True)
        left = [each for each in listed if place is None or (each.last, each.id) < place]
        page = left[:limit]
        ends = f"{page[-1].last.isoformat()} {page[-1].id}" if len(left) > limit else None
        return results.Sessions(sessions=page, total=len(listed), next=ends)

    async def _records(self) -> list[SessionRecord]:
        """Return the records of the space's conversations."""
        found: dict[str, SessionRecord] = {}
        last: str | None = None
        space = self._space.name
        while page := await self._memory.sessions(after=last, limit=_RECORDS, space=space):
            last = page[-1].id
            if last in found:
                break  # a session was erased meanwhile, and the list began again
            found |= {each.id: each for each in page}
        return list(found.values())

    async def _read_times(self, records: Iterable[SessionRecord]) -> None:
        """Read the times of the sessions that were written to since they were read."""

        async def read(record: SessionRecord) -> None:
            times = [record.created_at] * 2
            with suppress(NotFoundError, IndexError):  # it may be empty, or erased meanwhile
                for end, at in enumerate((0, record.messages - 1)):
                    found = await self._memory.session(record.id).messages(at, at + 1)
                    times[end] = found[0].created_at
            self._times[record.id] = (record.version, times[0], times[1])

        known = {name: version for name, (version, *_) in self._times.items()}
        new = [each for each in records if known.get(each.id) != each.version]
        for begin in range(0, len(new), _READS):
            await asyncio.gather(*map(read, new[begin : begin + _READS]))

    @tool("Read a conversation within a token budget", reads=True)
    async def select_context(
        self,
        *,
        session: ReadSession,
        max_tokens: Annotated[
            int, Field(ge=100, le=200_000, description="The most tokens of the answer.")
        ] = 8_000,
        query: Annotated[
            str | None, Field(max_length=10_000, description="What you want to know from it.")
        ] = None,
        view: Annotated[
            Name, Field(description="Your own name, if several agents read differently.")
        ] = "default",
    ) -> results.Selected:
        """Read a whole conversation, however long, within a token budget, to continue it.

        It begins with what the user asked for and said in other conversations.
        The newest messages stand word for word, excerpts and summaries for the older ones. Not
        every message has a line: shown_messages counts those that have. With a query, the messages
        that answer it stand word for word, too.
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
        query: Annotated[
            str | None,
            Field(
                min_length=1,
                max_length=10_000,
                description="A question or words; omit it for all that is known.",
            ),
        ] = None,
        session: AnySession = None,
        limit: Annotated[int, Field(ge=1, le=50)] = 8,
        levels: Annotated[
            list[Annotated[int, Field(ge=0, le=64)]] | None,
            Field(
                max_length=64, description="With session: 0 is messages, 1 and up are summaries."
            ),
        ] = None,
        roles: Annotated[
            list[Literal["system", "user", "assistant", "tool"]] | None, Field(max_length=4)
        ] = None,
        since: Since = None,
        until: Until = None,
    ) -> results.Passages:
        """Find what was said or remembered about something: messages word for word, best first.

        Each has its conversation, date and speaker; notes come first, the newest before the others.
        With a session, its summaries are found too. Without a query, it says what is known about
        the user: wishes, notes, and a line about each conversation.
        """
        if query is None:
            if session is not None:
                raise UsageError("session requires a query; use select_context to read it whole")
            return results.Passages(known=await self._known(None))
        if levels is not None and session is None:
            raise UsageError("levels requires a session; omit it to search all sessions")
        filters = {"levels": levels, "roles": roles, "since": since, "until": until}
        given: dict[str, Any] = {name: each for name, each in filters.items() if each is not None}
        known: list[results.Known] = []
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

    async def _known(self, text: str | None) -> list[results.Known]:
        """Return what the space knows; nothing if it is not made yet and cannot be."""
        with suppress(NotFoundError):
            return [*map(results.Known.of, await self._space.about(text))]
        return []

    @tool("Open a summary or a message", reads=True)
    async def expand_summary(
        self,
        *,
        session: ReadSession,
        id: Annotated[  # noqa: A002 - the name that a hit has
            Name, Field(description="Of a summary, such as L2.3, or of a message: m12.")
        ],
        depth: Annotated[
            int, Field(ge=1, le=64, description="Levels down; 64 reaches the messages.")
        ] = 1,
        max_chars: Annotated[
            int,
            Field(
                ge=100,
                le=_MOST_IN_EXPANSION,
                description="To read on beyond it, raise it, or open the parts by their ids: after "
                "m12 comes m13.",
            ),
        ] = 20_000,
    ) -> results.Passages:
        """Read what a summary was made from, down to the messages; or a message in full."""
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

    # -- Summaries

    @tool("Make summaries", repeatable=True)
    async def summaries_update(
        self,
        *,
        context: Context[Any, Any],
        session: SessionId,
        strategy: Annotated[
            Literal["incremental", "full"],
            Field(description="Make what is missing or outdated; or re-pack all of it."),
        ] = "incremental",
        level: Annotated[
            int | None, Field(ge=1, le=64, description="Only up to this level; all by default.")
        ] = None,
        windowChars: Annotated[Size, Field(ge=1, description="Characters of a window.")] = None,
        minFlushChars: Annotated[
            Size, Field(description="The least that a silence closes.")
        ] = None,
        overlapChars: Annotated[Size, Field(le=400, description="Shown of the one before.")] = None,
        groupChars: Annotated[Size, Field(ge=1, description="Characters of a group.")] = None,
        wiggle: Annotated[
            float | None, Field(ge=0, lt=1, description="The share by which both may differ.")
        ] = None,
        ratioOnly: Annotated[bool | None, Field(description="The prompt states no length.")] = None,
        concurrency: Annotated[
            int | None, Field(ge=1, le=256, description="Calls of the model at once.")
        ] = None,
        batchDelayMs: Annotated[Size, Field(description="Between two batches.")] = None,
        sealPolicy: Annotated[
            Literal["time", "chars", "hybrid"] | None, Field(description="What closes a window.")
        ] = None,
        flushAfterMs: Annotated[
            int | None, Field(ge=1, le=10**11, description="The silence that closes a window.")
        ] = None,
        dry_run: Annotated[
            bool, Field(description="Only return the plan: what would be called, and its cost.")
        ] = False,
        wait: Annotated[bool, Field(description="Wait for all levels, not only level 1.")] = False,
        max_calls: MaxCalls = None,
        max_tokens: MaxTokens = None,
    ) -> results.Updated:
        """Make the summaries of a conversation that are missing or out of date.

        Level 1 is made before this answers; higher levels follow, and run_logs tells of them. The
        sizes need not be given: a conversation keeps its own. Sizes that differ are kept for new
        windows, or with strategy 'full' the whole conversation is summarised again with them.
        """
        full = strategy == "full"
        if full and level is not None:
            raise UsageError("strategy 'full' makes all levels; leave level out")
        place = await self.found(session)
        name = place.id
        given = {
            "windowChars": windowChars, "minFlushChars": minFlushChars,
            "overlapChars": overlapChars, "groupChars": groupChars, "wiggle": wiggle,
            "ratioOnly": ratioOnly, "sealPolicy": sealPolicy, "flushAfterMs": flushAfterMs,
        }  # fmt: skip
        sizes = {key: value for key, value in given.items() if value is not None}
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
            return results.Updated(
                session=name,
                state="planned",
                plan=results.picked(
                    plan, "calls calls_max tokens_in tokens_out by_level reused seconds cost"
                ),
                note=None if full or config is None else "the plan is for the present windows",
            )
        if config is not None and not full:
            await place.reconfigure(config)
        async with progress_to(context) as report:
            made = await update(
                level if wait or full else 1,
                max_calls=max_calls, max_tokens=max_tokens, on_progress=report,
            )  # fmt: skip
        # If level 1 had nothing to make, work follows only if a higher level had some.
        higher = any(
            count and 1 < number <= (level or number)
            for counts in (before.unfinished, before.dirty)
            for number, count in counts.items()
        )
        ended = wait or full or level == 1 or made.stopped is not None
        ended = ended or (made.run_id is None and not higher)
        if not ended:  # both parts together keep the caps
            calls = None if max_calls is None else max(0, max_calls - made.calls)
            tokens = None if max_tokens is None else max(0, max_tokens - made.tokens)
            await update(level, wait=False, max_calls=calls, max_tokens=tokens)
        return results.Updated(
            session=name,
            state="done" if ended else "running",
            jobId=made.run_id,
            log=f"logs://{made.run_id}" if made.run_id else None,
            reconfigured=config is not None,
            report=results.picked(made, _REPORTED),
        )  # fmt: skip

    @tool("Read the log of runs", reads=True)
    async def run_logs(
        self,
        *,
        id: Annotated[  # noqa: A002 - the name that a run has
            Name | None, Field(description="Of a run, such as a jobId; omit for the newest runs.")
        ] = None,
        session: AnySession = None,
        limit: Limit = 10,
    ) -> results.Logs:
        """Read what a run did, called and cost, and what failed.

        Without an id, list the newest runs: updates, extractions, consolidations, erasures.
        """
        if id is None:
            place = self._memory if session is None else await self.found(session, reads=True)
            runs = await place.runs(limit=limit)
            return results.Logs(runs=[results.picked(each, _RUN) for each in runs])
        report = await self._memory.run(id)
        items = [results.picked(each, _ITEM) for each in report.items[:limit]]
        for each in items:  # a reason may be a provider's text
            each["reasons"] = [why[: results.SHORT] for why in each["reasons"]]
        record, omitted = results.picked(report.record, _RUN), len(report.items) - len(items)
        return results.Logs(runs=[record], items=items, items_omitted=omitted)

    @tool("Measure a conversation", reads=True)
    async def memory_metrics(self, *, session: ReadSession) -> results.Measured:
        """Measure how far a conversation is compressed, what that cost and how much was kept."""
        return results.Measured.model_validate(
            await (await self.found(session, reads=True)).metrics()
        )

    # -- Notes and the bank

    @tool("Write a note")
    async def live_note(
        self,
        *,
        text: Text,
        space: SpaceName = None,
        agent: Annotated[str, Field(max_length=512, description="Who writes.")] = "",
        category: Annotated[
            str,
            Field(
                max_length=512,
                description="Kind of note, such as decision, issue or todo: it helps to place the "
                "note in the files.",
            ),
        ] = "",
        tags: Annotated[list[Name], Field(max_length=64)] = [],  # noqa: B006 - never changed
        rules: Annotated[
            str | None,
            Field(
                max_length=100_000,
                description="Of a new space: Markdown that names its files, such as progress.md, "
                "and says what belongs into each.",
            ),
        ] = None,
    ) -> results.LiveNote:
        """Note a decision, a fact or a step of your work in a space, which the first note makes."""
        place = await self._named(space, rules, RULES)
        note = await place.note(text, agent=agent, category=category, tags=tags)
        return results.LiveNote.of(note)

    @tool("Read notes and files", reads=True)
    async def bank_read(
        self,
        *,
        space: Annotated[Name | None, Field(description="Omit for the user's own.")] = None,
        file: Annotated[
            Name | None,
            Field(description="Such as progress.md; omit for the list of files and the notes."),
        ] = None,
        offset: Annotated[int, Field(ge=0, lt=2**53)] = 0,
        max_chars: Annotated[int, Field(ge=100, le=_MOST_IN_EXPANSION)] = 20_000,
    ) -> results.Bank:
        """Read what a space knows: its files and the notes that no file has taken in yet.

        Without a space and a file, the names of all spaces come with it.
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
                notes=[results.LiveNote.of(each) for each in notes[-_NAMED:]],
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
        space: SpaceName = None,
        dry_run: Annotated[bool, Field(description="Ask the model, but change nothing.")] = False,
        max_calls: MaxCalls = None,
        max_tokens: MaxTokens = None,
    ) -> results.Consolidated:
        """Have the model write the notes of a space into its files; this may take long."""
        place = await self._named(space)
        done = await place.consolidate(dry_run=dry_run, max_calls=max_calls, max_tokens=max_tokens)
        return results.Consolidated.model_validate(done)

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

    # -- Knowledge

    @tool("Extract knowledge", repeatable=True)
    async def extract_session(
        self,
        *,
        context: Context[Any, Any],
        session: SessionId,
        most: Annotated[
            int, Field(ge=1, le=500, description="Items of each kind that are returned.")
        ] = 50,
        on_chunk_failure: Literal["abort", "partial"] = "abort",
        max_calls: MaxCalls = None,
        max_tokens: MaxTokens = None,
    ) -> results.Extracted:
        """Extract a graph of people, things and decisions from a conversation; this may take long.

        The result has entities and relations, what is still open, and the direction of the work. It
        is kept, and what was paid for is not asked for again.
        """
        place = await self.found(session)
        async with progress_to(context) as report:
            done = await place.extract(
                ExtractionOptions(on_chunk_failure=on_chunk_failure),
                on_progress=report,
                max_calls=max_calls,
                max_tokens=max_tokens,
            )
        graph, kinds = done.tri_vector, ("entities", "relations", "deltas", "strategy")
        cut = graph and graph.model_copy(update={one: getattr(graph, one)[:most] for one in kinds})
        return results.Extracted(
            session=place.id,
            report=results.picked(done, _EXTRACTED),
            failures=[f"{each.id}: {each.reason}" for each in done.failures[: results.MOST_ITEMS]],
            entities=len(graph.entities) if graph else 0,
            relations=len(graph.relations) if graph else 0,
            tri_vector=cut and cut.model_dump(mode="json", exclude_none=True),
        )

    # -- Erasing

    @tool("Erase messages", destroys=True, repeatable=True)
    async def erase_messages(
        self,
        *,
        session: SessionId,
        messages: Indices,
        forks: Annotated[
            Literal["all", "keep"],
            Field(description="Erase them also in conversations that share them, or keep them."),
        ] = "all",
    ) -> results.Erased:
        """Erase messages and everything made from them, for good. This cannot be undone.

        Ask the user first.
        """
        receipt = await (await self.found(session)).erase(messages, forks=forks)
        return results.Erased.model_validate(receipt)

    @tool("Erase a conversation", destroys=True)
    async def erase_session(
        self,
        *,
        session: SessionId,
        confirm: Annotated[
            str, Field(max_length=512, description="The id of the conversation once more.")
        ],
        forks: Annotated[
            Literal["all", "keep"],
            Field(description="Erase its messages also in conversations that share them."),
        ] = "all",
    ) -> results.Erased:
        """Erase a whole conversation and everything made from it. This cannot be undone.

        Ask the user first.
        """
        if confirm != session:
            raise UsageError("confirm must be the id of the conversation; nothing was erased")
        place = await self.found(session, whole=True)
        receipt = await self._memory.erase_session(place.id, forks=forks)
        return results.Erased.model_validate(receipt)


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


def _place(after: str | None) -> tuple[datetime, str] | None:
    """Return the time and the id of the session that ends a page, from the page's ``next``."""
    if after is None:
        return None
    given, _, session = after.partition(" ")
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not session:
        raise UsageError("after is invalid; pass the `next` of the page before unchanged")
    return moment, session


def _families(records: Iterable[SessionRecord]) -> list[tuple[SessionRecord, list[SessionRecord]]]:
    """Return each session that is no fork of another one here, with all of its forks."""
    known = {each.id: each for each in records}
    found: dict[str, list[SessionRecord]] = {}
    for each in known.values():
        root = each
        while root.forked_from in known:
            root = known[root.forked_from]
        found.setdefault(root.id, [])
        if root is not each:
            found[root.id].append(each)
    return [(known[name], forks) for name, forks in found.items()]


def _sources(found: Iterable[SessionRecord]) -> list[SessionRecord]:
    """Return the sessions that are no forks; the forks, if they alone have been found."""
    forks = list(found)
    return [each for each in forks if each.forked_from is None] or forks


def _spelled(name: str, known: Iterable[str]) -> str:
    """Return the one of the names that is this name in another normal form, or the name itself."""
    like = [each for each in known if normalize("NFC", each) == normalize("NFC", name)]
    return name if name in like or not like else like[0]


def _plain(text: str) -> str:
    # An accented letter has two spellings, which look the same.
    return normalize("NFKC", normalize("NFKC", " ".join(text.split())).casefold())
