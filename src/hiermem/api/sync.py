"""The blocking API: ``hiermem.api``'s asynchronous classes without ``await``.

Each ``Memory`` runs an event loop on a thread of its own, a ``LoopThread``. ``blocking`` turns a
coroutine method of an asynchronous class into a method that runs it there and waits. Only these are
written by hand: opening and closing, the calls that return another blocking object, the append that
can skip the thread, and the calls of a worker that are not coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from os import PathLike
from types import FunctionType, TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar

from hiermem.api.extractor import ModelLike
from hiermem.api.loop_thread import LoopThread
from hiermem.api.memory import AsyncMemory
from hiermem.api.session import AsyncSession
from hiermem.api.space import AsyncSpace
from hiermem.config import HierarchyConfig
from hiermem.core.context import selection
from hiermem.core.context.profile import ContextProfile
from hiermem.core.context.selection import ContextSelection
from hiermem.core.summaries.reports import WorkerStatus
from hiermem.engine.context.manager import ContextWindowManager
from hiermem.engine.context.select import Strategy
from hiermem.engine.extraction.graph import AsyncGraph
from hiermem.engine.log.append import Messages, flatten
from hiermem.engine.worker.worker import AsyncWorker
from hiermem.errors import ForkedProcessError, MemoryClosedError
from hiermem.protocols import Embedder, Store, TokenCounter

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class BlockingFacade(Generic[A]):
    """The base of the blocking classes: an asynchronous object and the thread that runs it."""

    def __init__(self, thread: LoopThread, inner: A) -> None:
        self._thread, self._inner = thread, inner

    def __init_subclass__(cls) -> None:
        """Name the derived methods after this class; ``wraps`` named them after the other."""
        super().__init_subclass__()
        for method in vars(cls).values():
            if isinstance(method, FunctionType):
                method.__module__ = cls.__module__
                method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingFacade[A], P], T]:
    """Return ``method`` of an asynchronous class as a method of its blocking class.

    Signature, annotations, overloads and docstring stay those of ``method``, for type checkers
    (through ``P`` and ``T``) and at run time (through ``__wrapped__``).
    """

    @wraps(method)
    def call(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._inner, *args, **kwargs))

    return call


async def _called(function: Callable[[], T]) -> T:
    """Call ``function`` in the event loop."""
    return function()


class Memory(BlockingFacade[AsyncMemory]):
    """One tenant's conversation memory, blocking; see AsyncMemory for the arguments.

    ``with Memory.open("chat.db") as memory`` opens the embedded store; the constructor takes a
    store of your own. A memory may be used from several threads at once. Its event loop runs on a
    background thread, from which (in ``on_progress``, an asynchronous model or the clock) any call
    of the memory raises UsageError.
    """

    def __init__(
        self,
        *,
        store: Store,
        tenant: str = "default",
        llm: ModelLike | None = None,
        embedder: Embedder | None = None,
        token_counter: TokenCounter | str | None = None,
        config: HierarchyConfig | None = None,
        **settings: Any,
    ) -> None:
        self._start(
            _called(
                lambda: AsyncMemory(
                    store=store,
                    tenant=tenant,
                    llm=llm,
                    embedder=embedder,
                    token_counter=token_counter,
                    config=config,
                    **settings,
                )
            )
        )

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        tenant: str = "default",
        llm: ModelLike | None = None,
        embedder: Embedder | None = None,
        token_counter: TokenCounter | str | None = None,
        config: HierarchyConfig | None = None,
        create: bool = True,
        read_only: bool = False,
        migrate: bool = False,
        **settings: Any,
    ) -> Memory:
        """Open the store at ``path``: a file, or a database as a ``postgresql://`` URL.

        ":memory:" is a store that is gone after ``close``. A URL needs the extra ``postgres``.
        A database of an older version is refused unless ``migrate`` is True; a file is always
        migrated, after it was copied.
        With ``read_only``, nothing is created and every write raises ReadOnlyError; the file and
        its file system may be read-only. ``settings`` are further arguments of AsyncMemory.

        Raises StoreError where the file is not a hiermem store, is of a newer version or damaged,
        and NotFoundError where it does not exist and ``create`` is False.
        """

        async def opened() -> AsyncMemory:
            return await AsyncMemory.open(
                path,
                tenant=tenant,
                llm=llm,
                embedder=embedder,
                token_counter=token_counter,
                config=config,
                create=create,
                read_only=read_only,
                migrate=migrate,
                **settings,
            )

        memory = cls.__new__(cls)
        memory._start(opened())  # noqa: SLF001 - a constructor of this very class
        return memory

    def _start(self, build: Coroutine[Any, Any, AsyncMemory]) -> None:
        try:
            thread = LoopThread()
        except BaseException:
            build.close()
            raise
        try:
            super().__init__(thread, thread.call(build))
        except BaseException:
            thread.close()
            raise

    @property
    def tenant(self) -> str:
        """The tenant that this memory was opened for."""
        return self._inner.tenant

    def for_tenant(self, tenant: str) -> Memory:
        """Return a memory of another tenant of the same store. Does no I/O.

        It shares this memory's thread, store, models, policies and prompts, and with them every
        limit but the caps of sessions and tenants, which each tenant has for itself; indexes of all
        tenants together keep to ``SearchPolicy.cache_bytes``. It costs neither a thread nor a file
        descriptor. Closing it leaves this memory open; closing this memory closes it too. Workers
        of this memory work for that tenant from now on, even after it was closed.

        Called on such a memory, the result belongs to the memory that opened the store.

        Raises MemoryClosedError, and ForkedProcessError in a process that was forked since.
        """
        inner = self._thread.call(_called(lambda: self._inner.for_tenant(tenant)))
        memory = Memory.__new__(Memory)
        BlockingFacade.__init__(memory, self._thread, inner)
        return memory

    @property
    def manager(self) -> ContextWindowManager:
        """The (asynchronous) context window manager over this memory's store."""
        return self._inner.manager

    @property
    def graph(self) -> Graph:
        """The graph of everything that was extracted for this tenant."""
        return Graph(self._thread, self._inner.graph)

    def session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        participants: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        on_bad_text: Literal["refuse", "replace"] = "refuse",
    ) -> Session:
        """Return the session of that id, which its first append creates. Does no I/O.

        ``title`` and ``participants`` are passed to the model that summarises. ``metadata`` is a
        flat mapping of short texts, the application's own labels, that a new session begins with;
        ``set_metadata`` replaces those of a session that exists. With
        ``on_bad_text="replace"``, lone surrogates and NUL characters are replaced instead of
        refused.
        """
        inner = self._inner.session(
            session_id,
            title=title,
            participants=participants,
            metadata=metadata,
            on_bad_text=on_bad_text,
        )
        return Session(self._thread, inner)

    def space(self, name: str, *, rules: str | None = None) -> Space:
        """Return the space of that name, which its first use with rules creates. Does no I/O.

        ``rules`` is Markdown that names the bank's files and says what each is for. The rules of a
        space never change. Without ``rules``, the space must exist.

        Raises UsageError where the rules name no file. The calls of the space raise
        RulesConflictError where the space has other rules, and NotFoundError where it does not
        exist.
        """
        return Space(self._thread, self._inner.space(name, rules=rules))

    spaces = blocking(AsyncMemory.spaces)
    tenants = blocking(AsyncMemory.tenants)
    sessions = blocking(AsyncMemory.sessions)
    count_sessions = blocking(AsyncMemory.count_sessions)
    search = blocking(AsyncMemory.search)
    recall = blocking(AsyncMemory.recall)
    import_chats = blocking(AsyncMemory.import_chats)
    runs = blocking(AsyncMemory.runs)
    run = blocking(AsyncMemory.run)
    update_all = blocking(AsyncMemory.update_all)

    def worker(
        self,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        poll: float = 1.0,
        all_tenants: bool = False,
    ) -> Worker:
        """Return a background worker that updates the sessions of this tenant. Does no I/O.

        The worker of a memory that opened its store works for all tenants that it was asked for by
        ``for_tenant``, too, and shares the slots between them.

        With ``all_tenants`` it works for every tenant of the store, by the store's list of the
        sessions that have something to make: a look costs the same for any number of tenants. That
        takes a memory that opened its store, and raises UsageError otherwise.

        ``with`` or ``start()`` starts the worker; it stops with this memory at the latest. It works
        on the memory's own thread. ``max_calls``, ``max_tokens`` and ``deadline`` (seconds after
        the start) are caps on all its work. ``poll`` is the time between two looks for work, in
        seconds. Several workers, in one process or in many, share the work.

        Raises MemoryClosedError.
        """
        inner = self._inner.worker(
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            poll=poll,
            all_tenants=all_tenants,
        )
        return Worker(self._thread, inner)

    claim_due = blocking(AsyncMemory.claim_due)
    sweep_due = blocking(AsyncMemory.sweep_due)
    erase_session = blocking(AsyncMemory.erase_session)
    erase_space = blocking(AsyncMemory.erase_space)
    erase_tenant = blocking(AsyncMemory.erase_tenant)
    rebuild_index = blocking(AsyncMemory.rebuild_index)
    reembed = blocking(AsyncMemory.reembed)
    scrub = blocking(AsyncMemory.scrub)
    backup = blocking(AsyncMemory.backup)
    copy_to = blocking(AsyncMemory.copy_to)
    check = blocking(AsyncMemory.check)

    def close(self) -> None:
        """Wait up to the drain time for background work, then close the store.

        What was not finished stays pending, and the next update makes it. A second ``close`` does
        nothing. Memories of other tenants that ``for_tenant`` made of this one are closed with it;
        closing one of those leaves the store open.

        Raises ForkedProcessError in a process that was forked since: nothing here is that
        process's own.
        """
        try:
            self._thread.call(self._inner.close())
        except MemoryClosedError:
            return
        if not self._inner._is_child:  # noqa: SLF001 - the other half of this class
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ForkedProcessError):  # a forked process has nothing to close
            self.close()


