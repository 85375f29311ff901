"""What runs of several sessions share: slots, rate limits, caps, and back-offs of nodes.

A run makes for itself what it is not given. So the update of one session needs none of this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hiermem.core.summaries.retries import NodeBackoff
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.rate_limit import RateLimiter
from hiermem.engine.calls.slots import SessionSlots
from hiermem.types import Node


@dataclass(frozen=True, slots=True)
class Shared:
    """What a run of one session shares with others.

    ``slots`` is its access to the common slots, ``rate_limiter`` the common rate limiter. Its calls
    are charged to the budgets ``parents`` as well. Nodes in ``node_backoff`` are skipped. With
    ``waits_for_leases`` the run waits for nodes that another run holds. ``planned`` are the
    requests that a common plan has counted, and ``answering_times`` the seconds for an answer that
    it has looked up, by the model's name.
    """

    slots: SessionSlots | None = None
    rate_limiter: RateLimiter | None = None
    parents: tuple[Budget, ...] = ()
    node_backoff: NodeBackoff | None = None
    waits_for_leases: bool = True
    planned: set[str] = field(default_factory=set[str])
    answering_times: dict[str, float | None] = field(default_factory=dict[str, float | None])
    clock: Callable[[], float] = field(default=time.monotonic)

    def is_backed_off(self, node: Node) -> bool:
        """Return whether ``node`` must not be retried yet."""
        backoff = self.node_backoff
        return backoff is not None and backoff.is_backed_off(node, self.clock())

    def record_outcome(self, node: Node) -> None:
        """Record the outcome of ``node``."""
        if self.node_backoff is not None:
            self.node_backoff.record_outcome(node, self.clock())
