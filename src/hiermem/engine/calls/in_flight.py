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
Awaited: TypeAlias = "asyncio.Future[Revision | None]"


class InHand:
    """The texts in the making, by input hash; shared by all runs of one memory."""

    def __init__(self) -> None:
        self._awaited: dict[str, Awaited] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def get(self, wanted: str) -> Awaited | None:
        """Give what is awaited for ``wanted``; only what this event loop can wait for."""
        found = self._awaited.get(wanted)
        if found is None or found.get_loop() is not asyncio.get_running_loop():
            return None
        return found

    def begin(self, wanted: str) -> Awaited:
        """Note that the caller makes the text of ``wanted`` from now on."""
        mine: Awaited = asyncio.get_running_loop().create_future()
        self._awaited[wanted] = mine
        return mine

    def drop(self, wanted: str, mine: Awaited) -> None:
        """Forget ``mine``: it is committed, or nothing came of it."""
        if self._awaited.get(wanted) is mine:
            del self._awaited[wanted]