class Session(BlockingFacade[AsyncSession]):
    """One conversation, blocking: append messages, summarise them, read contexts and search.

    A memory makes sessions; see ``Memory.session``, and AsyncSession for what all calls raise.
    """

    @property
    def id(self) -> str:
        """The session's id."""
        return self._inner.id

    def append(self, *messages: Messages) -> list[int]:
        """Append messages, or iterables of messages, and return their indices in order.

        A message is a Message or a dict of OpenAI's chat or Responses shape or of Anthropic's.
        Either all messages are written or none, and they are durable when the call returns. A
        message whose ``key`` was appended before with the same content is not written again; its
        first index is returned.

        Raises MessageConflictError where a key was used for other content, InvalidMessageError,
        InvalidTextError, SessionClosedError, and CounterMismatchError where the session was counted
        by another token counter. Nothing was written then.
        """
        # Waking two threads takes as long as the write, so the store writes on this one if it can.
        self._thread.check_thread()
        given = flatten(messages)
        done = self._inner._append_here(given)  # noqa: SLF001 - the other half of this class
        return self._thread.call(self._inner.append(given)) if done is None else done

    sync = blocking(AsyncSession.sync)
    delete = blocking(AsyncSession.delete)
    flush = blocking(AsyncSession.flush)
    tick = blocking(AsyncSession.tick)
    close = blocking(AsyncSession.close)
    reopen = blocking(AsyncSession.reopen)
    get_metadata = blocking(AsyncSession.get_metadata)
    set_metadata = blocking(AsyncSession.set_metadata)
    set_title = blocking(AsyncSession.set_title)

    update = blocking(AsyncSession.update)
    recompress = blocking(AsyncSession.recompress)
    reconfigure = blocking(AsyncSession.reconfigure)
    feedback = blocking(AsyncSession.feedback)

    def context(
        self,
        max_tokens: int = 8_000,
        *,
        query: str | None = None,
        recall_tokens: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        profile: ContextProfile | None = None,
        view: str = "default",
        strategy: Strategy = "cut",
        sticky: bool = True,
        cache_cold: bool = False,
        allow_omission: bool = False,
        reserve_for_messages: int | None = None,
        reserve_for_output: int = 0,
    ) -> ContextSelection:
        """Return the best context within ``max_tokens`` that covers every message exactly once.

        See ``AsyncSession.context`` for the parameters and errors; ``zoom`` of this result blocks.
        """
        found = self._thread.call(
            self._inner.context(
                max_tokens,
                query=query,
                recall_tokens=recall_tokens,
                system=system,
                tools=tools,
                profile=profile,
                view=view,
                strategy=strategy,
                sticky=sticky,
                cache_cold=cache_cold,
                allow_omission=allow_omission,
                reserve_for_messages=reserve_for_messages,
                reserve_for_output=reserve_for_output,
            )
        )
        return selection.blocking(found, self._thread.call)

    search = blocking(AsyncSession.search)
    recall = blocking(AsyncSession.recall)
    fill_budget = blocking(AsyncSession.fill_budget)
    embed = blocking(AsyncSession.embed)
    expand = blocking(AsyncSession.expand)

    extract = blocking(AsyncSession.extract)
    tri_vector = blocking(AsyncSession.tri_vector)

    edit = blocking(AsyncSession.edit)
    versions = blocking(AsyncSession.versions)
    instructions = blocking(AsyncSession.instructions)
    drop_instruction = blocking(AsyncSession.drop_instruction)
    erase = blocking(AsyncSession.erase)
    quarantine = blocking(AsyncSession.quarantine)

    def fork(self, new_id: str, *, at: int | None = None, title: str | None = None) -> Session:
        """Return a new session that shares this one's messages before ``at`` (None: all of them).

        Summaries of windows that end before ``at`` are shared too, without a model call.

        Raises SessionExistsError, and NotFoundError where ``at`` lies beyond the last message.
        """
        inner = self._thread.call(self._inner.fork(new_id, at=at, title=title))
        return Session(self._thread, inner)

    count = blocking(AsyncSession.count)

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True  # a session without messages is one, too

    summary = blocking(AsyncSession.summary)
    messages = blocking(AsyncSession.messages)
    summaries = blocking(AsyncSession.summaries)
    forest = blocking(AsyncSession.forest)
    status = blocking(AsyncSession.status)
    runs = blocking(AsyncSession.runs)
    metrics = blocking(AsyncSession.metrics)


