"""Holds the texts that are being made right now, so that an equal request waits for the answer.

The one rule: an entry lives until its text is committed, or its run has ended; whoever comes later
finds the text in the store. It never keeps anybody from asking: where nothing came of a request,
the next one asks for itself.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from hiermem.types import Revision

#: What a request comes to: a text that may be taken, or None.
PendingText: TypeAlias = "asyncio.Future[Revision | None]"


class InFlight:
    """The texts in the making, by input hash; shared by all runs of one memory."""

    def __init__(self) -> None:
        self._pending: dict[str, PendingText] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, input_hash: str) -> PendingText | None:
        """Give what is awaited for ``input_hash``; only what this event loop can wait for."""
        found = self._pending.get(input_hash)
        if found is None or found.get_loop() is not asyncio.get_running_loop():
            return None
        return found

    def begin(self, input_hash: str) -> PendingText:
        """Note that the caller makes the text of ``input_hash`` from now on."""
        mine: PendingText = asyncio.get_running_loop().create_future()
        self._pending[input_hash] = mine
        return mine

    def drop(self, input_hash: str, mine: PendingText) -> None:
        """Forget ``mine``: it is committed, or nothing came of it."""
        if self._pending.get(input_hash) is mine:
            del self._pending[input_hash]
