"""The objects that all engine calls of one tenant share: store, counter, clock, key.

Handles of several tenants of one memory share all that is not a tenant's own; see ``Handles``.

A cache here only saves work. Its content is compared with the store's record by value, so that
another process may write the same session at any time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakValueDictionary

from hiermem import errors
from hiermem.calls.budget import Budget
from hiermem.calls.claim import COMPARED_AFTER, moved_too_far
from hiermem.calls.retry import retry_store
from hiermem.config import (
    ContextPolicy,
    HierarchyConfig,
    Limits,
    SearchPolicy,
    UpdatePolicy,
    ageless,
)
from hiermem.needs import Reading
from hiermem.process import IndexCache, utc_now
from hiermem.protocols import Embedder, Store, TenantStore, TokenCounter
from hiermem.text.fence import tenant_key
from hiermem.tree.fold import SessionState, config_from
from hiermem.tree.levels import node_id
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Need,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedRevisions,
    SessionOrder,
)
from hiermem.types.tree import EVERY, MEMBER, UNSAID, Scope, SessionFilter

if TYPE_CHECKING:
    from hiermem.search.embedder_client import EmbedderClient
    from hiermem.search.indexes import Indexes, SessionIndex

T = TypeVar("T")
_log = logging.getLogger("hiermem.sessions")
#: Bits of the number that a session begins at; it counts up from there, in 63 bits.
_BITS: Final = 62
#: The number of sessions that are read at once.
_PAGE: Final = 500


@dataclass(slots=True)
class StoreClock:
    """The store's time, computed from ``clock``: the offset between the two is read now and then.

    Before the first comparison, it is the time of ``clock``.
    """

    store: TenantStore
    clock: Callable[[], datetime]
    _offset: timedelta | None = None
    _compared: datetime | None = None

    def now(self) -> datetime:
        """Return the store's time, as far as it is known."""
        return self.clock() + (self._offset or timedelta())

    async def compare(self, *, lease: float) -> None:
        """Read the store's time if the offset is not known, or was read an hour ago.

        Call this before claims of ``lease`` seconds are made.

        Raises BusyError where the offset moved by more than a quarter of a claim: what this
        memory holds may look ended to others. The next call compares again, and passes where the
        clocks have kept the new offset.
        """
        if self._compared is not None:
            since = self.clock() - self._compared
            if timedelta() <= since < COMPARED_AFTER:
                return
        offset = await retry_store(self._read, sleep=asyncio.sleep)
        known, self._offset = self._offset, offset
        if known is not None and moved_too_far(offset - known, lease):
            self._compared = None
            moved = abs(offset - known).total_seconds()
            raise errors.BusyError(
                f"the store's clock moved by {moved:.1f} seconds; nothing was claimed, call again"
            )
        self._compared = self.clock()

    async def _read(self) -> timedelta:
        """Return the offset; the way to the store and back is taken to last equally long."""
        before = self.clock()
        there = await self.store.now()
        return there - before - (self.clock() - before) / 2