class Space(BlockingFacade[AsyncSpace]):
    """A place where agents write notes, and a bank of Markdown files. Blocking.

    A memory makes spaces; see ``Memory.space``, and AsyncSpace for what all calls raise.
    """

    @property
    def name(self) -> str:
        """The space's name."""
        return self._inner.name

    note = blocking(AsyncSpace.note)
    consolidate = blocking(AsyncSpace.consolidate)
    rules = blocking(AsyncSpace.rules)
    notes = blocking(AsyncSpace.notes)
    unblock = blocking(AsyncSpace.unblock)
    files = blocking(AsyncSpace.files)
    read = blocking(AsyncSpace.read)
    synthesis = blocking(AsyncSpace.synthesis)
    meta = blocking(AsyncSpace.meta)
    history = blocking(AsyncSpace.history)
    diff = blocking(AsyncSpace.diff)
    rollback = blocking(AsyncSpace.rollback)
    export = blocking(AsyncSpace.export)
    load = blocking(AsyncSpace.load)
    runs = blocking(AsyncSpace.runs)


class Worker(BlockingFacade[AsyncWorker]):
    """A background worker over the sessions of a memory's tenants, blocking; see ``Memory.worker``.

    Use ``with``, or ``start()`` and ``stop()``. It works on its memory's own thread.
    """

    @property
    def status(self) -> WorkerStatus:
        """What the worker is doing and has done."""
        return self._thread.call(_called(lambda: self._inner.status))

    start = blocking(AsyncWorker.start)

    def wake(self) -> None:
        """Look for work now rather than at the next poll."""
        self._thread.call(_called(self._inner.wake))

    pause = blocking(AsyncWorker.pause)

    def resume(self) -> None:
        """Continue after ``pause``. Raises UsageError where the worker is not running or paused."""
        self._thread.call(_called(self._inner.resume))

    drain = blocking(AsyncWorker.drain)
    stop = blocking(AsyncWorker.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except (MemoryClosedError, ForkedProcessError):
            return  # it stopped with its memory, or runs in the parent process


class Graph(BlockingFacade[AsyncGraph]):
    """The graph of everything that was extracted for one tenant, blocking; see ``Memory.graph``."""

    entity = blocking(AsyncGraph.entity)
    entities = blocking(AsyncGraph.entities)
    neighbours = blocking(AsyncGraph.neighbours)
    mentions = blocking(AsyncGraph.mentions)
