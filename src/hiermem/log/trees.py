"""Decides which trees of a session a change of its messages reaches, and where in each of them.

One tree serves; at times a re-pack builds another, which holds the messages before some index. A
change of a message changes both in one transaction, each by its own configuration, slices and fold
(``propagate``).

A message is in the windows that hold its slices, and in the prompts of later windows that were
shown some of it as overlap; each finished text has on record which. Reads are bounded by the
result: an overlap reaches back over at most 400 characters and OVERLAP_REACH messages.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from hiermem.config import HierarchyConfig
from hiermem.errors import StoreCorruptError
from hiermem.log.events import configs_of
from hiermem.tree.fold import SessionState, config_from
from hiermem.tree.windows import Weight, Window
from hiermem.types import Node, Revision, SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Asking, LogEvent, NeedCovering

#: How many messages of the session before a window are read for its overlap.
OVERLAP_REACH: Final = 200

#: The characters of overlap that were requested, if any were shown.
OVERLAP_SIZE: Final = "overlap"

#: The first message that this text was shown, and the first that any text of the node was.
OVERLAP_FROM, OVERLAP_EVER = "overlap_from", "overlap_ever"

#: Messages of a thread that are at most so far apart are looked for together, at most so many.
_NEAR: Final = 64
_LONGEST: Final = 512


@dataclass(frozen=True, slots=True)
class Build:
    """A re-pack under way: the number of its tree, its configuration and the state of its fold.

    The messages before ``at`` and the first ``events`` events of the log are folded in, later ones
    are not. ``marks`` are the ranges [start, stop) of messages whose size or slices differ in this
    tree, and ``sliced`` the messages that are cut up in it; the swap records both on the messages.
    """

    id: str
    tree: int
    config: str
    state: str = ""
    at: int = 0
    events: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    sliced: tuple[int, ...] = ()

    def to_json(self) -> str:
        """Write the build as JSON, for the session's record."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Build | None:
        """Read what ``to_json`` wrote; None if no re-pack is under way.

        Raises StoreCorruptError for any other text.
        """
        if not text:
            return None
        try:
            return _reader().validate_json(text, strict=True)
        except ValidationError:
            what = "a session's re-pack is unreadable; the store is damaged"
            raise StoreCorruptError(what) from None


@cache
def _reader() -> TypeAdapter[Build]:
    return TypeAdapter(Build)


class Location(NamedTuple):
    """Where a message is: its sealed windows in order, each with one slice of it.

    Slices of a message are told apart by their order and never by their offsets, because slices
    that became empty begin at the same place. A message has as many windows as slices.
    ``points`` are the offsets at which all slices but the first begin. ``opened``: its last slice,
    or the whole message, is in its thread's open window.
    """

    windows: tuple[Node, ...]
    points: tuple[int, ...]
    opened: bool

    @property
    def slices(self) -> int:
        """Return the number of its slices."""
        return len(self.points) + 1


class MessageChange(NamedTuple):
    """A change of a message: where it is, the weights of its slices, and their offsets after it.

    Unsliced, it has one weight, and no offsets.
    """

    message: int
    thread: str
    location: Location
    before: tuple[Weight, ...]
    after: tuple[Weight, ...]
    points: Sequence[int] = ()


def locate(
    session_id: str, stored: StoredMessage, window: Window, tree: int | None
) -> Asking[Location]:
    """Find a message in a tree that includes it, whose thread has this open window."""
    index = stored.index
    windows: Sequence[Node] = yield session_id, NeedCovering(stored.thread, index, tree)
    return _located(index, windows, window)


def _located(index: int, windows: Sequence[Node], window: Window) -> Location:
    """Return where a message is, from the sealed windows over it and the open one."""
    opened = bool(window.segments) and window.segments[0].begin <= index
    if not windows and not opened:
        raise StoreCorruptError(f"message {index} is in no window; the store is damaged")
    points = [node.span.start_char for node in windows[1:]]
    if windows and opened:
        points.append(window.char)
    return Location(tuple(windows), tuple(points), opened)


def _stretches(messages: Sequence[StoredMessage]) -> list[list[StoredMessage]]:
    """Split messages into those of one thread that lie near one another."""
    stretches: list[list[StoredMessage]] = []
    last: dict[str, list[StoredMessage]] = {}
    for stored in messages:
        thread = stored.message.thread
        near = last.get(thread)
        if near is None or stored.index - near[-1].index > _NEAR or len(near) >= _LONGEST:
            near = last[thread] = []
            stretches.append(near)
        near.append(stored)
    return stretches


