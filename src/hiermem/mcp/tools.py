"""The tools: what a client may ask of the memory, in words that a model understands.

The docstring of a tool and the descriptions of its parameters are what a model reads before it
calls. A tool checks no more than sizes; the memory checks what it is given, and its errors say what
would be right.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from hiermem import (
    AsyncMemory,
    ExtractionOptions,
    HierarchyConfig,
    Message,
    NotFoundError,
    RunReport,
    SessionRecord,
    ToolCall,
    UpdateProgress,
    UpdateReport,
    UsageError,
    published,
)
from hiermem.mcp import results
from hiermem.mcp.jobs import Jobs, Report, progress_to

F = TypeVar("F", bound=Callable[..., Any])
#: The most characters of all the texts of one append, and of an expansion.
MOST_IN_APPEND: Final = 3_000_000
_MOST_IN_EXPANSION: Final = 400_000
_MINUTE_MS: Final = 60_000

Name = Annotated[str, Field(min_length=1, max_length=512)]
SessionId = Annotated[
    str, Field(min_length=1, max_length=512, description="The id of the conversation.")
]
AnySession = Annotated[
    str | None,
    Field(min_length=1, max_length=512, description="The id of one conversation; omit for all."),
]
SpaceName = Annotated[
    str, Field(min_length=1, max_length=512, description="The name of the space.")
]
Question = Annotated[
    str, Field(min_length=1, max_length=10_000, description="The question, in plain words.")
]
Limit = Annotated[int, Field(ge=1, le=100)]
MaxCalls = Annotated[
    int | None, Field(ge=0, le=1_000_000, description="End before more calls of the model.")
]
MaxTokens = Annotated[
    int | None, Field(ge=0, le=10**12, description="End before more tokens of the model.")
]
Chars = Annotated[int | None, Field(ge=0, le=10_000_000)]
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
        datetime | None, Field(description="With a time zone; the present time by default.")
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
    """The tools over one memory; tenant and store were fixed when it was opened."""

    def __init__(self, memory: AsyncMemory, jobs: Jobs) -> None:
        self._memory, self._jobs = memory, jobs

    # -- Conversations

    @tool("Store messages")
    async def append_messages(
        self,
        *,
        session: SessionId,
        messages: Annotated[
            list[NewMessage], Field(min_length=1, max_length=500), AfterValidator(_within)
        ],
        title: Annotated[
            Name | None, Field(description="What a new conversation is about.")
        ] = None,
    ) -> results.Appended:
        """Store messages of a conversation word for word and for good, in the order they were said.

        The first call creates the conversation. Either all messages are stored or none. A message
        with a key that was stored before is not stored again. Keep a tool's call and its result in
        one call. Call summaries_update now and then, so that older messages are summarised.
        """
        indices = await self._memory.session(session, title=title).append(
            each.message() for each in messages
        )
        return results.Appended(session=session, indices=indices)

    @tool("List conversations", reads=True)
    async def list_sessions(
        self,
        *,
        after: Annotated[
            Annotated[str, Field(min_length=1, max_length=600)] | None,
            Field(description="The `next` of the page before; omit for the first."),
        ] = None,
        limit: Limit = 20,
        order_by: Literal["last_activity", "created"] = "last_activity",
        metadata: Annotated[
            dict[Name, Annotated[str, Field(max_length=512)]] | None,
            Field(max_length=64, description="Only those that have all of these labels."),
        ] = None,
    ) -> results.Sessions:
        """List the conversations that are stored, the one that was written to last first."""
        read = partial(self._memory.sessions, order_by=order_by, metadata=metadata)
        latest = order_by == "last_activity"
        moment, last = _place(after)
        found = await read(after=last, limit=limit)
        if moment and [each.id for each in found[:1]] == [each.id for each in await read(limit=1)]:
            # The session is gone, and the memory began again: go on behind where it stood.
            found = await read(after=await _last_before(moment, read, latest=latest), limit=limit)
        end = found[-1] if len(found) == limit else None
        return results.Sessions(
            sessions=[results.Session.model_validate(each) for each in found],
            total=await self._memory.count_sessions(metadata=metadata),
            next=end and f"{_stands(end, latest=latest).isoformat()} {end.id}",
        )

    @tool("Read a conversation within a token budget", reads=True)
    async def select_context(
        self,
        *,
        session: SessionId,
        max_tokens: Annotated[
            int, Field(ge=100, le=200_000, description="The most tokens of the answer.")
        ] = 8_000,
        query: Annotated[
            str | None,
            Field(max_length=10_000, description="A question; what answers it comes last."),
        ] = None,
        recall_tokens: Annotated[
            int | None, Field(ge=0, le=200_000, description="Of these, tokens for the question.")
        ] = None,
        view: Annotated[
            Name, Field(description="Your own name, if several agents read differently.")
        ] = "default",
    ) -> results.Selected:
        """Read a whole conversation, however long, within a token budget.

        The newest messages stand word for word; excerpts and summaries stand for the older ones.
        Many of these have no line of their own: shown_messages counts those that have. Call this
        first when you continue a conversation, and search for what is not there. With a query, the
        older messages that answer it follow word for word.
        """
        made = await self._memory.session(session).context(
            max_tokens, query=query, recall_tokens=recall_tokens, view=view
        )
        return results.Selected(
            session=session,
            text=made.to_text(),
            total_tokens=made.total_tokens,
            max_tokens=made.max_tokens,
            messages=made.messages,
            coverage=made.coverage,
            shown_messages=len(made.shown.messages),
            recalled=[each.index for each in made.recall],
            explanation=made.explain(),
        )

    @tool("Search", reads=True)
    async def search_memory(
        self,
        *,
        query: Question,
        session: AnySession = None,
        limit: Annotated[int, Field(ge=1, le=50)] = 10,
        levels: Annotated[
            list[Annotated[int, Field(ge=0, le=64)]] | None,
            Field(
                max_length=64,
                description="Of one conversation: 0 for messages, 1 and up for summaries.",
            ),
        ] = None,
        roles: Annotated[
            list[Literal["system", "user", "assistant", "tool"]] | None, Field(max_length=4)
        ] = None,
        since: Annotated[datetime | None, Field(description="With a time zone.")] = None,
        until: Annotated[datetime | None, Field(description="With a time zone.")] = None,
    ) -> results.Hits:
        """Find what matches a question, best first, in one conversation or in all of them.

        In one, summaries are found too. Use recall_memory to read the answer itself. A hit's id
        goes into expand_summary.
        """
        if levels is not None and session is None:
            raise UsageError("levels goes with a session; messages of all sessions are searched")
        filters = _filters(levels=levels, roles=roles, since=since, until=until)
        place = self._memory if session is None else self._memory.session(session)
        hits = await place.search(query, limit, **filters)
        return results.Hits(hits=[results.Found.of(hit) for hit in hits])

    @tool("Recall word for word", reads=True)
    async def recall_memory(
        self,
        *,
        query: Question,
        session: AnySession = None,
        max_tokens: Annotated[
            int, Field(ge=50, le=50_000, description="The most tokens of the answer.")
        ] = 1_500,
        since: Annotated[datetime | None, Field(description="With a time zone.")] = None,
        until: Annotated[datetime | None, Field(description="With a time zone.")] = None,
    ) -> results.Recalled:
        """Recall what was said about a question, word for word, with speakers and dates.

        Without a session, all conversations are asked. The first time, that may take long.
        """
        filters = _filters(since=since, until=until)
        place = self._memory if session is None else self._memory.session(session)
        evidence = await place.recall(query, max_tokens, **filters)
        return results.Recalled(
            text=evidence.text,
            total_tokens=evidence.total_tokens,
            sources=[
                results.Source(session=hit.session_id, message=hit.span.start) for hit in evidence
            ],
        )

    @tool("Open a summary", reads=True)
    async def expand_summary(
        self,
        *,
        session: SessionId,
        id: Annotated[  # noqa: A002 - the name that a hit has
            Name, Field(description="The id of a summary, such as L2.3, or of a message: m12.")
        ],
        depth: Annotated[
            int | None,
            Field(ge=1, le=64, description="Levels to go down; null for the messages."),
        ] = 1,
        max_chars: Annotated[int, Field(ge=100, le=_MOST_IN_EXPANSION)] = 20_000,
    ) -> results.Expanded:
        """Read what a summary was made from: summaries, or at level 1 the messages themselves."""
        found = await self._memory.session(session).expand(id, depth)
        parts: list[results.Part] = []
        room = max_chars
        for each in found[: results.MOST_ITEMS]:
            if room <= 0:
                break
            parts.append(results.Part.of(each, room))
            room -= len(parts[-1].text)
        return results.Expanded(session=session, parts=parts, omitted=len(found) - len(parts))

    # -- Summaries

    @tool("Make summaries", repeatable=True)
    async def summaries_update(
        self,
        *,
        context: Context[Any, Any],
        sessionId: Annotated[
            Name | None, Field(description="The id of the conversation; or give slug.")
        ] = None,
        slug: Annotated[Name | None, Field(description="Another name for sessionId.")] = None,
        strategy: Annotated[
            Literal["incremental", "full"],
            Field(description="Make what is missing or outdated; or re-pack all of it."),
        ] = "incremental",
        level: Annotated[
            int | None, Field(ge=1, le=64, description="Only up to this level; all by default.")
        ] = None,
        windowChars: Annotated[
            int | None, Field(ge=1, le=10_000_000, description="Characters of one window.")
        ] = None,
        minFlushChars: Annotated[
            Chars, Field(description="The least characters that a silence makes a window of.")
        ] = None,
        overlapChars: Annotated[
            int | None,
            Field(ge=0, le=400, description="Characters of the window before that are shown."),
        ] = None,
        groupChars: Annotated[
            int | None,
            Field(ge=1, le=10_000_000, description="Characters of summaries in one group."),
        ] = None,
        wiggle: Annotated[
            float | None,
            Field(ge=0, lt=1, description="The share by which windows and groups may differ."),
        ] = None,
        ratioOnly: Annotated[
            bool | None, Field(description="The prompt states the ratio, and no length.")
        ] = None,
        concurrency: Annotated[
            int | None, Field(ge=1, le=256, description="Calls of the model at once.")
        ] = None,
        batchDelayMs: Annotated[
            int | None,
            Field(ge=0, le=60 * _MINUTE_MS, description="Milliseconds between two batches."),
        ] = None,
        sealPolicy: Annotated[
            Literal["time", "chars", "hybrid"] | None,
            Field(description="What closes a window: time, size, or both."),
        ] = None,
        flushAfterMs: Annotated[
            int | None,
            Field(ge=1, le=10**11, description="Milliseconds of silence that close a window."),
        ] = None,
        dryRun: Annotated[
            bool, Field(description="Only return the plan: what would be called, and its cost.")
        ] = False,
        wait: Annotated[bool, Field(description="Wait for all levels, not only level 1.")] = False,
        maxCalls: MaxCalls = None,
        maxTokens: MaxTokens = None,
    ) -> results.Updated:
        """Make the summaries of a conversation that are missing or out of date.

        Level 1 is made before this answers; higher levels go on behind, and run_logs with the
        `jobId` tells how far they are. The sizes need not be given: a conversation keeps its own.
        Sizes that differ are kept for new windows, or with strategy 'full' the whole conversation
        is summarised again with them.
        """
        if (sessionId is None) == (slug is None):
            raise UsageError("give sessionId or slug, and not both")
        name = sessionId or slug or ""
        session, full = self._memory.session(name), strategy == "full"
        if full and level is not None:
            raise UsageError("strategy 'full' makes all levels; leave level out")
        if not await session.count():
            raise NotFoundError(f"session {name!r} does not exist")
        given = {
            "windowChars": windowChars, "minFlushChars": minFlushChars,
            "overlapChars": overlapChars, "groupChars": groupChars, "wiggle": wiggle,
            "ratioOnly": ratioOnly, "sealPolicy": sealPolicy, "flushAfterMs": flushAfterMs,
        }  # fmt: skip
        sizes = {key: value for key, value in given.items() if value is not None}
        config = None
        if sizes:
            present = (await session.status()).config
            config = wanted(present, sizes, full=full)
            config = None if config == present else config
        update = partial(
            session.update,
            strategy=strategy,
            concurrency=concurrency,
            batch_delay=None if batchDelayMs is None else batchDelayMs / 1000,
            config=config if full else None,
        )
        if dryRun:
            plan = await update(level, dry_run=True)
            return results.Updated(
                session=name,
                state="planned",
                plan=results.Plan.model_validate(plan),
                note=None if full or config is None else "the plan is for the present windows",
            )
        if config is not None and not full:
            await session.reconfigure(config)
        job = self._jobs.begin(name)

        async def part(
            upto: int | None, calls: int | None, tokens: int | None, report: Report
        ) -> UpdateReport:
            def work(progress: Callable[[UpdateProgress], object]) -> Any:
                return update(upto, max_calls=calls, max_tokens=tokens, on_progress=progress)

            return await self._jobs.run(job, work, report)

        answer = partial(
            results.Updated,
            session=name,
            jobId=job.id,
            log=f"logs://{job.id}",
            reconfigured=config is not None,
        )
        if full and not wait:
            self._jobs.behind(job, part(None, maxCalls, maxTokens, _silent))
            return answer(state="running")
        async with progress_to(context) as report:
            made = await part(level if wait or full else 1, maxCalls, maxTokens, report)
        goes_on = not (wait or full) and level != 1 and made.stopped is None
        if goes_on:
            calls = None if maxCalls is None else max(0, maxCalls - made.calls)
            tokens = None if maxTokens is None else max(0, maxTokens - made.tokens)
            self._jobs.behind(job, part(level, calls, tokens, _silent))
        else:
            job.state = "done"
        return answer(
            state="running" if goes_on else "done", report=results.Made.model_validate(made)
        )

    @tool("Read the log of runs", reads=True)
    async def run_logs(
        self,
        *,
        id: Annotated[  # noqa: A002 - the name that a run has
            Name | None, Field(description="A jobId or run_id; omit to list the newest runs.")
        ] = None,
        session: AnySession = None,
        limit: Limit = 20,
    ) -> results.Logs:
        """Read how far an update is, or what a run did, called and cost, and what failed.

        Without an id, list the newest runs: updates, extractions, consolidations, erasures.
        """
        if id is None:
            runs = await (
                self._memory.runs(limit=limit)
                if session is None
                else self._memory.session(session).runs(limit=limit)
            )
            return results.Logs(runs=[results.Run.model_validate(each) for each in runs])
        job = self._jobs.get(id)
        reports: list[RunReport] = []
        for each in [id] if job is None else job.runs:
            try:
                reports.append(await self._memory.run(each))
            except NotFoundError:  # a run goes with its session, the job stays
                if job is None:
                    raise
        items = [item for report in reports for item in report.items]
        return results.Logs(
            runs=[results.Run.model_validate(each.record) for each in reports],
            job=job,
            items=[results.Item.model_validate(each) for each in items[:limit]],
            items_omitted=max(0, len(items) - limit),
        )

    @tool("Measure a conversation", reads=True)
    async def memory_metrics(self, *, session: SessionId) -> results.Measured:
        """Measure how far a conversation is compressed, what that cost and how much was kept."""
        return results.Measured.model_validate(await self._memory.session(session).metrics())

    # -- Notes and the bank

    @tool("Write a note")
    async def live_note(
        self,
        *,
        space: SpaceName,
        text: Annotated[str, Field(min_length=1, max_length=100_000)],
        agent: Annotated[str, Field(max_length=512, description="Who writes.")] = "",
        category: Annotated[str, Field(max_length=512)] = "",
        tags: Annotated[list[Name], Field(max_length=64)] = [],  # noqa: B006 - never changed
        rules: Annotated[
            str | None,
            Field(
                max_length=100_000,
                description="For a new space only: Markdown that names the bank's files (such as "
                "progress.md) and says what belongs into each.",
            ),
        ] = None,
    ) -> results.LiveNote:
        """Write down a decision, a fact or a step while you work. Nothing is lost.

        Notes are gathered in a space. bank_consolidate later writes them into its files.
        """
        note = await self._memory.space(space, rules=rules).note(
            text, agent=agent, category=category, tags=tags
        )
        return results.LiveNote.of(note)

    @tool("Read notes", reads=True)
    async def read_notes(
        self,
        *,
        space: SpaceName,
        state: Literal["live", "blocked", "consumed"] = "live",
        limit: Limit = 50,
    ) -> results.Notes:
        """Read the newest notes of a space: those not consolidated yet, or those that were."""
        found = await self._memory.space(space).notes(state)
        return results.Notes(
            space=space,
            notes=[results.LiveNote.of(each) for each in found[-limit:]],
            omitted=max(0, len(found) - limit),
        )

    @tool("List the bank", reads=True)
    async def bank_files(
        self, *, space: Annotated[Name | None, Field(description="Omit to list the spaces.")] = None
    ) -> results.Bank:
        """List the spaces; or the files of one space, with its rules and its synthesis."""
        if space is None:
            return results.Bank(spaces=await self._memory.spaces())
        opened = self._memory.space(space)
        return results.Bank(
            space=space,
            files=await opened.files(),
            synthesis=await opened.synthesis(),
            rules=await opened.rules(),
            revision=(await opened.meta()).revision,
        )

    @tool("Read a bank file", reads=True)
    async def bank_read(
        self,
        *,
        space: SpaceName,
        file: Annotated[Name, Field(description="The name of a file, such as progress.md.")],
        offset: Annotated[int, Field(ge=0, lt=2**53)] = 0,
        max_chars: Annotated[int, Field(ge=100, le=_MOST_IN_EXPANSION)] = 50_000,
    ) -> results.BankFile:
        """Read a file of the bank, whole or a stretch of it."""
        text = await self._memory.space(space).read(file)
        end = offset + max_chars
        return results.BankFile(
            space=space,
            file=file,
            text=text[offset:end],
            characters=len(text),
            next_offset=end if end < len(text) else None,
        )

    @tool("Consolidate notes")
    async def bank_consolidate(
        self,
        *,
        space: SpaceName,
        dry_run: Annotated[bool, Field(description="Ask the model, but change nothing.")] = False,
        max_calls: MaxCalls = None,
        max_tokens: MaxTokens = None,
    ) -> results.Consolidated:
        """Have the model write the live notes of a space into its bank files; this may take long.

        A note stays live until a file has taken it in, whatever fails.
        """
        done = await self._memory.space(space).consolidate(
            dry_run=dry_run, max_calls=max_calls, max_tokens=max_tokens
        )
        return results.Consolidated.model_validate(done)

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
        async with progress_to(context) as report:
            done = await self._memory.session(session).extract(
                ExtractionOptions(on_chunk_failure=on_chunk_failure),
                on_progress=lambda state: report(state.done, state.total),
                max_calls=max_calls,
                max_tokens=max_tokens,
            )
        graph = done.tri_vector
        kinds = ("entities", "relations", "deltas", "strategy")
        return results.Extracted(
            session=session,
            outcome=done.outcome,
            run_id=done.run_id,
            messages=done.messages,
            chunks=len(done.chunks),
            calls=done.calls,
            tokens_in=done.tokens_in,
            tokens_out=done.tokens_out,
            cost=done.cost,
            stopped=done.stopped,
            model=done.model,
            failures=[f"{each.id}: {each.reason}" for each in done.failures[: results.MOST_ITEMS]],
            entities=len(graph.entities) if graph else 0,
            relations=len(graph.relations) if graph else 0,
            tri_vector=graph
            and graph.model_copy(update={name: getattr(graph, name)[:most] for name in kinds}),
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
        receipt = await self._memory.session(session).erase(messages, forks=forks)
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
        receipt = await self._memory.erase_session(session, forks=forks)
        return results.Erased.model_validate(receipt)


def hints_of(method: object) -> ToolAnnotations | None:
    """Return what a method was marked with as a tool; None for any other method."""
    found: ToolAnnotations | None = getattr(method, "hints", None)
    return found


def wanted(config: HierarchyConfig, given: Mapping[str, Any], *, full: bool) -> HierarchyConfig:
    """Return a session's configuration with the parameters of ``summaries_update`` given.

    A session in tokens that is re-packed with sizes in characters gets the characters preset.

    Raises UsageError for sizes in characters on a session in tokens that is not re-packed, and
    ConfigError for what no configuration may be.
    """
    sizes = [name for name in given if published.keys()[name].unit == "chars"]
    if config.unit == "chars" or not sizes:
        return HierarchyConfig.from_published(given, base=config)
    if full:
        return HierarchyConfig.from_published(given)
    raise UsageError(
        f"{', '.join(sizes)}: sizes in characters, but this session is measured in tokens; "
        "leave them out, or re-pack the session in characters with strategy 'full'"
    )


def _place(after: str | None) -> tuple[datetime | None, str | None]:
    """Return the time and the id of the session that ends a page, from the page's ``next``."""
    if after is None:
        return None, None
    time, _, session = after.partition(" ")
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not session:
        raise UsageError("after must be the `next` of the page before, as it was returned")
    return moment, session


def _stands(session: SessionRecord, *, latest: bool) -> datetime:
    """Return the time by which a session is listed."""
    return session.last_activity if latest else session.created_at


async def _last_before(
    moment: datetime, read: Callable[..., Awaitable[list[SessionRecord]]], *, latest: bool
) -> str | None:
    """Return the id of the last session that is listed before those of a time, if there is one."""
    last: str | None = None
    while page := await read(after=last):
        for each in page:
            time = _stands(each, latest=latest)
            if (time <= moment) if latest else (time >= moment):
                return last
            last = each.id
    return last


def _silent(_done: float, _total: float | None) -> None:
    """Report to nobody: the client has its answer."""


def _filters(**given: Sequence[Any] | datetime | None) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
