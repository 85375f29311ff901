"""Decides what an extraction keeps of an answer, how it reads back, and who may delete it.

An answer is kept under the hash of what it was made from. How a session is parted is no part of
that hash: a chunk that two ways of parting share is paid for once. So each answer names the ways
that use it, and is deleted when the last one has no use for it any more. It names the messages that
it was made from too, so that an erasure of one of them takes it and leaves the others.

The one rule: what reads back is what was written, or nothing; a damaged record is an answer that
was never given. Reading and writing the store is the engine's.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from hiermem.core.calls.lease import Claim, read_claim
from hiermem.types.trivector import Answer


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What a model answered, checked, with what it took.

    ``answer`` is an Answer's JSON, or the text of a summary made of several; ``ways`` are the ways
    of parting that use it; ``dropped`` counts items of the model's text that could not be used.
    ``spans`` are the half-open ranges of messages that a chunk's answer was made from; () where
    that is not known, as of a summary made of several.
    """

    answer: str
    strategy: str
    model: str
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    ways: tuple[str, ...] = ()
    dropped: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    def value(self) -> Answer | None:
        """Read the answer; None where the record was damaged."""
        try:
            return Answer.model_validate_json(self.answer)
        except ValidationError:
            return None


def way_of(room: int | None, *, oversized: str, summary: int | None = None) -> str:
    """Name a way of parting: the room for a record and what becomes of a turn that is over it.

    For summaries made of several, their length ``summary`` is part of it.

    >>> way_of(17_912, oversized="fail")
    '17912/fail'
    """
    parts = ["whole" if room is None else f"{room}/{oversized}"]
    return "/".join(parts if summary is None else [*parts, str(summary)])


def settled(kept: StoredAnswer, *, way: str, used: bool) -> StoredAnswer | None:
    """Give what stays of an answer that this ``way`` of parting uses, or has no use for.

    None where it is to be deleted.
    """
    if used:
        return kept if way in kept.ways else replace(kept, ways=(*kept.ways, way))
    if way not in kept.ways:
        return kept
    others = tuple(each for each in kept.ways if each != way)
    return replace(kept, ways=others) if others else None


def made_from(body: str, indices: Collection[int]) -> bool:
    """Say whether a record's answer may have been made from one of the messages.

    What does not say what it was made from (a claim, a damaged record) may have been.
    """
    found = read_answer(body)
    if not isinstance(found, StoredAnswer) or not found.spans:
        return True
    return any(start <= index < stop for start, stop in found.spans for index in indices)


def write_answer(kept: StoredAnswer) -> str:
    """Write an answer as a record's body."""
    value = {name: getattr(kept, name) for name in StoredAnswer.__slots__}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_answer(body: str) -> StoredAnswer | Claim | None:
    """Read a record's body; None where it is neither, so that it is made anew."""
    try:
        found = json.loads(body)
        if "answer" in found:
            return _kept(found)
        return read_claim(body)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _kept(found: dict[str, Any]) -> StoredAnswer:
    return StoredAnswer(
        str(found["answer"]),
        str(found["strategy"]),
        str(found["model"]),
        int(found["calls"]),
        int(found["tokens_in"]),
        int(found["tokens_out"]),
        tuple(map(str, found["ways"])),
        int(found["dropped"]),
        tuple((int(start), int(stop)) for start, stop in found["spans"]),
    )
