"""Holds the texts that are being made right now, so that an equal request waits for the answer.

An entry lives until its text is committed or its run has ended; a later request finds the text in
the store. An entry never stops anybody from asking: where a request failed, the next one asks for
itself.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from hiermem.types import Revision

#: The result of a request: a text that may be reused, or None.
PendingText: TypeAlias = "asyncio.Future[Revision | None]"


class InFlight:
    """The texts that are being made, by input hash; shared by all runs of one memory."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingText] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, input_hash: str) -> PendingText | None:
        """Return the pending text for ``input_hash``, where this event loop can await it."""
        found = self._pending.get(input_hash)
        if found is None or found.get_loop() is not asyncio.get_running_loop():
            return None
        return found

    def begin(self, input_hash: str) -> PendingText:
        """Note that the caller makes the text for ``input_hash`` from now on."""
        mine: PendingText = asyncio.get_running_loop().create_future()
        self._pending[input_hash] = mine
        return mine

    def drop(self, input_hash: str, mine: PendingText) -> None:
        """Remove ``mine``: it is committed, or it failed."""
        if self._pending.get(input_hash) is mine:
            del self._pending[input_hash]
