"""The way from blocking code into an event loop: one background thread that calls are handed to.

The one rule: nothing but the handing over happens here. What a call does is the coroutine's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, Generic, TypeVar

from hiermem.errors import MemoryClosedError, UsageError

T = TypeVar("T")

#: Seconds that an interrupted call may take to put away what it had in hand.
_CLEAN_UP: Final = 30.0


class _Call(Generic[T]):
    """A coroutine on its way through the portal, and what came of it."""

    __slots__ = ("done", "error", "over", "result", "task", "work")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.over = False
        self.task: asyncio.Task[None] | None = None
        self.result: T
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin; runs in the loop."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Give up; runs in the loop, once the task's first step has run.

        A task that is cancelled before it began would say nothing to who waits.
        """
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)

    def wait_until_over(self) -> None:
        """Wait, for a while, until a cancelled call has put away what it had in hand."""
        if not self.over:
            self.done.acquire(timeout=_CLEAN_UP)

    async def _run(self) -> None:
        # Who waits is woken from in here: a callback of the task would cost one more turn of the
        # loop, and so would asyncio.run_coroutine_threadsafe.
        try:
            self.result = await self.work
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            self.error = error
        finally:
            self.over = True
            self.done.release()


class Portal:
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

        The interrupt is raised when the call has cleaned up, so that nobody closes the store under
        it; a second interrupt does not wait. Raises UsageError on the loop's own thread.
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
            call.wait_until_over()
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
