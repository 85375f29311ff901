"""Copies the whole store, and records it for every tenant whose data the copy holds.

The record is written before the copy is made: a process that is killed leaves a record without a
copy at worst, never a copy that no receipt names.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final

from hiermem.changes.receipts import (
    STORE_COPY,
    StoreCopy,
    key_of_copy,
    read_copies,
    record_copy,
    withdraw_copy,
)
from hiermem.errors import UsageError
from hiermem.protocols import Store, TenantStore
from hiermem.types.transaction import Record

_PAGE: Final = 500
_ALL: Final = 2**31 - 1


async def backup(store: Store, path: Any, *, tenant: TenantStore) -> StoreCopy:
    """Copy the store to a new file at ``path``; ``tenant`` is the handle of the caller.

    Raises UsageError where the store makes no copies of itself, for what is no path, and where
    there is something at ``path``.
    """
    write: Callable[[Path], Awaitable[None]] | None = getattr(store, "backup", None)
    if write is None:
        raise UsageError(
            f"{type(store).__name__} makes no copies of itself; memory.copy_to() and 'hiermem "
            "copy' copy it to another store, and pg_dump backs up a database"
        )
    target = _new_file(path)
    place = str(target).encode("utf-8", "backslashreplace").decode("utf-8")
    copy = StoreCopy(place, await tenant.now())
    before: dict[str, Record | None] = {}
    async for name in every_tenant(store):
        earlier = await store.tenant(name).records(STORE_COPY, key=key_of_copy(place), limit=1)
        before[name] = earlier[0] if earlier else None
    for name in before:
        await store.tenant(name).put_records([record_copy(copy)])
    try:
        await write(target)
    except BaseException:
        for name, record in before.items():
            await store.tenant(name).put_records([withdraw_copy(copy, record)])
        raise
    # A tenant that came meanwhile may be in the copy too.
    async for name in every_tenant(store):
        if name not in before:
            await store.tenant(name).put_records([record_copy(copy)])
    return copy


def _new_file(path: Any) -> Path:
    if not isinstance(path, (str, PathLike)) or not os.fspath(path) or "\0" in os.fsdecode(path):
        raise UsageError("path must be the place of a file that does not exist yet")
    target = Path(os.fsdecode(path)).absolute()
    if os.path.lexists(target):
        raise UsageError(f"there is something at {target}; a backup is written to a new file")
    return target


async def copies_of(tenant: TenantStore) -> tuple[StoreCopy, ...]:
    """Return the recorded copies that hold data of the tenant, oldest first."""
    return read_copies(await tenant.records(STORE_COPY, limit=_ALL))


async def every_tenant(store: Store) -> AsyncIterator[str]:
    """Yield the names of the tenants of which anything is stored, page by page."""
    after: str | None = None
    while names := await store.tenants(after=after, limit=_PAGE):
        for name in names:
            yield name
        after = names[-1]
