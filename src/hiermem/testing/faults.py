"""A store wrapper that fails, or dies, at the n-th operation.

Every call of a tenant's handle has a fault site before it and after it, so an engine can be tested
with a fault at each place where a store can fail. The wrapped store always holds what a real one
would hold after such a fault.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Literal, TypeAlias, cast

from hiermem.errors import StoreError
from hiermem.records.run import RecordStore, Tenant, Tree, records_of
from hiermem.records.store import StoreLike

__all__ = ["OPERATIONS", "SITES", "DiedError", "Fault", "FaultPlan", "FaultyStore"]

Fault: TypeAlias = Literal["fail", "busy", "die", "kill"]

#: The operations of a tenant's handle and of a tree's.
OPERATIONS: tuple[str, ...] = tuple(
    name
    for handle in (Tenant, Tree)
    for name, member in vars(handle).items()
    if iscoroutinefunction(member) and name != "operate"
)
#: The fault sites: before each operation (nothing took effect), after it (all of it did).
SITES: tuple[str, ...] = tuple(
    f"{operation}.{moment}" for operation in OPERATIONS for moment in ("before", "after")
)


class DiedError(BaseException):
    """The process counts as dead from here on: no handler for errors may stop this exception."""


@dataclass
class FaultPlan:
    """Which fault happens at which arrival at a site, counted from 0 over all sites.

    ``fail`` raises StoreError (with ``committed`` False before the operation and None after it),
    ``busy`` StoreError (before only; after it nothing happens), ``die`` raises DiedError, then
    and at every later call until ``revive``, and ``kill`` ends this very process with SIGKILL.
    ``only`` limits the plan to some sites; others are not counted. ``visits`` counts arrivals, so
    that a test can assert that a site was reached.
    """

    faults: Mapping[int, Fault] = field(default_factory=dict[int, Fault])
    only: frozenset[str] = frozenset(SITES)
    visits: Counter[str] = field(default_factory=Counter[str])
    hits: list[tuple[str, Fault]] = field(default_factory=list[tuple[str, Fault]])
    arrivals: int = 0
    dead: bool = False

    def revive(self) -> None:
        """Allow calls again, as in a process that was restarted."""
        self.dead = False

    def arrive(self, site: str) -> None:
        """Count the arrival at ``site`` and apply the plan."""
        if self.dead:
            raise DiedError(site)
        if site not in self.only:
            return
        fault = self.faults.get(self.arrivals)
        self.arrivals += 1
        self.visits[site] += 1
        after = site.endswith(".after")
        if fault is None or (fault == "busy" and after):
            return
        self.hits.append((site, fault))
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "die":
            self.dead = True
            raise DiedError(site)
        if fault == "busy":
            raise StoreError(f"a planned fault: busy at {site}", retryable=True)
        raise StoreError(f"a planned fault at {site}", committed=None if after else False)


class FaultyStore(RecordStore):
    """Wraps ``store`` so that its handles meet the faults of ``plan``."""

    def __init__(self, store: StoreLike, plan: FaultPlan) -> None:
        super().__init__(records_of(store).store)
        self.plan = plan

    def tenant(self, name: str) -> Tenant:
        """Return the wrapped handle bound to tenant ``name``."""
        return cast("Tenant", _FaultyHandle(super().tenant(name), self.plan))


class _FaultyHandle:
    """Forwards every operation, between its two fault sites; a tree's handle gets them too."""

    def __init__(self, inner: Tenant | Tree, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if name == "tree":
            return lambda *of: _FaultyHandle(member(*of), self._plan)
        if name not in OPERATIONS:
            return member

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._plan.arrive(f"{name}.before")
            result = await member(*args, **kwargs)
            self._plan.arrive(f"{name}.after")
            return result

        return call
