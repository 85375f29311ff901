"""The public, pure interface to the sealing rules: whether a message would close a window, and why.

The answer comes from ``hiermem.core.tree.windows.receive``, which an append runs too. This module
has no rule of its own, so its answer is what an append would do. Asking changes nothing.

The answer concerns one thread: a window of another thread that becomes idle is not considered.
"""

from __future__ import annotations

from hiermem.config import HierarchyConfig
from hiermem.core.tree.state import OpenWindow, Strand
from hiermem.core.tree.turns import Arrival
from hiermem.core.tree.windows import Limits, Reason, receive
from hiermem.errors import UsageError
from hiermem.types import StoredMessage


class CompressionTrigger:
    """Decides why an arriving message would close its thread's open window.

    >>> from datetime import UTC, datetime
    >>> trigger = CompressionTrigger(HierarchyConfig.by_tokens())
    >>> noon = datetime(2024, 3, 15, 12, tzinfo=UTC)
    >>> trigger.check(None, Arrival(0, "main", "assistant", size=2400, tokens=2400, at=noon))
    ('size',)
    """

    def __init__(self, config: HierarchyConfig) -> None:
        if not isinstance(config, HierarchyConfig):
            raise UsageError(f"config is {type(config).__name__}; it must be a HierarchyConfig")
        self.config = config
        self._limits = Limits.of(config)

    def check(
        self, window: OpenWindow | None, message: Arrival | StoredMessage
    ) -> tuple[Reason, ...]:
        """Return a reason for each window that ``message`` would close, in order; () where none.

        ``window`` is the open window of the message's thread (``SessionState.open_windows``), None
        where none is open (earlier messages of the thread are then not considered). A message that
        only makes the window due closes nothing. A stored message counts with its ``size``.

        Raises UsageError for arguments of another type.
        """
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
