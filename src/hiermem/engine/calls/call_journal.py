"""Journals the calls of one run that is not an update: when each began and how it ended.

A call of a remote model is journalled before it is made, and none stays as started. A call whose
end was not seen is recorded as ``unknown``, because it may have been charged for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Final

from hiermem.core.calls.run_report import cut_off
from hiermem.engine.calls.budget import JournalBudget
from hiermem.engine.calls.store_retry import retry_store
from hiermem.protocols import TenantStore
from hiermem.types.transaction import Attempt


class CallJournal:
    """The journal of one run's calls. ``subject`` is what they are charged to.

    ``unknown`` counts the calls with an unknown outcome.
    """

    def __init__(
        self,
        store: TenantStore,
        subject: str,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        journal_budget: JournalBudget | None = None,
    ) -> None:
        self.unknown = 0
        self._store, self._subject = store, subject
        self._now, self._sleep, self._journal_budget = now, sleep, journal_budget
        self._begun: dict[str, Attempt] = {}

    async def begin(self, attempt: Attempt, *, ended: Sequence[Attempt]) -> None:
        """Journal, before the call, that it is made, and how the calls before it ended."""
        self._begun[attempt.id] = attempt
        await self.write([*ended, attempt])

    def end(self, attempt: Attempt) -> None:
        """Note how a call ended; the next write records it."""
        if attempt.id in self._begun:
            self._begun[attempt.id] = attempt
            self.unknown += attempt.outcome == "unknown"

    async def write(self, attempts: Sequence[Attempt]) -> None:
        """Write calls to the journal as they are now."""
        if not attempts:
            return
        with self._journal_budget.journalling(attempts) if self._journal_budget else nullcontext():
            await retry_store(
                lambda: self._store.tree(self._subject).write_nodes([], attempts=attempts),
                sleep=self._sleep,
            )
        for attempt in attempts:
            if attempt.outcome != "started":
                self._begun.pop(attempt.id, None)

    async def close(self) -> None:
        """Write what is not written yet; calls that were cut off become ``unknown``."""
        unknown = cut_off(self._begun.values(), self._now())
        ended = [one for one in self._begun.values() if one.outcome != "started"]
        self.unknown += len(unknown)
        await self.write([*ended, *unknown])


#: More calls than a run has made.
ALL_ATTEMPTS: Final = 1_000_000
