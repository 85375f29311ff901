"""Decides which nodes form a group: sealed windows become L1 nodes, their groups the next level's.

A node that arrives at a level joins its open group. A full group becomes a node and arrives at the
level above; the same code serves every level. Here a node weighs its *allotted* size, which follows
from the sizes of its inputs alone: structure never depends on a text.

Nodes arrive in the order of the windows they cover. Therefore every node covers a contiguous range
of windows, and the open groups together, highest level first, cover all windows.

Where the specification leaves a choice:

- A fraction of a size is rounded down, to at least 1.
- A node that is not verbatim is allotted at least one less than its input, whatever its floor.
- A size in tokens is allotted in the proportion of the size in the session's unit, because floors
  and caps are in that unit.
- A group's ``thread`` is its children's if they have one in common.
- At close the levels are processed upwards, and a lone node joins the next level by the ordinary
  rule.
- A size that was taken in another unit is converted by ``windows.converted``.

This module decides nothing about windows and generates no text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from hiermem.config import HierarchyConfig, LevelConfig
from hiermem.tree.turns import check_types, read_part
from hiermem.tree.windows import CHARS_A_TOKEN, Seal, check_times, converted, micros, moment
from hiermem.types import Node, SizeUnit, Span

#: Why a group is sealed: the child has no room in it; with it, it has the size, the children or the
#: messages that fill a group.
GroupReason: TypeAlias = Literal["room", "fan_in", "size", "messages"]


def node_id(level: int, ordinal: int) -> str:
    """Return the id of a sealed node. One of a group that is still open is named otherwise."""
    return f"L{level}.{ordinal}"


class Root(NamedTuple):
    """A sealed node without a parent, with the figures that are kept until it has one.

    It covers the windows from ``low`` up to ``high``, and the messages of ``span``. ``first`` and
    ``last`` are the earliest and latest time covered, in microseconds since 1970 UTC. ``unit`` is
    the unit of ``allotted``; None is the unit of the configuration. The state of a session holds
    the fields in this order.
    """

    level: int
    ordinal: int
    low: int
    high: int
    start: int
    stop: int
    start_char: int
    stop_char: int | None
    messages: int
    allotted: int
    allotted_tokens: int
    thread: str | None
    first: int
    last: int
    unit: SizeUnit | None

    @property
    def id(self) -> str:
        """Return the node's id."""
        return node_id(self.level, self.ordinal)

    @property
    def windows(self) -> tuple[int, int]:
        """Return the range of windows covered."""
        return self.low, self.high

    @property
    def span(self) -> Span:
        """Return the stretch of messages covered."""
        return Span(self.start, self.stop, self.start_char, self.stop_char)

    def size(self, unit: SizeUnit) -> int:
        """Return the node's allotted size, in ``unit``."""
        return converted(self.allotted, self.allotted_tokens, self.unit or unit, unit)

    @classmethod
    def of(cls, node: Node) -> Root:
        """Make the root of a sealed node."""
        span = node.span
        return cls(
            node.level,
            node.ordinal,
            *node.windows,
            span.start,
            span.stop,
            span.start_char,
            span.stop_char,
            node.messages,
            node.allotted,
            node.allotted_tokens,
            node.thread,
            micros(node.first_at),
            micros(node.last_at),
            node.unit,
        )


def hull(spans: Iterable[Span]) -> Span:
    """Return the stretch from the beginning of the first span to the end of the last one.

    An end inside a message stays inside it, even where that message is empty by now.
    """
    spans_given = tuple(spans)
    first = min(spans_given, key=lambda span: span.begin)
    last = max(spans_given, key=lambda span: (span.end, span.stop))
    return Span(first.start, last.stop, first.start_char, last.stop_char)


def weigh(level: LevelConfig, size: int) -> int:
    """Return the size allotted to a node of ``size``: ``min(input, clamp(ratio * input, …))``.

    That is at least one less than the input (P8); a node kept word for word is allotted all of it.
    """
    target = max(int(level.target_ratio * size), level.floor)
    if level.cap is not None:
        target = min(target, level.cap)
    return min(size, max(1, min(target, size - 1)))


