"""The size changes of an edit, an erasure or a quarantine, and how the log records them.

Sealing depends on the weights of messages alone. A log whose events hold the weights before and
after each change therefore explains the tree (decision 0012), whatever became of the texts. Nothing
here holds any text of a message; a tool call that was erased is known by its mark.

A weight is kept in characters and in tokens, because a session may be re-packed in the other unit.
If another tree is being built at the time, the event holds what changed in that tree separately.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple, TypeVar

from hiermem.config import HierarchyConfig
from hiermem.core.text import measure
from hiermem.core.tree.stored import config_from
from hiermem.core.tree.windows import CHARS_A_TOKEN
from hiermem.errors import StoreCorruptError
from hiermem.protocols import TokenCounter
from hiermem.types import SizeUnit, StoredMessage
from hiermem.types.transaction import LogEvent

T = TypeVar("T")


class Weight(NamedTuple):
    """The weight of a message or slice as summariser input, in code points and in tokens."""

    chars: int
    tokens: int

    def size(self, unit: SizeUnit) -> int:
        """Return the weight in ``unit``."""
        return self.tokens if unit == "tokens" else self.chars


#: The weight of a message that was taken out of the tree.
NOTHING = Weight(0, 0)


@dataclass(frozen=True, slots=True)
class SizeChange:
    """The weights of one message's slices before and after a change; unsliced, it has one.

    ``calls`` and ``result_of`` are the marks of the tool calls that an erasure took away.
    """

    index: int
    thread: str
    before: tuple[Weight, ...]
    after: tuple[Weight, ...]
    calls: tuple[str, ...] = ()
    result_of: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the change in the shape that ``read`` takes, for JSON."""
        found: dict[str, Any] = {"index": self.index, "thread": self.thread}
        found |= {"before": self.before, "after": self.after}
        found |= {"calls": self.calls} if self.calls else {}
        return found if self.result_of is None else {**found, "result_of": self.result_of}

    @classmethod
    def read(cls, row: Any, *, cut: bool = False) -> SizeChange:
        """Read the JSON value of ``row``; ``cut``: it cuts a whole message."""
        shift = cls(
            row["index"],
            row["thread"],
            tuple(Weight(*pair) for pair in row["before"]),
            tuple(Weight(*pair) for pair in row["after"]),
            tuple(row.get("calls", ())),
            row.get("result_of"),
        )
        if type(shift.index) is not int or len(shift.before) != (1 if cut else len(shift.after)):
            raise ValueError
        return shift


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """What an event of kind "edit", "erase" or "quarantine" records, besides its place.

    ``shifts`` are the changes in the serving tree. ``built`` are those in a tree under
    construction, of the number ``tree``, into which the messages before ``at`` and the first
    ``events`` events had been folded.
    """

    shifts: tuple[SizeChange, ...]
    built: tuple[SizeChange, ...] = ()
    tree: int = 0
    at: int = 0
    events: int = 0

    def before(self, index: int) -> LoggedChanges:
        """Return the changes of the messages before ``index``."""
        return replace(
            self,
            shifts=tuple(shift for shift in self.shifts if shift.index < index),
            built=tuple(shift for shift in self.built if shift.index < index),
        )

    def to_json(self) -> str:
        """Write the changes as the detail of an event."""
        logged: dict[str, Any] = {"shifts": [shift.row() for shift in self.shifts]}
        if self.built:
            logged["build"] = {
                "tree": self.tree,
                "at": self.at,
                "events": self.events,
                "shifts": [shift.row() for shift in self.built],
            }
        return json.dumps(logged, separators=(",", ":"))

    @classmethod
    def from_json(cls, detail: str) -> LoggedChanges:
        """Read what ``to_json`` wrote. Raises StoreCorruptError for any other text."""

        def changes(value: Any) -> LoggedChanges:
            shifts = tuple(map(SizeChange.read, value["shifts"]))
            if (row := value.get("build")) is None:
                return cls(shifts)
            built = tuple(map(SizeChange.read, row["shifts"]))
            return cls(shifts, built, int(row["tree"]), int(row["at"]), int(row["events"]))

        return _read(detail, changes, what="an event of")


