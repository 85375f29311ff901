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

Decides what the state of a session's fold holds: all that an append needs of earlier messages.

The state is one small JSON text. Its growing parts, threads and open groups, stay packed until they
are read: an append unpacks one thread, the seal of a window one group. The size is bounded: a
thread takes a constant number of figures and is forgotten once it has been silent for twice the
idle limit, an open group has at most ``fan_in`` children, and levels grow as log n.

The state holds only what the next append needs; it repeats nothing that can be read from the log.
The rules are applied by ``hiermem.tree.fold``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hiermem.config import HierarchyConfig
from hiermem.errors import StoreCorruptError, UsageError
from hiermem.tree.levels import Growth, Root, pack, unpack
from hiermem.tree.turns import Arrival, Flag, People, Turns, check_types, read_part
from hiermem.tree.windows import (
    WHOLE,
    Limits,
    Reason,
    Seal,
    Window,
    follow,
    micros,
    moment,
    receive,
)
from hiermem.types import Node, Position, SizeUnit
from hiermem.types.brief import Brief
from hiermem.types.transaction import LogEvent

#: The format of the JSON; another number is another format.
_VERSION = 3
#: The end of a packed strand whose window has segments. A quote inside a name is escaped.
_OPEN: Final = re.compile(r'\]\],-?\d+,\d+,(?:true|false),(?:true|false)\]\]"\]')
_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


class Strand(NamedTuple):
    """The state of one thread: its end, and its open window."""

    turns: Turns = Turns()
    window: Window = Window()

    def pack(self) -> str:
        """Write it as JSON."""
        return _encode((self.turns, self.window))

    @classmethod
    def unpack(cls, text: str) -> Strand:
        """Read what ``pack`` wrote; raises StoreCorruptError for any other text."""
        return read_part(text, cls._of)

    @classmethod
    def _of(cls, row: Sequence[Any]) -> Strand:
        turns, window = row
        return cls(Turns.unpack(turns), Window.unpack(window))


class Opening(NamedTuple):
    """Where the messages of a thread begin that are in no sealed window.

    It is at message ``begin``, with the state ``window`` of the empty window.
    """

    begin: int
    window: Window = Window()


