"""What an embedding pass did, and what vectors a session has.

The one rule: vectors of two embedders never meet; a session's are all of the one that is named in
its record. Nothing is decided here but whether two embedders are the same, and whether a session
may have changed since it had all its vectors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

#: The kind of the record that names a session's embedder; its scope is the session.
EMBEDDER: Final = "embedder"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which embedder made a session's vectors."""

    name: str
    dimension: int

    @property
    def kind(self) -> str:
        """Return the kind of the blocks that hold vectors of messages."""
        return f"vectors/{self.dimension}/{self.name}"

    def kind_of(self, level: int) -> str:
        """Return the kind of the blocks that hold vectors of a level's summaries."""
        return f"vectors-L{level}/{self.dimension}/{self.name}"

    def to_json(self) -> str:
        """Write it as it is stored."""
        return json.dumps({"name": self.name, "dimension": self.dimension})

    @classmethod
    def from_json(cls, body: str) -> Identity | None:
        """Read what was stored; None if it says nothing."""
        try:
            read = json.loads(body)
            return cls(str(read["name"]), int(read["dimension"]))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class EmbeddedState:
    """How far a pass came that left nothing out: a session's state in which it has all vectors.

    ``made`` names the newest run that may have made summaries, and how it stood.
    """

    epoch: int
    tree: int
    messages: int
    made: str

    def to_json(self) -> str:
        """Write it as it is stored."""
        return json.dumps([self.epoch, self.tree, self.messages, self.made])


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """What one embedding pass did.

    ``messages`` and ``summaries`` count what got its vectors now, ``texts`` the passages that were
    sent in ``requests``, ``tokens`` what they hold. ``left`` is how many messages have none yet,
    and ``stopped`` why: "busy" where another pass is at it, "closing", or None.
    """

    session_id: str
    run_id: str | None = None
    messages: int = 0
    summaries: int = 0
    texts: int = 0
    requests: int = 0
    tokens: int = 0
    left: int = 0
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What rebuilding the indexes of a tenant came to."""

    sessions: int
    messages: int
    passages: int
