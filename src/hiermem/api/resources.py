"""The objects that a memory shares with its sessions and spaces: store, models, tasks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from hiermem.calls.retry import shielded
from hiermem.config import BankPolicy
from hiermem.errors import ClosedError
from hiermem.process import check_home
from hiermem.work.worker import AsyncWorker

if TYPE_CHECKING:
    from hiermem.handle import Handle, Handles
    from hiermem.prompts.template import PromptTemplate
    from hiermem.protocols import LLM, Store
    from hiermem.summaries.node import Shared

_log = logging.getLogger("hiermem.memory")


@dataclass(slots=True, weakref_slot=True, eq=False)
class Resources:
    """The collaborators and background tasks of one memory, shared by its sessions and spaces.

    Tasks and workers that were started here end with ``end``. Once ``closed`` is set, ``opened``
    refuses to return the handle. ``parent`` is set in a memory that ``for_tenant`` made: there the
    store and the models are those of the parent, which closes them. ``handles`` are those of the
    parent's tenant and of all ``children``.
    """

    store: Store
    handle: Handle
    llm: LLM
    fallback: LLM
    prompts: Mapping[str, PromptTemplate | str]
    bank_policy: BankPolicy = field(default_factory=BankPolicy)
    background: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])
    workers: WeakSet[AsyncWorker] = field(default_factory=WeakSet["AsyncWorker"])
    home: int = field(default_factory=os.getpid)
    closed: bool = False
    parent: Resources | None = None
    children: WeakSet[Resources] = field(default_factory=WeakSet["Resources"])
    handles: Handles = field(init=False)

    def __post_init__(self) -> None:
        from hiermem.handle import Handles

        self.handles = (
            Handles(self.handle, self.store) if self.parent is None else self.parent.handles
        )

    def for_tenant(self, tenant: str) -> Resources:
        """Return the resources of another tenant's memory; they end with those of the parent."""
        self.opened()
        parent = self.parent or self
        child = replace(
            parent,
            handle=parent.handles.add(tenant),
            background=set(),
            workers=WeakSet(),
            parent=parent,
            children=WeakSet(),
        )
        parent.children.add(child)
        return child

    def opened(self) -> Handle:
        """Return the handle.

        Raises ClosedError where the memory was closed, and ForkedProcessError in a process
        that was forked since.
        """
        check_home(self.home)
        if self.closed:
            raise ClosedError("this memory was closed; open it again")
        return self.handle

    @property
    def shared(self) -> Shared:
        """The models and prompts of an update."""
        from hiermem.summaries.node import Shared

        return Shared(self.llm, self.fallback, self.prompts, bank_policy=self.bank_policy)

    def embed_behind(self, session_id: str) -> None:
        """Embed what a session lacks in the background, where the memory has an embedder.

        When the memory closes, the task ends after the request that is under way.
        """
        if self.handle.embedder is None or self.closed:
            return
        from hiermem.search.embed import quietly

        self.behind(quietly(self.handle, session_id, stopped=lambda: self.closed))

    def behind(self, work: Awaitable[Any]) -> None:
        """Run ``work`` in the background; an error is logged, and its nodes stay pending."""

        async def run() -> None:
            try:
                await work
            except Exception:  # noqa: BLE001 - nobody awaits it; the log is where it goes
                _log.exception("a background update failed; what it had to make stays pending")

        task = asyncio.get_running_loop().create_task(run())
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def end(self) -> None:
        """Refuse further calls, stop the workers, and wait up to the drain time for the tasks.

        Tasks that are not done by then are cancelled; their nodes stay pending. The children's end
        in the same way, at the same time. If this is cancelled, all that is left ends at once.
        """
        ending = [self, *self.children]
        for each in ending:
            each.closed = True
        try:
            await asyncio.gather(*(_drain(each) for each in ending))
        finally:
            # Shielded: nothing may work on when the store is closed.
            await shielded(asyncio.gather(*(_cut_off(each) for each in ending)))

    async def disconnect(self) -> None:
        """Close the connections that model and embedder opened in this event loop, if any.

        Both stay usable, because another memory may share them.
        """
        for part in (self.llm, self.handle.embedder):
            leave = getattr(part, "disconnect", None)
            if leave is not None:
                await leave()


async def _drain(resources: Resources) -> None:
    """Stop the workers and wait for the tasks, up to the drain time."""
    await asyncio.gather(*(worker.stop() for worker in list(resources.workers)))
    if resources.background:
        await asyncio.wait(resources.background, timeout=resources.handle.update_policy.drain)


async def _cut_off(resources: Resources) -> None:
    """End at once what is left, and wait until it has cleaned up."""
    await asyncio.gather(*(worker.stop(0) for worker in list(resources.workers)))
    left = [task for task in resources.background if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
        _log.warning("%d background updates were left pending", len(left))