@dataclass(frozen=True, slots=True)
class OpenWindow(Brief):
    """The open window of a thread, as data: the content of the thread's next L1 so far.

    The window begins at ``begin`` and ends with message ``last_index``, the last of its thread.
    ``linked`` is True where the window shares a message or an exchange group with the sealed window
    before it in its thread.
    """

    thread: str
    begin: Position
    last_index: int
    messages: int
    size: int
    tokens: int
    linked: bool
    due: bool
    first_at: datetime
    last_at: datetime
    strand: Strand = field(repr=False)

    @classmethod
    def of(cls, thread: str, strand: Strand) -> OpenWindow | None:
        """Return the open window of ``thread`` from its state; None where no window is open."""
        window = strand.window
        content = window.content
        if not content.messages:
            return None
        return cls(
            thread=thread,
            begin=Position(content.begin, window.char),
            last_index=content.last,
            messages=content.messages,
            size=content.size,
            tokens=content.tokens,
            linked=window.linked,
            due=window.due,
            first_at=moment(content.first_at),
            last_at=moment(window.last_at),
            strand=strand,
        )


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session's fold.

    ``ordinals`` is the number of sealed nodes of level 1, 2, …; ``groups`` the open groups of level
    2, 3, … packed; ``threads`` gives for each thread the index of its last message and its packed
    ``Strand``. ``people`` is who speaks.
    """

    next_index: int = 0
    closed: bool = False
    ordinals: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    threads: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    people: People = field(default_factory=People)

    @property
    def among_people(self) -> bool:
        """Return whether it is talk of several people, in which nobody is the assistant's user."""
        return self.people.are_several(self.next_index)

    def to_json(self) -> str:
        """Write it as JSON, threads in the order in which they first spoke."""
        return _encode(
            [
                _VERSION,
                self.next_index,
                self.closed,
                self.ordinals,
                self.groups,
                {**self.threads},
                self.people,
            ]
        )

    @classmethod
    def from_json(cls, text: str) -> SessionState:
        """Read what ``to_json`` wrote; "" is the state of a session without messages.

        Raises StoreCorruptError where it is neither.
        """
        return read_part(text, cls._of) if text else cls()

    @classmethod
    def _of(cls, row: Sequence[Any]) -> SessionState:
        version, next_index, closed, ordinals, groups, threads, people = row
        if version != _VERSION:
            raise ValueError
        kept = {thread: (last, packed) for thread, (last, packed) in threads.items()}
        check_types(next_index, *ordinals, *(last for last, _ in kept.values()), kind=int)
        check_types(*groups, *(packed for _, packed in kept.values()), kind=str)
        check_types(closed, kind=bool)
        return cls(next_index, closed, tuple(ordinals), tuple(groups), kept, People.unpack(people))

    def next_ordinal(self, level: int) -> int:
        """Return the number of sealed nodes of ``level``, which is the ordinal of the next."""
        return self.ordinals[level - 1] if level <= len(self.ordinals) else 0

    def group(self, level: int) -> tuple[Root, ...]:
        """Return the children of the open group of ``level``, 2 or more, in order."""
        return tuple(unpack(self.groups[level - 2])) if level - 2 < len(self.groups) else ()

    def roots(self) -> tuple[Root, ...]:
        """Return all sealed nodes without a parent, in the order of their windows.

        Together they cover every sealed window exactly once, in as few nodes as there are.
        """
        return tuple(root for packed in reversed(self.groups) for root in unpack(packed))

    def strand(self, thread: str) -> Strand:
        """Return the state of ``thread``; an unknown thread has an empty one."""
        kept = self.threads.get(thread)
        return Strand.unpack(kept[1]) if kept else Strand()

    def open_windows(self) -> tuple[OpenWindow, ...]:
        """Return the open windows that are not empty, in order of their first messages."""
        windows = (OpenWindow.of(name, self.strand(name)) for name in self.threads)
        return tuple(sorted((w for w in windows if w is not None), key=lambda w: w.begin))

    def with_size(
        self, thread: str, index: int, *, size: int, tokens: int, char: int | None = None
    ) -> SessionState:
        """Return the state after an edit of a message that changed its sizes by these amounts.

        Nothing changes where the message is not in the open window of ``thread``. Bounds never
        move: the rules are applied at the next arrival. ``char`` is the new beginning of the window
        where the window begins inside that message.
        """
        kept = self.threads.get(thread)
        if kept is None:
            return self
        turns, window = Strand.unpack(kept[1])
        window = window.resized(index, size=size, tokens=tokens)
        if char is not None and window.messages and window.content.begin == index:
            window = window._replace(char=char)
        return replace(
            self, threads={**self.threads, thread: (kept[0], Strand(turns, window).pack())}
        )

    def with_root(self, now: Root) -> SessionState | None:
        """Return the state with ``now`` instead of the root of its id; None without such a root."""
        for level_index, packed in enumerate(self.groups):
            group = unpack(packed)
            for at, root in enumerate(group):
                if root.id == now.id:
                    text = pack([*group[:at], now, *group[at + 1 :]])
                    groups = (*self.groups[:level_index], text, *self.groups[level_index + 1 :])
                    return replace(self, groups=groups)
        return None

    def rewound(self, before: SizeUnit, after: SizeUnit) -> tuple[SessionState, dict[str, Opening]]:
        """Return the state at the beginning of what is open, and the openings by thread.

        From there the messages of open windows can be folded again, under other rules. Sealed nodes
        keep the unit they were sealed in. Of what a thread said before its open window only the
        given-up calls are known.
        """
        openings: dict[str, Opening] = {}
        threads = dict(self.threads)
        for thread, (_, packed) in self.threads.items():
            turns, window = Strand.unpack(packed)
            if window.segments:
                begin = window.segments[0].begin
                opening = Window(char=window.char, linked=window.linked)
                openings[thread] = Opening(begin, opening)
                threads[thread] = (begin - 1, Strand(Turns(late=turns.late)).pack())
        groups = self.groups
        if before != after:
            groups = tuple(
                pack([root._replace(unit=root.unit or before) for root in unpack(packed)])
                for packed in groups
            )
        start = min((opening.begin for opening in openings.values()), default=self.next_index)
        return replace(self, next_index=start, groups=groups, threads=threads), openings


def has_open_window(text: str) -> bool:
    """Return whether the state ``text`` has open windows, without unpacking it.

    Every append asks this, and unpacking would cost several times as much.
    """
    return _OPEN.search(text) is not None


@lru_cache(maxsize=64)
def config_from(text: str) -> HierarchyConfig:
    """Read a stored configuration; the same text returns the same object.

    Raises StoreCorruptError where hiermem did not write the text; the error holds nothing of it.
    """
    try:
        # With defaults any object would be a configuration; a stored one names its fields.
        fields = json.loads(text)
        whole = isinstance(fields, dict) and fields.keys() >= {"unit", "target", "levels"}
        config = HierarchyConfig.from_json(text) if whole else None
    except (ValueError, RecursionError):
        config = None
    if config is None:
        raise StoreCorruptError("a session's configuration is unreadable; the store is damaged")
    return config


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
    fold.close(lambda window, seals: window.close_at(WHOLE, "flush", seals))
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
        self._people = state.people
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
        self._people = self._people.after(arrival)
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
            SessionState(
                self._next, closed, growth.ordinals(), growth.groups(), threads, self._people
            ),
            tuple(growth.nodes.values()),
            tuple(growth.parents),
            tuple(self.flags),
        )
