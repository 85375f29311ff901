"""Decides which windows and groups a session's log forms: a fold over its messages and events.

The fold runs inside the transaction that appends. Its result is the nodes to insert, the parents
that older nodes get, and the flags that messages get. The same nodes result however the log is cut
into calls (P4), and no result changes the bounds of a sealed node (P5).

Several windows can close at one message. They are numbered by thread, the closing message's own
thread first, then by first index; this order is the order of the tree.

Where the specification leaves a choice:

- Idleness is checked after the arriving message has joined its window, so a thread that speaks is
  never idle.
- A thread that has been silent for twice the idle limit is forgotten, with its run of users and
  its late calls. Its next message starts the thread from an empty state.
- The close of a session abandons open exchange groups and flags them.
- With ``enabled`` off, turns are followed and open windows grow, but nothing is sealed, not by
  flush or close either, and no thread is forgotten.
- Times are returned in UTC.
- A session that is reopened keeps its root as a node among others, so each close after new
  messages puts one level on top of it.

The fold reads no stored message and no stored node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from hiermem.config import HierarchyConfig
from hiermem.errors import UsageError
from hiermem.tree.levels import Growth
from hiermem.tree.state import Opening, SessionState, Strand
from hiermem.tree.turns import Arrival, Flag
from hiermem.tree.windows import Limits, Reason, Seal, Window, follow, micros, receive
from hiermem.types import Node
from hiermem.types.transaction import LogEvent

#: The kinds of events that are folded in.
EVENTS: Final = frozenset({"flush", "tick", "close", "reopen"})


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold: the next state, and the writes that belong to it.

    ``nodes`` are new; a node whose group was sealed in the same fold has its parent already.
    ``parents`` are (child, parent) pairs for nodes of earlier folds. ``flags`` are (message index,
    flag) pairs.
    """

    state: SessionState
    nodes: tuple[Node, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()
    flags: tuple[Flag, ...] = ()


def arrive(state: SessionState, arrivals: Sequence[Arrival], config: HierarchyConfig) -> Folded:
    """Fold messages into the state, in order.

    Raises UsageError where an index is not the next one or the session is closed.
    """
    fold = _Fold(state, config)
    for arrival in arrivals:
        fold.arrive(arrival)
    return fold.folded()


def again(
    state: SessionState,
    arrivals: Sequence[Arrival],
    config: HierarchyConfig,
    openings: Mapping[str, Opening],
    *,
    other: Opening,
) -> Folded:
    """Fold messages in whose windows may be sealed already, in order.

    Messages before the opening of their thread are in sealed windows: they seal nothing, and other
    threads may become idle at them. Threads without an opening of their own have ``other``. Where
    the state does not hold a thread, its turns follow from those messages too. A message whose last
    slice alone is not sealed arrives as that slice. Only flags of calls that are given up are
    returned: the others were set when the messages arrived.
    """
    fold = _Fold(state, config)
    for arrival in arrivals:
        opening = openings.get(arrival.thread, other)
        if arrival.index < opening.begin:
            fold.skip(arrival, follow=arrival.thread not in state.threads)
            continue
        if arrival.index == opening.begin:
            fold.open(arrival.thread, opening.window)
        fold.arrive(arrival)
    fold.flags = [(index, flag) for index, flag in fold.flags if flag == "missing_result"]
    return fold.folded()


def flush(state: SessionState, config: HierarchyConfig) -> Folded:
    """Close each thread's open window at its last whole point."""
    fold = _Fold(state, config)
    fold.close(lambda window, seals: window.close_whole("flush", seals))
    return fold.folded()


def tick(state: SessionState, now: datetime, config: HierarchyConfig) -> Folded:
    """Apply rule 1 to each open window as if a message arrived ``now``."""
    fold, at = _Fold(state, config), micros(now)
    fold.close(lambda window, seals: window.timed(at, fold.limits, seals))
    return fold.folded()


def idle_tick(
    state: SessionState, config: HierarchyConfig, idle: timedelta
) -> tuple[datetime, Folded] | None:
    """Return the tick that a session is due which has been ``idle`` for so long, and its fold.

    None where a tick changes nothing. Its time is that of the last message that is not sealed, plus
    the longest time of rule 1 that has passed; it never depends on the present.
    """
    passed = [
        time + past
        for time, past in (
            (config.max_age, timedelta(0)),
            (config.flush_after, timedelta(microseconds=1)),  # a silence is longer than its limit
        )
        if time is not None and idle > time
    ]
    lasts = [window.last_at for window in state.open_windows()] if passed else []
    if not lasts:
        return None
    at = max(lasts) + max(passed)
    folded = tick(state, at, config)
    return (at, folded) if folded.state != state else None


def close(state: SessionState, config: HierarchyConfig) -> Folded:
    """Seal everything, up to one root; the session then takes no message until it is reopened."""
    fold = _Fold(state, config)
    for thread in fold.by_first_index():
        fold.shut(thread, "close")
    if config.enabled:
        fold.growth.finish()
    return fold.folded(closed=True)


def reopen(state: SessionState) -> Folded:
    """Open a closed session again; sealed nodes stay as they are."""
    return Folded(replace(state, closed=False))


def happen(state: SessionState, event: LogEvent, config: HierarchyConfig) -> Folded:
    """Fold in an event of the log, of one of the kinds of ``EVENTS``."""
    if event.kind == "flush":
        return flush(state, config)
    if event.kind == "tick":
        return tick(state, datetime.fromisoformat(event.detail), config)
    return close(state, config) if event.kind == "close" else reopen(state)


class _Fold:
    """One fold in progress: the unpacked state, and the seals and flags so far."""

    def __init__(self, state: SessionState, config: HierarchyConfig) -> None:
        self.state = state
        self.config = config
        self.limits = Limits.of(config)
        self.flags: list[Flag] = []
        self._next = state.next_index
        self._lasts = {thread: last for thread, (last, _) in state.threads.items()}
        self._strands: dict[str, Strand] = {}
        self.growth = Growth(state.ordinals, state.groups, config)

    def strand(self, thread: str) -> Strand:
        """Return the present state of ``thread``."""
        kept = self._strands.get(thread)
        if kept is not None:
            return kept
        # A thread that was forgotten in this fold is still in the state that the fold began with.
        return self.state.strand(thread) if thread in self._lasts else Strand()

    def by_first_index(self) -> list[str]:
        """Return the threads with an open window, in order of the windows' first messages."""
        begins: list[tuple[int, str]] = []
        for thread in self._lasts:
            content = self.strand(thread).window.content
            if content.messages:
                begins.append((content.begin, thread))
        return [thread for _, thread in sorted(begins)]

    def arrive(self, arrival: Arrival) -> None:
        """Add one message: apply the rules to its thread, then check other threads for idleness."""
        if arrival.index != self._next or self.state.closed:
            raise UsageError(
                f"message {arrival.index} cannot arrive: "
                + ("the session is closed" if self.state.closed else f"{self._next} is next")
            )
        self._next += 1
        thread = arrival.thread
        turns, window = self.strand(thread)
        if not self.config.enabled:
            turns, window = follow(turns, window, arrival, self.limits, self.flags)
            self._lasts[thread], self._strands[thread] = arrival.index, Strand(turns, window)
            return
        turns, window, seals, flags = receive(turns, window, arrival, self.limits)
        self.flags += flags
        self._lasts[thread] = arrival.index
        self.keep(thread, Strand(turns, window), seals)
        if len(self._lasts) > 1:
            self._idle(arrival.index)

    def open(self, thread: str, window: Window) -> None:
        """Begin a thread's next window."""
        self._strands[thread] = Strand(self.strand(thread).turns, window)

    def skip(self, arrival: Arrival, *, follow: bool) -> None:
        """Pass over one message, which is in a sealed window; ``follow`` its thread's turns."""
        self._next = arrival.index + 1
        if follow:
            thread, ignored = arrival.thread, list[Flag]()
            turns, window = self.strand(thread)
            turns = turns.before(arrival, ignored).after(arrival, ignored)
            self._lasts[thread], self._strands[thread] = arrival.index, Strand(turns, window)
        if self.config.enabled:
            self._idle(arrival.index)

    def keep(self, thread: str, strand: Strand, seals: Iterable[Seal]) -> None:
        """Store the thread's present state and let its sealed windows arrive in the tree."""
        self._strands[thread] = strand
        for seal in seals:
            self.growth.window(seal, thread)

    def close(self, close: Callable[[Window, list[Seal]], Window]) -> None:
        """Close each thread's open window as far as ``close`` does, where anything is sealed."""
        for thread in self.by_first_index() if self.config.enabled else ():
            turns, window = self.strand(thread)
            seals: list[Seal] = []
            self.keep(thread, Strand(turns, close(window, seals)), seals)

    def shut(self, thread: str, reason: Reason) -> None:
        """Abandon the thread's open exchange group and close its window at its end."""
        turns, window = self.strand(thread)
        seals: list[Seal] = []
        turns = turns.abandon(self.flags)
        if self.config.enabled:
            window = window.close_all(reason, seals)
        self.keep(thread, Strand(turns, window.settled(turns, self.limits.boundary)), seals)

    def _idle(self, index: int) -> None:
        """Close the window that is idle at message ``index``; forget a thread idle for too long.

        Each message has one index, so at most one thread reaches each of the two marks.
        """
        idle, forgotten = index - self.limits.idle, index - 2 * self.limits.idle
        for thread, last in list(self._lasts.items()):
            if last == idle:
                self.shut(thread, "idle")
            elif last <= forgotten:
                del self._lasts[thread]
                self._strands.pop(thread, None)

    def folded(self, *, closed: bool | None = None) -> Folded:
        """Return the result, with the changed parts of the state packed again."""
        kept = self.state.threads
        threads = {
            thread: (last, strand.pack()) if (strand := self._strands.get(thread)) else kept[thread]
            for thread, last in self._lasts.items()
        }
        growth = self.growth
        closed = self.state.closed if closed is None else closed
        return Folded(
            SessionState(self._next, closed, growth.ordinals(), growth.groups(), threads),
            tuple(growth.nodes.values()),
            tuple(growth.parents),
            tuple(self.flags),
        )