def window_node(seal: Seal, *, thread: str, ordinal: int, config: HierarchyConfig) -> Node:
    """Make the L1 node of a closed window."""
    content = seal.content
    allotted, allotted_tokens, verbatim = allot(1, content.size, content.tokens, config)
    return Node(
        id=node_id(1, ordinal),
        level=1,
        ordinal=ordinal,
        thread=thread,
        span=Span.between(seal.begin, seal.end),
        windows=(ordinal, ordinal + 1),
        children=(),
        messages=content.messages,
        input_size=content.size,
        allotted=allotted,
        input_tokens=content.tokens,
        allotted_tokens=allotted_tokens,
        verbatim=verbatim,
        first_at=moment(content.min_at),
        last_at=moment(content.max_at),
        linked=seal.linked,
        unit=config.unit,
    )


def group_node(level: int, ordinal: int, group: Sequence[Root], config: HierarchyConfig) -> Node:
    """Make the node of ``level`` that covers ``group``, which is in order and not empty."""
    size = sum(child.size(config.unit) for child in group)
    tokens = sum(child.allotted_tokens for child in group)
    allotted, allotted_tokens, verbatim = allot(level, size, tokens, config)
    thread = group[0].thread
    return Node(
        id=node_id(level, ordinal),
        level=level,
        ordinal=ordinal,
        thread=thread if all(child.thread == thread for child in group) else None,
        span=hull(child.span for child in group),
        windows=(group[0].windows[0], group[-1].windows[1]),
        children=tuple(child.id for child in group),
        messages=sum(child.messages for child in group),
        input_size=size,
        allotted=allotted,
        input_tokens=tokens,
        allotted_tokens=allotted_tokens,
        verbatim=verbatim,
        first_at=moment(min(child.first for child in group)),
        last_at=moment(max(child.last for child in group)),
        unit=config.unit,
    )


def allot(
    number: int, size: int, tokens: int, config: HierarchyConfig, *, unit: SizeUnit | None = None
) -> tuple[int, int, bool]:
    """Return the allotted size, the same in tokens, and whether the node is kept word for word.

    ``size`` is in ``unit``, None being the configuration's own, in which floors and caps are.
    """
    if tokens <= config.verbatim_tokens:
        return size, tokens, True
    level = config.level(number)
    if unit not in (None, config.unit):
        level = _in_unit(level, unit)
    allotted = weigh(level, size)
    share = tokens * allotted // size if size else 0
    return allotted, max(1, min(share, tokens - 1)), False


def _in_unit(level: LevelConfig, unit: SizeUnit | None) -> LevelConfig:
    """Return a level's rule with floor and cap converted to the unit they were not written in."""

    def other(size: int) -> int:
        return size // CHARS_A_TOKEN if unit == "tokens" else size * CHARS_A_TOKEN

    cap = None if level.cap is None else max(1, other(level.cap))
    return level.model_copy(update={"floor": other(level.floor), "cap": cap})


def _overfull(group: Sequence[Root], child: Root, rule: LevelConfig, unit: SizeUnit) -> bool:
    """Return whether a group must be sealed before ``child`` joins it (spec section 5)."""
    if rule.max_size is None or len(group) < 2:
        return False
    size = sum(member.size(unit) for member in group) + child.size(unit)
    return size > round(rule.max_size * (1 + rule.tolerance), 6)


def _full(group: Sequence[Root], rule: LevelConfig, unit: SizeUnit) -> GroupReason | None:
    """Return why a group must be sealed now, None where it must not (spec section 5)."""
    if len(group) < 2:
        return None
    if len(group) >= rule.fan_in:
        return "fan_in"
    if rule.max_size is not None and sum(m.size(unit) for m in group) >= rule.max_size:
        return "size"
    covered = sum(member.messages for member in group)
    return "messages" if rule.max_messages is not None and covered >= rule.max_messages else None


def reasons(
    group: Sequence[Root], child: Root, rule: LevelConfig, unit: SizeUnit
) -> tuple[GroupReason, ...]:
    """Return a reason for each group that is sealed when ``child`` arrives at ``group``."""
    if _overfull(group, child, rule, unit):
        return ("room",)
    full = _full([*group, child], rule, unit)
    return () if full is None else (full,)


