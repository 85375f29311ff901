"""Journals the calls of one run: when each began and how it ended.

A call of a remote model is journalled before it is made, and none stays as started. A call whose
end was not seen is recorded as ``unknown``, because it may have been charged for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from hiermem.calls.budget import Reservation
from hiermem.calls.run_report import cut_off
from hiermem.calls.store_retry import retry_write
from hiermem.protocols import TreeStore
from hiermem.types.transaction import Attempt, DueSession, NodeWrite

#: More calls than a run has made.
ALL_ATTEMPTS: Final = 1_000_000


class CallJournal:
    """The journal of one run's calls, which are charged to the subject that ``tree`` is of.

    ``unknown`` counts the calls with an unknown outcome. Attempts may be written together with what
    they led to, or with what allows them, in one transaction.
    """

    def __init__(
        self,
        tree: TreeStore,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.unknown = 0
        self._tree = tree
        self._now, self._sleep = now, sleep
        self._begun: dict[str, Attempt] = {}
        self._reservations: dict[str, Reservation] = {}

    def charge(self, attempt: Attempt, reservation: Reservation) -> None:
        """Tell the reservation of a call what the journal shows of it, from now on."""
        self._reservations[attempt.id] = reservation

    def forget(self, attempt: Attempt) -> None:
        """Forget a call that was neither journalled nor made."""
        self._begun.pop(attempt.id, None)
        self._reservations.pop(attempt.id, None)

    def note(self, attempt: Attempt) -> None:
        """Note a call that is about to be journalled and made, or how one ended.

        The next write of it records its end, at the latest the last one.
        """
        self._begun[attempt.id] = attempt
        self.unknown += attempt.outcome == "unknown"

    async def write(
        self,
        attempts: Sequence[Attempt],
        *,
        nodes: Sequence[NodeWrite] = (),
        claim: DueSession | None = None,
    ) -> tuple[list[bool] | None, bool]:
        """Write attempts, and nodes in the same transaction; nothing where there are none.

        Returns which node writes took effect, None where the ``claim`` is lost and nothing was
        written; and whether an earlier try failed and may have taken effect. The store's last error
        is raised.
        """
        applied: list[bool] | None = []
        retried = False

        async def write() -> bool:
            nonlocal applied, retried
            applied, retried = await retry_write(
                lambda: self._tree.write_nodes(nodes, attempts=attempts, claim=claim),
                sleep=self._sleep,
            )
            return applied is not None

        if attempts or nodes:
            await self.write_with(attempts, write)
        return applied, retried

    async def write_with(
        self, attempts: Sequence[Attempt], write: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Have ``write`` write these attempts, if it writes at all; return whether it did."""
        written = await write()
        for attempt in attempts if written else ():
            ended = attempt.outcome != "started"
            if ended:
                self._begun.pop(attempt.id, None)
            if (reservation := self._reservations.get(attempt.id)) is not None:
                reservation.journal(ended=ended)
                if ended:
                    del self._reservations[attempt.id]
        return written

    async def close(self) -> None:
        """Write the calls whose end is not written yet; those without an end are ``unknown``."""
        unknown = {one.id: one for one in cut_off(self._begun.values(), self._now())}
        self.unknown += len(unknown)
        self._begun |= unknown
        try:
            await self.write(list(self._begun.values()))
        finally:
            while self._reservations:
                self._reservations.popitem()[1].journal(ended=True)
