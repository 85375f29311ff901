"""Decides what an extraction stores of an answer, how it is read, and when it is deleted.

An answer is stored under the hash of its input, until the session's next whole result does not use
it. It lists the messages that it was made from, so an erasure of one of them deletes this answer
and leaves the others.

A record that does not read back as it was written is treated as absent: the answer is requested
again. The engine reads and writes the store.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

from pydantic import ValidationError

from hiermem.types.trivector import Answer


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A model's answer, checked, with its cost.

    ``answer`` is an Answer's JSON, or the text of a summary made of several; ``dropped`` counts
    items of the model's text that could not be used.
    ``spans`` are the half-open ranges of messages that a chunk's answer was made from, () if that
    is not known, as for a summary made of several.
    """

    answer: str
    strategy: str
    model: str
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dropped: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    def value(self) -> Answer | None:
        """Read the answer; None if the record is damaged."""
        try:
            return Answer.model_validate_json(self.answer)
        except ValidationError:
            return None


def made_from(body: str, indices: Collection[int]) -> bool:
    """Return whether a record's answer may have been made from one of the messages.

    A record that does not say what it was made from, such as a damaged one, may have been.
    """
    found = read_answer(body)
    if found is None or not found.spans:
        return True
    return any(start <= index < stop for start, stop in found.spans for index in indices)


def write_answer(kept: StoredAnswer) -> str:
    """Write an answer as a record's body."""
    return json.dumps(asdict(kept), ensure_ascii=False, separators=(",", ":"))


def read_answer(body: str) -> StoredAnswer | None:
    """Read a record's body; None if it is no answer."""
    try:
        found = json.loads(body)
        return StoredAnswer(
            str(found["answer"]),
            str(found["strategy"]),
            str(found["model"]),
            int(found["calls"]),
            int(found["tokens_in"]),
            int(found["tokens_out"]),
            int(found["dropped"]),
            tuple((int(start), int(stop)) for start, stop in found["spans"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
