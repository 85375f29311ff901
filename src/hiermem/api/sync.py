"""The blocking API: ``hiermem.api``'s asynchronous classes without ``await``.

Each ``Memory`` runs an event loop on a thread of its own, a ``LoopThread``. ``blocking`` turns a
coroutine method of an asynchronous class into a method that runs it there and waits;
``blocking_as`` and ``opening`` derive the calls that return another blocking object. Only these are
written by hand: the constructor and closing, ``for_tenant`` and ``fork``, the append that can skip
the thread, and the calls of a worker that are not coroutines.

Run coroutines for blocking code: one background thread with one event loop.

``LoopThread.call`` hands a coroutine to the loop and waits for its result.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial, wraps
from inspect import signature
from types import FunctionType, MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast

from hiermem import protocols, types
from hiermem.api.manager import ContextWindowManager
from hiermem.api.memory import AsyncMemory
from hiermem.api.session import AsyncSession
from hiermem.api.space import AsyncSpace
from hiermem.config import HierarchyConfig
from hiermem.errors import ClosedError, ForkedProcessError, StoreError, UsageError
from hiermem.extraction.tenant_graph import AsyncGraph
from hiermem.log import append as ingest
from hiermem.process import check_home, new_event_loop
from hiermem.records.store import StoreLike
from hiermem.types.brief import Brief
from hiermem.types.tree import ALL, Scope
from hiermem.work.worker import AsyncWorker

T = TypeVar("T")

#: Seconds that an interrupted call may take to clean up.
_CLEAN_UP: Final = 30.0


async def _settle(outcome: Future[T], work: Coroutine[Any, Any, T]) -> None:
    """Run ``work``, and release the thread that waits for its outcome."""
    # Here, not in a done callback: that would cost one more turn of the loop.
    try:
        outcome.set_result(await work)
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
        outcome.set_exception(error)


class LoopThread:
    """An event loop on a thread of its own; other threads call into it and wait.

    Raises StoreError where the process has no file descriptor or thread left for it.
    """

    def __init__(self) -> None:
        self._home = os.getpid()
        self._guard = threading.Lock()
        self._closed = False
        try:
            self._loop = new_event_loop()
            self._thread = threading.Thread(target=self._serve, name="hiermem", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            # No file descriptor is left, or no thread.
            raise StoreError(f"the memory cannot start an event loop: {error}") from error

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # Another thread may still wait for a call, and must not wait for ever. One more turn lets
        # calls start that have not: a task cancelled before its first step releases nobody.
        self._loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        # Here, because the thread that closes may run a loop of its own, as a notebook's does.
        self._loop.run_until_complete(self._loop.shutdown_default_executor())

    def check_thread(self) -> None:
        """Refuse a call where waiting would never end: on the loop's own thread, or in a fork.

        Raises UsageError, in a forked process ForkedProcessError.
        """
        check_home(self._home)
        if threading.get_ident() == self._thread.ident:
            raise UsageError(
                "a callback such as on_progress called its own memory and would deadlock; "
                "call it after update(), or in another thread"
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, run on the loop; raise what it raises.

        An interrupt (Ctrl-C) cancels ``work`` and is raised after ``work`` has cleaned up, so that
        nobody closes the store under it. A second interrupt does not wait for the clean-up.

        Raises UsageError on the loop's own thread, ForkedProcessError in a forked process, and
        ClosedError after ``close``.
        """
        try:
            self.check_thread()
        except UsageError:
            work.close()
            raise
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[None]] = []
        with self._guard:
            if self._closed:
                work.close()
                raise ClosedError("this memory was closed; open it again")
            settled = _settle(outcome, work)
            self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(settled)))
        try:
            return outcome.result()
        except BaseException as error:
            if not outcome.done():
                # After the first step: a task that is cancelled before it settles nothing.
                self._loop.call_soon_threadsafe(lambda: self._loop.call_soon(tasks[0].cancel))
                wait([outcome], timeout=_CLEAN_UP)
            elif self._closed and isinstance(error, asyncio.CancelledError):
                raise ClosedError("this memory was closed; open it again") from None
            raise
        finally:
            # The error's traceback holds this frame; without it the two would be a cycle.
            del outcome

    def close(self) -> None:
        """Stop the loop and end its thread; a second close does nothing."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")


class BlockingFacade(Brief, Generic[A]):
    """The base of the blocking classes: an asynchronous object and the thread that runs it."""

    def __init__(self, thread: LoopThread, inner: A) -> None:
        self._thread, self._inner = thread, inner

    def __init_subclass__(cls) -> None:
        """Name the derived methods after this class; ``wraps`` named them after the other."""
        super().__init_subclass__()
        for member in vars(cls).values():
            method = member.__func__ if isinstance(member, classmethod) else member
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


def blocking_as(
    method: Callable[Concatenate[A, P], R], answer: Callable[[LoopThread, R], B]
) -> Callable[Concatenate[BlockingFacade[A], P], B]:
    """Return ``method`` as ``blocking`` does, where its result is of another class here.

    ``answer`` is that class, made of the thread and of what ``method`` returned.
    """

    @wraps(method)
    def call(self: BlockingFacade[A], /, *args: P.args, **kwargs: P.kwargs) -> B:
        return answer(self._thread, method(self._inner, *args, **kwargs))

    _returns(call, answer)
    return call


def opening(method: Callable[P, Awaitable[AsyncMemory]]) -> classmethod[Memory, P, Memory]:
    """Return ``AsyncMemory.open`` as a class method of ``Memory``."""

    @wraps(cast("MethodType", method).__func__)
    def call(cls: type[Memory], /, *args: P.args, **kwargs: P.kwargs) -> Memory:
        async def opened() -> AsyncMemory:
            return await method(*args, **kwargs)

        memory = cls.__new__(cls)
        memory._start(opened())  # noqa: SLF001 - a constructor of this very class
        return memory

    _returns(call, Self)
    return classmethod(call)


def _returns(call: Callable[..., Any], kind: Any) -> None:
    """Let ``help`` and ``get_type_hints`` show what a derived method returns."""
    call.__annotations__ = {**call.__annotations__, "return": kind}
    call.__dict__["__signature__"] = signature(call).replace(return_annotation=kind)


async def _called(function: Callable[[], T]) -> T:
    """Call ``function`` in the event loop."""
    return function()


class Session(BlockingFacade[AsyncSession]):
    """One conversation, blocking: append messages, summarise them, read contexts and search.

    A memory makes sessions; see ``Memory.session``, and AsyncSession for what all calls raise.
    """

    _brief = "id"

    @property
    def id(self) -> str:
        """The session's id."""
        return self._inner.id

    def append(self, *messages: ingest.Messages) -> list[int]:
        """Append messages, or iterables of messages, and return their indices in order.

        A message is a Message or a dict of OpenAI's chat or Responses shape or of Anthropic's.
        Either all messages are written or none, and they are durable when the call returns. A
        message whose ``key`` was appended before with the same content is not written again; its
        first index is returned.

        Raises ConflictError where a key was used for other content, InvalidMessageError,
        InvalidMessageError, ClosedError, and ConflictError where the session was counted
        by another token counter. Nothing was written then.
        """
        # Waking two threads takes as long as the write, so the store writes on this one if it can.
        self._thread.check_thread()
        given = ingest.flatten(messages)
        done = self._inner._append_here(given)  # noqa: SLF001 - the other half of this class
        return self._thread.call(self._inner.append(given)) if done is None else done

    sync = blocking(AsyncSession.sync)
    delete = blocking(AsyncSession.delete)
    flush = blocking(AsyncSession.flush)
    tick = blocking(AsyncSession.tick)
    close = blocking(AsyncSession.close)
    reopen = blocking(AsyncSession.reopen)
    join = blocking(AsyncSession.join)
    leave = blocking(AsyncSession.leave)
    get_metadata = blocking(AsyncSession.get_metadata)
    set_metadata = blocking(AsyncSession.set_metadata)
    set_title = blocking(AsyncSession.set_title)

    update = blocking(AsyncSession.update)
    recompress = blocking(AsyncSession.recompress)
    reconfigure = blocking(AsyncSession.reconfigure)
    feedback = blocking(AsyncSession.feedback)

    context = blocking(AsyncSession.context)
    search = blocking(AsyncSession.search)
    recall = blocking(AsyncSession.recall)
    embed = blocking(AsyncSession.embed)
    expand = blocking(AsyncSession.expand)

    extract = blocking(AsyncSession.extract)
    tri_vector = blocking(AsyncSession.tri_vector)

    edit = blocking(AsyncSession.edit)
    versions = blocking(AsyncSession.versions)
    pin = blocking(AsyncSession.pin)
    unpin = blocking(AsyncSession.unpin)
    pins = blocking(AsyncSession.pins)
    erase = blocking(AsyncSession.erase)
    quarantine = blocking(AsyncSession.quarantine)

    def fork(self, new_id: str, *, at: int | None = None, title: str | None = None) -> Session:
        """Return a new session that shares this one's messages before ``at`` (None: all of them).

        Summaries of windows that end before ``at`` are shared too, without a model call.

        Raises ConflictError, and NotFoundError where ``at`` lies beyond the last message.
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
    to_html = blocking(AsyncSession.to_html)


class Space(BlockingFacade[AsyncSpace]):
    """A place where agents write notes, and a bank of Markdown files. Blocking.

    A memory makes spaces; see ``Memory.space``, and AsyncSpace for what all calls raise.
    """

    _brief = "name"

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
    about = blocking(AsyncSpace.about)
    forget = blocking(AsyncSpace.forget)
    delete = blocking(AsyncSpace.delete)
    runs = blocking(AsyncSpace.runs)


class Worker(BlockingFacade[AsyncWorker]):
    """A background worker over the sessions of a memory's tenants, blocking; see ``Memory.worker``.

    Use ``with``, or ``start()`` and ``stop()``. It works on its memory's own thread.
    """

    @property
    def status(self) -> types.WorkerStatus:
        """The state of the worker and the work it has done."""
        return self._thread.call(_called(lambda: self._inner.status))

    start = blocking(AsyncWorker.start)

    def wake(self) -> None:
        """Look for work now rather than at the next poll."""
        self._thread.call(_called(self._inner.wake))

    drain = blocking(AsyncWorker.drain)
    stop = blocking(AsyncWorker.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
        except (ClosedError, ForkedProcessError):
            return  # it stopped with its memory, or runs in the parent process


class Graph(BlockingFacade[AsyncGraph]):
    """The graph of everything that was extracted for one tenant, blocking; see ``Memory.graph``."""

    entity = blocking(AsyncGraph.entity)
    entities = blocking(AsyncGraph.entities)
    neighbours = blocking(AsyncGraph.neighbours)
    mentions = blocking(AsyncGraph.mentions)


class Manager(BlockingFacade[ContextWindowManager]):
    """A ContextWindowManager over a memory's store, blocking; see ``Memory.manager``."""

    select_optimal_context = blocking(ContextWindowManager.select_optimal_context)
    semantic_search = blocking(ContextWindowManager.semantic_search)
    expand = blocking(ContextWindowManager.expand)


