"""Replays a session's log, exactly as it happened, up to some message.

A message arrives with the weight that it had then, and later changes happen at their own place in
the log, so the same windows and groups come out (decision 0012). If the session was re-packed, the
log before that is folded under the configuration of the re-pack, with the weights of that moment;
changes that reached the tree while it was being built happen where its fold stood.

Weights come from the log's events or are measured again. The size stored with a message is not
used, because it is today's size. During the replay slices are identified by their number instead of
their offset; the result has the offsets that the messages have now.

The tree is held in memory, about a tenth of the size of the messages, which are read in pages.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from hiermem.config import HierarchyConfig
from hiermem.core.log import size_changes
from hiermem.core.log.propagate import Mark, propagate
from hiermem.core.log.repack import Refold
from hiermem.core.log.size_changes import LoggedChanges, SizeChange, Weigher, Weight
from hiermem.core.log.trees import TreeState, locate
from hiermem.core.needs import Reading
from hiermem.core.tree import fold
from hiermem.core.tree.fold import Folded
from hiermem.core.tree.state import placed
from hiermem.core.tree.turns import Arrival, Slice, marks_of
from hiermem.core.tree.windows import is_oversize, slices_at
from hiermem.errors import StoreCorruptError
from hiermem.types import Node, StoredMessage
from hiermem.types.transaction import LogEvent, Need, NeedCovering, NeedNodes

T = TypeVar("T")
_CHANGES = frozenset({"edit", "erase", "quarantine"})


def prefix(events: Sequence[LogEvent], stop: int) -> tuple[LogEvent, ...]:
    """Return the log's events as they are for the messages before ``stop`` alone.

    Events up to there are kept. Later changes of those messages, and a later re-pack, are kept as
    if they had come right at that point; so is a later reconfiguration that cut one of them, with
    those before it.
    """
    last, cutting = _last_repack(events), _last_cutting(events, stop)
    kept: list[LogEvent] = []
    count = [0]
    for place, event in enumerate(events):
        now = _before(event, stop, count) if event.kind in _CHANGES else event
        late = event.at > stop
        kept_late = event.kind in _CHANGES or place == last
        if late and event.kind == "reconfigure" and place <= cutting:
            now, kept_late = _cut_before(event, stop), True
        if now is not None and (not late or kept_late):
            kept.append(replace(now, at=min(event.at, stop)))
        count.append(len(kept))
    return tuple(kept)


def config_at(events: Sequence[LogEvent], stop: int, now: HierarchyConfig) -> HierarchyConfig:
    """Return the configuration that the session had before message ``stop``; today it has ``now``.

    A later re-pack, and a later reconfiguration that cut one of those messages, count as if they
    had come right at that point, as in ``prefix``.
    """
    for event in events[max(_last_repack(events), _last_cutting(events, stop)) + 1 :]:
        if event.kind == "reconfigure" and event.at > stop:
            return size_changes.configs_of(event)[0]
    return now


def _before(event: LogEvent, stop: int, count: Sequence[int]) -> LogEvent | None:
    """Restrict a change to the messages before ``stop``; None if it concerns none of them.

    ``count`` gives, for each number of first events, how many of them are kept.
    """
    logged = LoggedChanges.from_json(event.detail).before(stop)
    if logged.built:
        logged = replace(logged, at=min(logged.at, stop), events=count[logged.events])
    elif not logged.shifts:
        return None
    return replace(event, detail=logged.to_json())


def _last_cutting(events: Sequence[LogEvent], stop: int) -> int:
    """Return the place of the newest reconfiguration that cut a message before ``stop``, or -1."""
    cut = [[each.index for each in size_changes.cuts_of(event)] for event in events]
    return max(
        (n for n, indices in enumerate(cut) if min(indices, default=stop) < stop), default=-1
    )


def _cut_before(event: LogEvent, stop: int) -> LogEvent:
    """Restrict a reconfiguration to the messages before ``stop``."""
    detail = json.loads(event.detail)
    cuts = [cut.row() for cut in size_changes.cuts_of(event) if cut.index < stop]
    detail = {name: detail[name] for name in ("before", "after")} | ({"cuts": cuts} if cuts else {})
    return replace(event, detail=json.dumps(detail, separators=(",", ":")))


def _last_repack(events: Sequence[LogEvent]) -> int:
    """Return the place of the newest re-pack, -1 if there was none."""
    return max((n for n, event in enumerate(events) if event.kind == "repack"), default=-1)


#: An event, at the place where it happens to the tree, with the weights that it changes.
_Step: TypeAlias = tuple[LogEvent, tuple[SizeChange, ...]]


def _steps(events: Sequence[LogEvent], last: int) -> list[_Step]:
    """Return what a replay does, in order; ``last`` is the place of the newest re-pack."""
    steps: list[tuple[tuple[int, float], _Step]] = []
    tree = size_changes.tree_of(events[last]) if last >= 0 else None
    for place, event in enumerate(events):
        shifts: tuple[SizeChange, ...] = ()
        at, order = event.at, float(place)
        if event.kind in _CHANGES:
            logged = LoggedChanges.from_json(event.detail)
            if place > last:
                shifts = logged.shifts
            elif logged.tree == tree:
                shifts, at, order = logged.built, logged.at, logged.events - 0.5
            if not shifts:
                continue
        elif place == last or (place < last and event.kind not in fold.EVENTS):
            continue
        else:
            shifts = size_changes.cuts_of(event)
        steps.append(((at, order), (replace(event, at=at), shifts)))
    return [step for _, step in sorted(steps, key=lambda step: step[0])]


class Replay(Refold):
    """A replay in progress: ``feed`` it all messages in order, then ``finish``.

    ``config`` is the configuration of the session at the end of the log.

    Raises StoreCorruptError if an event is not what hiermem wrote.
    """

    def __init__(
        self, events: Sequence[LogEvent], config: HierarchyConfig, weigher: Weigher
    ) -> None:
        last = _last_repack(events)
        named = [size_changes.configs_of(event) for event in events[max(last, 0) :]]
        super().__init__(next((found[0] for found in named if found), config))
        self.weigher = weigher
        self._steps = _steps(events, last)
        # What a message of a step weighed, and called, when it arrived.
        self._weights: dict[int, tuple[Weight, ...]] = {}
        self._calls: dict[int, tuple[tuple[str, ...], str | None]] = {}
        self._points: dict[int, tuple[int, ...]] = {}
        #: The windows of each thread, by their first messages.
        self._starts: dict[str, list[tuple[int, str]]] = {}
        #: The messages that a later reconfiguration cuts; and, until the last reconfiguration, all
        #: messages so far, each with its weights as they are at this point of the log.
        self._uncut: set[int] = set()
        self._heard: list[tuple[Arrival, tuple[Weight, ...]]] = []
        self._reconfigurations = 0
        for event, shifts in self._steps:
            self._reconfigurations += event.kind == "reconfigure"
            for shift in shifts:
                self._weights.setdefault(shift.index, shift.before)
                if event.kind == "reconfigure":
                    self._uncut.add(shift.index)
                if shift.calls or shift.result_of is not None:
                    self._calls.setdefault(shift.index, (shift.calls, shift.result_of))

    # -- folding

    def feed(self, messages: Sequence[StoredMessage]) -> None:
        """Fold the next messages in, with what happened between them."""
        waiting: list[Arrival] = []
        for stored in messages:
            if self._steps and self._steps[0][0].at <= stored.index:
                self.fold_in(waiting)
                waiting = []
                self._happen(stored.index)
            waiting.append(self._arrival(stored))
        self.fold_in(waiting)

    def finish(self) -> None:
        """Apply what came after the last message, and replace slice numbers by offsets."""
        self._happen(self.state.next_index)
        if self._steps:
            raise StoreCorruptError(
                "a session's log tells of messages that it does not have; the store is damaged"
            )
        self.state = self.state.with_chars(self._real)
        self.nodes = {
            id_: replace(node, span=placed(node.span, self._real), version=0)
            for id_, node in self.nodes.items()
        }

    def _happen(self, at: int) -> None:
        while self._steps and self._steps[0][0].at <= at:
            event, shifts = self._steps.pop(0)
            if event.kind in fold.EVENTS:
                self.take(fold.happen(self.state, event, self.config))
            elif event.kind == "reconfigure":
                self._reconfigure(event, shifts)
            else:
                self._change(event, shifts)

    def take(self, folded: Folded) -> None:
        """Go on from the result of a fold; note where its windows begin."""
        super().take(folded)
        for node in folded.nodes:
            if node.level == 1 and node.thread is not None:
                self._starts.setdefault(node.thread, []).append((node.span.start, node.id))

    def _arrival(self, stored: StoredMessage) -> Arrival:
        """Return what the fold looked at when the message arrived."""
        index, message = stored.index, stored.message
        weights = self._weights.get(index) or self.weigher.weigh(stored, self.config, stored.slices)
        if len(weights) != (1 if index in self._uncut else len(stored.slices) + 1):
            raise StoreCorruptError(
                f"message {index} is not cut as the log says; the store is damaged"
            )
        if stored.slices:
            self._points[index] = stored.slices
        calls, result_of = self._calls.get(index) or marks_of(message)
        arrived = Arrival(
            index, message.thread, message.role, 0, 0, stored.created_at, calls, result_of
        )
        arrived = _weighing(arrived, weights, self.config)
        if self._reconfigurations:
            self._heard.append((arrived, weights))
        return arrived

    def _reconfigure(self, event: LogEvent, cuts: tuple[SizeChange, ...]) -> None:
        """Go on under another configuration, and fold the open windows again under it."""
        before, self.config = size_changes.configs_of(event)
        if self.config != before:
            self.state, begins = self.state.rewound(before.unit, self.config.unit)
            for cut in cuts:
                self._heard[cut.index] = (self._heard[cut.index][0], cut.after)
                self._uncut.discard(cut.index)
            indices = {cut.index for cut in cuts}
            arrivals = [
                self._once_more(arrived, weights, begins, cut=arrived.index in indices)
                for arrived, weights in self._heard[self.state.next_index :]
            ]
            self.fold_again(arrivals, begins)
        self._reconfigurations -= 1
        if not self._reconfigurations:
            self._heard.clear()

    def _once_more(
        self, arrived: Arrival, weights: tuple[Weight, ...], begins: Mapping[str, int], *, cut: bool
    ) -> Arrival:
        """Return what the fold looks at when a message of an open window is folded again."""
        if arrived.index == begins.get(arrived.thread) and not cut:
            opening = self.state.strand(arrived.thread).window
            last = next(reversed(weights), None)
            if last is not None and (len(weights) > 1 or opening.char or opening.linked):
                size = last.size(self.config.unit)
                return replace(arrived, size=size, tokens=last.tokens, slices=())
        return _weighing(arrived, weights, self.config)

    # -- changes

    def _change(self, event: LogEvent, shifts: tuple[SizeChange, ...]) -> None:
        """Change the weights of messages from here on, as the transaction did at the time."""
        tree_state = TreeState(0, self.config, self.state, self.state.next_index)
        for shift in shifts:
            window = self.state.strand(shift.thread).window
            place = self._drive(locate(shift.thread, shift.index, window, tree_state.tree))
            if place.slices != len(shift.before):
                raise StoreCorruptError(
                    f"message {shift.index} is not cut as the log says; the store is damaged"
                )
            tree_state.message_changes.append((place, shift, place.points))
            if self._reconfigurations:
                arrived = self._heard[shift.index][0]
                if event.kind == "erase":
                    arrived = replace(arrived, calls=(), result_of=None)
                self._heard[shift.index] = (arrived, shift.after)
        mark: Mark = "flag" if event.kind == "edit" else "forget"
        result = self._drive(propagate(tree_state, mark, event.when))
        self.state = result.state
        self.nodes.update((node.id, node) for node in result.nodes)

    def _drive(self, reading: Reading[T]) -> T:
        reply: Any = None
        while True:
            try:
                need = reading.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result
            reply = self._answer(need)

    def _answer(self, need: Need | tuple[Need, ...]) -> list[Node]:
        if isinstance(need, NeedNodes):
            return [self.nodes[id_] for id_ in need.ids if id_ in self.nodes]
        assert isinstance(need, NeedCovering)
        return list(self._covering(need.thread, need.index))

    def _covering(self, thread: str, index: int) -> Iterator[Node]:
        starts = self._starts.get(thread, [])
        found: list[Node] = []
        for place in range(bisect_right(starts, index, key=itemgetter(0)) - 1, -1, -1):
            node = self.nodes[starts[place][1]]
            if node.span.stop <= index:
                break
            found.append(node)
        return reversed(found)

    # -- offsets

    def _real(self, index: int, number: int) -> int:
        return self._points[index][number - 1]


def _weighing(arrived: Arrival, weights: Sequence[Weight], config: HierarchyConfig) -> Arrival:
    """Return an arrival with these weights: of the whole message, or of its slices."""
    unit = config.unit
    slices: tuple[Slice, ...] = ()
    whole = arrived.role == "tool" and config.tool_result_tokens is not None
    if len(weights) > 1 or (not whole and is_oversize(weights[0].size(unit), config)):
        sizes = [(weight.size(unit), weight.tokens) for weight in weights]
        slices = slices_at(range(1, len(weights)), sizes)
    return replace(
        arrived,
        size=sum(weight.size(unit) for weight in weights),
        tokens=sum(weight.tokens for weight in weights),
        slices=slices,
    )
