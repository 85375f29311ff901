"""A store of your own, and the proof that it is one.

``AuditStore`` wraps any store and notes every write that took effect: in which tenant, what kind,
about which session.
``TestAuditStore`` is the whole test file that an adapter needs. Run as a script, the file shows the
store at work and then runs its tests; it needs the extra ``testing``.

    python examples/own_store.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

from hypothesis import settings

from hiermem import Memory, Message, Store
from hiermem.protocols import RecordWrite, RunRecord, TenantStore, TreeStore, ViewRecord
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing import StoreConformance
from hiermem.types.transaction import DueSession

READS = (
    "secret", "now", "session", "sessions", "count_sessions", "forks", "messages", "versions",
    "flagged", "read", "events", "dump", "reusable", "run", "runs", "attempts", "spent",
    "view", "records", "blocks", "index_state", "segment_blocks",
)  # fmt: skip
WRITES = (
    "mutate", "transact", "erase_all", "scrub", "put_run", "put_view", "put_records",
    "put_blocks", "drop_blocks", "put_segment", "restore", "take_due", "put_due", "settle_due",
)  # fmt: skip


class AuditStore:
    """Passes everything on to ``inner`` and hands each finished write to ``note``."""

    def __init__(self, inner: Store, note: Callable[[str, str, str], None]) -> None:
        self._inner, self._note = inner, note

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the capabilities of the wrapped store."""
        return self._inner.capabilities

    def tenant(self, name: str) -> TenantStore:
        """Return the audited handle bound to tenant ``name``."""
        return cast("TenantStore", AuditTenant(self._inner.tenant(name), self._note))

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return the tenants of the wrapped store."""
        return await self._inner.tenants(after=after, limit=limit)

    async def claim_due(self, limit: int, **how: Any) -> list[DueSession]:
        """Claim sessions of the wrapped store that are due, of any tenant."""
        return await self._inner.claim_due(limit, **how)

    async def close(self) -> None:
        """Close the store inside."""
        await self._inner.close()


class AuditTenant:
    """One tenant's part. Its operations are added below: reads as they are, writes with a note."""

    def __init__(self, inner: TenantStore, note: Callable[[str, str, str], None]) -> None:
        self._inner, self._note = inner, note

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        return self._inner.tenant

    def tree(self, session_id: str, number: int | None = None) -> TreeStore:
        """Return the audited handle of a tree; only ``write_nodes`` of it writes."""
        tree = self._inner.tree(session_id, number)
        return cast("TreeStore", AuditTree(tree, lambda: self._wrote("write_nodes", session_id)))

    def _wrote(self, operation: str, subject: str) -> None:
        self._note(self._inner.tenant, operation, subject)


class AuditTree:
    """One tree of a session; what it does not define is the tree inside."""

    def __init__(self, inner: TreeStore, wrote: Callable[[], None]) -> None:
        self._inner, self._wrote = inner, wrote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write_nodes(self, *args: Any, **kwargs: Any) -> list[bool]:
        """Write, and note it."""
        applied = await self._inner.write_nodes(*args, **kwargs)
        self._wrote()
        return applied


def _read(name: str) -> Callable[..., Awaitable[Any]]:
    async def operation(self: AuditTenant, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self._inner, name)(*args, **kwargs)

    return operation


def _write(name: str) -> Callable[..., Awaitable[Any]]:
    async def operation(self: AuditTenant, *args: Any, **kwargs: Any) -> Any:
        result = await getattr(self._inner, name)(*args, **kwargs)
        # The note comes after the commit: what is noted took effect.
        self._wrote(name, _subject(*args[:1]))
        return result

    return operation


def _subject(first: object = None) -> str:
    """Say what a write was about; of a decision about several sessions the store knows nothing."""
    if isinstance(first, str):
        return first
    if isinstance(first, RunRecord):
        return first.subject
    if isinstance(first, ViewRecord):
        return first.session_id
    writes = first if isinstance(first, Sequence) else ()
    return ", ".join(sorted({one.scope for one in writes if isinstance(one, RecordWrite)}))


for _name in READS:
    setattr(AuditTenant, _name, _read(_name))
for _name in WRITES:
    setattr(AuditTenant, _name, _write(_name))


class TestAuditStore(StoreConformance):
    """Every condition of the contract, on the wrapped embedded store."""

    # The embedded store has its own tests; what passes calls on has nothing that takes many
    # histories to find. A store that keeps things itself leaves this line out.
    machine_settings = settings(StoreConformance.machine_settings, max_examples=5)

    async def open_store(self, path: Path) -> Store:
        """Open the store at ``path``."""
        return AuditStore(await SQLiteStore.open(path), note=lambda *_: None)


def main() -> int:
    """Show the audit of a short session, then run the conformance suite."""
    from hiermem.stores.memory import MemoryStore

    noted: list[tuple[str, str, str]] = []
    store = AuditStore(MemoryStore(), note=lambda *entry: noted.append(entry))
    with Memory(store=store, tenant="acme") as memory:
        session = memory.session("pump-house")
        session.append(Message.user("Is pump 3 on?"), Message.assistant("It is."))
        session.flush()
        session.update()
    for tenant, operation, subject in noted:
        print(f"{tenant}: {operation} {subject}")
    sys.stdout.flush()
    options = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib")
    return subprocess.call([sys.executable, "-m", "pytest", __file__, *options])  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
