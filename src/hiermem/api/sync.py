"""The blocking public face: the names and meanings of ``hiermem.api.memory``, without ``await``.

One background thread runs one event loop for each Memory; a call hands its coroutine over and waits
for the result. The one rule: nothing but the handing over happens here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, overload

from hiermem.api.extractor import ModelLike
from hiermem.api.loop_thread import Portal
from hiermem.api.memory import AsyncMemory
from hiermem.api.sync_session import Session
from hiermem.api.sync_space import Space
from hiermem.config import HierarchyConfig
from hiermem.core.calls.run_report import RunReport
from hiermem.core.check import CheckReport
from hiermem.core.extraction.graph import GraphEntity, Mention, Neighbour
from hiermem.core.log.erase import Forks
from hiermem.core.log.receipts import Receipt
from hiermem.core.search.embedding_state import EmbeddingReport, IndexReport
from hiermem.core.summaries.plan import UpdatePlan
from hiermem.core.summaries.reports import BatchProgress, BatchReport, WorkerStatus
from hiermem.engine.context.manager import ContextWindowManager
from hiermem.engine.extraction.graph import AsyncGraph
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.engine.worker.worker import AsyncWorker
from hiermem.errors import MemoryClosedError
from hiermem.protocols import Embedder, Store, TokenCounter
from hiermem.types import SessionRecord
from hiermem.types.transaction import RunRecord, Scrubbed
from hiermem.types.trivector import EntityType


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
        embedder: Embedder | None = None,
        token_counter: TokenCounter | None = None,
        config: HierarchyConfig | None = None,
        **settings: Any,
    ) -> None:
        self._start(
            lambda: _built(
                store=store,
                tenant=tenant,
                llm=llm,
                embedder=embedder,
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
        embedder: Embedder | None = None,
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
                embedder=embedder,
                token_counter=token_counter,
                config=config,
                create=create,
                **settings,
            )

        memory = cls.__new__(cls)
        memory._start(opened)  # noqa: SLF001 - a constructor of this very class
        return memory

    def _start(self, build: Callable[[], Coroutine[Any, Any, AsyncMemory]]) -> None:
        self._portal = Portal()
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

    def space(self, name: str, *, rules: str | None = None) -> Space:
        """Give the space of that name; it is made by its first use with rules. Does no I/O."""
        return Space(self._portal, self._memory.space(name, rules=rules))

    def spaces(self) -> list[str]:
        """List the names of this tenant's spaces."""
        return self._portal.call(self._memory.spaces())

    def sessions(self) -> list[SessionRecord]:
        """List the sessions of this tenant, oldest first."""
        return self._portal.call(self._memory.sessions())

    def runs(self, *, limit: int = 100) -> list[RunRecord]:
        """List the journalled runs of this tenant, newest first."""
        return self._portal.call(self._memory.runs(limit=limit))

    def run(self, run_id: str) -> RunReport:
        """Give one run with the state of each summary or chunk that it called a model for."""
        return self._portal.call(self._memory.run(run_id))

    @overload
    def update_all(
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
    def update_all(
        self,
        *,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[BatchProgress], object] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        dry_run: Literal[True],
    ) -> UpdatePlan: ...

    def update_all(
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

        ``on_progress`` is called on the memory's own thread.
        """
        settings: dict[str, Any] = {
            "strategy": strategy,
            "on_progress": on_progress,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "deadline": deadline,
            "dry_run": dry_run,
        }
        work: Coroutine[Any, Any, BatchReport | UpdatePlan]
        work = self._memory.update_all(**settings)
        return self._portal.call(work)

    def worker(
        self,
        *,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        poll: float = 1.0,
    ) -> Worker:
        """Make a background worker over all sessions of this tenant. Does no I/O.

        It is begun by ``with`` or ``start()``, and stopped with this memory at the latest. It works
        on the memory's own thread, beside the calls of others.
        """
        inner = self._memory.worker(
            max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, poll=poll
        )
        return Worker(self._portal, inner)

    def erase_session(self, session_id: str, *, forks: Forks = "all") -> Receipt:
        """Erase a session with all that is kept of it; say what went."""
        return self._portal.call(self._memory.erase_session(session_id, forks=forks))

    def erase_space(self, name: str) -> Receipt:
        """Erase a space with its notes, its bank and its rules; say what went."""
        return self._portal.call(self._memory.erase_space(name))

    def erase_tenant(self) -> Receipt:
        """Erase everything that is kept for this tenant, its journal too; say what went."""
        return self._portal.call(self._memory.erase_tenant())

    def scrub(self) -> Scrubbed:
        """Take what was removed out of the store's bytes, where an erasure could not do it."""
        return self._portal.call(self._memory.scrub())

    def rebuild_index(self) -> IndexReport:
        """Make the search index of every session anew; say what that came to."""
        return self._portal.call(self._memory.rebuild_index())

    def reembed(self) -> list[EmbeddingReport]:
        """Bring the vectors of every session in line with this memory's embedder."""
        return self._portal.call(self._memory.reembed())

    def check(self) -> CheckReport:
        """Read everything that is kept for this tenant and verify the promises it can show."""
        return self._portal.call(self._memory.check())

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


class Worker:
    """A background worker over one tenant's sessions, blocking. See AsyncWorker.

    Use ``with``, or start() and stop(). It works on its memory's own thread.
    """

    def __init__(self, portal: Portal, worker: AsyncWorker) -> None:
        self._portal = portal
        self._worker = worker

    @property
    def status(self) -> WorkerStatus:
        """Tell what it is doing, and has done."""

        async def ask() -> WorkerStatus:
            return self._worker.status

        return self._portal.call(ask())

    def start(self) -> None:
        """Begin. Raises UsageError where it was started before."""
        self._portal.call(self._worker.start())

    def wake(self) -> None:
        """Look for work now rather than at the next look."""

        async def ask() -> None:
            self._worker.wake()

        self._portal.call(ask())

    def pause(self) -> None:
        """Begin nothing any more; returns when what was in flight is committed."""
        self._portal.call(self._worker.pause())

    def resume(self) -> None:
        """Go on after a pause."""

        async def ask() -> None:
            self._worker.resume()

        self._portal.call(ask())

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that can be made now is made; say whether nothing at all is left."""
        return self._portal.call(self._worker.drain(timeout))

    def stop(self, timeout: float | None = None) -> None:
        """End. Calls in flight are waited for up to ``timeout`` seconds, the drain time if None."""
        self._portal.call(self._worker.stop(timeout))

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
        except MemoryClosedError:
            return  # it was stopped with its memory


class Graph:
    """The graph of everything that was extracted for one tenant, blocking. See AsyncGraph."""

    def __init__(self, portal: Portal, graph: AsyncGraph) -> None:
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
