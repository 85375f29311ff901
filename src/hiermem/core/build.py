"""Where a full re-pack stands: a tree that grows beside the one that serves.

It is kept in the session's record while it lasts. The one rule: the messages before ``at`` and the
first ``events`` events of the log are folded into it, those after are not; so whatever changes a
message before ``at`` changes both trees, in one transaction.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from hiermem.errors import StoreCorruptError

__all__ = ["Build"]

_KINDS: Final = {
    "id": str, "tree": int, "config": str, "state": str, "at": int, "events": int,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Build:
    """A re-pack under way: the number of its tree, its configuration and its fold's state."""

    id: str
    tree: int
    config: str
    state: str = ""
    at: int = 0
    events: int = 0

    def to_json(self) -> str:
        """Write it as JSON, for the session's record."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Build | None:
        """Read what ``to_json`` wrote; None where no re-pack is under way.

        Raises StoreCorruptError where it is neither.
        """
        if not text:
            return None
        damaged = StoreCorruptError(
            "a session's re-pack is not what hiermem wrote; the store is damaged"
        )
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise damaged from None
        if (
            not isinstance(data, dict)
            or data.keys() != _KINDS.keys()
            or any(type(data[name]) is not kind for name, kind in _KINDS.items())
        ):
            raise damaged
        return cls(**data)