@dataclass(slots=True)
class TreeState:
    """One tree of a session: the state of its fold, and the changes that reach it.

    ``build`` is None for the tree that serves; ``stop`` is the first message not folded in yet.
    """

    session_id: str
    tree: int
    config: HierarchyConfig
    state: SessionState
    stop: int
    build: Build | None = None
    changes: list[MessageChange] = field(default_factory=list[MessageChange])
    overlapping: dict[str, Node] = field(default_factory=dict[str, Node])

    def locate_all(
        self, messages: Sequence[StoredMessage], *, ever: bool = False
    ) -> Asking[list[Location]]:
        """Find where messages are, sorted by index, and note the windows that were shown some.

        Each finished summary stores which messages its prompt contained; with ``ever``, the node's
        earlier texts count too. A text in progress near a message counts as shown, if any
        configuration of the log has an overlap: its generation began under one of them.
        """
        locations: dict[int, Location] = {}
        for stretch in _stretches(messages):
            thread, last = stretch[0].thread, stretch[-1].index + OVERLAP_REACH
            opening = self.state.strand(thread).window
            windows: Sequence[Node]
            need = NeedCovering(thread, stretch[0].index, self.tree, last)
            windows = yield self.session_id, need
            starts = [node.span.start for node in windows]
            stops = [node.span.stop for node in windows]
            windows_asked: set[int] = set()
            location, until = None, -1  # where each message up to ``until`` is, if it is known
            for stored in stretch:
                if location is None or stored.index > until:
                    first = bisect_right(stops, stored.index)
                    places = range(first, bisect_right(starts, stored.index, first))
                    windows_asked.update(places)
                    over = windows[places.start : places.stop]
                    location = _located(stored.index, over, opening)
                    until = -1
                    # The last message of a window may reach into the next, or the open one.
                    if len(over) == 1 and not location.opened:
                        until = over[0].span.stop - 2
                locations[stored.index] = location
            # The last message of the stretch before each of the other windows.
            indices = [stored.index for stored in stretch]
            others: list[tuple[Node, int]] = []
            for position, node in enumerate(windows):
                before = bisect_left(indices, starts[position]) - 1
                if position not in windows_asked and before >= 0:
                    others.append((node, indices[before]))
            yield from self._shown(others, ever=ever)
        return [locations[stored.index] for stored in messages]

    def _shown(self, others: Sequence[tuple[Node, int]], *, ever: bool) -> Asking[None]:
        """Note which of these windows were shown some of a stretch of messages, or may be.

        Each comes with the last message of the stretch before it.
        """
        near = [(n, index) for n, index in others if n.span.start - index <= OVERLAP_REACH]
        served = {(node.id, node.revision): (node, index) for node, index in near if node.revision}
        if served:
            need = transaction.NeedRevisions(tuple(served), self.tree)
            texts: Sequence[Revision] = yield self.session_id, need
            for revision in texts:
                node, index = served[revision.node_id, revision.number]
                if was_shown(revision, index, ever=ever):
                    self.overlapping[node.id] = node
        # A text may be in progress for these; a local model's call leaves no trace.
        making = {n.id: n for n, _ in near if n.status != "active" or n.degraded or n.dirty}
        if not making:
            return
        events: Sequence[LogEvent] = yield self.session_id, "events"
        named = [config for event in events for config in configs_of(event)]
        if any(config.overlap > 0 for config in (self.config, *named)):
            self.overlapping |= making


def tree_states(record: SessionRecord) -> list[TreeState]:
    """Return the tree that serves, then the one that is being built, if there is one."""
    state = SessionState.from_json(record.state)
    config = config_from(record.config)
    states = [TreeState(record.id, record.tree, config, state, record.messages)]
    build = Build.from_json(record.build)
    if build is not None:
        state = SessionState.from_json(build.state)
        config = config_from(build.config)
        states.append(TreeState(record.id, build.tree, config, state, build.at, build))
    return states


def was_shown(revision: Revision, index: int, *, ever: bool = False) -> bool:
    """Return whether the text of a later window was shown some of message ``index``.

    With ``ever``, the node's earlier texts, which are kept, count too.
    """
    first = shown_index(revision.extras, OVERLAP_EVER if ever else OVERLAP_FROM)
    return first is not None and first <= index


def shown_size(revision: Revision) -> int:
    """Return the overlap that a text was made with, 0 if it was shown nothing."""
    return shown_index(revision.extras, OVERLAP_SIZE) or 0


def shown_index(extras: Mapping[str, Any], name: str) -> int | None:
    """Return a number that ``extras`` hold under ``name``, None if they hold none."""
    number = extras.get(name)
    return number if isinstance(number, int) else None
