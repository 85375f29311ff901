"""Defines whose vectors a session has, and what an embedding pass did.

Vectors of two embedders are never mixed: all vectors of a session belong to the embedder that is
named in its record. This module only decides whether two embedders are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from hiermem.types.brief import Brief

#: The kind of the record that names a session's embedder; its scope is the session.
EMBEDDER: Final = "embedder"


@dataclass(frozen=True, slots=True)
class Identity:
    """The embedder that made a session's vectors."""

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
        """Write the identity as it is stored."""
        return json.dumps({"name": self.name, "dimension": self.dimension})

    @classmethod
    def from_json(cls, body: str) -> Identity | None:
        """Read a stored identity; None if it is damaged."""
        try:
            read = json.loads(body)
            return cls(str(read["name"]), int(read["dimension"]))
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class EmbeddingReport(Brief):
    """What one embedding pass did.

    ``messages`` and ``summaries`` count what got vectors now, ``texts`` the passages that were sent
    in ``requests``, ``tokens`` the size of these. ``left`` is how many messages have no vectors
    yet, and ``stopped`` why: "busy" if another pass is working on it, "closing", or None.
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
class IndexReport(Brief):
    """The result of rebuilding the indexes of a tenant."""

    sessions: int
    messages: int
    passages: int
