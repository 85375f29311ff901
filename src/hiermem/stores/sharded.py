"""A store over several databases: each tenant is in one of them, found by its name alone.

The database of a tenant is the one whose name, hashed with the tenant's, gives the largest number.
So a database that is added takes over some tenants of each of the others, and no tenant moves
between those. Rows do not move by themselves. Before a database is added or removed, name in
``exceptions`` the place of each tenant whose rows are in another database than its hash says.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from hiermem.errors import ConfigError, NotFoundError, UsageError
from hiermem.protocols import Store, TenantStore
from hiermem.types.transaction import DueSession, Scrubbed

__all__ = ["ShardedStore"]


class ShardedStore:
    """A store over ``stores``, which it owns, by their names; all of them have one secret.

    ``exceptions`` are the tenants that are in another store than that of their hash, with its name.
    """

    def __init__(
        self, stores: Mapping[str, Store], *, exceptions: Mapping[str, str] | None = None
    ) -> None:
        self._stores = dict(stores)
        self._exceptions = dict(exceptions or {})
        if not self._stores:
            raise UsageError("stores is empty; give at least one store by its name")
        for tenant, name in self._exceptions.items():
            if name not in self._stores:
                raise UsageError(
                    f"tenant {tenant!r} is mapped to {name!r}; use one of the stores "
                    f"{sorted(self._stores)}"
                )

    @classmethod
    async def open(
        cls,
        dsns: Mapping[str, str],
        *,
        exceptions: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> ShardedStore:
        """Open the stores in the databases ``dsns``, by name, and create the missing stores.

        A new store gets the secret of the existing ones. ``settings`` are further arguments of
        ``PostgresStore.open``. Raises ConflictError where the secrets of two differ, and what
        that call raises; then no store is left open.
        """
        from hiermem.stores.postgres import PostgresStore

        if not isinstance(dsns, Mapping):
            raise UsageError(f"dsns is {type(dsns).__name__}; it must name each database")
        stores: dict[str, Store] = {}
        secret: bytes | None = settings.pop("secret", None)
        create: bool = settings.pop("create", True)

        async def opened(name: str, *, create: bool) -> None:
            nonlocal secret
            stores[name] = await PostgresStore.open(
                dsns[name], secret=secret, create=create, **settings
            )
            secret = secret or await stores[name].tenant("").secret()

        try:
            for name in dsns:
                with suppress(*((NotFoundError,) if create else ())):
                    await opened(name, create=False)
            # Missing stores are created last: a store that was created first would draw its own
            # secret.
            for name in dsns:
                if name not in stores:
                    await opened(name, create=True)
            return cls(stores, exceptions=exceptions)
        except BaseException:
            await asyncio.gather(*(store.close() for store in stores.values()))
            raise

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the abilities that all of the stores have."""
        return frozenset.intersection(*(store.capabilities for store in self._stores.values()))

    def place(self, tenant: str) -> str:
        """Return the name of the store that holds ``tenant``."""
        if tenant in self._exceptions:
            return self._exceptions[tenant]
        return max(self._stores, key=lambda name: _weight(name, tenant))

    def tenant(self, name: str) -> TenantStore:
        """Return the handle bound to tenant ``name``; this does no I/O."""
        return self._stores[self.place(name)].tenant(name)

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, in order."""
        found = await asyncio.gather(
            *(store.tenants(after=after, limit=limit) for store in self._stores.values())
        )
        return list(islice(sorted({name for names in found for name in names}), max(limit, 0)))

    async def claim_due(
        self,
        limit: int,
        *,
        lease: float,
        tenant: str | None = None,
        ahead: float | None = 0.0,
    ) -> list[DueSession]:
        """Claim up to ``limit`` sessions that are due, or list them, of the stores at random.

        The longest due come first within a store, not among all of them. Entries of tenants that
        were moved to another store are ignored.
        """
        if tenant is not None:
            store = self._stores[self.place(tenant)]
            return await store.claim_due(limit, lease=lease, tenant=tenant, ahead=ahead)
        found: list[DueSession] = []
        for name in random.sample(list(self._stores), len(self._stores)):
            if len(found) >= limit:
                break
            store = self._stores[name]
            for one in await store.claim_due(limit - len(found), lease=lease, ahead=ahead):
                if self.place(one.tenant) == name:
                    found.append(one)
                elif lease:
                    with suppress(ConfigError):  # a role that only claims may not
                        await store.tenant(one.tenant).settle_due(one)
        return found

    async def scrub(self) -> Scrubbed:
        """Remove erased text from the files of all of the stores, one after the other."""
        results: dict[str, Scrubbed] = {}
        for name, store in self._stores.items():
            whole: Callable[[], Awaitable[Scrubbed]] | None = getattr(store, "scrub", None)
            results[name] = await (whole or store.tenant("").scrub)()
        return Scrubbed(
            done=all(one.done for one in results.values()),
            reason="; ".join(
                f"{name}: {one.reason}" for name, one in results.items() if one.reason
            ),
            removed=tuple(path for one in results.values() for path in one.removed),
        )

    async def close(self) -> None:
        """Finish the operations in progress and close all of the stores."""
        await asyncio.gather(*(store.close() for store in self._stores.values()))


def _weight(name: str, tenant: str) -> bytes:
    named = f"{len(name)}:{name}{tenant}".encode()
    return hashlib.blake2b(named, digest_size=8).digest()
