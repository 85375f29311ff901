"""An event loop on which a minute lasts one second, for what waits for minutes."""

import asyncio
import time

#: How many of its seconds are one.
FAST = 60.0


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is fast, and whose waits are as short."""

    def __init__(self):
        super().__init__()
        select = self._selector.select
        self._selector.select = lambda wait=None: select(None if wait is None else wait / FAST)

    def time(self):
        return time.monotonic() * FAST


def run_fast(work):
    """Run a coroutine on such a loop; return its result."""
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(work)
