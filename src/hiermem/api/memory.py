"""The asynchronous public face: a memory, which holds the sessions of one tenant.

The one rule: nothing is decided here. A call checks its arguments, hands them to the engine and
gives back what it answers. ``hiermem.api.sync`` is the same, blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, overload

from hiermem.api.extractor import ModelLike
from hiermem.api.resources import Parts
from hiermem.api.session import AsyncSession
from hiermem.api.space import AsyncSpace
from hiermem.config import (
    BankPolicy,
    ContextPolicy,
    HierarchyConfig,
    SearchPolicy,
    UpdatePolicy,
)
from hiermem.core import arguments
from hiermem.core.calls.run_report import RunReport
from hiermem.core.check import CheckReport
from hiermem.core.log.erase import Forks
from hiermem.core.log.receipts import Receipt
from hiermem.core.search.embedding_state import EmbeddingReport, IndexReport
from hiermem.core.summaries.plan import UpdatePlan
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.summaries.reports import BatchProgress, BatchReport
from hiermem.core.text.policy import MAX_NAME, check, check_name
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.check import check as run_check
from hiermem.engine.context.manager import ContextWindowManager
from hiermem.engine.extraction.graph import AsyncGraph
from hiermem.engine.handle import Handle, utc_now
from hiermem.engine.log import change
from hiermem.engine.log import runs as journal
from hiermem.engine.log.append import About
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.engine.worker.update_all import update_all as run_update_all
from hiermem.engine.worker.worker import AsyncWorker
from hiermem.protocols import Embedder, Store, TokenCounter
from hiermem.tokens import default_counter
from hiermem.types import SessionRecord
from hiermem.types.transaction import RunRecord, Scrubbed


class AsyncMemory:
    """One tenant's conversation memory over a store, with the model that summarises.

    Use ``async with AsyncMemory.open("chat.db") as memory`` for the embedded store, or construct it
    with parts of your own. ``prompts`` replaces templates by name, such as "summarise.l1.detailed".
    Searches compare words; with an ``embedder`` they compare vectors too.
    """

    def __init__(
        self,
        *,
        store: Store,
        tenant: str = "default",
        llm: ModelLike | None = None,
        embedder: Embedder | None = None,
        token_counter: TokenCounter | None = None,
        config: HierarchyConfig | None = None,
        update_policy: UpdatePolicy | None = None,
        context_policy: ContextPolicy | None = None,
        search_policy: SearchPolicy | None = None,
        bank_policy: BankPolicy | None = None,
        prompts: Mapping[str, PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.api.defaults import as_llm, as_prompts

        self._store = arguments.store_of(store)
        model = as_llm(llm)
        settled = arguments.optional(config, "config", HierarchyConfig, HierarchyConfig.by_tokens)
        templates = as_prompts(prompts, settled)
        handle = Handle(
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
            configured=config is not None,
            embedder=arguments.embedder_of(embedder),
            search_policy=arguments.optional(
                search_policy, "search_policy", SearchPolicy, SearchPolicy
            ),
        )
        self._parts = Parts(
            handle=handle,
            llm=model,
            fallback=as_llm(None),
            prompts=templates,
            manager=ContextWindowManager.over(handle),
            allowances=Allowances(handle.store, handle.update_policy),
            bank_policy=arguments.optional(bank_policy, "bank_policy", BankPolicy, BankPolicy),
        )
        self._graph = AsyncGraph(self._parts.opened)

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        tenant: str = "default",
        llm: ModelLike | None = None,
        embedder: Embedder | None = None,
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
            "embedder": embedder,
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
        return self._parts.manager

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
        return AsyncSession(self._parts, about)

    def space(self, name: str, *, rules: str | None = None) -> AsyncSpace:
        """Give the space of that name; it is made by its first use with rules. Does no I/O.

        ``rules`` are Markdown that names the bank's files and says what each is for; those of a
        space never change. Left out, the space must be there.

        Raises UsageError where the rules name no file. A call of the space raises
        RulesConflictError where it has other rules.
        """
        from hiermem.core.spaces.rules import read_rules

        given = None if rules is None else read_rules(rules)
        return AsyncSpace(self._parts, check_name(name, what="space"), given)

    async def spaces(self) -> list[str]:
        """List the names of this tenant's spaces."""
        from hiermem.engine.spaces.space import spaces

        return await spaces(self._parts.opened())

    async def sessions(self) -> list[SessionRecord]:
        """List the sessions of this tenant, oldest first."""
        return await self._parts.opened().store.sessions()

    async def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this tenant, newest first."""
        return await journal.runs(self._parts.opened(), limit)

    async def run(self, run_id: str) -> RunReport:
        """Give one run with the state of each summary or chunk that it called a model for.

        Raises NotFoundError for an unknown id.
        """
        return await journal.one(self._parts.opened(), run_id)

    @overload
    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[BatchProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[False] = False,
    ) -> BatchReport: ...

    @overload
    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[BatchProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[True],
    ) -> UpdatePlan: ...

    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[BatchProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: bool = False,
    ) -> BatchReport | UpdatePlan:
        """Update every session that needs it; with ``strategy="full"`` re-pack every one.

        Several are worked on at once, level 1 first. The caps hold for all of them together. One
        that was cut off, or met a cap, is gone on with by the next. What ends one session's update
        is told in the report and does not end the others'.
        """
        arguments.one_of(strategy, "strategy", ("incremental", "full"))
        arguments.caps(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline)
        if on_progress is not None:
            arguments.function(on_progress, "on_progress")
        arguments.switch(dry_run, "dry_run")
        parts = self._parts
        return await run_update_all(
            parts.opened(),
            llm=parts.llm,
            fallback=parts.fallback,
            prompts=parts.prompts,
            allowances=parts.allowances,
            strategy=strategy,
            on_progress=on_progress,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            dry_run=dry_run,
        )

    def worker(
        self,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        poll: float = 1.0,
    ) -> AsyncWorker:
        """Make a background worker over all sessions of this tenant. Does no I/O.

        It is begun by ``async with`` or ``start()``, and stopped with this memory at the latest.
        The caps (``deadline`` in seconds after the start) hold for all that it does; ``poll`` is
        how often it looks for new work, in seconds. Several, in one process or in many, share it.
        """
        arguments.caps(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline)
        parts = self._parts
        worker = AsyncWorker(
            parts.opened(),
            llm=parts.llm,
            fallback=parts.fallback,
            prompts=parts.prompts,
            allowances=parts.allowances,
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            poll=arguments.seconds(poll, "poll"),
            opened=parts.opened,
        )
        parts.workers.add(worker)
        return worker

    async def erase_session(self, session_id: str, *, forks: Forks = "all") -> Receipt:
        """Erase a session with all that is kept of it; say what went.

        With ``forks="all"`` its own messages go in the sessions that were forked from it too.

        Raises NotFoundError.
        """
        name = check_name(session_id, what="session id")
        handle = self._parts.opened()
        try:
            return await change.erase_session(handle, name, forks=forks)
        finally:
            handle.forget()

    async def erase_space(self, name: str) -> Receipt:
        """Erase a space with its notes, its bank and its rules; say what went.

        A run that is at work on it writes nothing more. A space that is opened under the name
        afterwards is a new one.

        Raises NotFoundError.
        """
        return await change.erase_space(self._parts.opened(), check_name(name, what="space"))

    async def erase_tenant(self) -> Receipt:
        """Erase everything that is kept for this tenant, its journal too; say what went."""
        handle = self._parts.opened()
        try:
            return await change.erase_tenant(handle)
        finally:
            handle.forget()

    async def rebuild_index(self) -> IndexReport:
        """Make the search index of every session anew; say what that came to.

        It is never needed for right answers, since what is damaged or missing is made again when it
        is asked. Messages and summaries are only read.
        """
        from hiermem.engine.search.search import rebuild

        return await rebuild(self._parts.opened())

    async def reembed(self) -> list[EmbeddingReport]:
        """Bring the vectors of every session in line with this memory's embedder.

        Those of another embedder are dropped, and what is missing is made, session by session. Cut
        off, it is gone on with by the next call.

        Raises UsageError where this memory has no embedder, and what the embedder raises.
        """
        from hiermem.engine.search.embed import reembed

        handle = self._parts.opened()
        return [await reembed(handle, record.id) for record in await handle.store.sessions()]

    async def scrub(self) -> Scrubbed:
        """Take what was removed out of the store's bytes, where an erasure could not do it.

        ``done`` says whether they are clean now, ``reason`` why not: nothing is raised because
        somebody else has the store open. Every erasure does this by itself.
        """
        return await self._parts.opened().store.scrub()

    async def check(self) -> CheckReport:
        """Read everything that is kept for this tenant and verify the promises that it can show.

        Nothing is written. What cannot be seen in what is stored is named in ``not_shown``.
        """
        return await run_check(self._parts.opened())

    async def close(self) -> None:
        """Wait up to the drain time for background work, then close the store.

        What was not finished stays pending; the next update makes it.
        """
        parts = self._parts
        if parts.closed:
            return
        await parts.end()
        try:
            await parts.disconnect()
        finally:
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

    @property
    def _handle(self) -> Handle:
        return self._parts.handle


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
        from hiermem.api.defaults import embedded_store

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
