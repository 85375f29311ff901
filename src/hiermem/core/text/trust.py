"""Decides how far a text may be believed, and what that means for a text made from several.

A summary's trust is the lowest of its sources', so that a tool's output cannot gain standing by
being summarised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hiermem.types import StoredMessage, Trust

_ORDER: Final[tuple[Trust, ...]] = ("tool", "conversation", "system")


def trust_of(stored: StoredMessage) -> Trust:
    """Return how far a message may be believed: a tool's output least, a system message most."""
    if stored.role == "tool":
        return "tool"
    return "system" if stored.role == "system" else "conversation"


def lowest(trusts: Iterable[Trust]) -> Trust:
    """Return the lowest trust; without any source, that of conversation.

    >>> lowest(["system", "tool"])
    'tool'
    """
    found = set(trusts) or {"conversation"}
    return _ORDER[min(map(_ORDER.index, found))]
