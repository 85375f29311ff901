"""The blocking public face: the same names and meanings as ``hiermem.memory``, without ``await``.

One background thread runs one event loop for each Memory; a call hands its coroutine over and waits
for the result; an append is handed to the store itself where nobody else is writing, since waking
two threads takes as long as the write. The one rule: nothing but the handing over happens here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from hiermem.config import ExtractionOptions, HierarchyConfig
from hiermem.core.extract_plan import ExtractionProgress, ExtractionReport
from hiermem.core.graph import GraphEntity, Mention, Neighbour
from hiermem.core.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.selection import ContextSelection, ShownSummary
from hiermem.engine import append as ingest
from hiermem.engine.append import Messages
from hiermem.engine.context import ContextWindowManager, Strategy
from hiermem.engine.graph import AsyncGraph
from hiermem.engine.tree import SessionStatus, Tree
from hiermem.errors import MemoryClosedError, UsageError
from hiermem.memory import AsyncMemory, AsyncSession, ModelLike
from hiermem.protocols import RunRecord, Store, TokenCounter
from hiermem.trivector import EntityType, TriVector
from hiermem.types import SessionRecord, StoredMessage, Summary

__all__ = ["Graph", "Memory", "Session"]

T = TypeVar("T")


class _Call(Generic[T]):
    """A coroutine on its way through the portal, and what came of it."""

    __slots__ = ("done", "error", "result", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.task: asyncio.Task[None] | None = None
        self.result: T
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin; runs in the loop."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Give up; runs in the loop."""
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        # Who waits is woken from in here: a callback of the task would cost one more turn of the
        # loop, and so would asyncio.run_coroutine_threadsafe.
        try:
            self.result = await self.work
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            self.error = error
        finally:
            self.done.release()