@dataclass
class Handle:
    """One tenant's view of a store, with what decisions need."""

    store: TenantStore
    counter: TokenCounter
    config: HierarchyConfig
    update_policy: UpdatePolicy = field(default_factory=UpdatePolicy)
    context_policy: ContextPolicy = field(default_factory=ContextPolicy)
    clock: Callable[[], datetime] = utc_now
    #: Whether ``config`` was given, or is only the default for new sessions.
    configured: bool = True
    #: The embedder; without one, search compares words alone.
    embedder: Embedder | None = None
    search_policy: SearchPolicy = field(default_factory=SearchPolicy)
    #: The rules of the spaces that the application named with rules, to create them at first use.
    spaces_to_make: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    _key: bytes | None = None
    #: What contexts recalled for the newest turns; ``context.select`` fills it.
    recalled: dict[Any, Any] = field(
        default_factory=dict[Any, Any], init=False, repr=False, compare=False
    )
    #: The excerpts of tool results that contexts showed; ``context.select`` fills it, too.
    excerpts: dict[tuple[str, int, bool], str] = field(
        default_factory=dict[tuple[str, int, bool], str], init=False, repr=False, compare=False
    )
    _warned: set[str] = field(default_factory=set)

    def for_tenant(self, store: TenantStore) -> Handle:
        """Return the handle of another tenant, which shares all that is not a tenant's own."""
        other = replace(self, store=store, spaces_to_make={}, _key=None, _warned=set())
        other.index_cache, other.embedder_client = self.index_cache, self.embedder_client
        other.store_clock = self.store_clock
        return other

    async def key(self) -> bytes:
        """Return the key that signs this tenant's fences."""
        if self._key is None:
            self._key = tenant_key(await self.store.secret(), self.store.tenant)
        return self._key

    def store_now(self) -> datetime:
        """Return the store's time, which all claims and runs go by; see ``compare_clocks``."""
        return self.store_clock.now()

    async def compare_clocks(self, *, lease: float) -> None:
        """Learn the store's time where it is due, before claims of ``lease`` seconds are made.

        Raises StoreError.
        """
        await self.store_clock.compare(lease=lease)

    @cached_property
    def store_clock(self) -> StoreClock:
        """The clock of the store, which all tenants share."""
        return StoreClock(self.store, self.clock)

    def caps(self, subject: str) -> tuple[Budget, ...]:
        """Return the budgets of a session or a space over all runs, around that of one run.

        They are none where nothing is capped.
        """
        policy = self.update_policy
        own, whole = (policy.session_calls, policy.session_tokens), self._tenant_caps
        if own == (None, None) and not whole:
            return ()
        found = self._caps.get(subject)
        if found is None:
            found = self._caps[subject] = Budget(
                limits=Limits(calls=own[0], tokens=own[1]),
                parents=whole,
                account=partial(self.store.spent, subject),
                scope="session",
            )
        return (found,)

    @cached_property
    def text_locks(self) -> WeakValueDictionary[tuple[int, str], asyncio.Lock]:
        """The locks of texts that are being made, by event loop and input hash.

        So an equal request waits for the answer.
        """
        return WeakValueDictionary()

    @cached_property
    def _caps(self) -> WeakValueDictionary[str, Budget]:
        return WeakValueDictionary()

    @cached_property
    def _tenant_caps(self) -> tuple[Budget, ...]:
        calls, tokens = self.update_policy.tenant_calls, self.update_policy.tenant_tokens
        if calls is None and tokens is None:
            return ()
        account = self.store.spent
        limits = Limits(calls=calls, tokens=tokens)
        return (Budget(limits=limits, account=account, scope="tenant"),)

    @cached_property
    def index_cache(self) -> IndexCache[SessionIndex]:
        """The indexes that are held in memory, of all tenants."""
        return IndexCache(self.search_policy.cache_bytes)

    @cached_property
    def indexes(self) -> Indexes:
        """The indexes of this tenant's sessions."""
        # Its dependencies take a tenth of a second to load, and not every application searches.
        from hiermem.search.indexes import Indexes

        return Indexes(self.store, self.counter, self.messages, self.index_cache)

    @cached_property
    def embedder_client(self) -> EmbedderClient | None:
        """The client of the embedder; None without an embedder."""
        if self.embedder is None:
            return None
        from hiermem.search.embedder_client import EmbedderClient

        return EmbedderClient(self.embedder, self.search_policy)

    def forget(self, session_id: str | None = None) -> None:
        """Drop what is cached of one erased session, or of all."""
        self.index_cache.drop(self.store.tenant, session_id)

    async def check_scope(self, space: Scope) -> None:
        """Refuse a search over all sessions that does not say so, once any is in a space."""
        if space is UNSAID and await self.store.sessions(metadata=MEMBER, limit=1):
            raise errors.UsageError(
                "sessions of this tenant are in spaces; pass space='NAME', space=None for "
                "sessions in no space, or space=ALL"
            )

    async def is_unchanged(self, record: SessionRecord) -> bool:
        """Return whether nothing was taken back in a session since its ``record`` was read."""
        now = await self.store.session(record.id)
        return now is not None and (now.created_at, now.epoch) == (record.created_at, record.epoch)

    async def record(self, session_id: str) -> SessionRecord:
        """Return the session's record.

        Raises NotFoundError where it has none yet, ConflictError where its tokens were
        counted by another counter than this handle's.
        """
        found = await self.store.session(session_id)
        if found is None:
            raise errors.NotFoundError(
                f"session {session_id!r} does not exist; the first append() creates it"
            )
        self.check(found)
        return found

    async def record_or_new(self, session_id: str) -> SessionRecord:
        """Return the session's record; that of a session without messages where it has none yet.

        Raises ConflictError as ``record`` does.
        """
        return self.checked_or_new(session_id, await self.store.session(session_id))

    def checked_or_new(self, session_id: str, found: SessionRecord | None) -> SessionRecord:
        """Return the record that was found, or that of a session without messages.

        Raises ConflictError as ``record`` does.
        """
        if found is None:
            return self.new_record(session_id, self.config)
        self.check(found)
        return found

    def new_record(self, session_id: str, config: HierarchyConfig) -> SessionRecord:
        """Return the record of a session without messages."""
        first_epoch, now = beginning(), self.clock()
        return SessionRecord(
            id=session_id,
            title=None,
            participants=(),
            config=config.to_json(),
            counter=self.counter.name,
            created_at=now,
            last_activity=now,
            epoch=first_epoch,
            tree=first_epoch,
        )

    def check(self, record: SessionRecord) -> None:
        """Refuse to mix counters; warn once where a session keeps another configuration.

        A handle without a configuration of its own does not warn.
        """
        self.check_counter(record)
        if not self.configured or record.id in self._warned:
            return
        if config_from(record.config) != self._config_like(config_from(record.config)):
            self._warned.add(record.id)
            _log.warning(
                "session %r keeps the configuration stored with it, which differs from the one "
                "that this memory was given; reconfigure() changes it",
                record.id,
            )

    def check_counter(self, record: SessionRecord) -> None:
        """Refuse to mix counters. Raises ConflictError."""
        if record.counter != self.counter.name:
            raise errors.ConflictError(
                f"session {record.id!r} was counted by {record.counter!r}, not "
                f"{self.counter.name!r}; open it with that counter",
                kind="counter",
                session_id=record.id,
            )

    def silence_warning(self, session_id: str) -> None:
        """Note that the user of this handle chose the session's configuration: do not warn."""
        self._warned.add(session_id)

    async def config_for(self, record: SessionRecord, *, repack: bool = False) -> HierarchyConfig:
        """Return the configuration under which a session is updated or re-packed.

        No session is re-packed under a default: a handle without a configuration of its own keeps
        the session's. So does a session that was given its configuration by ``reconfigure``.
        """
        if repack and self.configured:
            events = await self.store.events(record.id)
            if not any(event.kind == "reconfigure" for event in events):
                return self._config_like(config_from(record.config))
        return config_from(record.config)

    def _config_like(self, stored: HierarchyConfig) -> HierarchyConfig:
        """Return this handle's configuration, ageless if that of a session is, as of an import."""
        return self.config if stored.max_age else ageless(self.config)

    async def answer(self, session_id: str, reading: Reading[T]) -> T:
        """Run a reading decision to its end, supplying what it needs from the store.

        A node is read once, though a decision asks for it by its level, as a child and then as a
        parent. What the decision says to take long (``needs.at_length``) runs in a thread.
        """
        known: dict[str, Node] = {}
        reply: Any = None
        is_long = False
        results: list[T] = []

        def send() -> Need | tuple[Need, ...]:
            # A StopIteration cannot leave a thread's future.
            try:
                return reading.send(reply)
            except StopIteration as done:
                results.append(done.value)
                return ()

        while True:
            need = await asyncio.to_thread(send) if is_long else send()
            if results:
                return results[0]
            if need == ():
                is_long, reply = True, None
            elif isinstance(need, tuple):
                reply = await self._supply_together(session_id, need)
            else:
                reply = await self._supply(session_id, need, known)

    async def messages(self, session_id: str, start: int, stop: int) -> list[StoredMessage]:
        """Return the messages of a range that the log is known to have; see ``read_messages``."""
        return await read_messages(self.store, session_id, start, stop)

    async def _supply_together(self, session_id: str, needs: tuple[Need, ...]) -> tuple[Any, ...]:
        found = await self.store.read([(session_id, need) for need in needs])
        for place, need in enumerate(needs):
            if isinstance(need, NeedMessages) and len(found[place]) != need.stop - need.start:
                found[place] = await self.messages(session_id, need.start, need.stop)
        return tuple(found)

    async def _supply(self, session_id: str, need: Need, known: dict[str, Node]) -> Any:
        if isinstance(need, NeedMessages):
            return await self.messages(session_id, need.start, need.stop)
        tree = self.store.tree(session_id)
        if isinstance(need, NeedNodes):
            missing = [id_ for id_ in need.ids if id_ not in known]
            known |= {node.id: node for node in (await tree.nodes(missing) if missing else ())}
            return [known[id_] for id_ in need.ids if id_ in known]
        if isinstance(need, NeedLevel):
            ids = [node_id(need.level, ordinal) for ordinal in range(need.start, need.stop)]
            if all(id_ in known for id_ in ids):
                return [known[id_] for id_ in ids]
            found = await tree.level(need.level, need.start, need.stop)
            known |= {node.id: node for node in found}
            return found
        if isinstance(need, NeedRevisions):
            return await tree.revisions(need.wanted)
        raise AssertionError(f"{type(need).__name__} is answered inside a transaction only")


