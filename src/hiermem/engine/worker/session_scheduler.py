"""Decides which session a background worker takes next, and which ones back off, for how long.

::

    backlog -> probe -> queue -> a turn -> queue again | back off | forget

No session that still exists is forgotten. One that backs off is looked at again when the time is
over, or when it changes, where only a change can give it work. A scheduler gives no places:
``engine.worker.worker`` does. There are two more: that of a worker for all tenants, in
``engine.worker.due``, and that of an update of all sessions, in ``engine.worker.update_all``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hiermem.core.calls.backoff import CAPPED, TROUBLE, VECTORS, Backoff
from hiermem.core.calls.fairness import SessionQueue
from hiermem.core.summaries.due import pause_after
from hiermem.core.summaries.plan import UpdateReport
from hiermem.core.summaries.retries import NodeBackoff
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.log.append import tick_if_idle
from hiermem.engine.worker import probe
from hiermem.engine.worker.pool import SessionKey, SessionUpdate, UpdatePool
from hiermem.errors import NotFoundError
from hiermem.types import SessionRecord

_log = logging.getLogger("hiermem.worker")
#: Seconds between two sweeps for work that no backlog shows, and the largest share of the time that
#: the sweeps take: they read every session's record.
_SWEEP: Final = 60.0
_SWEEPING: Final = 0.01
#: Texts of an outdated strategy are made after all others; then come sessions that lack vectors.
_OUTDATED: Final = 1_000_000
_VECTORS: Final = _OUTDATED + 1
#: Turns without a result after which a session no longer counts as another worker's.
_SURE: Final = 6
#: Reasons to stop that hold for all sessions for a while.
_OF_ALL: Final = ("tenant_calls", "tenant_tokens", "model_down")
#: Reasons to stop that say nothing about the session itself.
_NOT_ITS_OWN: Final = ("pause", "stop", *_OF_ALL)


@dataclass(slots=True)
class _Known:
    """What is remembered of a session between its turns.

    ``nodes`` are those that back off; a ``bare`` turn is for vectors alone. ``ticked`` is the
    version in which no window is closed by time any more. ``followed`` are the tree and the
    configuration under which all texts were found to have the current strategy; texts made later
    under them have it too.
    """

    nodes: NodeBackoff = field(default_factory=NodeBackoff)
    bare: bool = False
    ticked: int | None = None
    followed: tuple[int, int] | None = None


class SessionScheduler:
    """One worker's view of the sessions of its tenants, whose ``handles`` it finds by name.

    ``on_found`` is called when the queue may have got one more session during a look, so that
    nobody waits for the end of the look, and when a turn comes to another level. ``begun`` counts
    the looks through the backlog, ``finished`` is the number of the last complete one, and ``left``
    is the number of sessions that it found in the backlog. ``last_error`` is the name of the newest
    error that ended a turn or a look.
    """

    #: Whether a session of which nothing was made may be one that another worker has.
    _others_may_have_it = True

    def __init__(
        self,
        pool: UpdatePool,
        handles: Mapping[str, Handle],
        *,
        name: str = "",
    ) -> None:
        self._pool, self._handles, self._clock = pool, handles, pool.shared.clock
        self.on_found: Callable[[], object] = lambda: None
        self.queue = SessionQueue[SessionKey](name)
        self.backoff = Backoff[SessionKey]()
        self.begun = self.finished = self.left = 0
        self.last_error: str | None = None
        self._halted: str | None = None
        self._halted_until = 0.0
        #: The sessions for which some vectors could not be made.
        self._embedded = Backoff[SessionKey]()
        self._known: defaultdict[SessionKey, _Known] = defaultdict(_Known)
        self._next_sweep = 0.0

    @property
    def waiting(self) -> int:
        """The number of sessions that wait for a place."""
        return len(self.queue)

    def halted(self) -> str | None:
        """Return the reason for which no session may be worked on now, or None."""
        if self._halted is not None and self._clock() >= self._halted_until:
            self._halted = None
        return self._halted

    # -- looking

    def start(self) -> None:
        """Begin what goes on beside the looks: nothing does."""

    def sweep_next(self) -> None:
        """Make the next look a sweep too."""
        self._next_sweep = 0.0

    async def look(self) -> None:
        """Go through the backlog once, and queue the sessions that can be worked on."""
        self.begun += 1
        number, seen = self.begun, set[SessionKey]()
        for tenant in self._handles:
            handle = self._handles[tenant]
            async for session_id in probe.backlog(handle.store):
                key = tenant, session_id
                seen.add(key)
                if key in self._pool.updates or key in self.queue:
                    continue
                if await self._is_due(handle, session_id):
                    await self._consider(handle, session_id)
                    self.on_found()
        if self._clock() >= self._next_sweep:
            begun = self._clock()
            for tenant in self._handles:
                await self._sweep(self._handles[tenant])
            now = self._clock()
            self._next_sweep = now + max(_SWEEP, (now - begun) / _SWEEPING)
        for key in tuple(self.backoff):
            if key not in seen:
                self.backoff.drop(key)
                self._known[key].nodes = NodeBackoff()
        self.finished, self.left = number, len(seen)

    async def _sweep(self, handle: Handle) -> None:
        """Queue the sessions of a tenant with work that no backlog shows.

        Such work is a window that its age or a silence closes; a text of an outdated strategy, if
        the policy follows the strategy; and missing vectors, if nothing else is missing. A
        session's tree is searched for outdated texts once, and again only after a re-pack or under
        another configuration.
        """
        async for record in every_session(handle.store):
            key = handle.store.tenant, record.id
            if key in self._pool.updates or key in self.queue:
                continue
            known = self._known[key]
            closes: bool | None = False
            if known.ticked != record.version:
                closes = probe.closes_by_time(handle, record)
                if closes is None:
                    known.ticked = record.version
            if closes and await tick_if_idle(handle, record.id):
                await self._consider(handle, record.id)
                self.on_found()
                continue
            if key in self.backoff:
                continue
            if known.followed != _shape(record):
                if await probe.has_outdated(self._pool, handle, record):
                    self.queue.put(key, _OUTDATED)
                    self.on_found()
                    continue
                known.followed = _shape(record)
            await self._look_for_vectors(handle, record)

    async def _look_for_vectors(self, handle: Handle, record: SessionRecord) -> None:
        """Queue a session that has nothing else to make and may lack vectors."""
        key = handle.store.tenant, record.id
        if self._embedded.holds(key, self._clock()) or key in self.queue:
            return
        if await probe.lacks_vectors(handle, record):
            self._known[key].bare = True
            self.queue.put(key, _VECTORS)
            self.on_found()

    async def _is_due(self, handle: Handle, session_id: str) -> bool:
        """Return whether to look at a session: not during its back-off, unless it changed."""
        key = handle.store.tenant, session_id
        entry = self.backoff.get(key)
        if entry is None or self._clock() >= entry.until:
            return True
        if entry.version is None:
            return False
        record = await handle.store.session(session_id)
        if record is not None and record.version == entry.version:
            return False
        self.backoff.drop(key)
        return True

    async def _consider(self, handle: Handle, session_id: str) -> None:
        """Queue a session that has something to make; otherwise let it back off."""
        key = handle.store.tenant, session_id
        nodes = self._known[key].nodes
        level, leased = await probe.probe(
            handle.store,
            session_id,
            now=handle.store_now(),
            skip=lambda node: nodes.is_backed_off(node, self._clock()),
        )
        if level is not None:
            self.queue.put(key, level, contested=leased)
            return
        record = await handle.store.session(session_id)
        version = record.version if record else None
        self.backoff.put(key, self._clock(), version=version, leased=leased)

    # -- a turn

    def begin_next(self) -> SessionUpdate | None:
        """Take the first session out of the queue and prepare its turn; None where none waits."""
        key = self.queue.take()
        if key is None:
            return None
        tenant, session_id = key
        nodes = self._known[key].nodes
        begun = self._pool.begin(self._handles[tenant], session_id, node_backoff=nodes)
        begun.on_level = self.on_found
        return begun

    async def turn(self, session_update: SessionUpdate) -> UpdateReport | None:
        """Run one session's turn, and decide its next one. Return what it made, None for an error.

        An error ends only the turn: one session's trouble is not the others'.
        """
        known = self._known[session_update.key]
        bare, known.bare = known.bare, False
        report: UpdateReport | None = None
        try:
            if bare:
                await self._pool.embed(session_update)
            else:
                report = await self._pool.work(session_update)
        except NotFoundError:
            self.forget(session_update.key)
        except Exception as error:  # noqa: BLE001 - a worker outlives what its store meets
            self.record_error(error)
            self.trouble(session_update.key)
        finally:
            if report is not None:
                self._settle_texts(session_update, report)
            self._settle_vectors(session_update)
        return report

    # -- after a turn

    def _settle_texts(self, session_update: SessionUpdate, report: UpdateReport) -> None:
        """Decide when a session has its next turn, by the result of this one."""
        key, stopped = session_update.key, report.stopped
        if stopped in _OF_ALL:
            self._halted, self._halted_until = stopped, self._clock() + pause_after(report)
        if session_update.record is not None:
            # An update marks outdated texts before it makes anything.
            self._known[key].followed = _shape(session_update.record)
        if stopped in _NOT_ITS_OWN:
            return
        if stopped == "turn":
            self.queue.put(key, session_update.level)
        elif stopped in ("session_calls", "session_tokens"):
            self.backoff.put(key, self._clock(), pauses=CAPPED)
        elif report.by_level:
            self.backoff.drop(key)
        elif stopped is None:
            # Most likely another worker was faster; the next look finds out.
            before = self.backoff.get(key)
            leased = self._others_may_have_it and (before is None or before.times < _SURE)
            version = session_update.record.version if session_update.record else None
            self.backoff.put(key, self._clock(), version=version, leased=leased)

    def _settle_vectors(self, session_update: SessionUpdate) -> None:
        """Let a session that still lacks vectors back off, longer each time."""
        if session_update.embedded:
            self._embedded.drop(session_update.key)
        elif session_update.embedded is not None:
            self._embedded.put(session_update.key, self._clock(), pauses=VECTORS)

    def trouble(self, key: SessionKey) -> None:
        """Let a session back off whose turn ended in an error, longer each time."""
        self.backoff.put(key, self._clock(), pauses=TROUBLE)

    def forget(self, key: SessionKey) -> None:
        """Drop all that is remembered of a session that is gone."""
        self.queue.drop(key)
        self.backoff.drop(key)
        self._embedded.drop(key)
        self._known.pop(key, None)

    async def end(self) -> None:
        """Give back what has had no turn."""

    def record_error(self, error: Exception) -> None:
        """Remember and log an error by its name only: its text may be confidential."""
        self.last_error = type(error).__name__
        _log.warning("a worker met %s; it goes on", self.last_error)


def _shape(record: SessionRecord) -> tuple[int, int]:
    """Return the tree of a session and the configuration that its texts are made under."""
    return record.tree, hash(record.config)