class _Portal:
    """An event loop on a thread of its own, and the way into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._guard = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="hiermem", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # A call of another thread may still be under way: it must not wait for ever. One more turn
        # lets those begin that have not, since a task cancelled before it began says nothing.
        self._loop.run_until_complete(asyncio.sleep(0))
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))

    def check_thread(self) -> None:
        """Refuse a call from the loop's own thread, where waiting would wait for itself.

        Raises UsageError.
        """
        if threading.get_ident() == self._thread.ident:
            raise UsageError(
                "this memory was called from its own thread (in on_progress, an asynchronous "
                "model or the clock), where the call would wait for itself; note what is to be "
                "done and call when update() has returned, or hand it to another thread without "
                "waiting for it"
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for its result; an interrupt cancels it.

        Raises UsageError on the loop's own thread.
        """
        try:
            self.check_thread()
        except UsageError:
            work.close()
            raise
        call = _Call(work)
        with self._guard:
            if self._closed:
                work.close()
                raise MemoryClosedError("this memory was closed; open it again")
            self._loop.call_soon_threadsafe(call.start)
        try:
            call.done.acquire()
        except BaseException:
            self._loop.call_soon_threadsafe(call.cancel)
            raise
        if call.error is None:
            return call.result
        if self._closed and isinstance(call.error, asyncio.CancelledError):
            raise MemoryClosedError("this memory was closed; open it again")
        try:
            raise call.error
        finally:
            # The error's traceback holds this frame; without it the two would be a cycle.
            del call

    def close(self) -> None:
        """Stop the loop and end its thread."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class Memory:
    """One tenant's conversation memory, blocking. See AsyncMemory.

    Use ``with Memory.open("chat.db") as memory``, or construct it with parts of your own. It may be
    used from several threads at once.
    """

    def __init__(
        self,
        *,
        store: Store,
        tenant: str = "default",
        llm: ModelLike | None = None,
        token_counter: TokenCounter | None = None,
        config: HierarchyConfig | None = None,
        **settings: Any,
    ) -> None:
        self._start(
            lambda: _built(
                store=store,
                tenant=tenant,
                llm=llm,
                token_counter=token_counter,
                config=config,
                **settings,
            )
        )

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
    ) -> Memory:
        """Open the embedded store at ``path``; ":memory:" keeps nothing.

        Raises StoreError where the file is not a hiermem store, is newer or damaged, and
        NotFoundError where it does not exist and ``create`` is False.
        """

        async def opened() -> AsyncMemory:
            return await AsyncMemory.open(
                path,
                tenant=tenant,
                llm=llm,
                token_counter=token_counter,
                config=config,
                create=create,
                **settings,
            )

        memory = cls.__new__(cls)
        memory._start(opened)  # noqa: SLF001 - a constructor of this very class
        return memory

    def _start(self, build: Callable[[], Coroutine[Any, Any, AsyncMemory]]) -> None:
        self._portal = _Portal()
        try:
            self._memory = self._portal.call(build())
        except BaseException:
            self._portal.close()
            raise

    @property
    def tenant(self) -> str:
        """Give the tenant that this memory was opened for."""
        return self._memory.tenant

    @property
    def manager(self) -> ContextWindowManager:
        """Give the (asynchronous) context window manager over this memory's store."""
        return self._memory.manager

    @property
    def graph(self) -> Graph:
        """Give the graph of everything that was extracted for this tenant."""
        return Graph(self._portal, self._memory.graph)

    def session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        participants: Sequence[str] = (),
        on_bad_text: Literal["refuse", "replace"] = "refuse",
    ) -> Session:
        """Give the session of that id; it is created by its first append. Does no I/O."""
        inner = self._memory.session(
            session_id, title=title, participants=participants, on_bad_text=on_bad_text
        )
        return Session(self._portal, inner)

    def sessions(self) -> list[SessionRecord]:
        """List the sessions of this tenant, oldest first."""
        return self._portal.call(self._memory.sessions())

    def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this tenant, newest first."""
        return self._portal.call(self._memory.runs(limit=limit))

    def close(self) -> None:
        """Wait up to the drain time for background work, then close; twice is harmless."""
        try:
            self._portal.call(self._memory.close())
        except MemoryClosedError:
            return
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _built(**parts: Any) -> AsyncMemory:
    return AsyncMemory(**parts)


class Graph:
    """The graph of everything that was extracted for one tenant, blocking. See AsyncGraph."""

    def __init__(self, portal: _Portal, graph: AsyncGraph) -> None:
        self._portal = portal
        self._graph = graph

    def entity(self, name: str, *, type: EntityType | None = None) -> GraphEntity | None:  # noqa: A002
        """Give the entity of that name or alias, in any spelling; None where there is none."""
        return self._portal.call(self._graph.entity(name, type=type))

    def entities(self, name: str, *, type: EntityType | None = None) -> tuple[GraphEntity, ...]:  # noqa: A002
        """Give all entities of that name or alias, one a type and name, most mentioned first."""
        return self._portal.call(self._graph.entities(name, type=type))

    def neighbours(self, name: str, *, type: EntityType | None = None) -> tuple[Neighbour, ...]:  # noqa: A002
        """Give what the entity of that name is related to, in both directions, heaviest first."""
        return self._portal.call(self._graph.neighbours(name, type=type))

    def mentions(self, name: str, *, type: EntityType | None = None) -> tuple[Mention, ...]:  # noqa: A002
        """Give the places where the entity was mentioned: session, chunk and messages."""
        return self._portal.call(self._graph.mentions(name, type=type))


class Session:
    """One conversation, blocking. See AsyncSession for what each call means and raises."""

    def __init__(self, portal: _Portal, session: AsyncSession) -> None:
        self._portal = portal
        self._session = session

    @property
    def id(self) -> str:
        """Give the session's id."""
        return self._session.id

    def append(self, *messages: Messages) -> list[int]:
        """Append messages (or iterables of them), all or none; give their indices in order."""
        self._portal.check_thread()
        given = ingest.flatten(messages)
        session = self._session
        done = ingest.append_here(session._handle, session._about, given)  # noqa: SLF001
        return self._portal.call(session.append(given)) if done is None else done

    @overload
    def update(
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
    def update(
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

    def update(
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

        ``on_progress`` is called on the memory's own thread, which does nothing else meanwhile: it
        must return soon, must not block, and cannot call this memory (that raises UsageError).
        """
        settings: dict[str, Any] = {
            "wait": wait,
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
            "dry_run": dry_run,
        }
        work: Coroutine[Any, Any, UpdateReport | UpdatePlan]
        work = self._session.update(level, **settings)
        return self._portal.call(work)

    def context(
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
        """Give the best context that fits ``max_tokens``: the whole history, each message once."""
        return self._portal.call(
            self._session.context(
                max_tokens,
                system=system,
                tools=tools,
                view=view,
                strategy=strategy,
                sticky=sticky,
                cache_cold=cache_cold,
                allow_omission=allow_omission,
                reserve_for_messages=reserve_for_messages,
                reserve_for_output=reserve_for_output,
            )
        )

    def extract(
        self,
        options: ExtractionOptions | None = None,
        *,
        on_progress: Callable[[ExtractionProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
    ) -> ExtractionReport:
        """Make one TriVector of the session: a graph, what is open, where it is going.

        ``on_progress`` is called on the memory's own thread.
        """
        return self._portal.call(
            self._session.extract(
                options,
                on_progress=on_progress,
                max_calls=max_calls,
                max_tokens=max_tokens,
                deadline=deadline,
            )
        )

    def tri_vector(self) -> TriVector | None:
        """Give the newest result of ``extract``, or None where there is none."""
        return self._portal.call(self._session.tri_vector())

    def expand(
        self, node: Summary | ShownSummary | str, depth: int | None = 1
    ) -> tuple[Summary | StoredMessage, ...]:
        """Go ``depth`` levels down from a summary or its id; None goes to the messages."""
        return self._portal.call(self._session.expand(node, depth))

    def messages(self, start: int = 0, stop: int | None = None) -> list[StoredMessage]:
        """Give the messages from ``start`` up to and without ``stop``, verbatim."""
        return self._portal.call(self._session.messages(start, stop))

    def summaries(self, level: int | None = None) -> list[Summary]:
        """Give the summaries of a level, or of all levels, lowest first."""
        return self._portal.call(self._session.summaries(level))

    def forest(self) -> tuple[Tree, ...]:
        """Give the trees of summaries, oldest first."""
        return self._portal.call(self._session.forest())

    def status(self) -> SessionStatus:
        """Tell where the session stands."""
        return self._portal.call(self._session.status())

    def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this session, newest first."""
        return self._portal.call(self._session.runs(limit=limit))

    def flush(self) -> None:
        """Seal each thread's open window at its last whole point."""
        self._portal.call(self._session.flush())

    def tick(self, now: datetime) -> None:
        """Apply the time rules as if a message arrived ``now`` (timezone-aware)."""
        self._portal.call(self._session.tick(now))

    def close(self) -> None:
        """Seal everything up to one root and archive the session."""
        self._portal.call(self._session.close())

    def reopen(self) -> None:
        """Make a closed session writable again."""
        self._portal.call(self._session.reopen())