class Handles(Mapping[str, Handle]):
    """The handles of the tenants of a ``store`` by name: of a memory's own, and of each added one.

    While a tenant's handle is used anywhere, all get the same one, so that two users of a tenant
    count against one account. Unused handles are dropped; only the tenant's name is kept.
    """

    def __init__(self, own: Handle, store: Store) -> None:
        self._own, self.store = own, store
        self._names = {own.store.tenant: None}
        self._used: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        self._used[own.store.tenant] = own

    def add(self, tenant: str) -> Handle:
        """Add a tenant, where it is new, and return its handle."""
        self._names[tenant] = None
        return self[tenant]

    def __getitem__(self, tenant: str) -> Handle:
        if tenant not in self._names:
            raise KeyError(tenant)
        found = self._used.get(tenant)
        if found is None:
            found = self._used[tenant] = self._own.for_tenant(self.store.tenant(tenant))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._names))

    def __len__(self) -> int:
        return len(self._names)


async def read_messages(
    store: TenantStore, session_id: str, start: int, stop: int
) -> list[StoredMessage]:
    """Return the messages of a range that the log is known to have.

    Raises StoreCorruptError where one of them is missing: nothing is ever left out silently. Where
    the session was erased since its record was read, raises BusyError.
    """
    found = await store.messages(session_id, start, stop)
    if len(found) != stop - start:
        now = await store.session(session_id)
        if now is None or now.messages < stop:
            raise errors.BusyError(session_id=session_id)
        raise errors.StoreCorruptError(
            f"session {session_id!r} has {len(found)} of the {stop - start} messages from "
            f"{start} to {stop - 1}; the store is damaged"
        )
    return found


