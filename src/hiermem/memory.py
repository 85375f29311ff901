"""The asynchronous public face: a memory, and the sessions in it.

The one rule: nothing is decided here. A call checks its arguments, hands them to the engine and
gives back what it answers. ``hiermem.sync`` is the same, blocking.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, overload

from hiermem.config import ContextPolicy, ExtractionOptions, HierarchyConfig, UpdatePolicy
from hiermem.core import arguments
from hiermem.core.extract_plan import ExtractionProgress, ExtractionReport
from hiermem.core.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.prompt import PromptTemplate
from hiermem.core.selection import ContextBudget, ContextSelection, ShownSummary
from hiermem.core.text import MAX_NAME, check, check_name
from hiermem.engine import append as ingest
from hiermem.engine import tree
from hiermem.engine.append import About, Messages
from hiermem.engine.context import ContextWindowManager, Strategy
from hiermem.engine.graph import AsyncGraph, tri_vector
from hiermem.engine.handle import Handle, config_from, utc_now
from hiermem.engine.tree import SessionStatus, Tree
from hiermem.engine.update import update as run_update
from hiermem.errors import MemoryClosedError, UsageError
from hiermem.extractor import ModelLike, SemanticGraphExtractor
from hiermem.protocols import RunRecord, Store, TokenCounter
from hiermem.tokens import default_counter
from hiermem.trivector import TriVector
from hiermem.types import SessionRecord, StoredMessage, Summary

__all__ = ["AsyncMemory", "AsyncSession", "ModelLike"]

_log = logging.getLogger("hiermem.memory")
#: More runs than this are never listed at once; a store's own numbers end somewhere.
_MOST_RUNS = 2**31 - 1


class AsyncMemory:
    """One tenant's conversation memory over a store, with the model that summarises.

    Use ``async with AsyncMemory.open("chat.db") as memory`` for the embedded store, or construct it
    with parts of your own. ``prompts`` replaces templates by name, such as "summarise.l1.detailed".
    """

    def __init__(
        self,
        *,
        store: Store,
        tenant: str = "default",
        llm: ModelLike | None = None,
        token_counter: TokenCounter | None = None,
        config: HierarchyConfig | None = None,
        update_policy: UpdatePolicy | None = None,
        context_policy: ContextPolicy | None = None,
        prompts: Mapping[str, PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.defaults import as_llm, as_prompts

        self._store = arguments.store_of(store)
        self._llm = as_llm(llm)
        self._fallback = as_llm(None)
        settled = arguments.optional(config, "config", HierarchyConfig, HierarchyConfig.by_tokens)
        self._prompts = as_prompts(prompts, settled)
        self._handle = Handle(
            store=store.tenant(check_name(tenant, what="tenant")),
            counter=arguments.counter_of(token_counter, default_counter),
            config=settled,
            update_policy=arguments.optional(
                update_policy, "update_policy", UpdatePolicy, UpdatePolicy
            ),
            context_policy=arguments.optional(
                context_policy, "context_policy", ContextPolicy, ContextPolicy
            ),
            clock=arguments.function(clock, "clock"),
        )
        self._manager = ContextWindowManager.over(self._handle)
        self._graph = AsyncGraph(self._open_handle)
        self._background: set[asyncio.Task[Any]] = set()
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        tenant: str = "default",
        llm: ModelLike | None = None,
        token_counter: TokenCounter | None = None,
        config: HierarchyConfig | None = None,
        create: bool = True,
        **settings: Any,
    ) -> _Opening:
        """Open the embedded store at ``path``; ":memory:" keeps nothing.

        Serves ``await`` and ``async with``. ``settings`` are the further ones of the constructor.

        Raises StoreError where the file is not a hiermem store, is newer or damaged, and
        NotFoundError where it does not exist and ``create`` is False.
        """
        parts = {
            "tenant": tenant,
            "llm": llm,
            "token_counter": token_counter,
            "config": config,
            **settings,
        }
        return _Opening(path, create=create, parts=parts)

    @property
    def tenant(self) -> str:
        """Give the tenant that this memory was opened for."""
        return self._handle.store.tenant

    @property
    def manager(self) -> ContextWindowManager:
        """Give the context window manager over this memory's store."""
        return self._manager

    @property
    def graph(self) -> AsyncGraph:
        """Give the graph of everything that was extracted for this tenant."""
        return self._graph

    def session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        participants: Sequence[str] = (),
        on_bad_text: Literal["refuse", "replace"] = "refuse",
    ) -> AsyncSession:
        """Give the session of that id; it is created by its first append. Does no I/O.

        ``title`` and ``participants`` are told to the summarising model. ``on_bad_text="replace"``
        mends lone surrogates and NULs instead of refusing them.
        """
        arguments.one_of(on_bad_text, "on_bad_text", ("refuse", "replace"))
        if title is not None:
            title = check(title, what="title", cap=MAX_NAME, on_bad=on_bad_text)
        about = About(
            id=check_name(session_id, what="session id"),
            title=title,
            participants=arguments.names(participants, "participants"),
            on_bad_text=on_bad_text,
        )
        return AsyncSession(self, about)

    async def sessions(self) -> list[SessionRecord]:
        """List the sessions of this tenant, oldest first."""
        return await self._open_handle().store.sessions()

    async def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this tenant, newest first."""
        return await self._open_handle().store.runs(limit=_limit(limit))

    async def close(self) -> None:
        """Wait up to the drain time for background work, then close the store.

        What was not finished stays pending; the next update makes it.
        """
        if self._closed:
            return
        self._closed = True
        if self._background:
            _, left = await asyncio.wait(self._background, timeout=self._handle.update_policy.drain)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
                _log.warning("%d background updates were left pending", len(left))
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _open_handle(self) -> Handle:
        if self._closed:
            raise MemoryClosedError("this memory was closed; open it again")
        return self._handle

    def _behind(self, work: Awaitable[Any]) -> None:
        """Let ``work`` go on in the background; its failure is logged, the work stays pending."""

        async def run() -> None:
            try:
                await work
            except Exception:  # noqa: BLE001 - nobody awaits it; the log is where it goes
                _log.exception("a background update failed; what it had to make stays pending")

        task = asyncio.get_running_loop().create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _limit(value: Any) -> int:
    """Give how many runs are asked for, as a number that any store can take."""
    return min(arguments.whole(value, "limit"), _MOST_RUNS)


def _check_update(
    *,
    level: Any,
    wait: Any,
    on_progress: Any,
    max_calls: Any,
    max_tokens: Any,
    deadline: Any,
    dry_run: Any,
) -> None:
    """Refuse arguments of an update that mean nothing. Raises UsageError."""
    if level is not None:
        arguments.whole(level, "level", least=1)
    if max_calls is not None:
        arguments.whole(max_calls, "max_calls")
    if max_tokens is not None:
        arguments.whole(max_tokens, "max_tokens")
    if deadline is not None:
        arguments.seconds(deadline, "deadline")
    if on_progress is not None:
        arguments.function(on_progress, "on_progress")
    arguments.switch(wait, "wait")
    arguments.switch(dry_run, "dry_run")


class _Opening:
    """What ``AsyncMemory.open`` gives: awaitable, and an async context manager."""

    def __init__(
        self, path: str | PathLike[str], *, create: bool, parts: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._create = create
        self._parts = dict(parts)
        self._memory: AsyncMemory | None = None

    async def _open(self) -> AsyncMemory:
        from hiermem.defaults import embedded_store

        store = await embedded_store(self._path, create=self._create)
        try:
            return AsyncMemory(store=store, **self._parts)
        except BaseException:
            await store.close()
            raise

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncMemory:
        self._memory = await self._open()
        return self._memory

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._memory is not None:
            await self._memory.close()


class AsyncSession:
    """One conversation: messages go in, summaries grow over them, contexts come out."""

    def __init__(self, memory: AsyncMemory, about: About) -> None:
        self._memory = memory
        self._about = about

    @property
    def id(self) -> str:
        """Give the session's id."""
        return self._about.id

    @property
    def _handle(self) -> Handle:
        return self._memory._open_handle()  # noqa: SLF001 - a session is part of its memory

    async def append(self, *messages: Messages) -> list[int]:
        """Append messages (or iterables of them), all or none; give their indices in order.

        When it returns they are durable. A key seen before with the same content is a no-op that
        gives the index it has.

        Raises MessageConflictError, InvalidMessageError, InvalidTextError, SessionClosedError,
        CounterMismatchError; in each case nothing was written.
        """
        return await ingest.append(self._handle, self._about, messages)

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[False] = False,
    ) -> UpdateReport: ...

    @overload
    async def update(
        self,
        level: int | None = None,
        *,
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[True],
    ) -> UpdatePlan: ...

    async def update(
        self,
        level: int | None = None,
        *,
        wait: bool = True,
        on_progress: Callable[[UpdateProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: bool = False,
    ) -> UpdateReport | UpdatePlan:
        """Make the summaries that are missing, lowest level first; give what was done.

        ``level`` limits it to that level and those below. With ``wait=False`` level 1 is made now
        and the rest in the background. ``max_calls``, ``max_tokens`` and ``deadline`` (seconds) end
        the run before they are exceeded; what is left stays pending. ``dry_run`` gives the plan of
        what would be made, calls no model and writes nothing.
        """
        _check_update(
            level=level,
            wait=wait,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            dry_run=dry_run,
        )
        if dry_run:
            plan: UpdatePlan = await self._run(self._handle, level, dry_run=True)
            return plan
        limits: dict[str, Any] = {
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
        }
        report: UpdateReport
        if wait:
            report = await self._run(self._handle, level, **limits)
            return report
        began = time.monotonic()
        report = await self._run(self._handle, 1, **limits)
        if (level is None or level > 1) and report.stopped is None:
            # Both parts together are one update: what the first spent, the second may not.
            if max_calls is not None:
                limits["max_calls"] = max(0, max_calls - report.calls)
            if max_tokens is not None:
                limits["max_tokens"] = max(0, max_tokens - report.tokens)
            if deadline is not None:
                limits["deadline"] = max(0.0, deadline - (time.monotonic() - began))
            self._memory._behind(self._run(self._handle, level, **limits))  # noqa: SLF001
        return report

    async def _run(self, handle: Handle, level: int | None, **settings: Any) -> Any:
        memory = self._memory
        record = await handle.record(self._about.id)
        return await run_update(
            handle.store,
            self._about.id,
            llm=memory._llm,  # noqa: SLF001
            fallback=memory._fallback,  # noqa: SLF001
            counter=handle.counter,
            config=config_from(record.config),
            policy=handle.update_policy,
            prompts=memory._prompts,  # noqa: SLF001
            now=handle.clock,
            level=level,
            **settings,
        )

    async def context(
        self,
        max_tokens: int = 8_000,
        *,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        view: str = "default",
        strategy: Strategy = "cut",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        reserve_for_messages: int | None = None,
        reserve_for_output: int = 0,
    ) -> ContextSelection:
        """Give the best context that fits ``max_tokens``: the whole history, each message once.

        See ContextWindowManager.select_optimal_context. ``reserve_for_messages`` sizes the verbatim
        zone; by default the policy does.
        """
        budget = ContextBudget(
            max_tokens=max_tokens,
            reserve_for_messages=reserve_for_messages,
            reserve_for_output=reserve_for_output,
            system=arguments.system_prompt(system),
            tools=arguments.tool_schemas(tools),
        )
        self._handle  # noqa: B018 - refuses a closed memory
        return await self._memory.manager.select_optimal_context(
            self._about.id,
            budget,
            strategy=strategy,
            view=view,
            sticky=sticky,
            cache_cold=cache_cold,
            allow_omission=allow_omission,
        )

    async def extract(
        self,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ExtractionReport:
        """Make one TriVector of the session: a graph, what is open, where it is going.

        See SemanticGraphExtractor.execute_tri_vector_extraction.
        """
        if options is not None and not isinstance(options, ExtractionOptions):
            raise UsageError(f"options is {type(options).__name__}; it must be ExtractionOptions")
        if on_progress is not None:
            arguments.function(on_progress, "on_progress")
        if max_calls is not None:
            arguments.whole(max_calls, "max_calls")
        if max_tokens is not None:
            arguments.whole(max_tokens, "max_tokens")
        if deadline is not None:
            arguments.seconds(deadline, "deadline")
        memory = self._memory
        extractor = SemanticGraphExtractor.over(
            self._handle,
            memory._llm,  # noqa: SLF001
            memory._prompts,  # noqa: SLF001
        )
        return await extractor.execute_tri_vector_extraction(
            self._about.id,
            options,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
        )

    async def tri_vector(self) -> TriVector | None:
        """Give the newest result of ``extract``, or None where there is none."""
        return await tri_vector(self._handle, self._about.id)

    async def expand(
        self, node: Summary | ShownSummary | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Go ``depth`` levels down from a summary or its id; None goes to the messages."""
        return await tree.expand(self._handle, self._about.id, node, depth)

    async def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Give the messages from ``start`` up to and without ``stop``, verbatim."""
        return await tree.messages(self._handle, self._about.id, start, stop)

    async def summaries(self, level: int | None = None) -> list[Summary]:
        """Give the summaries of a level, or of all levels, lowest first."""
        return await tree.summaries(self._handle, self._about.id, level)

    async def forest(self) -> tuple[Tree, ...]:
        """Give the trees of summaries, oldest first."""
        return await tree.forest(self._handle, self._about.id)

    async def status(self) -> SessionStatus:
        """Tell where the session stands."""
        return await tree.status(self._handle, self._about.id)

    async def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this session, newest first."""
        return await self._handle.store.runs(subject=self._about.id, limit=_limit(limit))

    async def flush(self) -> None:
        """Seal each thread's open window at its last whole point."""
        await ingest.flush(self._handle, self._about.id)

    async def tick(self, now: datetime) -> None:
        """Apply the time rules as if a message arrived ``now`` (timezone-aware)."""
        arguments.moment(now, "now")
        await ingest.tick(self._handle, self._about.id, now)

    async def close(self) -> None:
        """Seal everything up to one root and archive the session."""
        await ingest.close(self._handle, self._about.id)

    async def reopen(self) -> None:
        """Make a closed session writable again."""
        await ingest.reopen(self._handle, self._about.id)
