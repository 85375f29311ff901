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
from hiermem.engine.calls.in_flight import InFlight
from hiermem.engine.calls.rate_limit import RateLimiter
from hiermem.engine.calls.slots import SessionSlots, SlotPool
from hiermem.protocols import TenantStore
from hiermem.types import Node

#: How long a node is left alone after its first failure, in seconds; doubled at each further one.
_FIRST_REST: Final = 15.0


@dataclass(slots=True)
class _BackedOffNode:
    node: Node
    failures: int
    until: float


class NodeBackoff:
    """The nodes that nothing fit was to be had for, each left alone for a while.

    Without it, something that works on by itself would ask for the same text again at once. A node
    whose text or inputs changed meanwhile does not rest.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[tuple[str, str], _BackedOffNode] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def is_backed_off(self, session_id: str, node: Node) -> bool:
        """Say whether ``node`` is to be left alone now."""
        entry = self._entries.get((session_id, node.id))
        if entry is None:
            return False
        same = (node.revision, node.dirty, node.forced, node.span) == (
            entry.node.revision, entry.node.dirty, entry.node.forced, entry.node.span,
        )  # fmt: skip
        return same and self._clock() < entry.until

    def record_outcome(self, session_id: str, node: Node) -> None:
        """Note what became of ``node``: it rests where it failed or has only the stand-in."""
        key = (session_id, node.id)
        if node.status != "failed" and not node.degraded:
            self._entries.pop(key, None)
            return
        before = self._entries.get(key)
        failures = before.failures + 1 if before else 1
        until = self._clock() + back_off(failures, first=_FIRST_REST)
        self._entries[key] = _BackedOffNode(node, failures, until)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session that has no work any more."""
        for key in [key for key in self._entries if key[0] == session_id]:
            del self._entries[key]


@dataclass(frozen=True, slots=True)
class Shared:
    """What a run shares with others.

    ``slots`` is its access to the hands of all, ``rate_limiter`` everybody's. Its calls are charged
    to ``above`` as well, and to the session's and the tenant's ``allowances``. Nodes in
    ``node_backoff`` are passed over. A ``waits_for_leases`` run waits for nodes that another run
    holds. ``in_flight`` are the texts that all of them are making, ``planned`` the requests that a
    plan of all has counted.
    """

    slots: SessionSlots | None = None
    rate_limiter: RateLimiter | None = None
    above: tuple[Keeper, ...] = ()
    allowances: Allowances | None = None
    node_backoff: NodeBackoff | None = None
    waits_for_leases: bool = True
    in_flight: InFlight = field(default_factory=InFlight)
    planned: set[str] = field(default_factory=set[str])
    clock: Callable[[], float] = field(default=time.monotonic)

    def slots_for(self, session_id: str, size: int) -> SessionSlots:
        """Give the run's access to hands: those of all, or ``size`` of its own."""
        return self.slots or SlotPool(size).for_session(session_id)

    def is_backed_off(self, session_id: str, node: Node) -> bool:
        """Say whether ``node`` is to be left alone now."""
        return self.node_backoff is not None and self.node_backoff.is_backed_off(session_id, node)

    def record_outcome(self, session_id: str, node: Node) -> None:
        """Note what became of ``node``."""
        if self.node_backoff is not None:
            self.node_backoff.record_outcome(session_id, node)


def with_caps(shared: Shared, store: TenantStore, session_id: str, policy: UpdatePolicy) -> Shared:
    """Give what a run shares with its session's and its tenant's caps in place, where it has any.

    A run that shares nothing reads the caps' account for itself.
    """
    allowances = shared.allowances or Allowances(store, policy)
    if not allowances.any:
        return replace(shared, allowances=None)
    return replace(shared, allowances=allowances, above=(*shared.above, allowances.of(session_id)))