async def every_session(
    store: TenantStore,
    chosen: SessionFilter = EVERY,
    *,
    after: str | None = None,
    order_by: SessionOrder = "created",
    at_once: int = _PAGE,
) -> AsyncIterator[SessionRecord]:
    """Yield the tenant's sessions that are ``chosen``, behind ``after``, read page by page.

    Sessions that are created meanwhile follow at the end. Where the last one of a page is erased
    before the next page is read, the store begins again; no id comes twice.
    """
    seen: set[str] = set()
    labels = dict(chosen.labels) or None
    while page := await store.sessions(
        after=after, limit=min(at_once, _PAGE), metadata=labels, order_by=order_by
    ):
        for record in page:
            if record.id not in seen:
                seen.add(record.id)
                if chosen.admits(record):
                    yield record
        after = page[-1].id


def beginning() -> int:
    """Return a random number at which a new session's epochs and trees begin.

    A session of the same name may have been erased a moment ago, and a process that still works on
    the old one must find neither number again. The clock will not do: it may stand still, or be set
    back.
    """
    return secrets.randbits(_BITS)


@lru_cache(maxsize=256)
def state_from(text: str) -> SessionState:
    """Read a stored fold state; the same text gives the same object."""
    return SessionState.from_json(text)


def session_state(record: SessionRecord) -> SessionState:
    """Read the fold state of a session.

    Raises StoreCorruptError where it is not at the session's last message.
    """
    state = state_from(record.state)
    if state.next_index != record.messages:
        raise errors.StoreCorruptError(
            f"session {record.id!r}: its state is at message {state.next_index} of "
            f"{record.messages}; the store is damaged"
        )
    return state
