"""Where a full re-pack stands: a tree that grows beside the one that serves.

It is kept in the session's record while it lasts. The one rule: the messages before ``at`` and the
first ``events`` events of the log are folded into it, those after are not; so whatever changes a
message before ``at`` changes both trees, in one transaction. An edit makes the texts of the tree
that is being built dirty, not stale, whatever was asked for the one that serves: that tree is being
made anew anyway.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from hiermem.errors import StoreCorruptError

_KINDS: Final = {
    "id": str, "tree": int, "config": str, "state": str, "at": int, "events": int,
    "marks": list, "sliced": list,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Build:
    """A re-pack under way: the number of its tree, its configuration and its fold's state.

    ``marks`` are the ranges [start, stop) of the messages whose size or slices are other ones in
    this tree, and ``sliced`` the messages that are cut up in it: what the swap has to note on them.
    """

    id: str
    tree: int
    config: str
    state: str = ""
    at: int = 0
    events: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    sliced: tuple[int, ...] = ()

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
        try:
            marks = tuple((int(start), int(stop)) for start, stop in data.pop("marks"))
            sliced = tuple(map(int, data.pop("sliced")))
        except (ValueError, TypeError):
            raise damaged from None
        return cls(**data, marks=marks, sliced=sliced)