class Memory(BlockingFacade[AsyncMemory]):
    """One tenant's conversation memory, blocking; see AsyncMemory for the arguments.

    ``with Memory.open("chat.db") as memory`` opens the embedded store; the constructor takes a
    store of your own. A memory may be used from several threads at once. Its event loop runs on a
    background thread, from which (in ``on_progress``, an asynchronous model or the clock) any call
    of the memory raises UsageError.
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
        **settings: Any,
    ) -> None:
        build = partial(
            AsyncMemory,
            store=store,
            tenant=tenant,
            llm=llm,
            embedder=embedder,
            token_counter=token_counter,
            config=config,
            **settings,
        )
        self._start(_called(build))

    open = opening(AsyncMemory.open)

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

        Raises ClosedError, and ForkedProcessError in a process that was forked since.
        """
        inner = self._thread.call(_called(lambda: self._inner.for_tenant(tenant)))
        memory = Memory.__new__(Memory)
        BlockingFacade.__init__(memory, self._thread, inner)
        return memory

    @property
    def manager(self) -> Manager:
        """The context window manager over this memory's store, by session id."""
        return Manager(self._thread, self._inner.manager)

    @property
    def graph(self) -> Graph:
        """The graph of everything that was extracted for this tenant."""
        return Graph(self._thread, self._inner.graph)

    def find(self, name: str, *, space: Scope = ALL, whole: bool = False) -> Session:
        """Return the session that people call so; see ``AsyncMemory.find``."""
        return Session(
            self._thread, self._thread.call(self._inner.find(name, space=space, whole=whole))
        )

    session = blocking_as(AsyncMemory.session, Session)
    space = blocking_as(AsyncMemory.space, Space)
    spaces = blocking(AsyncMemory.spaces)
    tenants = blocking(AsyncMemory.tenants)
    join = blocking(AsyncMemory.join)
    sessions = blocking(AsyncMemory.sessions)
    count_sessions = blocking(AsyncMemory.count_sessions)
    families = blocking(AsyncMemory.families)
    search = blocking(AsyncMemory.search)
    recall = blocking(AsyncMemory.recall)
    import_chats = blocking(AsyncMemory.import_chats)
    runs = blocking(AsyncMemory.runs)
    run = blocking(AsyncMemory.run)
    update_all = blocking(AsyncMemory.update_all)

    worker = blocking_as(AsyncMemory.worker, Worker)
    list_due = blocking(AsyncMemory.list_due)
    erase_tenant = blocking(AsyncMemory.erase_tenant)
    rebuild_index = blocking(AsyncMemory.rebuild_index)
    reembed = blocking(AsyncMemory.reembed)
    scrub = blocking(AsyncMemory.scrub)
    backup = blocking(AsyncMemory.backup)
    copy_to = blocking(AsyncMemory.copy_to)
    check = blocking(AsyncMemory.check)
    to_html = blocking(AsyncMemory.to_html)

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
        except ClosedError:
            return
        if not self._inner._is_child:  # noqa: SLF001 - the other half of this class
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ForkedProcessError):  # a forked process has nothing to close
            self.close()
