"""Holds what runs of several sessions have in common: hands, pace, caps, and what rests.

The one rule: whatever is not shared, a run has to itself; so an update of one session needs none of
this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from hiermem.config import UpdatePolicy
from hiermem.core.calls.fairness import back_off
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.calls.budget import Keeper
from hiermem.engine.calls.in_flight import InHand
from hiermem.engine.calls.rate_limit import Pace
from hiermem.engine.calls.slots import Hands, Seat
from hiermem.protocols import TenantStore
from hiermem.types import Node

#: How long a node is left alone after its first failure, in seconds; doubled at each further one.
_FIRST_REST: Final = 15.0


@dataclass(slots=True)
class _Rest:
    node: Node
    failures: int
    until: float


class Rests:
    """The nodes that nothing fit was to be had for, each left alone for a while.

    Without it, something that works on by itself would ask for the same text again at once. A node
    whose text or inputs changed meanwhile does not rest.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resting: dict[tuple[str, str], _Rest] = {}

    def __len__(self) -> int:
        return len(self._resting)

    def rests(self, session_id: str, node: Node) -> bool:
        """Say whether ``node`` is to be left alone now."""
        rest = self._resting.get((session_id, node.id))
        if rest is None:
            return False
        same = (node.revision, node.dirty, node.forced, node.span) == (
            rest.node.revision, rest.node.dirty, rest.node.forced, rest.node.span,
        )  # fmt: skip
        return same and self._clock() < rest.until

    def note(self, session_id: str, node: Node) -> None:
        """Note what became of ``node``: it rests where it failed or has only the stand-in."""
        key = (session_id, node.id)
        if node.status != "failed" and not node.degraded:
            self._resting.pop(key, None)
            return
        before = self._resting.get(key)
        failures = before.failures + 1 if before else 1
        until = self._clock() + back_off(failures, first=_FIRST_REST)
        self._resting[key] = _Rest(node, failures, until)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session that has no work any more."""
        for key in [key for key in self._resting if key[0] == session_id]:
            del self._resting[key]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a run shares with others.

    ``seat`` is its access to the hands of all, ``pace`` everybody's. Its calls are charged to
    ``above`` as well, and to the session's and the tenant's ``allowances``. Nodes in ``rests`` are
    passed over. A ``patient`` run waits for nodes that another run holds. ``in_hand`` are the texts
    that all of them are making, ``foreseen`` the requests that a plan of all has counted.
    """

    seat: Seat | None = None
    pace: Pace | None = None
    above: tuple[Keeper, ...] = ()
    allowances: Allowances | None = None
    rests: Rests | None = None
    patient: bool = True
    in_hand: InHand = field(default_factory=InHand)
    foreseen: set[str] = field(default_factory=set[str])
    clock: Callable[[], float] = field(default=time.monotonic)

    def seat_for(self, session_id: str, size: int) -> Seat:
        """Give the run's access to hands: those of all, or ``size`` of its own."""
        return self.seat or Hands(size).seat(session_id)

    def rests_now(self, session_id: str, node: Node) -> bool:
        """Say whether ``node`` is to be left alone now."""
        return self.rests is not None and self.rests.rests(session_id, node)

    def note(self, session_id: str, node: Node) -> None:
        """Note what became of ``node``."""
        if self.rests is not None:
            self.rests.note(session_id, node)


def charged(shared: Shared, store: TenantStore, session_id: str, policy: UpdatePolicy) -> Shared:
    """Give what a run shares with its session's and its tenant's caps in place, where it has any.

    A run that shares nothing reads the caps' account for itself.
    """
    book = shared.allowances or Allowances(store, policy)
    if not book.any:
        return replace(shared, allowances=None)
    return replace(shared, allowances=book, above=(*shared.above, book.of(session_id)))
