"""Decides which session a background worker takes next, and which ones back off, for how long.

::

    backlog -> probe -> queue -> (a turn) -> queue again | back off | forget

No session that still exists is forgotten. One that backs off is looked at again when the time is
over, or when it changes, where only a change can give it work. This module gives no places and runs
no update: ``engine.worker.worker`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from hiermem.core.calls.fairness import BACK_OFF, Backoff, SessionQueue
from hiermem.core.summaries.plan import UpdateReport
from hiermem.core.tree.fold import idle_tick
from hiermem.core.tree.stored import config_from
from hiermem.engine.handle import every_session, state_from
from hiermem.engine.log.append import tick_if_idle
from hiermem.engine.summaries.shared import NodeBackoff
from hiermem.engine.worker.pool import SessionUpdate, UpdatePool
from hiermem.engine.worker.probe import backlog, has_outdated, has_provisional, lacks_vectors, probe
from hiermem.errors import HiermemError
from hiermem.types import SessionRecord

#: The back-off, in seconds, where only a raised cap or a repair helps.
LONG_BACKOFF: Final = 300.0
#: The back-off of a session after its first error, in seconds; doubled at each further one.
TROUBLE: Final = 2.0
#: Seconds between two sweeps for work that no backlog shows, and the largest share of the time that
#: the sweeps take: they read every session's record.
_SWEEP: Final = 60.0
_SWEEPING: Final = 0.01
#: Provisional texts are made after all others.
_GROWTH: Final = 1_000_000
#: Sessions that only lack vectors come last.
_VECTORS: Final = _GROWTH + 1
#: Turns without a result after which a session no longer counts as another worker's.
_SURE: Final = 6
#: Reasons to stop that say nothing about the session itself.
_NOT_ITS_OWN: Final = ("pause", "stop", "tenant_calls", "tenant_tokens", "circuit_open")


class SessionScheduler:
    """One worker's view of its tenant's sessions.

    ``taken`` holds the sessions that have their turn. ``on_found`` is called during a look when the
    queue may have got one more session, so that nobody waits for the end of the look. ``begun``
    counts the looks through the backlog, ``finished`` is the number of the last complete one, and
    ``left`` is the number of sessions that it found in the backlog.
    """

    def __init__(
        self,
        pool: UpdatePool,
        node_backoff: NodeBackoff,
        clock: Callable[[], float],
        *,
        name: str,
        taken: Container[str],
        on_found: Callable[[], None],
    ) -> None:
        self._pool, self._node_backoff, self._clock = pool, node_backoff, clock
        self._handle, self._store = pool.handle, pool.handle.store
        self._taken, self._on_found = taken, on_found
        self.queue = SessionQueue(name)
        self.backoff = Backoff()
        self.begun = self.finished = self.left = 0
        #: The sessions whose turn is for vectors alone, and those for which some could not be made.
        self._bare: set[str] = set()
        self._embedded = Backoff()
        self._grown: dict[str, int] = {}
        #: The (tree, hash of the configuration) under which all texts of a session were found to
        #: have the current strategy; texts made later under them have it too.
        self._followed: dict[str, tuple[int, int]] = {}
        #: The versions of sessions in which no window is closed by time any more.
        self._ticked: dict[str, int] = {}
        self._next_sweep = 0.0

    # -- looking

    def sweep_next(self) -> None:
        """Make the next look a sweep too."""
        self._next_sweep = 0.0

    async def look(self) -> None:
        """Go through the backlog once, and queue the sessions that can be worked on."""
        self.begun += 1
        number, seen = self.begun, set[str]()
        async for session_id in backlog(self._store):
            seen.add(session_id)
            if session_id in self._taken or session_id in self.queue:
                continue
            if await self._is_due(session_id):
                await self._consider(session_id)
                self._on_found()
        if self._clock() >= self._next_sweep:
            begun = self._clock()
            await self._sweep()
            now = self._clock()
            self._next_sweep = now + max(_SWEEP, (now - begun) / _SWEEPING)
        for session_id in self.backoff:
            if session_id not in seen:
                self.backoff.drop(session_id)
                self._node_backoff.forget(session_id)
        self.finished, self.left = number, len(seen)

    async def _sweep(self) -> None:
        """Queue the sessions with work that no backlog shows.

        Such work is a window that its age or a silence closes; a provisional text that is out of
        date; a text of an outdated strategy, where the policy follows the strategy; and missing
        vectors, where nothing else is missing. A
        session's tree is searched for outdated texts once, and again only after a re-pack or under
        another configuration.
        """
        async for record in every_session(self._store):
            known = record.id in self._taken or record.id in self.queue
            if known:
                continue
            if self._is_idle(record) and await tick_if_idle(self._handle, record.id):
                await self._consider(record.id)
                self._on_found()
                continue
            if record.id in self.backoff:
                continue
            if has_provisional(record) and self._grown.get(record.id) != record.version:
                self.queue.put(record.id, _GROWTH)
            elif self._followed.get(record.id) != _shape(record):
                if await has_outdated(self._pool, record):
                    self.queue.put(record.id, _GROWTH)
                    self._on_found()
                    continue
                self._followed[record.id] = _shape(record)
            await self._look_for_vectors(record)

    def _is_idle(self, record: SessionRecord) -> bool:
        """Return whether a session may have been idle for long enough to close a window."""
        version = self._ticked.get(record.id)
        if version == record.version or record.closed or not record.state:
            return False
        try:
            config = config_from(record.config)
            idle = self._handle.store_now() - record.last_activity
            found = idle_tick(state_from(record.state), config, idle)
        except HiermemError:
            return False
        times = [time for time in (config.max_age, config.flush_after) if time is not None]
        if found is None and (not config.enabled or all(idle > time for time in times)):
            # No tick will be due before the session changes.
            self._ticked[record.id] = record.version
        return found is not None

    async def _look_for_vectors(self, record: SessionRecord) -> None:
        """Queue a session that has nothing else to make and may lack vectors."""
        entry = self._embedded.get(record.id)
        if entry is not None and self._clock() < entry.until:
            return
        if record.id not in self.queue and await lacks_vectors(self._handle, record):
            self._bare.add(record.id)
            self.queue.put(record.id, _VECTORS)
            self._on_found()

    async def _is_due(self, session_id: str) -> bool:
        """Return whether to look at a session: not during its back-off, unless it changed."""
        entry = self.backoff.get(session_id)
        if entry is None or self._clock() >= entry.until:
            return True
        if entry.version is None:
            return False
        record = await self._store.session(session_id)
        if record is not None and record.version == entry.version:
            return False
        self.backoff.drop(session_id)
        return True

    async def _consider(self, session_id: str) -> None:
        """Queue a session that has something to make; otherwise let it back off."""
        found = await probe(
            self._store, session_id, node_backoff=self._node_backoff, now=self._handle.store_now()
        )
        if found.level is not None:
            self.queue.put(session_id, found.level, contested=found.leased)
            return
        record = await self._store.session(session_id)
        version = record.version if record else None
        self.backoff.put(session_id, self._clock(), version=version, leased=found.leased)

    # -- after a turn

    def is_bare(self, session_id: str) -> bool:
        """Return whether the session's present turn is for vectors alone; the next one is not."""
        found = session_id in self._bare
        self._bare.discard(session_id)
        return found

    def settle(self, session_update: SessionUpdate, report: UpdateReport) -> None:
        """Decide when a session has its next turn, by the result of this one."""
        session_id, stopped = session_update.session_id, report.stopped
        if session_update.record is not None:
            self._grown[session_id] = session_update.record.version
            # An update marks outdated texts before it makes anything.
            self._followed[session_id] = _shape(session_update.record)
        if stopped in _NOT_ITS_OWN:
            return
        if stopped == "turn":
            self.queue.put(session_id, session_update.slots.level)
        elif stopped in ("session_calls", "session_tokens"):
            self.backoff.put(session_id, self._clock(), first=LONG_BACKOFF, most=LONG_BACKOFF)
        elif report.by_level:
            self.backoff.drop(session_id)
        elif stopped is None:
            # Most likely another worker was faster; the next look finds out.
            before = self.backoff.get(session_id)
            leased = before is None or before.times < _SURE
            version = session_update.record.version if session_update.record else None
            self.backoff.put(session_id, self._clock(), version=version, leased=leased)

    def settle_vectors(self, session_update: SessionUpdate) -> None:
        """Let a session that still lacks vectors back off, longer each time."""
        if session_update.embedded:
            self._embedded.drop(session_update.session_id)
        elif session_update.embedded is not None:
            self._embedded.put(
                session_update.session_id, self._clock(), first=_SWEEP, most=BACK_OFF
            )

    def trouble(self, session_id: str) -> None:
        """Let a session back off whose turn ended in an error, longer each time."""
        self.backoff.put(session_id, self._clock(), first=TROUBLE, most=LONG_BACKOFF)

    def forget(self, session_id: str) -> None:
        """Drop all that is remembered of a session that is gone."""
        self.queue.drop(session_id)
        self.backoff.drop(session_id)
        self._embedded.drop(session_id)
        self._bare.discard(session_id)
        self._grown.pop(session_id, None)
        self._followed.pop(session_id, None)
        self._ticked.pop(session_id, None)
        self._node_backoff.forget(session_id)


def _shape(record: SessionRecord) -> tuple[int, int]:
    """Return the tree of a session and the configuration that its texts are made under."""
    return record.tree, hash(record.config)