class Growth:
    """The growth of a tree during one fold: the nodes it seals, and the open groups it leaves.

    ``ordinals`` holds the number of sealed nodes of level 1, 2, …; ``groups`` the open group of
    level 2, 3, … as ``pack`` wrote it. A group is unpacked when its level is reached, so that
    sealing a window costs the same however high the tree is.
    """

    def __init__(
        self, ordinals: Sequence[int], groups: Sequence[str], config: HierarchyConfig
    ) -> None:
        self.config = config
        self.nodes: dict[str, Node] = {}
        self.parents: list[tuple[str, str]] = []
        self._ordinals = list(ordinals)
        self._packed = list(groups)
        self._open: dict[int, list[Root]] = {}
        self._levels: dict[int, LevelConfig] = {}

    def ordinals(self) -> tuple[int, ...]:
        """Return the present number of sealed nodes of level 1, 2, …."""
        return tuple(self._ordinals)

    def groups(self) -> tuple[str, ...]:
        """Return the present open groups of level 2, 3, …, packed."""
        packed = list(self._packed)
        for level, group in self._open.items():
            packed.extend("[]" for _ in range(level - 1 - len(packed)))
            packed[level - 2] = pack(group)
        while packed and packed[-1] == "[]":
            packed.pop()
        return tuple(packed)

    def window(self, seal: Seal, thread: str) -> Node:
        """Make the L1 node of a closed window and let it arrive at level 2."""
        node = window_node(seal, thread=thread, ordinal=self._number(1), config=self.config)
        self.nodes[node.id] = node
        self._arrive(2, Root.of(node))
        return node

    def finish(self) -> None:
        """Seal the open groups, lowest level first, until one root is left.

        A lone node joins the group of the level above unchanged.
        """
        level = 2
        while True:
            group = self._group(level)
            above = range(level + 1, max(len(self._packed) + 1, *self._open) + 1)
            if len(group) > 1:
                self._seal(level)
            elif group and any(self._group(higher) for higher in above):
                self._open[level] = []
                self._arrive(level + 1, group[0])
            elif not any(self._group(higher) for higher in above):
                return
            level += 1

    def _number(self, level: int) -> int:
        """Return the next ordinal of ``level`` and count it as used."""
        self._ordinals.extend(0 for _ in range(level - len(self._ordinals)))
        number = self._ordinals[level - 1]
        self._ordinals[level - 1] += 1
        return number

    def _group(self, level: int) -> list[Root]:
        if level not in self._open:
            level_index = level - 2
            packed = self._packed[level_index] if level_index < len(self._packed) else "[]"
            self._open[level] = unpack(packed)
        return self._open[level]

    def _level(self, level: int) -> LevelConfig:
        if level not in self._levels:
            self._levels[level] = self.config.level(level)
        return self._levels[level]

    def _arrive(self, level: int, child: Root) -> None:
        """Let ``child`` arrive at the open group of ``level`` (spec §5)."""
        rule, unit = self._level(level), self.config.unit
        if _overfull(self._group(level), child, rule, unit):
            self._seal(level)
        group = self._group(level)
        group.append(child)
        if _full(group, rule, unit):
            self._seal(level)

    def _seal(self, level: int) -> None:
        """Make a node of the open group of ``level`` and let it arrive at the level above."""
        group = self._group(level)
        node = group_node(level, self._number(level), group, self.config)
        for child in group:
            child_node = self.nodes.get(child.id)
            if child_node is None:
                self.parents.append((child.id, node.id))
            else:
                self.nodes[child.id] = replace(child_node, parent=node.id)
        self.nodes[node.id] = node
        self._open[level] = []
        self._arrive(level + 1, Root.of(node))


_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode


def pack(group: Iterable[Root]) -> str:
    """Write an open group as JSON."""
    return _encode([*group])


def unpack(text: str) -> list[Root]:
    """Read what ``pack`` wrote; raises StoreCorruptError for any other text."""
    return read_part(text, _roots)


def _roots(rows: Iterable[Sequence[Any]]) -> list[Root]:
    roots = [Root(*row) for row in rows]
    for root in roots:
        *ints, stop_char = root[:8]
        check_types(*ints, *root[8:11], root.first, root.last, kind=int)
        check_types(*() if stop_char is None else (stop_char,), kind=int)
        check_types(*(name for name in (root.thread, root.unit) if name is not None), kind=str)
        check_times(root.first, root.last)
    return roots
