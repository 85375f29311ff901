"""Runs calls within the caps on calls, tokens and time, and journals what each of them took.

::

    reserve -> journal (started) -> settle -> journal (ended)
            -> release, if the call is not made

A cap is checked before each call, against what is spent plus what the calls in flight may still
spend. So no cap is exceeded, not even by concurrent calls. A budget may lie inside others, such as
the budget of the worker that runs it; a call has to fit into all of them.

For the caps of a session and of the tenant, the journal is the account: it is read before each
call, and what is reserved for calls that it does not show yet is added. Within one process no cap
is exceeded. The calls of another process count as soon as they are journalled, which for a remote
model happens before the call; so a cap can be exceeded by what other processes have in flight. A
call that has ended counts with all that was reserved for it until its end is journalled.

A call of a remote model is journalled before it is made, and none stays as started. A call whose
end was not seen is recorded as ``unknown``, because it may have been charged for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NoReturn

from hiermem.calls.retry import retry_write
from hiermem.config import Limits
from hiermem.errors import SpendLimitError
from hiermem.protocols import TreeStore
from hiermem.types.transaction import Attempt, Cost, DueSession, NodeWrite, Spent


@dataclass(slots=True, eq=False)
class Reservation:
    """The tokens reserved for one call, in every budget that the call is charged to.

    ``used`` are the tokens that the call took, None until that is known. ``journalled`` means that
    the journal shows the call, with the reserved tokens until it shows its end.
    """

    tokens: int
    budgets: list[Budget] = field(default_factory=list["Budget"])
    used: int | None = None
    journalled: bool = False

    def release(self) -> None:
        """Cancel the reservation; the call was not made."""
        for budget in self.budgets:
            budget.spent += Cost(calls=-1)
            budget.drop(self)

    def journal(self, *, ended: bool) -> None:
        """Note that the journal shows the call, with what it took where it has ``ended``."""
        self.journalled = True
        for budget in self.budgets if ended else ():
            budget.drop(self)

    def settle(self, took: Cost) -> None:
        """Replace the reservation, which counted the call, by the tokens and the price it took."""
        self.used = took.tokens
        for budget in self.budgets:
            budget.spent += replace(took, calls=0)
            budget.settled(self)


class Budget:
    """What runs may spend, and have spent.

    ``limits`` are caps from now on, by ``clock``. ``parents`` are the budgets around this one, and
    ``chain`` is the budget with all that are around it. ``retry_after`` is set where an unavailable
    provider ended the run: the seconds until it may be asked again, and ``last_error`` says why its
    last call failed. ``spent`` is what the calls took. ``account`` reads what was spent in all from
    the journal; without it, the calls of this budget are counted. ``scope`` begins the names of the
    caps.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        parents: Sequence[Budget] = (),
        account: Callable[[], Awaitable[Spent]] | None = None,
        scope: str = "max",
    ) -> None:
        self.spent = Cost()
        self.retry_after: float | None = None
        self.last_error: str | None = None
        self._limits, self._begun = limits or Limits(), clock()
        self._clock = clock
        self._account, self._scope = account, scope
        self._parents = tuple(parents)
        self.chain: tuple[Budget, ...] = (self, *(one for each in parents for one in each.chain))
        self._stopped: str | None = None
        self._closed = False
        self._open: set[Reservation] = set()
        self._line = asyncio.Lock()
        self.changed = asyncio.Event()

    @property
    def stopped(self) -> str | None:
        """The name of the first cap that refused a call, here or in a parent, or None."""
        if self._stopped is not None:
            return self._stopped
        return next((each.stopped for each in self._parents if each.stopped is not None), None)

    def time_left(self) -> float | None:
        """Return the seconds until the nearest deadline, or None without one."""
        left = [each.time_left() for each in self._parents]
        if self._limits.deadline is not None:
            left.append(self._begun + self._limits.deadline - self._clock())
        return min((each for each in left if each is not None), default=None)

    def stop_reason(self) -> str | None:
        """Return the name of what ends the run now, or None. A deadline that has passed ends it."""
        left = self.time_left()
        if left is not None and left <= 0:
            self.stop("deadline")
        return self.stopped

    def stop(self, cap: str) -> None:
        """Note that ``cap`` ends the run, where nothing else did before."""
        self._stopped = self.stopped or cap

    def stop_for_model(self, error: SpendLimitError) -> None:
        """Note that the run ends because its model is down."""
        self.stop("model_down")
        self.retry_after, self.last_error = error.retry_after, error.reason or None

    def close(self, why: str) -> None:
        """Refuse every call from now on."""
        self._stopped = why
        self._closed = True
        self.changed.set()

    def refuse(self, cap: str) -> NoReturn:
        """Refuse a call because of ``cap``. Raises SpendLimitError.

        The cap of a session or a tenant may have room for a smaller call. So it stops the run that
        asked, and no other.
        """
        if self._account is None:
            self.stop(cap)
        raise SpendLimitError(
            f"{cap} was reached after {self.spent.calls} calls and "
            f"{self.spent.tokens} tokens; raise the cap, or update again"
        )

    async def reserve(self, tokens: int) -> Reservation:
        """Reserve one call of at most ``tokens`` tokens; wait where calls in flight may free some.

        Raises SpendLimitError where a cap would be exceeded; then nothing is spent.
        """
        reservation = Reservation(tokens)
        try:
            for budget in self.chain:
                cap = await budget.admit(reservation)
                if cap is not None:
                    self.stop(cap)
                    budget.refuse(cap)
        except BaseException:
            reservation.release()
            raise
        return reservation

    def settled(self, reservation: Reservation) -> None:
        """Note what a call took; where the journal is the account, it counts until that shows."""
        if self._account is None:
            self._open.discard(reservation)
        self.changed.set()

    def drop(self, reservation: Reservation) -> None:
        """Forget a reservation, because its call was not made or is accounted for."""
        self._open.discard(reservation)
        self.changed.set()

    async def admit(self, reservation: Reservation) -> str | None:
        """Add a reservation, in the order of asking, or return the cap that refuses it."""
        async with self._line:
            while True:
                self.changed.clear()
                cap, final = await self._refusal(reservation.tokens)
                if cap is None:
                    break
                if final:
                    return cap
                await self.changed.wait()
            self._open.add(reservation)
            self.spent += Cost(calls=1)
            reservation.budgets.append(self)
        return None

    async def _refusal(self, tokens: int) -> tuple[str | None, bool]:
        """Return the cap that a call would exceed, and whether waiting cannot change that."""
        left = self.time_left()
        if self._closed or (left is not None and left <= 0):
            return self.stopped or "deadline", True
        calls, most = self._limits.calls, self._limits.tokens
        if calls is None and most is None:
            return None, True
        # What is journalled while the journal is read may count twice, but counts. Whoever waits,
        # waits for calls in flight: the end of others may be journalled with the waiting call.
        waits = any(each.used is None for each in self._open)
        unseen = [
            each.tokens if each.used is None else each.used
            for each in self._open
            if self._account is None or not each.journalled
        ]
        spent, more = self.spent, 0
        if self._account is not None:
            spent, more = await self._account(), len(unseen)
        if calls is not None and spent.calls + more >= calls:
            return f"{self._scope}_calls", spent.calls >= calls or not waits
        if most is None or spent.tokens + sum(unseen) + tokens <= most:
            return None, True
        return f"{self._scope}_tokens", not waits


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


def cut_off(attempts: Iterable[Attempt], now: datetime) -> list[Attempt]:
    """Return the attempts that started and did not end, with the outcome to journal for them now.

    Whether such a call was answered, and charged, is unknown; its reservation stays spent.
    """
    return [
        replace(attempt, outcome="unknown", reason="cut_off", ended_at=now)
        for attempt in attempts
        if attempt.outcome == "started"
    ]
