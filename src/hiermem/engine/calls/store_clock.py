"""The time of the store: claims are made and judged by it, whatever the clock of a machine shows.

Two machines whose clocks differ would take each other's claims for ended ones, and pay twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from hiermem.core.calls.claim import COMPARED_AFTER, moved_too_far
from hiermem.engine.calls.store_retry import retry_store
from hiermem.errors import ClockMovedError
from hiermem.protocols import TenantStore


@dataclass(slots=True)
class StoreClock:
    """The store's time, computed from ``clock``: the offset between the two is read now and then.

    Before the first comparison, it is the time of ``clock``.
    """

    store: TenantStore
    clock: Callable[[], datetime]
    _offset: timedelta | None = None
    _compared: datetime | None = None

    def now(self) -> datetime:
        """Return the store's time, as far as it is known."""
        return self.clock() + (self._offset or timedelta())

    async def compare(self, *, lease: float) -> None:
        """Read the store's time if the offset is not known, or was read an hour ago.

        Call this before claims of ``lease`` seconds are made.

        Raises ClockMovedError where the offset moved by more than a quarter of a claim: what this
        memory holds may look ended to others. The next call compares again, and passes where the
        clocks have kept the new offset.
        """
        if self._compared is not None:
            since = self.clock() - self._compared
            if timedelta() <= since < COMPARED_AFTER:
                return
        offset = await retry_store(self._read, sleep=asyncio.sleep)
        known, self._offset = self._offset, offset
        if known is not None and moved_too_far(offset - known, lease):
            self._compared = None
            raise ClockMovedError(abs(offset - known).total_seconds())
        self._compared = self.clock()

    async def _read(self) -> timedelta:
        """Return the offset; the way to the store and back is taken to last equally long."""
        before = self.clock()
        there = await self.store.now()
        return there - before - (self.clock() - before) / 2
