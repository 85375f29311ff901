"""Run coroutines for blocking code: one background thread with one event loop.

``LoopThread.call`` hands a coroutine to the loop and waits for its result.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, Generic, TypeVar

from hiermem.errors import MemoryClosedError, StoreError, UsageError
from hiermem.process import HomeProcess, new_event_loop

T = TypeVar("T")

#: Seconds that an interrupted call may take to clean up.
_CLEAN_UP: Final = 30.0


class _Call(Generic[T]):
    """One coroutine that the loop runs while another thread waits for its outcome."""

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
        """Start the task; runs in the loop."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel the task after its first step; runs in the loop.

        A task that is cancelled before its first step would never release the waiting thread.
        """
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)

    async def _run(self) -> None:
        # The task itself releases the waiting thread. A done callback would cost one more turn of
        # the loop, and so would asyncio.run_coroutine_threadsafe.
        try:
            self.result = await self.work
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
            self.error = error
        finally:
            self.over = True
            self.done.release()


class LoopThread:
    """An event loop on a thread of its own; other threads call into it and wait.

    Raises StoreError where the process has no file descriptor or thread left for it.
    """

    def __init__(self) -> None:
        self._home = HomeProcess()
        self._guard = threading.Lock()
        self._closed = False
        try:
            self._loop = new_event_loop()
            self._thread = threading.Thread(target=self._serve, name="hiermem", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            # No file descriptor is left, or no thread.
            raise StoreError(
                f"the memory cannot be opened, because no event loop can be started: {error}"
            ) from error

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
        self._home.check()
        if threading.get_ident() == self._thread.ident:
            raise UsageError(
                "this memory was called from its own thread (in on_progress, an asynchronous "
                "model or the clock), where the call would wait for itself; note what is to be "
                "done and call when update() has returned, or hand it to another thread without "
                "waiting for it"
            )

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``, run on the loop; raise what it raises.

        An interrupt (Ctrl-C) cancels ``work`` and is raised after ``work`` has cleaned up, so that
        nobody closes the store under it. A second interrupt does not wait for the clean-up.

        Raises UsageError on the loop's own thread, ForkedProcessError in a forked process, and
        MemoryClosedError after ``close``.
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
            if not call.over:
                call.done.acquire(timeout=_CLEAN_UP)
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
        """Stop the loop and end its thread; a second close does nothing."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