class Weigher:
    """Weighs messages and caches the results.

    Weights are computed before a transaction; the decision inside it looks them up and counts
    nothing twice. The cache key includes the message's hash, never its index alone.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self._weights: dict[tuple[Any, ...], tuple[Weight, ...]] = {}
        self._points: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def weigh(
        self, stored: StoredMessage, config: HierarchyConfig, points: Sequence[int] = ()
    ) -> tuple[Weight, ...]:
        """Return the weight of each slice that ``points`` make, or of the whole message."""
        if stored.state != "live":
            return (NOTHING,) * (len(points) + 1)
        known = (stored.index, stored.hash, stored.echoes, tuple(points))
        if known not in self._weights:
            self._weights[known] = self._weigh(stored, points)
        return _at_most(self._weights[known], stored, config)

    def estimate(
        self, stored: StoredMessage, config: HierarchyConfig, points: Sequence[int] = ()
    ) -> tuple[Weight, ...]:
        """Return approximate weights for a message that another counter counted.

        They follow from its stored tokens.
        """
        if stored.state != "live":
            return (NOTHING,) * (len(points) + 1)
        whole = len(measure.body(stored.message))
        bounds = (0, *points, whole)
        found = tuple(
            Weight(end - begin, stored.tokens * (end - begin) // whole if whole else stored.tokens)
            for begin, end in pairwise(bounds)
        )
        return _at_most(found, stored, config)

    def _weigh(self, stored: StoredMessage, points: Sequence[int]) -> tuple[Weight, ...]:
        message, counter, echoes = stored.message, self.counter, stored.echoes
        if points:
            sizes = measure.slice_sizes(
                message, points, unit="chars", counter=counter, echoes=echoes
            )
            return tuple(Weight(chars, tokens) for chars, tokens in sizes)
        chars = measure.message_size(message, unit="chars", counter=counter, echoes=echoes)
        tokens = stored.tokens
        if echoes:
            tokens = measure.message_size(message, unit="tokens", counter=counter, echoes=echoes)
        return (Weight(chars, tokens),)

    def points(
        self, stored: StoredMessage, count: int, *, unit: SizeUnit, target: int
    ) -> tuple[int, ...]:
        """Return the offsets that cut a live message into exactly ``count`` slices.

        Slices are of at most ``target`` if that many slices can hold the text. A longer text is cut
        evenly, and the last slice takes the remainder; of a short text the last slices are empty.
        """
        if count == 1:
            return ()
        known = (stored.index, stored.hash, stored.echoes, count, unit, target)
        if known not in self._points:
            message, echoes = stored.message, stored.echoes
            whole = measure.message_size(message, unit=unit, counter=self.counter, echoes=echoes)
            found = measure.slice_points(
                message,
                unit=unit,
                target=max(target, ceil(whole / count)),
                counter=self.counter,
                echoes=echoes,
            )[: count - 1]
            end = len(measure.body(message))
            self._points[known] = (*found, *(end for _ in range(count - 1 - len(found))))
        return self._points[known]


def _at_most(
    weights: tuple[Weight, ...], stored: StoredMessage, config: HierarchyConfig
) -> tuple[Weight, ...]:
    """Return the weights; a tool's result that is not sliced has that of an excerpt at most."""
    most = config.tool_result_tokens
    if stored.role != "tool" or most is None or len(weights) != 1 or weights[0].tokens <= most:
        return weights
    return (Weight(min(weights[0].chars, CHARS_A_TOKEN * most), most),)


def configs_of(event: LogEvent) -> tuple[HierarchyConfig, ...]:
    """Return the configurations that an event names, the earlier one first.

    Raises StoreCorruptError if the event is not what hiermem wrote.
    """
    if event.kind not in ("reconfigure", "repack"):
        return ()
    names = ("before", "after") if event.kind == "reconfigure" else ("config",)
    return _read(
        event.detail,
        lambda detail: tuple(config_from(detail[name]) for name in names),
        what=f"a {event.kind} in",
    )


def cuts_of(event: LogEvent) -> tuple[SizeChange, ...]:
    """Return the messages that a reconfiguration cut: what each weighed whole, and its slices.

    Raises StoreCorruptError if the event is not what hiermem wrote.
    """
    if event.kind != "reconfigure":
        return ()
    return _read(
        event.detail,
        lambda detail: tuple(SizeChange.read(row, cut=True) for row in detail.get("cuts", ())),
        what="a reconfigure in",
    )


def tree_of(event: LogEvent) -> int:
    """Return the number of the tree that a re-pack put into service.

    Raises StoreCorruptError if the event is not what hiermem wrote.
    """
    return _read(event.detail, lambda detail: int(detail["tree"]), what="a re-pack in")


def _read(detail: str, read: Callable[[Any], T], *, what: str) -> T:
    """Read the JSON of an event's detail. Raises StoreCorruptError if hiermem did not write it."""
    try:
        return read(json.loads(detail))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise StoreCorruptError(
            f"{what} a session's log is not what hiermem wrote; the store is damaged"
        ) from None
