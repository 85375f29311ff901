"""The progress of a full re-pack: a tree that is built while another one serves.

It is stored in the session's record while the re-pack lasts. The messages before ``at`` and the
first ``events`` events of the log are folded into the new tree, later ones are not. A change of a
message before ``at`` therefore changes both trees, in one transaction. An edit marks the texts of
the new tree as dirty rather than stale, whatever was asked for the serving tree: the new tree's
texts are generated anyway.
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
    """A re-pack under way: the number of its tree, its configuration and the state of its fold.

    ``marks`` are the ranges [start, stop) of messages whose size or slices differ in this tree, and
    ``sliced`` the messages that are cut up in it; the swap records both on the messages.
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
        """Write the build as JSON, for the session's record."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Build | None:
        """Read what ``to_json`` wrote; None if no re-pack is under way.

        Raises StoreCorruptError for any other text.
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
