"""One tenant's memory, asynchronous: it holds the tenant's sessions and spaces.

A call checks its arguments, hands them to the engine and returns the engine's answer.
``hiermem.api.sync`` derives the blocking ``Memory`` from this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from hiermem import arguments, protocols, types
from hiermem import handle as handles
from hiermem.api import find
from hiermem.api.manager import ContextWindowManager, manager_over
from hiermem.api.resources import Resources
from hiermem.api.session import AsyncSession
from hiermem.api.space import AsyncSpace
from hiermem.calls.report import RunReport
from hiermem.calls.retry import shielded
from hiermem.changes.receipts import Receipt, StoreCopy
from hiermem.config import (
    BankPolicy,
    ContextPolicy,
    HierarchyConfig,
    Limits,
    SearchPolicy,
    UpdatePolicy,
    UpdateStrategy,
    for_model,
)
from hiermem.context import read
from hiermem.errors import ForkedProcessError, ReadOnlyError, UsageError
from hiermem.extraction.tenant_graph import AsyncGraph
from hiermem.log import append as ingest
from hiermem.log.alignment import ImportReport
from hiermem.process import check_home, utc_now
from hiermem.prompts import template as prompt
from hiermem.records.store import StoreLike
from hiermem.search.results import Evidence, Hit, TenantFilters
from hiermem.text.policy import MAX_NAME, check, check_name
from hiermem.types import SessionRecord, transaction
from hiermem.types.brief import Brief
from hiermem.types.message import Conversation
from hiermem.types.tree import ALL, MEMBER, UNSAID, Scope
from hiermem.work.worker import AsyncWorker

if TYPE_CHECKING:
    from hiermem.search.search import Question


class AsyncMemory(Brief):
    """One tenant's conversation memory over a store, with the model that summarises.

    ``async with AsyncMemory.open("chat.db") as memory`` opens the embedded store. The constructor
    takes a store of your own. ``llm`` is a model or a plain function; without one, the offline
    model summarises. ``prompts`` replaces templates by name, such as "summarise.l1.detailed".
    Searches compare words, and with an ``embedder`` vectors too.

    The constructor raises UsageError for an argument of the wrong kind, and ConfigError for a
    prompt that does not exist. Every call that does I/O raises StoreError where the store fails,
    and ClosedError after ``close``.
    """

    _brief = "tenant"

    def __init__(
        self,
        *,
        store: StoreLike,
        tenant: str = "default",
        llm: protocols.ModelLike | None = None,
        embedder: protocols.Embedder | None = None,
        token_counter: protocols.TokenCounter | str | None = None,
        config: HierarchyConfig | None = None,
        update_policy: UpdatePolicy | None = None,
        context_policy: ContextPolicy | None = None,
        search_policy: SearchPolicy | None = None,
        bank_policy: BankPolicy | None = None,
        prompts: Mapping[str, prompt.PromptTemplate | str] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        from hiermem.api.defaults import as_llm, as_prompts, handle_over
        from hiermem.records.run import records_of

        model = as_llm(llm)
        store = records_of(store)
        handle = handle_over(
            store,
            tenant,
            token_counter=token_counter,
            config=config,
            update_policy=for_model(
                arguments.optional(update_policy, "update_policy", UpdatePolicy), model
            ),
            context_policy=arguments.optional(context_policy, "context_policy", ContextPolicy),
            clock=arguments.function(clock, "clock"),
            embedder=arguments.embedder_of(embedder),
            search_policy=arguments.optional(search_policy, "search_policy", SearchPolicy),
        )
        self._resources = Resources(
            store=store,
            handle=handle,
            llm=model,
            fallback=as_llm(None),
            prompts=as_prompts(prompts, handle.config),
            bank_policy=arguments.optional(bank_policy, "bank_policy", BankPolicy),
        )

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        tenant: str = "default",
        llm: protocols.ModelLike | None = None,
        embedder: protocols.Embedder | None = None,
        token_counter: protocols.TokenCounter | str | None = None,
        config: HierarchyConfig | None = None,
        create: bool = True,
        read_only: bool = False,
        **settings: Any,
    ) -> _Opening:
        """Open the store at ``path``: a file, or a database as a ``postgresql://`` URL.

        ":memory:" is a store that is gone after ``close``. A URL needs the extra ``postgres``.
        The result of the asynchronous call serves ``await`` and ``async with``. With ``read_only``,
        nothing is created and every write raises ReadOnlyError; the file and its file system may be
        read-only. ``settings`` are further arguments of ``AsyncMemory``.

        Raises StoreError where the file is no hiermem store, is of another version or damaged,
        and NotFoundError where it does not exist and ``create`` is False.
        """

        async def opened() -> AsyncMemory:
            from hiermem.api.defaults import store_at

            clock = arguments.function(settings.get("clock", utc_now), "clock")
            store = await store_at(path, create=create, read_only=read_only, clock=clock)
            try:
                return AsyncMemory(
                    store=store, tenant=tenant, llm=llm, embedder=embedder,
                    token_counter=token_counter, config=config, **settings,
                )  # fmt: skip
            except BaseException:
                await store.close()
                raise

        return _Opening(opened)

    @property
    def tenant(self) -> str:
        """The tenant that this memory was opened for."""
        return self._handle.store.tenant

    def for_tenant(self, tenant: str) -> AsyncMemory:
        """Return a memory of another tenant of the same store. Does no I/O.

        It shares this memory's store, models, policies and prompts, and with them every limit but
        the caps of sessions and tenants, which each tenant has for itself; indexes of all tenants
        together keep to ``SearchPolicy.cache_bytes``. It costs neither a thread nor a file
        descriptor. Closing it leaves this memory open; closing this memory closes it too. Workers
        of this memory work for that tenant from now on, even after it was closed.

        Called on such a memory, the result belongs to the memory that opened the store.

        Raises ClosedError, and ForkedProcessError in a process that was forked since.
        """
        resources = self._resources.for_tenant(check_name(tenant, what="tenant"))
        memory = AsyncMemory.__new__(AsyncMemory)
        memory._resources = resources  # noqa: SLF001 - a constructor of this very class
        return memory

    @property
    def manager(self) -> ContextWindowManager:
        """The context window manager over this memory's store."""
        return manager_over(self._handle)

    @property
    def graph(self) -> AsyncGraph:
        """The graph of everything that was extracted for this tenant."""
        return AsyncGraph(self._resources.opened)

    def session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        participants: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        space: str | None = None,
        on_bad_text: Literal["refuse", "replace"] = "refuse",
    ) -> AsyncSession:
        """Return the session of that id, which its first append creates. Does no I/O.

        ``title`` and ``participants`` are passed to the model that summarises. ``metadata`` is a
        flat mapping of short texts, the application's own labels, that a new session begins with;
        ``set_metadata`` replaces those of a session that exists. ``space`` names the space that a
        new session becomes a member of; it must exist. With ``on_bad_text="replace"``,
        lone surrogates, NUL characters, and empty ids and names of tool calls are replaced instead
        of refused.
        """
        arguments.one_of(on_bad_text, "on_bad_text", ("refuse", "replace"))
        if title is not None:
            title = check(title, what="title", cap=MAX_NAME, on_bad=on_bad_text)
        about = ingest.About(
            id=check_name(session_id, what="session id"),
            title=title,
            participants=arguments.names(participants, "participants"),
            metadata=arguments.metadata({} if metadata is None else metadata),
            space=None if space is None else check_name(space, what="space"),
            on_bad_text=on_bad_text,
        )
        return AsyncSession(self._resources, about)

    def space(
        self,
        name: str,
        *,
        rules: str | None = None,
        person: str | None = None,
        learn: bool | None = None,
    ) -> AsyncSpace:
        """Return the space of that name, which its first use with rules creates. Does no I/O.

        ``rules`` is Markdown that names the bank's files and says what each is for. ``person`` is
        the name of the person whose space it is, who speaks in its conversations as the user
        without a name or under this one; the space gets the shipped rules for a person unless
        ``rules`` are given. A space that ``learn`` is set for takes in by itself what people say in
        its conversations, which a space with the shipped rules does unless it is False. Rules,
        person and ``learn`` never change. Without rules and person, the space must exist.

        Raises UsageError where the rules name no file, or no past.md if the space learns. The calls
        of the space raise ConflictError where the space has other rules or another person, and
        NotFoundError where it does not exist.
        """
        from hiermem.bank.rules import rules_of

        if learn is not None:
            arguments.switch(learn, "learn")
        name, given = check_name(name, what="space"), rules_of(rules, person, learn=learn)
        if given is not None:
            self._handle.spaces_to_make[name] = given
        return AsyncSpace(self._resources, name, given)

    async def spaces(self) -> list[str]:
        """Return the names of this tenant's spaces."""
        from hiermem.bank.space import spaces

        return await spaces(self._resources.opened())

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants of this memory's store, by name.

        The list begins after the name ``after``. It takes a memory that opened its store: one of
        ``for_tenant`` is bound to its tenant, and raises UsageError.
        """
        arguments.whole(limit, "limit", least=1)
        return await self._whole_store("lists the tenants").tenants(
            after=None if after is None else check_name(after, what="after"), limit=limit
        )

    async def join(self, space: str, sessions: Iterable[str]) -> None:
        """Make sessions members of a space, one after another; see ``session.join``.

        Raises what ``session.join`` raises. Sessions before the one it concerns have joined then.
        """
        for session_id in arguments.names(sessions, "sessions"):
            await self.session(session_id).join(space)

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        metadata: Mapping[str, str] | None = None,
        space: Scope = ALL,
        order_by: transaction.SessionOrder = "created",
    ) -> list[SessionRecord]:
        """Return one page of the records of this tenant's sessions, oldest first.

        With ``order_by="last_activity"``, the session last appended to comes first. ``metadata``
        selects the sessions whose metadata hold all of these pairs, and ``space`` the members of a
        space, or with None the sessions in no space. ``after`` is the id of the last
        session of the page before: the page begins behind the place where that session stands now,
        or with the first session if it is gone. By last activity, a session that is appended to
        meanwhile moves to the front, so it may come again and is never passed over.
        """
        arguments.whole(limit, "limit", least=1)
        arguments.one_of(order_by, "order_by", ("created", "last_activity"))
        store, chosen = self._resources.opened().store, arguments.sessions(space, metadata)
        after = None if after is None else check_name(after, what="after")
        records = handles.every_session(
            store, chosen, after=after, order_by=order_by, at_once=limit
        )
        page: list[SessionRecord] = []
        async for record in records:
            page.append(record)
            if len(page) == limit:
                break
        return page

    async def count_sessions(
        self, *, metadata: Mapping[str, str] | None = None, space: Scope = ALL
    ) -> int:
        """Return the number of this tenant's sessions.

        ``metadata`` and ``space`` select sessions as in ``sessions``.
        """
        store, chosen = self._resources.opened().store, arguments.sessions(space, metadata)
        labels = dict(chosen.labels)
        number = await store.count_sessions(metadata=labels or None)
        if not chosen.alone:
            return number
        return number - await store.count_sessions(metadata=labels | MEMBER)

    async def find(self, name: str, *, space: Scope = ALL, whole: bool = False) -> AsyncSession:
        """Return the session that people call so: its id, its title, or the beginning of either.

        Upper and lower case are the same. Of a session and its forks it is the session.
        ``@last`` is the session with the newest message. ``space`` selects sessions as in
        ``sessions``, save one that is named by its id. With ``whole``, as for what cannot be
        undone, the name must be a whole id or title.

        Raises NotFoundError, which names the sessions that are most like it, and UsageError where
        several are called so.
        """
        arguments.switch(whole, "whole")
        if not isinstance(name, str):
            raise UsageError(f"name is {type(name).__name__}; it must be text")
        store, which = self._resources.opened().store, arguments.sessions(space, None)
        return self.session(await find.find_session(store, name, which, whole=whole))

    async def families(
        self,
        words: Iterable[str] = (),
        *,
        metadata: Mapping[str, str] | None = None,
        space: Scope = ALL,
        apart: bool = False,
        limit: int | None = None,
    ) -> list[types.Family]:
        """Return up to ``limit`` sessions, each with its forks, that with the newest message first.

        ``words`` selects those whose titles hold all of them, or whose ids begin with them;
        ``metadata`` and ``space`` select as in ``sessions``. With ``apart``, each fork stands by
        itself.
        """
        arguments.switch(apart, "apart")
        most = None if limit is None else arguments.whole(limit, "limit", least=1)
        store, which = self._resources.opened().store, arguments.sessions(space, metadata)
        named, listed = arguments.names(words, "words"), list[types.Family]()
        async for family in find.list_families(store, named, which, apart=apart):
            listed.append(family)
            if len(listed) == most:
                break
        return listed

    async def import_chats(
        self,
        conversations: Iterable[Conversation],
        *,
        on_progress: Callable[[ImportReport], object] | None = None,
    ) -> ImportReport:
        """Append what ``hiermem.importers.read_chats`` yields: a session for each conversation.

        Another branch of a conversation becomes a fork of its session. A message that was imported
        before is not appended again, so a newer export adds what is new; where the current branch
        of a conversation has changed, the new path becomes a fork.

        ``on_progress`` is called after every conversation, on the event loop's thread.

        Raises what reading the file raises, ClosedError, and what ``append`` raises. The
        conversations before the failed one stay imported; repeat the call to import the rest.
        """
        from hiermem.changes.change import edit
        from hiermem.log.import_chats import import_chats

        if isinstance(conversations, (str, bytes, Mapping)) or not isinstance(
            conversations, Iterable
        ):
            raise UsageError(
                f"conversations is {type(conversations).__name__}; give what "
                "hiermem.importers.read_chats(path) yields"
            )
        arguments.run(on_progress=on_progress)
        return await import_chats(
            self._resources.opened(), conversations, edit=edit, on_progress=on_progress
        )

    async def runs(self, *, limit: int = 100) -> list[types.RunRecord]:
        """Return the journalled runs of this tenant, newest first."""
        return await read.runs(self._resources.opened(), limit)

    async def run(self, run_id: str) -> RunReport:
        """Return one run with the state of each summary or chunk that it called a model for.

        Raises NotFoundError for an unknown id.
        """
        return await read.run(self._resources.opened(), run_id)

    @overload
    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[types.BatchProgress], object] | None = None,
        limits: Limits | None = None,
        search_index: bool = False,
        dry_run: Literal[False] = False,
    ) -> types.BatchReport: ...

    @overload
    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[types.BatchProgress], object] | None = None,
        limits: Limits | None = None,
        search_index: bool = False,
        dry_run: Literal[True],
    ) -> types.UpdatePlan: ...

    async def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[types.BatchProgress], object] | None = None,
        limits: Limits | None = None,
        search_index: bool = False,
        dry_run: bool = False,
    ) -> types.BatchReport | types.UpdatePlan:
        """Update every session that needs it; with ``strategy="full"`` re-pack every session.

        Several sessions are updated at once, the longest due first. ``limits`` are those of all
        sessions together. What a call that was killed,
        or met a cap, has left is made by the next. An error that ends one session's update is
        listed in the report and does not end the others. With ``search_index`` the index over all
        sessions is made ready too, which the first search over them would do. With ``dry_run`` the
        call returns the sum of the sessions' plans and writes nothing.

        ``on_progress`` is called after every commit and at the end of every session, on the event
        loop's thread. In the blocking API that is a thread of the memory's own, from which any call
        of the memory raises UsageError.
        """
        from hiermem.work.turns import update_all

        arguments.one_of(strategy, "strategy", ("incremental", "full"))
        limits = arguments.run(limits, on_progress=on_progress)
        arguments.switch(search_index, "search_index")
        arguments.switch(dry_run, "dry_run")
        resources = self._resources
        return await update_all(
            resources.opened(),
            resources.shared,
            resources.store,
            strategy=strategy,
            on_progress=on_progress,
            limits=limits,
            search_index=search_index,
            dry_run=dry_run,
        )

    def worker(
        self,
        *,
        limits: Limits | None = None,
        poll: float = 1.0,
        all_tenants: bool = False,
    ) -> AsyncWorker:
        """Return a background worker that updates the sessions of this tenant. Does no I/O.

        The worker of a memory that opened its store works for all tenants that it was asked for by
        ``for_tenant``, too, and shares the slots between them.

        With ``all_tenants`` it works for every tenant of the store, by the store's list of the
        sessions that have something to make: a look costs the same for any number of tenants. That
        takes a memory that opened its store, and raises UsageError otherwise.

        ``async with`` (or ``with``) or ``start()`` starts the worker; it stops with this memory at
        the latest. ``limits`` are those of all its work. ``poll`` is the time between two looks for
        work, in seconds. Several workers, in one process or in many, share the work.

        Raises ClosedError.
        """
        limits = arguments.run(limits)
        resources = self._resources
        if arguments.switch(all_tenants, "all_tenants"):
            self._whole_store("has a worker for all tenants")
        worker = AsyncWorker(
            resources.opened(),
            resources.shared,
            resources.store,
            handles=None if resources.parent is not None else resources.handles,
            all_tenants=resources.handles if all_tenants else None,
            limits=limits,
            poll=arguments.seconds(poll, "poll"),
            opened=resources.opened,
        )
        resources.workers.add(worker)
        return worker

    async def list_due(self, limit: int = 100) -> list[types.DueSession]:
        """Return up to ``limit`` sessions of any tenant that have something to make now.

        The longest due come first. For a job queue of your own: send a job for each that no job
        waits for, which calls ``update_one`` with its ``tenant`` and ``session_id``. Nothing is
        claimed by this; ``update_one`` claims. It takes a memory that opened its store, and raises
        UsageError otherwise.
        """
        arguments.whole(limit, "limit", least=1)
        store = self._whole_store("lists sessions of other tenants")
        return [one for one in await store.claim_due(limit, lease=0.0) if not one.claimed]

    def _whole_store(self, what: str) -> protocols.Store:
        """Return the store of all tenants. Raises UsageError in a memory that is bound to one."""
        self._resources.opened()
        if self._is_child:
            raise UsageError(f"no memory of for_tenant() {what}; ask the one that opened the store")
        return self._resources.store

    async def erase_tenant(self) -> Receipt:
        """Erase everything kept for this tenant, its journal too; return what was removed."""
        from hiermem.changes import change

        handle = self._resources.opened()
        try:
            return await change.erase_tenant(handle)
        finally:
            handle.forget()

    async def search(
        self,
        query: str,
        limit: int = 10,
        *,
        metadata: Mapping[str, str] | None = None,
        space: Scope = UNSAID,
        **filters: Unpack[TenantFilters],
    ) -> list[Hit]:
        """Return up to ``limit`` messages of all sessions that match ``query``, best first.

        All are ranked on one scale; ``hit.session_id`` and ``hit.space`` name the session and its
        space. ``space`` is the name of a space, whose members are searched; with None, these are
        the sessions in no space, with ``hiermem.ALL`` all of the tenant. It may be left out while
        no session is in a space. ``metadata`` selects the
        sessions whose metadata hold all of these pairs. ``query`` and the other filters are those
        of ``session.search``: ``since``, ``until``, ``threads``, ``roles``, ``entities`` and
        ``semantic_dedup``. Words are compared, also where there is an embedder.

        The first search of a tenant indexes all of its messages and may take minutes; see
        docs/search.md. From then on each search indexes what was appended since.

        Raises ConflictError where a session was counted by another counter, and UsageError
        without ``space`` once a session is in one.
        """
        from hiermem.search import tenant

        handle, question = self._resources.opened(), _question(query, space, metadata, filters)
        await handle.check_scope(space)
        return await tenant.search(handle, question, limit)

    async def recall(
        self,
        query: str,
        max_tokens: int = 1_000,
        *,
        neighbours: int = 0,
        metadata: Mapping[str, str] | None = None,
        space: Scope = UNSAID,
        **filters: Unpack[TenantFilters],
    ) -> Evidence:
        """Return the messages of all sessions that answer ``query`` best, in ``max_tokens``.

        They stand verbatim, session by session, each session in its order; the headers in ``text``
        name the session and the date. ``neighbours`` adds that many passages before and after each
        hit. The rest is as for ``search``.
        """
        from hiermem.search import tenant

        handle, question = self._resources.opened(), _question(query, space, metadata, filters)
        await handle.check_scope(space)
        return await tenant.recall(handle, question, max_tokens, neighbours=neighbours)

    async def rebuild_index(self) -> types.IndexReport:
        """Rebuild the search index of every session, and return how much was indexed.

        Right answers never need this: a search rebuilds what is damaged or missing. Messages and
        summaries are only read.
        """
        from hiermem.search.search import rebuild

        return await rebuild(self._resources.opened())

    async def reembed(self) -> list[types.EmbeddingReport]:
        """Recompute vectors that are missing or were made by another embedder, in every session.

        Return one report for each session. A call that was cut off is resumed by the next.

        Raises UsageError where this memory has no embedder, and what the embedder raises.
        """
        from hiermem.search.embed import reembed

        handle = self._resources.opened()
        return [await reembed(handle, one.id) async for one in handles.every_session(handle.store)]

    async def scrub(self) -> types.Scrubbed:
        """Remove erased text from the store's files, where an erasure could not do so.

        Every erasure tries this by itself, except in PostgreSQL, whose tables are rewritten only
        here. In the result, ``done`` says whether the files are clean now, and ``reason`` why they
        are not: another process may have the store open, which raises no error.
        """
        handle = self._resources.opened()
        whole: Callable[[], Awaitable[types.Scrubbed]] | None
        whole = getattr(self._resources.store, "scrub", None)
        return await (whole or handle.store.scrub)()

    async def backup(self, path: str | PathLike[str]) -> StoreCopy:
        """Copy the whole store, with all its tenants, to a new file while it is being used.

        The copy is one state of the store; it appears at ``path`` when it is complete and durable.
        It is recorded with its place and time, and every later erasure of a tenant whose data it
        holds names it in ``Receipt.copies``.

        Raises UsageError where there is something at ``path`` or the store makes no copies,
        ReadOnlyError, and StoreError where the copy cannot be written; then nothing is left of it.
        """
        from hiermem.upkeep import copy

        handle = self._resources.opened()
        return await copy.backup(self._resources.store, path, tenant=handle.store)

    async def copy_to(
        self,
        target: str | PathLike[str] | StoreLike,
        *,
        session: str | None = None,
        space: str | None = None,
        all_tenants: bool = False,
        on_progress: Callable[[types.CopyReport], object] | None = None,
    ) -> types.CopyReport:
        """Copy this tenant to another store: a file, a ``postgresql://`` URL, or a store of yours.

        Everything arrives as it is: keys, earlier versions, summaries, the journal, spaces. With
        ``session``, it is that session alone, with ``space`` the space and its members, and with
        ``all_tenants`` every tenant of the store. A place is opened, created if need be, and
        closed; both stores may be in use. The target must be empty or have the secret of this
        store, so that a copy of one store can be added to.

        The target writes a session in one transaction; after an interrupted copy, the next call
        copies the sessions that are missing. A session whose head is the same in both stores is
        passed over; one that changed since is replaced, and one that was erased since is removed,
        unless somebody wrote to it at the target. At the end the target is checked. Both stores
        note the copy, and every later erasure names it in ``Receipt.copies``.

        ``on_progress`` is called after every page that is read, on the event loop's thread.

        Raises ConflictError where the target has another session of the same name, or where
        its session was appended to, updated or erased there, or where its secret is another;
        NotFoundError where the session or the space does not exist; ReadOnlyError where a store
        takes no writes; and what opening raises. Sessions that were copied before stay, and the
        same call can be repeated.
        """
        from hiermem.api.defaults import opened_store
        from hiermem.upkeep.copy import copy

        handle = self._resources.opened()
        session = None if session is None else check_name(session, what="session id")
        space = None if space is None else check_name(space, what="space")
        arguments.switch(all_tenants, "all_tenants")
        if (session is not None) + (space is not None) + all_tenants > 1:
            raise UsageError("session, space and all_tenants exclude each other; pass one")
        arguments.run(on_progress=on_progress)
        async with opened_store(target, clock=handle.clock) as store:
            return await copy(
                self._resources.store,
                store,
                handle,
                session=session,
                space=space,
                all_tenants=all_tenants,
                on_progress=on_progress,
            )

    async def check(self) -> types.CheckReport:
        """Read everything that is kept for this tenant, and return the promises it breaks, if any.

        Nothing is written, but every session is entered in the due queue, so that a worker looks
        at it once, also if its entry was lost. ``not_shown`` in the report names the promises that
        stored data cannot show.
        """
        from hiermem.upkeep.run_check import check as check_tenant
        from hiermem.work.turns import enter_all

        handle = self._resources.opened()
        report = await check_tenant(handle)
        with suppress(ReadOnlyError):
            await enter_all(handle)
        return report

    async def to_html(self, *, text: bool = True, query: str | None = None) -> str:
        """Return a page that shows all sessions and spaces of this tenant in a browser.

        It is ``session.to_html`` for each session behind a list of them. Sessions that do not fit
        64 MB, in the order of their creation, are listed only.
        """
        from hiermem.view.read import html_page

        arguments.switch(text, "text")
        return await html_page(self._resources.opened(), None, text=text, query=query)

    async def close(self) -> None:
        """Wait up to the drain time for background work, then close the store.

        What was not finished stays pending, and the next update makes it. A second ``close`` does
        nothing. Cancelled, it does not wait for the drain time, and closes the store all the same.
        Memories of other tenants that ``for_tenant`` made of this one are closed with it; closing
        one of those leaves the store open.

        Raises ForkedProcessError in a process that was forked since: nothing here is that
        process's own.
        """
        resources = self._resources
        check_home(resources.home)
        if resources.closed:
            return
        try:
            await resources.end()
        finally:
            if not self._is_child:
                try:
                    await resources.disconnect()
                finally:
                    await shielded(resources.store.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        with suppress(ForkedProcessError):  # a forked process has nothing to close
            await self.close()

    @property
    def _handle(self) -> handles.Handle:
        return self._resources.handle

    @property
    def _is_child(self) -> bool:
        """Whether ``for_tenant`` made this memory: then store, models and threads are another's."""
        return self._resources.parent is not None


def _question(
    query: str, space: Scope, metadata: Mapping[str, str] | None, filters: Mapping[str, Any]
) -> Question:
    from hiermem.search.search import Question
    from hiermem.search.select import read_filters

    chosen = arguments.sessions(space, metadata)
    return Question("", query, read_filters(filters, accepted=TenantFilters), chosen)


class _Opening:
    """The result of ``AsyncMemory.open``: awaitable, and an async context manager."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, AsyncMemory]]) -> None:
        self._opened = opened
        self._memory: AsyncMemory | None = None

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncMemory:
        self._memory = await self._opened()
        return self._memory

    async def __aexit__(self, *error: object) -> None:
        if self._memory is not None:
            await self._memory.__aexit__(*error)
