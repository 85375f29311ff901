"""Decides whether an arrival would close what it arrives at, and why: the public, pure interface.

The answer comes from ``hiermem.tree.windows.receive`` for a message and its window, and from
``hiermem.tree.levels`` for a summary and its group. An append runs both too. This module has
no rule of its own, so its answer is what an append would do. Asking changes nothing.

The answer for a message concerns one thread: a window of another thread that becomes idle is not
considered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from hiermem import arguments
from hiermem.config import HierarchyConfig
from hiermem.errors import UsageError
from hiermem.tree.fold import OpenWindow, Strand
from hiermem.tree.levels import GroupReason, Root, reasons
from hiermem.tree.turns import Arrival
from hiermem.tree.windows import Limits, Reason, receive
from hiermem.types import Node, StoredMessage, Summary


class CompressionTrigger:
    """Decides why an arrival would close what it arrives at.

    At ``level`` 1 a message arrives at its thread's open window. At a higher level, a summary of
    the level below arrives at the open group: the summaries that have no parent yet.

    >>> from datetime import UTC, datetime
    >>> trigger = CompressionTrigger(HierarchyConfig.by_tokens())
    >>> noon = datetime(2024, 3, 15, 12, tzinfo=UTC)
    >>> trigger.check(None, Arrival(0, "main", "assistant", size=2400, tokens=2400, at=noon))
    ('size',)
    """

    def __init__(self, config: HierarchyConfig, level: int = 1) -> None:
        if not isinstance(config, HierarchyConfig):
            raise UsageError(f"config is {type(config).__name__}; it must be a HierarchyConfig")
        self.config = config
        self.level = arguments.whole(level, "level", least=1)
        self._limits = Limits.of(config)

    @overload
    def check(
        self, window: OpenWindow | None, message: Arrival | StoredMessage
    ) -> tuple[Reason, ...]: ...

    @overload
    def check(
        self, window: Sequence[Summary | Node], message: Summary | Node
    ) -> tuple[GroupReason, ...]: ...

    def check(
        self,
        window: OpenWindow | Sequence[Summary | Node] | None,
        message: Arrival | StoredMessage | Summary | Node,
    ) -> tuple[Reason, ...] | tuple[GroupReason, ...]:
        """Return a reason for each window that ``message`` would close, in order; () where none.

        ``window`` is the open window of the message's thread (``SessionState.open_windows``), None
        where none is open (earlier messages of the thread are then not considered). A message that
        only makes the window due closes nothing. A stored message counts with its ``size``.

        At a level above 1, ``window`` are the summaries of the open group, in order, and
        ``message`` is the summary that arrives. The reason is "room" if it has no room in the
        group, which is sealed without it; "fan_in", "size" or "messages" if the group is sealed
        with it.

        Raises UsageError for arguments of another type or level.
        """
        if self.level > 1:
            return self._group(window, message)
        if window is not None and not isinstance(window, OpenWindow):
            raise UsageError(f"window is {type(window).__name__}; it must be an OpenWindow or None")
        if isinstance(message, StoredMessage):
            message = Arrival.of(message)
        if not isinstance(message, Arrival):
            raise UsageError(
                f"message is {type(message).__name__}; it must be an Arrival or a StoredMessage"
            )
        if not self.config.enabled:
            return ()
        turns, open_window = window.strand if window is not None else Strand()
        _, _, seals, _ = receive(turns, open_window, message, self._limits)
        return tuple(seal.reason for seal in seals)

    def _group(self, group: object, child: object) -> tuple[GroupReason, ...]:
        if not isinstance(group, (list, tuple)):
            raise UsageError(
                f"window is {type(group).__name__}; at level {self.level} pass the open "
                "group's list of summaries"
            )
        members = [self._root(each, "window") for each in group]
        arriving = self._root(child, "message")
        if not self.config.enabled:
            return ()
        return reasons(members, arriving, self.config.level(self.level), self.config.unit)

    def _root(self, value: object, what: str) -> Root:
        node = value.node if isinstance(value, Summary) else value
        if not isinstance(node, Node):
            raise UsageError(
                f"{what} has {type(value).__name__}; at level {self.level} pass summaries or nodes"
            )
        # At the close of a session, a lone node joins a group of a higher level as it is.
        if node.level >= self.level:
            raise UsageError(
                f"{what} has {node.id!r}; a group of level {self.level} takes summaries of "
                "lower levels"
            )
        return Root.of(node)
