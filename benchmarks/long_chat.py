"""Builds a conversation of any length, for benchmarks that need a long one.

The messages are short chat lines that all differ, twenty seconds apart, appended in large batches.
This module is not a benchmark and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hiermem import Memory, Message

BATCH = 5_000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=20)
SUBJECTS = ("the invoice", "the release", "our van", "the north pump", "that form", "the tent")
VERBS = ("needs", "got", "lost", "waits for", "is ready for", "has no")
OBJECTS = ("a stamp", "new tyres", "the second test", "an answer", "more paper", "a name", "oil")


def line(index: int) -> Message:
    """Make the message at ``index``."""
    subject, verb = SUBJECTS[index % 6], VERBS[index // 6 % 6]
    text = f"{subject.capitalize()} {verb} {OBJECTS[index // 36 % 7]}, number {index}."
    made = Message.assistant if index % 2 else Message.user
    return made(text, created_at=BEGIN + STEP * index)


def batches(start: int, stop: int) -> Iterator[list[Message]]:
    """Make the messages from ``start`` up to ``stop``, a batch at a time."""
    for first in range(start, stop, BATCH):
        yield [line(index) for index in range(first, min(stop, first + BATCH))]


def build(memory: Memory, session_id: str, messages: int) -> None:
    """Append that many messages to a new session."""
    session = memory.session(session_id)
    for batch in batches(0, messages):
        session.append(batch)
