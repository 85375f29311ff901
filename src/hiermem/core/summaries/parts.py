"""Decides how the draft of one part of a node's inputs is stored, so that it is paid for once.

A part's key is a hash of all that its request says, so a draft found under a key answers that
request and no other. Whether inputs are summarised in parts is decided in ``plan``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from hiermem.core.summaries.assess import Draft
from hiermem.core.summaries.making import Ask
from hiermem.core.text.hashes import input_hash
from hiermem.types import Node

#: The kind of the records that hold parts; their scope is the session.
PART: Final = "part"
_LISTS: Final = ("unsupported", "anchors")


def key_of(node: Node, part: Ask, strategy: str) -> str:
    """Return the key of the answer to one part of the inputs of ``node``."""
    said = [
        json.dumps([s.index, s.role, s.speaker, s.date, s.text, s.trust], ensure_ascii=True)
        for s in part.inputs.sources
    ]
    outputs = [f"{part.length.target} {part.length.limit}", *said]
    asked = input_hash(
        level=node.level, strategy=strategy, outputs=outputs, overlap=part.inputs.overlap
    )
    return f"{node.id}/{asked}"


def is_of(key: str, node_id: str) -> bool:
    """Return whether ``key`` is that of a part of ``node_id``."""
    return key.rpartition("/")[0] == node_id


def to_json(draft: Draft) -> str | None:
    """Write a draft; None for an extracted draft, which costs nothing to make again."""
    if draft.units:
        return None
    return json.dumps(asdict(draft), ensure_ascii=False, separators=(",", ":"))


def from_json(body: str) -> Draft:
    """Read a draft."""
    values: dict[str, Any] = json.loads(body)
    values |= {name: tuple(values.get(name, ())) for name in _LISTS}
    values["problems"] = ()
    values["units"] = ()
    return Draft(**values)
