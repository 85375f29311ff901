"""Remembers of a model, by its name, what spares calls: that it writes no headings, or refuses.

A model that wrote no heading in five answers of five is not asked again for headings. Nothing else
changes: its prompt and the hashes stay, and one answer with headings ends it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from hiermem.core.summaries.assess import Draft

#: The kind of the records that hold a history, their key the model's name; they are the tenant's.
MODEL: Final = "model"
TENANT: Final = ""
#: After so many answers in a row without a heading none is expected any more.
_WITHOUT: Final = 5


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """What is remembered of one model.

    ``without_headings`` counts its newest answers in a row that had none of the required headings,
    as far as the count matters. ``refuses`` tells whether attempts at a text were ever counted.
    """

    without_headings: int = 0
    refuses: bool = False

    def to_json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, body: str) -> ModelHistory:
        """Read what ``to_json`` wrote."""
        return cls(**json.loads(body))


def writes_headings(without: int) -> bool:
    """Return whether to ask a model again for headings, after so many answers without any."""
    return without < _WITHOUT


def count_without(without: int, draft: Draft, required: Sequence[str]) -> int:
    """Return the count after one more answer, which was asked to have the ``required`` headings."""
    if not required or draft.units:
        return without
    lacks = f"missing: {', '.join(required)}"
    lacking = any((one.kind, one.detail) == ("missing_sections", lacks) for one in draft.problems)
    return min(without + 1, _WITHOUT) if lacking else 0
